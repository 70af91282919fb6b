"""Section "live ranges": schedule, live ranges, printed peak and its tree (format section 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from bufdb.read.section import Section
from bufdb.scan import (
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
    last_kind: int = START
    """The part of the section in which its last line stands."""


_TITLES = {
    SEQUENCE: re.compile(rb"  InstructionSequence:"),
    RANGES: re.compile(rb"  BufferLiveRange:"),
    PEAK: re.compile(rb"  Live ranges at (-?\d+) \(peak\):"),
    TREE: re.compile(rb"  Stack trace breakdown for peak usage: (-?[\d ]+) bytes"),
}
_TOO_LARGE = re.compile(rb"[0-9]{19}")
"""No schedule has 10^18 steps: such a title is reported as a line that was not understood."""
_MAX = re.compile(rb"HloLiveRange \(max (\d+)\):")
_UNDETERMINED = b"  Peak memory could not be determined"
_UNAVAILABLE = b"HloLiveRange not available"


def read(section: Section, kind: int = START) -> LiveRanges:
    """Read live-range sections; `kind` is the part that a continued section begins in."""
    block, heads = section.block, section.block.heads()
    found = LiveRanges()
    lines, kinds = _titles(section, heads, found, kind)
    found.last_kind = int(kinds[-1]) if len(kinds) else kind
    owner = runs_of(lines, len(block))
    kind_of = np.append(kinds, kind)[owner]
    on_title = np.zeros(len(block), np.bool_)
    on_title[lines] = True
    filled = block.starts < block.ends

    def rows(kind: int) -> Ints:
        return np.flatnonzero((kind_of == kind) & ~on_title & filled)

    at = rows(SEQUENCE)
    c = block.cursor(at)
    found.sequence = _step(c)
    _finish(section, found.sequence, at, c)
    at = rows(RANGES)
    c = block.cursor(at)
    found.ranges = _range(c)
    _finish(section, found.ranges, at, c)
    at = rows(PEAK)
    c = block.cursor(at)
    found.peak = _contributor(c)
    found.peak["contributor_ordinal"] = at - np.append(lines, -1)[owner[at]] - 1
    _finish(section, found.peak, at, c)
    found.tree = _tree(section, np.flatnonzero((kind_of == TREE) & ~on_title))
    section.unreadable(rows(START), "'HloLiveRange (max N):' or a title below it")
    found.sequence, found.ranges = _good(found.sequence), _good(found.ranges)
    found.peak = _good(found.peak)
    return found


def _titles(section: Section, heads: Words, found: LiveRanges, kind: int) -> tuple[Ints, Ints]:
    """Lines and kinds of the titles; nothing below a tree's title is one, whatever it says."""
    block = section.block
    candidates = np.flatnonzero(
        starts_with(heads, b"HloLiveR")
        | starts_with(heads, b"  Instru")
        | starts_with(heads, b"  Buffer")
        | starts_with(heads, b"  Live r")
        | starts_with(heads, b"  Peak m")
        | starts_with(heads, b"  Stack ")
    )
    candidates = np.union1d(candidates, section.piece_lines)
    lines, kinds = [], []
    module, state = -1, kind
    begins = set(section.piece_lines.tolist())
    for line in candidates.tolist():
        if line in begins and int(section.module_of[line]) != module:
            if module >= 0:
                state = START
            module = int(section.module_of[line])
        if state == TREE:
            continue
        text = block.line(line)
        if _TOO_LARGE.search(text):
            continue
        facts = found.facts.setdefault(module, Facts())
        kind_found = -1
        if (title := _MAX.fullmatch(text)) is not None:
            facts.schedule_length, kind_found = int(title[1]), START
        elif text.startswith(_UNAVAILABLE):
            facts.peak_status, kind_found = "unavailable", START
        elif text.startswith(_UNDETERMINED):
            facts.peak_status, kind_found = "undetermined", START
        else:
            for number, pattern in _TITLES.items():
                if (title := pattern.fullmatch(text)) is None:
                    continue
                kind_found = number
                if number == PEAK:
                    facts.peak_status, facts.peak_time = "printed", int(title[1])
                elif number == TREE:
                    tree_bytes = int(title[1].replace(b" ", b""))
                    facts.tree_bytes = tree_bytes if abs(tree_bytes) < 2**63 else None
        if kind_found >= 0:
            state = kind_found
            lines.append(line)
            kinds.append(kind_found)
    return np.array(lines, np.int64), np.array(kinds, np.int64)


def _finish(section: Section, columns: Columns, lines: Ints, c: Cursor) -> None:
    columns["module"] = section.module_of[lines]
    good = section.good(lines, c)
    columns["good"] = np.ones(len(lines), np.bool_) if good is None else good


def _good(columns: Columns) -> Columns:
    good: Bools = columns.pop("good")
    return columns if good.all() else take(columns, good)


