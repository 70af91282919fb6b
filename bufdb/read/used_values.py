"""Section "totals and used values": positions, uses and defining instructions (format section 5).

Regular text is read by structure alone: a head, ` positions:`, ` uses:` and mostly
` from instruction:`, each below the other. An instruction may hold raw line breaks, even with lines
that look like heads; what breaks the structure, or a head that is not the next assigned value,
sends the block to `_accept`, which walks over its few structural lines one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bufdb.read.allocations import short
from bufdb.read.section import Section
from bufdb.scan import Block, Bools, Columns, Ints, Text, Words, runs_of, starts_with, take

HEAD, POSITIONS, USES, FROM, START = range(5)
_FOLLOWS = {POSITIONS: (HEAD,), USES: (POSITIONS,), FROM: (USES,), HEAD: (FROM, USES, START)}


@dataclass
class Assigned:
    """The values known from the allocations, in the order in which heads must come."""

    module: Ints
    value_id: Ints
    check: Words
    """Hash of a value's whole short text; see `check_of`."""


@dataclass
class UsedValues:
    """Columns read from used-value sections; `module` holds each row's module ordinal."""

    heads: Columns = field(default_factory=dict)
    positions: Columns = field(default_factory=dict)
    uses: Columns = field(default_factory=dict)
    """`head` is the row in heads, here and in positions."""
    tellings: Columns = field(default_factory=dict)
    """`text` (the instruction from its name sign on), `head` (row in heads), per telling."""
    totals: list[tuple[int, int, str | None, int]] = field(default_factory=list)
    """(module, total bytes, human size, line) of "Total bytes used:"."""
    as_assigned: bool = False
    """Whether the heads are the next assigned values one by one."""
    rest: int = -1
    """Position in the block of the last head, which was left out; -1 if nothing was."""


def check_of(columns: Columns, seeds: Words) -> Words:
    """A hash of a value's short text, number excepted: name, index, phi and color."""
    value = columns["shape_index"].hashes(columns["instruction_name"].hashes(seeds))
    extra = columns["color"].astype(np.uint64) * np.uint64(2) + columns["is_phi"]
    mixed: Words = value ^ extra
    return mixed


def read(
    section: Section, assigned: Assigned, seeds: Words, is_last: bool, in_value: bool = False
) -> UsedValues:
    """Read used-value sections.

    Args:
        section: the lines.
        assigned: the values still to come; empty if the allocations are not known.
        seeds: hash seed of each module ordinal.
        is_last: False if more of the last module's section follows; its last value, which may not
            be whole, is then left out, and `rest` says where it begins.
        in_value: whether the block continues a section (it has no preamble then).
    """
    _split_glued(section)
    block, heads = section.block, section.block.heads()
    lines, kinds = _structure(section, heads)
    head_lines = lines[kinds == HEAD]
    rows = short_columns(section, head_lines, seeds)
    is_regular = _is_regular(lines, kinds, rows, assigned)
    if not is_regular:
        lines, kinds = _accept(section, lines, kinds, rows, assigned)
        head_lines = lines[kinds == HEAD]
        rows = short_columns(section, head_lines, seeds)

    used = UsedValues(as_assigned=is_regular and len(assigned.value_id) > 0)
    total = len(block)
    if not is_last and len(head_lines):
        total = int(head_lines[-1])
        used.rest = int(block.starts[total])
        keep = lines < total
        lines, kinds = lines[keep], kinds[keep]
        head_lines = head_lines[:-1]
        rows = take(rows, slice(0, len(head_lines)))
    used.heads = rows
    owner = runs_of(lines, total)
    kind_of = np.append(kinds, START)[owner]
    head_of = np.cumsum(kinds == HEAD) - 1
    on_marker = np.zeros(total, np.bool_)
    on_marker[lines] = True

    for kind, read_rows in ((POSITIONS, _position), (USES, _use)):
        at = np.flatnonzero((kind_of == kind) & ~on_marker)
        if kind == USES:
            at = at[~starts_with(heads[at], b"  (none)")]
            at = at[block.starts[at] < block.ends[at]]
        marker = owner[at]
        columns = read_rows(section, at)
        columns["ordinal"] = at - lines[marker] - 1
        columns["head"] = head_of[marker]
        columns["module"] = section.module_of[at]
        columns = take(columns, columns.pop("good"))
        if kind == POSITIONS:
            used.positions = columns
        else:
            used.uses = columns
    _preamble(section, used, np.flatnonzero((kind_of == START) & ~on_marker), heads, in_value)
    stray = np.flatnonzero((kind_of == HEAD) & ~on_marker)
    section.unreadable(stray, "' positions:'")
    _tellings(section, used, lines, kinds, owner, kind_of, on_marker, head_of)
    return used


