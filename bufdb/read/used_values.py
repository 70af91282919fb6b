"""Section "totals and used values": positions, uses and defining instructions (format section 5).

Regular text is read by structure alone: a head, ` positions:`, ` uses:` and mostly ` from
instruction:`, one below the other. An instruction may hold raw line breaks, even with lines that
look like heads; text that breaks the structure, or a head that is not the next assigned value,
sends the block to `_accept`, which walks over its few structural lines one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bufdb.columnar.scan import (
    Bools,
    Columns,
    Cursor,
    Ints,
    Text,
    Words,
    runs_of,
    starts_with,
    take,
)
from bufdb.columnar.section import KNOWN, READ, UNSEEN, Section
from bufdb.read.allocations import short

HEAD, POSITIONS, USES, FROM, START = range(5)
_FOLLOWS = {POSITIONS: (HEAD,), USES: (POSITIONS,), FROM: (USES,), HEAD: (FROM, USES, START)}


class Assigned(Protocol):
    """The values known from the allocations."""

    def by_number(self, module: Ints, value_id: Ints) -> Ints:
        """Return the row of each value by module and number, -1 where there is none."""

    def checks(self, rows: Ints) -> Words:
        """Return the hash of the whole short text of the values in these rows; see `check_of`."""

    def modules(self) -> Ints:
        """Return the modules whose values are known."""


class NothingAssigned:
    """What is known where the allocations are not."""

    def by_number(self, module: Ints, value_id: Ints) -> Ints:
        """Return -1 for each value."""
        return np.full(len(value_id), -1)

    def checks(self, rows: Ints) -> Words:
        """Return nothing: no row is valid."""
        return np.empty(len(rows), np.uint64)

    def modules(self) -> Ints:
        """Return no module."""
        return np.empty(0, np.int64)


@dataclass
class UsedValues:
    """Columns read from used-value sections; `module` holds each row's module ordinal."""

    heads: Columns = field(default_factory=dict)
    positions: Columns = field(default_factory=dict)
    uses: Columns = field(default_factory=dict)
    """`head` is the row in heads, here and in positions."""
    descriptions: Columns = field(default_factory=dict)
    """`text` (the instruction from its name sign on), `head` (row in heads), per description."""
    totals: list[tuple[int, int, str | None, int]] = field(default_factory=list)
    """(module, total bytes, human size, line) of "Total bytes used:"."""
    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The row of each head among the assigned values, -1 where there is none."""
    incomplete: list[int] = field(default_factory=list)
    """Module of every value without positions or uses."""
    unassigned: set[int] = field(default_factory=set)
    """Modules that have something that looks like a value and is in no allocation."""
    rest: int = -1
    """Position in the block from which the next round reads again; -1 if it need not."""


def check_of(columns: Columns, seeds: Words) -> Words:
    """Return a hash of a value's short text without the number: name, index, phi and color."""
    value = columns["shape_index"].hashes(columns["instruction_name"].hashes(seeds))
    mixed: Words = value ^ extra_of(columns)
    return mixed


def extra_of(columns: Columns) -> Words:
    """Return the part of that hash that is not name and index."""
    extra: Words = columns["color"].astype(np.uint64) * np.uint64(2) + columns["is_phi"]
    return extra


def read(section: Section, assigned: Assigned, seeds: Words, is_last: bool) -> UsedValues:
    """Read used-value sections.

    Args:
        section: the lines.
        assigned: the values known from the allocations.
        seeds: hash seed of each module ordinal.
        is_last: False if more of the last piece's section follows; its last value, which may not
            be whole, is then left out, and `rest` says where it begins.
    """
    block, heads = section.block, _split_glued(section)
    lines, kinds = _structure(section, heads)
    columns, rows = _known_heads(section, lines[kinds == HEAD], assigned, seeds)
    used = UsedValues()
    if not _is_regular(section, lines, kinds, rows):
        has_known = set(assigned.modules().tolist())
        lines, kinds = _accept(section, lines, kinds, columns, rows, has_known, used.unassigned)
        columns, rows = _known_heads(section, lines[kinds == HEAD], assigned, seeds)

    total = len(block)
    if not is_last:
        # What follows a head is judged by it: without another head, everything is read again.
        total = int(lines[kinds == HEAD][-1]) if (kinds == HEAD).any() else 0
        used.rest = int(block.starts[total])
        keep = lines < total
        count = int((kinds[keep] == HEAD).sum())
        lines, kinds, rows = lines[keep], kinds[keep], rows[:count]
        columns = take(columns, slice(0, count))
    used.heads, used.rows = columns, rows
    parts = _Parts(lines, kinds, total)
    section.mark(lines[kinds != START], READ)
    used.incomplete = _incomplete(section, lines, kinds)

    used.positions = _listed(section, parts, POSITIONS, _position)
    none = parts.lines(USES)
    none = none[starts_with(heads[none], b"  (none)")]
    section.mark(none[block.ends[none] - block.starts[none] == len("  (none)")], KNOWN)
    used.uses = _listed(section, parts, USES, _use)
    _preamble(section, used, np.flatnonzero(parts.kind_of == START))
    section.unreadable(parts.lines(HEAD), "' positions:'")
    _descriptions(section, used, parts)
    section.settle("the total or a used value", total)
    return used


