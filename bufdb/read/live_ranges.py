"""Section "live ranges": schedule, live ranges, printed peak and its tree (format section 6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bufdb.columnar.scan import (
    Bools,
    Columns,
    Cursor,
    Ints,
    Numbers,
    Text,
    Words,
    runs_of,
    starts_with,
    take,
)
from bufdb.columnar.section import READ, UNREAD, Section
from bufdb.columnar.sets import distinct, union

START, SEQUENCE, RANGES, PEAK, TREE = range(5)


@dataclass
class Facts:
    """What the titles of one module's section say."""

    schedule_length: int | None = None
    peak_time: int | None = None
    peak_status: str | None = None
    tree_bytes: int | None = None


@dataclass
class LiveRanges:
    """Columns read from live-range sections; `module` holds each row's module ordinal."""

    sequence: Columns = field(default_factory=dict)
    ranges: Columns = field(default_factory=dict)
    peak: Columns = field(default_factory=dict)
    tree: Columns = field(default_factory=dict)
    facts: dict[int, Facts] = field(default_factory=dict)
    unread: list[int] = field(default_factory=list)
    """Modules with unread lines in the schedule or the live ranges."""
    last_kind: int = START
    """The part of the section that its last line is in."""
    listed: int = 0
    """Lines of the printed peak so far, if the last line is one of them."""


# No schedule has 10^18 steps: such a title is reported as a line that was not understood.
_TITLE = re.compile(
    rb"HloLiveRange \(max (?P<steps>\d{1,18})\):"
    rb"|  Live ranges at (?P<peak>-?\d{1,18}) \(peak\):"
    rb"|  Stack trace breakdown for peak usage: (?P<tree>-?(?!.*\d{19})\d[\d ]*) bytes"
)
_PLAIN_TITLES = {b"  InstructionSequence:": SEQUENCE, b"  BufferLiveRange:": RANGES}
_LONGEST_TITLE = 200
_UNDETERMINED = b"  Peak memory could not be determined due to unbounded dynamic shape."
_UNAVAILABLE = (
    b"HloLiveRange not available (finalized or constructed from proto)",
    b"HloLiveRange not available",
)


def read(section: Section, kind: int = START, listed: int = 0) -> LiveRanges:
    """Read live-range sections.

    Args:
        section: the lines.
        kind: the part in which a continued section goes on.
        listed: lines of that part before, if it is the printed peak.
    """
    block, heads = section.block, section.block.heads()
    ranges = LiveRanges()
    lines, kinds, is_title = _titles(section, heads, ranges, kind)
    ranges.last_kind = int(kinds[-1]) if len(kinds) else kind
    owner = runs_of(lines, len(block))
    kind_of = np.append(kinds, kind)[owner]
    kind_of[lines[is_title]] = -1
    section.mark(lines[is_title], READ)
    filled = ~section.is_blank()

    def rows(kind: int) -> Ints:
        return np.flatnonzero((kind_of == kind) & filled)

    ranges.sequence = _rows(section, rows(SEQUENCE), _step)
    ranges.ranges = _rows(section, rows(RANGES), _range)
    at = rows(PEAK)
    # Below its title the first has the ordinal 0; a piece that goes on begins with the next one.
    first = np.where(is_title, lines + 1, lines - listed)
    ordinals = at - np.append(first, 0)[owner[at]]
    if ranges.last_kind == PEAK:
        ranges.listed = len(block) - int(first[-1])
    ranges.peak = _rows(section, at, _contributor, contributor_ordinal=ordinals)
    ranges.tree = _tree(section, np.flatnonzero(kind_of == TREE))
    section.settle("'HloLiveRange (max N):' or a title below it")
    unread = (section.states == UNREAD) & (kind_of != PEAK) & (kind_of != TREE)
    ranges.unread = distinct(section.module_of[unread]).tolist()
    return ranges