def short_columns(section: Section, lines: Ints, seeds: Words) -> Columns:
    """The heads at these lines; those that are none have the value_id -1."""
    c = section.block.cursor(lines)
    columns = short(c)
    c.finish()
    columns["module"] = section.module_of[lines]
    for row in c.problems:
        columns["value_id"][row] = -1
    columns["check"] = check_of(columns, seeds[columns["module"]])
    return columns


def _split_glued(section: Section) -> None:
    """Heads glued to the end of an instruction (jaxlib 0.4.24 to 0.4.35) get lines of their own."""
    block, heads = section.block, section.block.heads()
    below = np.flatnonzero(starts_with(heads, b" positio")) - 1
    below = below[below >= 0]
    glued = below[~starts_with(heads[below], b"<")]
    glued = glued[section.module_of[glued] == section.module_of[glued + 1]]
    spans = zip(block.starts[glued].tolist(), block.ends[glued].tolist(), strict=True)
    places = [block.data.rfind(b"<", start, end) for start, end in spans]
    places = [place for place in places if place >= 0]
    if places:
        block.split(np.array(places, np.int64))
        section.index()


def _structure(section: Section, heads: Words) -> tuple[Ints, Ints]:
    """The lines that may be heads or markers, and the first line of every piece, with kinds."""
    block = section.block
    kinds = np.full(len(block), -1, np.int64)
    kinds[starts_with(heads, b" positio")] = POSITIONS
    kinds[starts_with(heads, b" uses:\n"[:7]) | starts_with(heads, b" uses ar")] = USES
    kinds[starts_with(heads, b" from in")] = FROM
    is_head = starts_with(heads, b"<")
    is_head[:-1] &= kinds[1:] == POSITIONS
    is_head[-1:] = False
    kinds[is_head] = HEAD
    first = section.piece_lines[kinds[section.piece_lines] != HEAD]
    kinds[first] = START
    lines = np.flatnonzero(kinds >= 0)
    return lines, kinds[lines]


def _is_regular(lines: Ints, kinds: Ints, rows: Columns, assigned: Assigned) -> bool:
    """Whether all candidates are what they seem: each in its place, heads as assigned."""
    before = np.concatenate([np.array([START]), kinds[:-1]])
    fits = np.zeros(len(kinds), np.bool_)
    for kind, allowed in _FOLLOWS.items():
        for other in allowed:
            fits |= (kinds == kind) & (before == other)
    fits |= kinds == START
    return bool(fits.all()) and _as_assigned(rows, assigned)


def _as_assigned(rows: Columns, assigned: Assigned) -> bool:
    count = len(rows["value_id"])
    if not len(assigned.value_id):
        ids, modules = rows["value_id"], rows["module"]
        return bool(((ids[1:] > ids[:-1]) | (modules[1:] > modules[:-1])).all())
    return (
        count <= len(assigned.value_id)
        and bool((rows["value_id"] == assigned.value_id[:count]).all())
        and bool((rows["module"] == assigned.module[:count]).all())
        and bool((rows["check"] == assigned.check[:count]).all())
    )


def _accept(
    section: Section, lines: Ints, kinds: Ints, rows: Columns, assigned: Assigned
) -> tuple[Ints, Ints]:
    """Walk over the candidates in order and keep those that stand outside instruction text.

    A head counts where one may stand, with a number above the last one's, if its text is that of
    an assigned value, and that is the next one or the instruction before is complete (XLA prints
    raw line breaks only inside text that lexes as one balanced JSON object). Where no assigned
    values are known, the latter alone decides.
    """
    block = section.block
    places = zip(assigned.module.tolist(), assigned.value_id.tolist(), strict=True)
    following = dict(pairwise([(-1, -1), *places]))
    known = dict(
        zip(
            zip(assigned.module.tolist(), assigned.value_id.tolist(), strict=True),
            assigned.check.tolist(),
            strict=True,
        )
    )
    known_modules = set(assigned.module.tolist())
    ids, checks = rows["value_id"].tolist(), rows["check"].tolist()
    keep: list[int] = []
    state, last_id, row, opened = START, -1, -1, 0
    last = (-1, -1)
    for candidate, (line, kind) in enumerate(zip(lines.tolist(), kinds.tolist(), strict=True)):
        row += kind == HEAD
        if kind == START:
            state, last_id = START, -1
        elif kind == HEAD:
            module = int(section.module_of[line])
            if state not in _FOLLOWS[HEAD] or ids[row] <= last_id:
                continue
            is_known = known.get((module, ids[row])) == checks[row]
            is_next = is_known and following.get(last) == (module, ids[row])
            before = block.data[opened : int(block.ends[line - 1])]
            if state == FROM and not is_next and not is_whole(before):
                continue
            if module in known_modules and not is_known:
                message = "what looks like a value is none of the assigned ones; taken as text"
                section.finding(line, "notice", "unassigned_value", message)
                continue
            last, last_id, state = (module, ids[row]), ids[row], HEAD
        elif state not in _FOLLOWS[kind]:
            continue
        else:
            state = kind
            opened = int(block.starts[line])
        keep.append(candidate)
    chosen = np.array(keep, np.int64)
    return lines[chosen], kinds[chosen]