class _Parts:
    """The part of the value that each line up to `total` belongs to."""

    def __init__(self, lines: Ints, kinds: Ints, total: int) -> None:
        """Take the lines of the structure with their kinds, ascending."""
        self.markers, self.kinds = lines, kinds
        self.owner = runs_of(lines, total)
        self.kind_of = np.append(kinds, START)[self.owner]
        self.is_marker = np.zeros(total, np.bool_)
        self.is_marker[lines] = True
        self.head_of = np.cumsum(kinds == HEAD) - 1
        """Row in heads, by marker."""

    def lines(self, kind: int) -> Ints:
        """Return the lines below the markers of a kind."""
        return np.flatnonzero((self.kind_of == kind) & ~self.is_marker)


def _listed(
    section: Section, parts: _Parts, kind: int, grammar: Callable[[Cursor], Columns]
) -> Columns:
    """Return the rows of the lines below all markers of a kind."""
    at = parts.lines(kind)
    at = at[(section.states[at] == UNSEEN) & ~section.is_blank()[at]]
    marker = parts.owner[at]
    c = section.block.cursor(at)
    columns = grammar(c)
    columns["ordinal"] = at - parts.markers[marker] - 1
    columns["head"] = parts.head_of[marker]
    columns["module"] = section.module_of[at]
    return take(columns, section.good(at, c))


def _incomplete(section: Section, lines: Ints, kinds: Ints) -> list[int]:
    """Return the modules of the values that lack positions or uses."""
    after = np.append(kinds[1:], START)
    short_of = (kinds == HEAD) & (after != POSITIONS) | (kinds == POSITIONS) & (after != USES)
    modules: list[int] = section.module_of[lines[short_of]].tolist()
    return modules


def short_columns(section: Section, lines: Ints, seeds: Words) -> Columns:
    """Return the heads at these lines; lines that are no head have the value_id -1."""
    c = section.block.cursor(lines)
    columns = short(c)
    c.finish()
    columns["module"] = section.module_of[lines]
    columns["value_id"] = columns["value_id"].copy()
    for row in c.problems:
        columns["value_id"][row] = -1
    columns["check"] = check_of(columns, seeds[columns["module"]])
    return columns


def _known_heads(
    section: Section, lines: Ints, assigned: Assigned, seeds: Words
) -> tuple[Columns, Ints]:
    """Return the heads at these lines, and their rows among the assigned values, -1 if none."""
    columns = short_columns(section, lines, seeds)
    return columns, known_rows(columns, assigned)


def known_rows(heads: Columns, assigned: Assigned) -> Ints:
    """Return the row of each head among the assigned values, -1 if it has none."""
    rows = assigned.by_number(heads["module"], heads["value_id"])
    there = np.flatnonzero(rows >= 0)
    rows[there[assigned.checks(rows[there]) != heads["check"][there]]] = -1
    return rows


def _split_glued(section: Section) -> Words:
    """Split heads glued to the end of an instruction (jaxlib 0.4.24 to 0.4.35) onto own lines.

    Returns:
        The first eight bytes of every line.
    """
    block, heads = section.block, section.block.heads()
    below = np.flatnonzero(starts_with(heads, b" positio")) - 1
    below = below[below >= 0]
    glued = below[~starts_with(heads[below], b"<")]
    glued = glued[section.piece_of[glued] == section.piece_of[glued + 1]]
    spans = zip(block.starts[glued].tolist(), block.ends[glued].tolist(), strict=True)
    places = [block.data.rfind(b"<", start, end) for start, end in spans]
    places = [place for place in places if place >= 0]
    if not places:
        return heads
    block.split(np.array(places, np.int64))
    section.index()
    return block.heads()