def _titles(
    section: Section, heads: Words, ranges: LiveRanges, kind: int
) -> tuple[Ints, Ints, Bools]:
    """Return lines and kinds of titles and of every piece's first line, which may not be one.

    Nothing below a tree's title is a title, whatever it says. A piece begins in no part, unless it
    continues the previous round.
    """
    block = section.block
    candidates = np.flatnonzero(
        starts_with(heads, b"HloLiveR")
        | starts_with(heads, b"  Instru")
        | starts_with(heads, b"  Buffer")
        | starts_with(heads, b"  Live r")
        | starts_with(heads, b"  Peak m")
        | starts_with(heads, b"  Stack ")
    )
    candidates = union(candidates, section.piece_lines)
    begins = dict(
        zip(section.piece_lines.tolist(), (p.begins for p in section.pieces), strict=True)
    )
    places = (candidates, section.module_of[candidates], block.starts[candidates])
    lines, kinds, are_titles = [], [], []
    state = kind
    for line, module, start, end in zip(
        *(place.tolist() for place in (*places, block.ends[candidates])), strict=True
    ):
        is_first = line in begins
        if is_first:
            state = START if begins[line] else kind
        title = -1
        if state != TREE:
            if module not in ranges.facts:
                ranges.facts[module] = Facts()
            title = _title(block.data[start:end], ranges.facts[module])
        if title >= 0:
            state = title
        if title >= 0 or is_first:
            lines.append(line)
            kinds.append(state)
            are_titles.append(title >= 0)
    return np.array(lines, np.int64), np.array(kinds, np.int64), np.array(are_titles, np.bool_)


def _title(text: bytes, facts: Facts) -> int:
    """Return the part that begins below a title, and note its facts; -1 if it is no title."""
    if (plain := _PLAIN_TITLES.get(text)) is not None:
        return plain
    if text == _UNDETERMINED or text in _UNAVAILABLE:
        facts.peak_status = "undetermined" if text == _UNDETERMINED else "unavailable"
        return START
    title = None if len(text) > _LONGEST_TITLE else _TITLE.fullmatch(text)
    if title is None:
        return -1
    if title.lastgroup == "steps":
        facts.schedule_length = int(title["steps"])
        return START
    if title.lastgroup == "peak":
        facts.peak_status, facts.peak_time = "printed", int(title["peak"])
        return PEAK
    tree_bytes = int(title["tree"].replace(b" ", b""))
    if abs(tree_bytes) >= 2**63:
        return -1
    facts.tree_bytes = tree_bytes
    return TREE


def _rows(
    section: Section, lines: Ints, grammar: Callable[[Cursor], Columns], **more: Ints
) -> Columns:
    """Return the rows of the lines that follow a grammar, with the columns of `more`."""
    c = section.block.cursor(lines)
    columns = grammar(c)
    columns["module"] = section.module_of[lines]
    columns.update(more)
    return take(columns, section.good(lines, c))


def _step(c: Cursor) -> Columns:
    """Read `    3:Arg_0.1`, an instruction in program order."""
    c.expect(b"    ")
    columns: Columns = {"program_order": c.integer()}
    c.expect(b":")
    columns["instruction_name"] = c.until(b"\n")
    return columns


def _range(c: Cursor) -> Columns:
    """Read `    copy{0}:5-7`, the first and last instant of a value."""
    c.expect(b"    ")
    columns: Columns = {"instruction_name": c.until(b"{"), "shape_index": c.braced()}
    c.expect(b":")
    columns["start_time"] = c.integer(signed=True)
    c.expect(b"-")
    columns["end_time"] = c.integer(signed=True)
    c.finish()
    return columns


def _contributor(c: Cursor) -> Columns:
    """Read `    copy{0}: 4 bytes (cumulative: 20 bytes)`, a line of the printed peak."""
    c.expect(b"    ")
    columns: Columns = {"instruction_name": c.until(b"{", b":")}
    index = c.braced()
    index.default = None
    columns["shape_index"] = index
    c.expect(b": ")
    columns["logical_bytes"] = c.integer(signed=True)
    c.expect(b" bytes")
    more = c.optional(b" (cumulative: ")
    columns["cumulative_bytes"] = c.integer_where(more, signed=True)
    c.expect(b" bytes)", where=more)
    c.finish()
    return columns


_GROUPS = 6
"""Groups of three digits after the first one in a number of 64 bits."""
_BAR, _GAP = "│   ".encode(), b"    "
_BRANCH, _LAST = "├── ".encode(), "└── ".encode()


