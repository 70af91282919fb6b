"""The page's data: columns of numbers, packed into slots."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.answers.summary_parts import Section
from bufdb.page.picture import Picture
from bufdb.page.tables import Table
from bufdb.page.values import Fact, Place

# -- A compact encoding of numbers and texts: columns of varints, string tables, gzip --------------
#
# A slot of the page is gzip of: the length of the head as 32 bits, little endian; the head, JSON in
# UTF-8; then column after column, each number a zigzag varint: 2n, or -2n-1 if it is negative, in
# groups of seven bits, lowest first, the eighth bit set on all but the last. A column of
# differences has each number minus the one before it. The head's `columns` lists name, count,
# whether these are differences, and bytes of each. 100,000 values take a megabyte; as JSON rows
# they would take 25.
#
# Invariant: the same content gives the same bytes; JavaScript can represent every number exactly.

LARGEST = 2**52 - 1
"""The largest number of a column: doubled, it is still exact in JavaScript."""
_LARGEST_IN_JSON = 2**53 - 1


class TooLargeError(ValueError):
    """A number is too large for a page to show exactly."""


@dataclass(frozen=True)
class Column:
    """Whole numbers."""

    name: str
    numbers: Sequence[int]
    is_delta: bool = False
    """Whether differences take fewer bytes."""


class Texts:
    """A string table: maps texts to numbers, in order of first use; None to -1."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        """Return the number of a text."""
        if text is None:
            return -1
        return self.numbers.setdefault(text, len(self.numbers))


def pack(head: Mapping[str, Any], columns: Iterable[Column] = ()) -> bytes:
    """Return a slot's bytes.

    Raises:
        TooLargeError: a number of a column is too large to be exact in JavaScript.
    """
    parts, listed = [], []
    for column in columns:
        numbers = _differences(column.numbers) if column.is_delta else column.numbers
        data = varints(numbers)
        listed.append([column.name, len(column.numbers), int(column.is_delta), len(data)])
        parts.append(data)
    text = as_json({**head, "columns": listed})
    return gzip.compress(struct.pack("<I", len(text)) + text + b"".join(parts), 9, mtime=0)


def as_json(value: Any) -> bytes:
    """Encode as JSON without spaces; integers that JavaScript would round become text."""
    return json.dumps(
        _exact(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def varints(numbers: Iterable[int]) -> bytes:
    """Encode numbers as zigzag varints.

    Raises:
        TooLargeError: a number is beyond LARGEST.
    """
    out = bytearray()
    append = out.append
    for number in numbers:
        if not -LARGEST <= number <= LARGEST:
            raise TooLargeError(f"{number} is larger than a page can show exactly")
        rest = number << 1 if number >= 0 else ~(number << 1)
        while rest > 127:
            append(rest & 127 | 128)
            rest >>= 7
        append(rest)
    return bytes(out)


def _differences(numbers: Iterable[int]) -> Iterator[int]:
    last = 0
    for number in numbers:
        yield number - last
        last = number


def _exact(value: Any) -> Any:
    """Return a JSON value that JavaScript reads without loss."""
    if isinstance(value, Mapping):
        return {str(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, int) and abs(value) > _LARGEST_IN_JSON:
        return str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value if isinstance(value, int | float | str | None) else str(value)


# -- A module's picture as the columns of a slot; README.md in this folder describes each of them --

_DIGITS = 15
"""Maximum digits of a name's number; a longer one is text."""
_RESIDUAL, _LAYER_INPUT, _NOT_EXACT = 1, 2, 4
"""Flags of an origin."""


def slot(
    row: int,
    picture: Picture | None,
    tables: Sequence[Table],
    sections: Sequence[Section],
    command: str,
) -> bytes:
    """Return a module's slot.

    Args:
        row: row of the module in the report's list.
        picture: None if the peak is unknown.
        tables: answers about it.
        sections: what a summary of it shows.
        command: the command of a saved query about it, with QUERY in place of the name.

    Raises:
        TooLargeError: a number is too large to be exact in JavaScript.
    """
    head: dict[str, Any] = {"module": row, "arena": [], "arena_bytes": 0}
    texts = Texts()
    columns: list[Column] = []
    if picture is not None:
        head["arena"] = [list(arena) for arena in picture.arenas]
        head["arena_bytes"] = sum(arena.size_bytes for arena in picture.arenas)
        columns = list(_columns(picture, texts))
    head |= {
        "text": list(texts.numbers),
        "tables": [as_json_table(table) for table in tables],
        "sections": [_as_json_section(section) for section in sections],
        "command": command,
    }
    return pack(head, columns)