_MARKERS = {
    POSITIONS: (b" positions:",),
    USES: (b" uses:", b" uses are not initialized yet."),
}


def _structure(section: Section, heads: Words) -> tuple[Ints, Ints]:
    """Return the lines that may be heads or markers, and every piece's first line, with kinds."""
    block = section.block
    kinds = np.full(len(block), -1, np.int64)
    for kind, texts in _MARKERS.items():
        for text in texts:
            at = np.flatnonzero(starts_with(heads, text[:8]))
            c = block.cursor(at)
            c.expect(text)
            c.finish()
            good = c.good()
            kinds[at if good is None else at[good]] = kind
    kinds[starts_with(heads, b" from in")] = FROM
    is_head = starts_with(heads, b"<")
    is_head[:-1] &= (kinds[1:] == POSITIONS) & (section.piece_of[1:] == section.piece_of[:-1])
    is_head[-1:] = False
    kinds[is_head] = HEAD
    first = section.piece_lines[kinds[section.piece_lines] != HEAD]
    kinds[first] = START
    lines = np.flatnonzero(kinds >= 0)
    return lines, kinds[lines]


def _is_regular(section: Section, lines: Ints, kinds: Ints, rows: Ints) -> bool:
    """Return whether all candidates are what they seem: in place, assigned and in order."""
    before = np.concatenate([np.array([START]), kinds[:-1]])
    pieces = section.piece_of[lines]
    begins = np.ones(len(lines), np.bool_)
    begins[1:] = pieces[1:] != pieces[:-1]
    before[begins] = START
    fits = kinds == START
    for kind, allowed in _FOLLOWS.items():
        for other in allowed:
            fits |= (kinds == kind) & (before == other)
    if not fits.all() or not (rows >= 0).all():
        return False
    owners = pieces[kinds == HEAD]
    return bool(((rows[1:] == rows[:-1] + 1) | (owners[1:] != owners[:-1])).all())


def _accept(
    section: Section,
    lines: Ints,
    kinds: Ints,
    columns: Columns,
    rows: Ints,
    has_known: set[int],
    unassigned: set[int],
) -> tuple[Ints, Ints]:
    """Walk over the candidates in order and keep those that are outside instruction text.

    A head counts where one is allowed, with a number above the last one's, if its text is that of
    an assigned value, and that is the next one or the instruction before is complete (XLA prints
    raw line breaks only inside text that lexes as one balanced JSON object). Where no assigned
    values are known, the latter alone decides. Each piece's first line starts over. Modules with
    what could be a head, except for its text, go to `unassigned`.
    """
    block = section.block
    ids, known = columns["value_id"].tolist(), rows.tolist()
    firsts = set(section.piece_lines.tolist())
    kinds = kinds.copy()
    keep: list[int] = []
    state, last_id, last_row, row = START, -1, -1, -1
    lexer = _Lexer(block.data, 0)
    for candidate, (line, kind) in enumerate(zip(lines.tolist(), kinds.tolist(), strict=True)):
        row += kind == HEAD
        if line in firsts:
            state, last_id, last_row = START, -1, -1
            if kind == HEAD and ids[row] < 0:
                kind = kinds[candidate] = START
        if kind == HEAD:
            if state not in _FOLLOWS[HEAD] or ids[row] <= last_id:
                continue
            is_known = known[row] >= 0
            is_next = is_known and (last_row < 0 or known[row] == last_row + 1)
            if state == FROM and not is_next and not lexer.is_whole(int(block.ends[line - 1])):
                continue
            if not is_known and int(section.module_of[line]) in has_known:
                unassigned.add(int(section.module_of[line]))
                message = "what looks like a value is none of the assigned ones; taken as text"
                section.finding(line, "notice", "unassigned_value", message)
                if line in firsts:
                    kinds[candidate] = START
                    keep.append(candidate)
                continue
            last_id, last_row, state = ids[row], known[row], HEAD
        elif kind != START:
            if state not in _FOLLOWS[kind]:
                continue
            state = kind
            if kind == FROM:
                lexer = _Lexer(block.data, int(block.starts[line]))
        keep.append(candidate)
    chosen = np.array(keep, np.int64)
    return lines[chosen], kinds[chosen]


_LEXEME = re.compile(rb'(?P<quote>")|[{}\[\]()]')
_REST_OF_QUOTE = re.compile(rb'(?:[^"\\]|\\.)*+(?P<closed>")?', re.DOTALL)