def _tree(section: Section, lines: Ints) -> Columns:
    """Return the nodes of the stack trace breakdown; labels with raw line breaks span lines."""
    lines, ends = _node_lines(section, lines)
    block = section.block
    c = Cursor(block, block.starts[lines], ends)
    depth = np.zeros(len(c), np.int64)
    pieces = section.piece_of[lines]
    nested = np.zeros(len(c), np.bool_)
    nested[1:] = pieces[1:] == pieces[:-1]  # the first node is the root, whatever its text
    c.expect(b"  ", where=nested)
    c.expect(_GAP, where=~nested)
    open_rows = np.flatnonzero(nested)
    while len(open_rows):
        some = Cursor(block, c.at[open_rows], c.end[open_rows])
        branch = some.optional(_BRANCH)
        branch |= some.optional(_LAST)
        cell = ~branch & (some.matches(_BAR) | some.matches(_GAP))
        some.at = some.at + cell * np.where(some.matches(_BAR), len(_BAR), len(_GAP))
        some.require(branch | cell, "a branch of the tree")
        for row, problem in some.problems.items():
            c.problems.setdefault(int(open_rows[row]), problem)
        at = c.at.copy()
        at[open_rows] = some.at
        c.at = at
        open_rows = open_rows[cell]
        depth[open_rows] += 1
    start = c.at
    stop = _last_before(c, b" (")
    c.require(stop >= start, "' (N%, total: …'")
    c.at = np.maximum(stop, start)
    columns: Columns = {"depth": depth, "label": Text(block, start, c.at)}
    c.expect(b" (")
    c.at = c.find(b"%")
    for name in ("total", "current", "remaining"):
        c.expect(b"%, total: " if name == "total" else f" bytes, {name}: ".encode())
        columns[f"{name}_bytes"] = _spaced(c)
    c.expect(b" bytes)")
    c.finish()
    columns["module"] = section.module_of[lines]
    columns["piece"] = pieces
    good = section.good(lines, c)
    if good is not None:
        _mark_rest(section, lines[~good], ends[~good])
    columns = take(columns, good)
    _family(columns)
    return columns


def _mark_rest(section: Section, lines: Ints, ends: Ints) -> None:
    """Mark the further lines of nodes that could not be read as not understood either."""
    for line, end in zip(lines.tolist(), ends.tolist(), strict=True):
        after = int(np.searchsorted(section.block.starts, end))
        section.unreadable(np.arange(line + 1, after), "a node that goes on")


def _family(columns: Columns) -> None:
    """Set each tree node's number and its parent's; no level can be left out."""
    ordinals, parents = [], []
    stack: list[int] = []
    previous = -1
    ordinal = 0
    nodes = zip(columns.pop("piece").tolist(), columns["depth"].tolist(), strict=True)
    for piece, level in nodes:
        if piece != previous:
            previous, ordinal, stack = piece, 0, []
        del stack[level:]
        parents.append(stack[-1] if stack else -1)
        stack.append(ordinal)
        ordinals.append(ordinal)
        ordinal += 1
    columns["node_ordinal"] = np.array(ordinals, np.int64)
    parent = np.array(parents, np.int64)
    columns["parent_ordinal"] = Numbers(parent, parent >= 0)


def _node_lines(section: Section, lines: Ints) -> tuple[Ints, Ints]:
    """Return each node's first line and its end: a node extends to a line ending in byte counts.

    Text left open at a piece's end is a node of its own, which then cannot be read.
    """
    block = section.block
    tail = np.minimum(np.maximum(block.ends[lines] - 7, 0), block.size)
    closed = starts_with(block.words[tail], b" bytes)")
    c = block.cursor(lines)
    closed &= c.find(b" bytes, remaining: ") < c.end
    if closed.all():
        return lines, block.ends[lines]
    pieces = section.piece_of[lines]
    last = np.ones(len(lines), np.bool_)
    last[:-1] = pieces[1:] != pieces[:-1]
    ends_node = closed | last
    number = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends_node)[:-1]])
    filled = block.starts[lines] < block.ends[lines]
    rows = np.flatnonzero(filled)
    _, first = np.unique(number[rows], return_index=True)
    begin = rows[first]
    section.mark(lines[rows], READ)
    return lines[begin], block.ends[lines[np.flatnonzero(ends_node)[number[begin]]]]


def _last_before(c: Cursor, literal: bytes) -> Ints:
    last: Ints = np.strings.rfind(c.block.text, literal, c.at, c.end)
    return last


def _spaced(c: Cursor) -> Ints:
    """Return a number whose digits are grouped by blanks: `8 288`."""
    negative = c.optional(b"-")
    values = c.integer()
    for _ in range(_GROUPS):
        more = c.matches(b" ") & (c.block.bytes[c.at + 1] - np.uint8(ord("0")) < 10)
        if not more.any():
            break
        c.at = c.at + more
        group = c.integer_where(more).filled(0)
        grown = values.astype(np.float64) * 1000 + group
        c.require(~more | (grown < 2.0**63), "a number of 64 bits")
        values = np.where(more, values * 1000 + group, values)
    return np.where(negative, -values, values)