def _as_json_section(section: Section) -> dict[str, Any]:
    figures = [figure._asdict() for figure in section.figures]
    return {**section._asdict(), "figures": figures}


def as_json_table(table: Table) -> dict[str, Any]:
    """Return a table with its rows as the query gave them."""
    return {
        "name": table.name,
        "title": table.title,
        "command": table.command,
        "columns": table.columns,
        "rows": table.rows,
        "is_cut": table.is_cut,
        "note": table.note,
    }


def _columns(picture: Picture, texts: Texts) -> Iterator[Column]:
    ops, frames = _Ops(texts), _Frames(picture.frames, texts)
    yield from _values(picture, texts, ops, frames)
    yield from _blocks(picture)
    yield from ops.columns()
    yield from frames.columns()
    # Repeated users count once; of users with an unknown step only their number matters.
    yield Column("use_step", [step + 1 for steps in picture.uses for step in steps], True)
    yield from _steps(picture, texts)
    yield from _origins(picture, texts)
    yield from _peaks(picture)
    yield from _savings(picture, texts)


def _values(picture: Picture, texts: Texts, ops: _Ops, frames: _Frames) -> Iterator[Column]:
    values, length = picture.values, picture.module.schedule_length

    def text(name: str, of: Any) -> Column:
        return Column(f"value_{name}", [texts(of(fact)) for fact in values])

    names = [_name(fact.instruction_name) for fact in values]
    lives = [_life(fact, length) for fact in values]
    yield Column("value_id", [_or(fact.value_id, -1) for fact in values], True)
    yield text("kind", lambda fact: fact.allocation_kind)
    yield Column("value_stem", [texts(stem) for stem, _ in names])
    yield Column("value_number", [number for _, number in names], True)
    yield Column("value_index", [texts(fact.shape_index or "") for fact in values])
    yield Column("value_start", [start for start, _ in lives], True)
    yield Column("value_last", [end - start for start, end in lives])
    yield Column("value_size", [fact.size_bytes for fact in values])
    yield Column("value_padding", [_or(fact.padding_bytes, -1) + 1 for fact in values])
    yield text("shape", lambda fact: fact.shape)
    yield text("dtype", lambda fact: fact.dtype)
    yield text("opcode", lambda fact: fact.opcode)
    yield Column("value_scope", [ops(fact.scope) for fact in values], True)
    yield Column("value_op", [ops(fact.op_path) for fact in values], True)
    yield text("line", lambda fact: fact.source_line)
    yield text("category", lambda fact: fact.category)
    yield text("time", lambda fact: fact.time_share)
    yield Column("value_frame", [frames(fact.place) for fact in values], True)
    yield text("relation", lambda fact: fact.relation or None)
    yield Column("value_buffer", [row - first for row, first in enumerate(picture.buffer)])
    yield Column("value_uses", [len(uses) for uses in picture.uses])


def _blocks(picture: Picture) -> Iterator[Column]:
    blocks = picture.blocks
    yield Column("block_value", [block.row for block in blocks], True)
    yield Column("block_start", [block.start_time for block in blocks], True)
    yield Column("block_last", [block.end_time - block.start_time for block in blocks])
    yield Column("block_offset", [_or(block.offset_bytes, -1) for block in blocks])
    yield Column("block_size", [block.size_bytes for block in blocks])


def _steps(picture: Picture, texts: Texts) -> Iterator[Column]:
    names: list[tuple[str | None, int]] = []
    for time, name in picture.steps:
        if len(names) <= time <= picture.module.schedule_length:
            names += [(None, 0)] * (time - len(names))
            names.append(_name(name))
    yield Column("step_stem", [texts(stem) for stem, _ in names])
    yield Column("step_number", [number for _, number in names], True)


def _origins(picture: Picture, texts: Texts) -> Iterator[Column]:
    rows = picture.origins
    yield Column("origin_value", [row[0] for row in rows], True)
    for place, name in enumerate(("kind", "line", "loop", "loop_line", "slice_shape"), 1):
        yield Column(f"origin_{name}", [texts(row[place]) for row in rows])
    for place, name in enumerate(("slice_bytes", "slice_count", "trip_count"), 6):
        yield Column(f"origin_{name}", [_or(row[place], -1) + 1 for row in rows])
    flags = [
        _RESIDUAL * bool(row[9]) | _LAYER_INPUT * bool(row[10]) | _NOT_EXACT * (not row[11])
        for row in rows
    ]
    yield Column("origin_flags", flags)