class _Lexer:
    """Quotes and brackets of an instruction's text, tracked from line end to line end."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.at = data, start
        self.depth, self.in_quote = 0, False

    def is_whole(self, end: int) -> bool:
        """Return whether all are closed at `end`, which never decreases between calls."""
        while True:
            if self.in_quote:
                rest = _REST_OF_QUOTE.match(self.data, self.at, end)
                assert rest is not None, "it matches the empty text"
                self.at, self.in_quote = rest.end(), rest["closed"] is None
                if self.in_quote:
                    return False
            lexeme = _LEXEME.search(self.data, self.at, end)
            if lexeme is None:
                self.at = end
                return self.depth <= 0
            self.at = lexeme.end()
            if lexeme["quote"]:
                self.in_quote = True
            else:
                self.depth += 1 if lexeme[0] in b"{[(" else -1


def is_whole(text: bytes) -> bool:
    """Return whether quotes and brackets of an instruction's text are closed at its end."""
    return _Lexer(text, 0).is_whole(len(text))


def _position(c: Cursor) -> Columns:
    """Read `  NAME {0}`, an instruction whose result shows a value."""
    c.expect(b"  ")
    columns: Columns = {"instruction_name": c.until(b" ")}
    columns["shape_index"] = c.braced(b" ")
    c.finish()
    return columns


def _use(c: Cursor) -> Columns:
    """Read `  NAME, operand 1 {0}`, a use, written by HloUse::ToString."""
    c.expect(b"  ")
    columns: Columns = {"instruction_name": c.until(b",")}
    c.expect(b", operand ")
    columns["operand_number"] = c.integer()
    columns["operand_index"] = c.braced(b" ")
    c.finish()
    return columns


_TOTAL = re.compile(rb"Total bytes used: (-?\d{1,19})(?: \((-?[\d.]{1,20}(?:[KMGTPE]i)?B)\))?")


def _preamble(section: Section, used: UsedValues, at: Ints) -> None:
    """Read the lines above the first head: empty ones, the total, a title."""
    block = section.block
    heads = block.words[block.starts[at]]
    section.mark(at[starts_with(heads, b"Used val") & _equals(section, at, b"Used values:")], KNOWN)
    for line in at[starts_with(heads, b"Total by")].tolist():
        total = _TOTAL.fullmatch(block.line(line))
        if total is not None and -(2**63) <= int(total[1]) < 2**63:
            human = total[2].decode() if total[2] else None
            used.totals.append((int(section.module_of[line]), int(total[1]), human, line))
            section.mark(np.array([line]), READ)


def _equals(section: Section, lines: Ints, text: bytes) -> Bools:
    c = section.block.cursor(lines)
    c.expect(text)
    c.finish()
    good = c.good()
    return np.ones(len(lines), np.bool_) if good is None else good


def _descriptions(section: Section, used: UsedValues, parts: _Parts) -> None:
    """Read the text after ` from instruction:` of every value, including raw line breaks."""
    block = section.block
    marker = np.flatnonzero(parts.kinds == FROM)
    at = parts.markers[marker]
    end = block.ends[at].copy()
    more = parts.lines(FROM)
    more = more[~section.is_blank()[more]]
    if len(more):
        _go_on(section, parts, more, end, np.cumsum(parts.kinds == FROM) - 1)
    c = block.cursor(at)
    c.expect(b" from instruction:")
    c.optional(b" ")
    start = c.at
    rows = section.good(at, c)
    used.descriptions = take(
        {
            "text": Text(block, start, np.maximum(start, end)),
            "head": parts.head_of[marker],
            "line": at,
            "module": section.module_of[at],
        },
        rows,
    )


def _go_on(section: Section, parts: _Parts, more: Ints, end: Ints, rank: Ints) -> None:
    """Extend a description over the lines below while its quotes and brackets are open."""
    block = section.block
    owner, lexer, last_end = -1, _Lexer(block.data, 0), 0
    stray = []
    for line in more.tolist():
        marker = int(parts.owner[line])
        if marker != owner:
            owner = marker
            lexer = _Lexer(block.data, int(block.starts[parts.markers[marker]]))
            last_end = int(block.ends[parts.markers[marker]])
        if lexer.is_whole(last_end):
            stray.append(line)
            continue
        last_end = int(block.ends[line])
        end[rank[marker]] = last_end
        section.mark(np.array([line]), READ)
    section.unreadable(np.array(stray, np.int64), "a value or the end of the list")