_LEXEME = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\]()]', re.DOTALL)


def is_whole(text: bytes) -> bool:
    """Whether quotes and brackets of an instruction's text are closed at its end."""
    depth = 0
    for lexeme in _LEXEME.finditer(text):
        token = lexeme[0]
        if token[:1] == b'"':
            if len(token) == 1 or not token.endswith(b'"'):
                return False
        else:
            depth += 1 if token in b"{[(" else -1
    return depth <= 0


def _position(section: Section, lines: Ints) -> Columns:
    """`  NAME {0}`: an instruction at whose result a value is seen."""
    c = section.block.cursor(lines)
    c.expect(b"  ")
    columns: Columns = {"instruction_name": c.until(b" ")}
    columns["shape_index"] = c.braced(b" ")
    c.finish()
    columns["good"] = section.good(lines, c)
    return columns


def _use(section: Section, lines: Ints) -> Columns:
    """`  NAME, operand 1 {0}`: a use, written by HloUse::ToString."""
    c = section.block.cursor(lines)
    c.expect(b"  ")
    columns: Columns = {"instruction_name": c.until(b",")}
    c.expect(b", operand ")
    columns["operand_number"] = c.integer()
    columns["operand_index"] = c.braced(b" ")
    c.finish()
    columns["good"] = section.good(lines, c)
    return columns


_TOTAL = re.compile(rb"Total bytes used: (-?\d+)(?: \((-?[\d.]+[KMGTPE]?i?B)\))?")


def _preamble(section: Section, used: UsedValues, at: Ints, heads: Words, in_value: bool) -> None:
    """The lines above the first head: empty ones, the total, a title."""
    block = section.block
    starts = section.piece_lines
    at = np.union1d(at, starts[starts_with(heads[starts], b"Total by")])
    unread = []
    for line in at.tolist():
        text = block.line(line)
        total = _TOTAL.fullmatch(text)
        if total is not None and -(2**63) <= int(total[1]) < 2**63:
            human = total[2].decode() if total[2] else None
            used.totals.append((int(section.module_of[line]), int(total[1]), human, line))
        elif text and text != b"Used values:":
            unread.append(line)
    section.unreadable(np.array(unread, np.int64), "the total or a used value")


def _tellings(
    section: Section,
    used: UsedValues,
    lines: Ints,
    kinds: Ints,
    owner: Ints,
    kind_of: Ints,
    on_marker: Bools,
    head_of: Ints,
) -> None:
    """The text behind ` from instruction:` of every value, raw line breaks included."""
    block = section.block
    marker = np.flatnonzero(kinds == FROM)
    at = lines[marker]
    end = block.ends[at].copy()
    more = np.flatnonzero((kind_of == FROM) & ~on_marker)
    more = more[block.starts[more] < block.ends[more]]
    if len(more):
        rank = np.cumsum(kinds == FROM) - 1
        np.maximum.at(end, rank[owner[more]], block.ends[more])
    c = block.cursor(at)
    c.expect(b" from instruction:")
    c.optional(b" ")
    start = c.at
    rows = section.good(at, c)
    used.tellings = take(
        {
            "text": Text(block, start, np.maximum(start, end)),
            "head": head_of[marker],
            "line": at,
            "module": section.module_of[at],
        },
        rows,
    )


def cut(block: Block, position: int) -> bytes:
    """The block's text from a position on, to be read again with what follows it."""
    return block.data[position : block.size]