def _step(c: Cursor) -> Columns:
    """`    3:Arg_0.1`: an instruction in program order."""
    c.expect(b"    ")
    columns: Columns = {"program_order": c.integer()}
    c.expect(b":")
    columns["instruction_name"] = c.until(b"\n")
    return columns


def _range(c: Cursor) -> Columns:
    """`    copy{0}:5-7`: first and last instant of a value."""
    c.expect(b"    ")
    columns: Columns = {"instruction_name": c.until(b"{"), "shape_index": c.braced()}
    c.expect(b":")
    columns["start_time"] = c.integer(signed=True)
    c.expect(b"-")
    columns["end_time"] = c.integer(signed=True)
    c.finish()
    return columns


def _contributor(c: Cursor) -> Columns:
    """`    copy{0}: 4 bytes (cumulative: 20 bytes)`: a line of the printed peak."""
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


_BAR, _GAP = "│   ".encode(), b"    "
_BRANCH, _LAST = "├── ".encode(), "└── ".encode()


def _tree(section: Section, lines: Ints) -> Columns:
    """Nodes of the stack trace breakdown; a label with raw line breaks goes over several lines."""
    lines, ends = _node_lines(section, lines)
    block = section.block
    c = Cursor(block, block.starts[lines], ends)
    depth = np.zeros(len(c), np.int64)
    modules = section.module_of[lines]
    nested = np.zeros(len(c), np.bool_)
    nested[1:] = modules[1:] == modules[:-1]  # the first node is the root, whatever its text
    c.expect(b"  ", where=nested)
    c.expect(_GAP, where=~nested)
    open_rows = nested
    while open_rows.any():
        branch = open_rows & (c.matches(_BRANCH) | c.matches(_LAST))
        bar = open_rows & ~branch & c.matches(_BAR)
        gap = open_rows & ~branch & ~bar & c.matches(_GAP)
        c.at = c.at + branch * len(_BRANCH) + bar * len(_BAR) + gap * len(_GAP)
        depth = depth + (bar | gap)
        c.require(~open_rows | branch | bar | gap, "a branch of the tree")
        open_rows = bar | gap
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
    columns["module"] = modules
    columns = take(columns, section.good(lines, c))
    ordinals, parents = [], []
    stack: list[int] = []
    previous = -1
    nodes = zip(columns["module"].tolist(), columns["depth"].tolist(), strict=True)
    ordinal = 0
    for module, level in nodes:
        if module != previous:
            previous, ordinal, stack = module, 0, []
        del stack[level:]
        parents.append(stack[-1] if stack else -1)
        stack.append(ordinal)
        ordinals.append(ordinal)
        ordinal += 1
    columns["node_ordinal"] = np.array(ordinals, np.int64)
    parent = np.array(parents, np.int64)
    columns["parent_ordinal"] = Numbers(parent, parent >= 0)
    return columns


_TAIL = re.compile(
    rb" \(-?(?:[\d.]+|nan|inf)%, total: -?[\d ]+ bytes, current: -?[\d ]+ bytes,"
    rb" remaining: -?[\d ]+ bytes\)$"
)


def _node_lines(section: Section, lines: Ints) -> tuple[Ints, Ints]:
    """First line and end of every node: a node goes on until a line ends with its byte counts."""
    block = section.block
    tail = np.minimum(np.maximum(block.ends[lines] - 7, 0), block.size)
    closed = starts_with(block.words[tail], b" bytes)")
    c = block.cursor(lines)
    closed &= c.search(b" bytes, remaining: ") < c.end
    if not closed.all():
        keep, ends, begin = [], [], -1
        for line in lines.tolist():
            if begin < 0:
                if not block.line(line):
                    continue
                begin = line
            if _TAIL.search(block.line(line)) or line == lines[-1]:
                keep.append(begin)
                ends.append(int(block.ends[line]))
                begin = -1
        return np.array(keep, np.int64), np.array(ends, np.int64)
    return lines, block.ends[lines]


def _last_before(c: Cursor, literal: bytes) -> Ints:
    rfind = c.block.data.rfind
    spans = zip(c.at.tolist(), c.end.tolist(), strict=True)
    return np.fromiter((rfind(literal, a, b) for a, b in spans), np.int64, len(c))


def _spaced(c: Cursor) -> Ints:
    """A number whose digits are grouped by blanks: `8 288`."""
    negative = c.optional(b"-")
    values = c.integer()
    while True:
        more = c.matches(b" ") & (c.block.bytes[c.at + 1] - np.uint8(ord("0")) < 10)
        if not more.any():
            return np.where(negative, -values, values)
        c.at = c.at + more
        group = c.integer_where(more).filled(0)
        grown = values.astype(np.float64) * 1000 + group
        c.require(~more | (grown < 2.0**63), "a number of 64 bits")
        values = np.where(more, values * 1000 + group, values)