def _peaks(picture: Picture) -> Iterator[Column]:
    yield Column("peak_time", [time for time, _, _ in picture.peaks])
    yield Column("peak_bytes", [size for _, size, _ in picture.peaks])
    yield Column("peak_valley", [_or(valley, -1) + 1 for _, _, valley in picture.peaks])


def _savings(picture: Picture, texts: Texts) -> Iterator[Column]:
    rows = {fact.value_id: row for row, fact in enumerate(picture.values)}
    savings = picture.savings
    yield Column("saving_what", [texts(what) for what, *_ in savings])
    yield Column("saving_name", [texts(name) for _, name, *_ in savings])
    yield Column(
        "saving_value",
        [-1 if number is None else rows.get(number, -1) for _, _, number, *_ in savings],
    )
    for place, name in enumerate(("held", "bytes", "half", "time"), 3):
        yield Column(f"saving_{name}", [row[place] for row in savings])
    yield Column("saving_low", [_or(low, 0) for *_, low, _, _ in savings])
    yield Column("saving_form", [texts(form) for *_, form, _ in savings])
    yield Column("saving_kept", [texts(kept) for *_, kept in savings])


class _Ops:
    """Paths as a trie, parents before children."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.nodes: dict[tuple[int, int], int] = {}
        self.paths: dict[str, int] = {}

    def __call__(self, path: str) -> int:
        """Return the node of a path."""
        node = self.paths.get(path)
        if node is None:
            node = -1
            for segment in path.split("/"):
                node = self.nodes.setdefault((node, self.texts(segment)), len(self.nodes))
            self.paths[path] = node
        return node

    def columns(self) -> Iterator[Column]:
        """Yield the columns of all nodes."""
        yield Column("op_parent", [parent for parent, _ in self.nodes], True)
        yield Column("op_text", [text for _, text in self.nodes])


class _Frames:
    """Call stacks as a tree, callers before callees."""

    def __init__(self, frames: Mapping[int, Sequence[Any]], texts: Texts) -> None:
        self.frames = frames
        self.texts = texts
        self.nodes: dict[int | tuple[str, int], int] = {}
        self.rows: list[tuple[int, int, int, int, int]] = []

    def __call__(self, place: Place) -> int:
        """Return the innermost frame of a place, or its line if no stack is known; -1 if none."""
        number = place.stack_frame_id
        if number is not None and number in self.frames:
            return self._stack(number)
        if place.source_file is None:
            return -1
        key = (place.source_file, place.source_line or 0)
        if key not in self.nodes:
            self._add(key, -1, place.source_file, None, place.source_line, place.is_own)
        return self.nodes[key]

    def _stack(self, number: int) -> int:
        above: list[int] = []
        seen: set[int] = set()  # a damaged dump may have a cycle
        at: int | None = number
        while at is not None and not (at in seen or at in self.nodes or at not in self.frames):
            above.append(at)
            seen.add(at)
            at = self.frames[at][0]
        parent = self.nodes.get(at, -1) if at is not None else -1
        for frame in reversed(above):
            _, file, function, line, is_own = self.frames[frame]
            self._add(frame, parent, file, function, line, is_own)
            parent = self.nodes[frame]
        return self.nodes[number]

    def _add(
        self,
        key: int | tuple[str, int],
        parent: int,
        file: str | None,
        function: str | None,
        line: int | None,
        is_own: bool,
    ) -> None:
        self.nodes[key] = len(self.rows)
        texts = (self.texts(file or "?"), self.texts(function or ""))
        self.rows.append((parent, *texts, line or 0, int(is_own)))

    def columns(self) -> Iterator[Column]:
        """Yield the columns of all frames."""
        for place, name in enumerate(("parent", "file", "function", "line", "own")):
            column = [row[place] for row in self.rows]
            yield Column(f"frame_{name}", column, name in ("parent", "line"))


def _name(name: str | None) -> tuple[str | None, int]:
    """Split a name such as fusion.12 into its stem and its number plus 1; 0 without a number."""
    if name is None:
        return None, 0
    stem, _, digits = name.rpartition(".")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS
    if stem and is_number and str(int(digits)) == digits:
        return stem, int(digits) + 1
    return name, 0


def _life(fact: Fact, length: int) -> tuple[int, int]:
    """Return first and last instant of the schedule; without a life, the whole run."""
    if fact.start_time is None or fact.end_time is None:
        return 0, length
    return fact.start_time, min(fact.end_time, length)


def _or(number: int | None, default: int) -> int:
    return default if number is None else number
