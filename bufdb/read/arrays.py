"""Rows of the buffer sections that no text holds, read from a proto: columns as read.

What the readers make of text lines is made here of arrays: the same columns of the same classes, so
that later steps treat both alike. Strings are lines of one block, and a text column is the number
of a line in each row, -1 where there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columnar.scan import Block, Columns, Ints, Numbers, Text, Words
from bufdb.columnar.section import KNOWN, READ, Account, Piece, Section
from bufdb.read import allocations, live_ranges, used_values

BUFFERS, VALUES, RANGES = "buffer_assignment", "values", "live_range"
"""The kinds of files that hold such sections."""
_TEXTS = {
    **dict.fromkeys(("instruction_name", "shape"), None),
    **dict.fromkeys(("parameter_shape", "parameter_shape_index", "output_shape"), None),
    **dict.fromkeys(("shape_index", "operand_index"), b"{}"),
}
"""Columns of strings, and the default where one is absent."""
_ALWAYS = frozenset(("instruction_name", "shape"))


@dataclass
class SectionArrays:
    """What a proto gave of a module; columns are arrays, those of strings numbers of `strings`."""

    strings: list[str] = field(default_factory=list)
    tables: dict[str, dict[str, Columns]] = field(default_factory=dict)
    """By kind of file, and by the name that the table has in the classes of the readers."""
    descriptions: dict[int, str] = field(default_factory=dict)
    """Instructions as used values describe them, by the value's row among those."""
    total_bytes: int = 0
    facts: live_ranges.Facts = field(default_factory=live_ranges.Facts)


class ArrayRows:
    """The sections of a batch that come from protos, each in one round."""

    def __init__(self) -> None:
        self.arrays: dict[int, tuple[str, SectionArrays]] = {}
        """By module, with the path of its proto."""
        self._block: Block | None = None

    def add(self, module: int, path: str, arrays: SectionArrays, account: Account) -> None:
        """Take the sections of a module; its lines are those that XLA would have written."""
        self.arrays[module] = path, arrays
        for kind, tables in arrays.tables.items():
            states = _states(kind, tables)
            described = len(arrays.descriptions) if kind == VALUES else 0
            name = f"{path}#{kind}"
            account.open(module, name, len(states) + described, rest_is_known=False)
            account.count(module, name, states)

    def having(self, kind: str) -> list[int]:
        """Return the modules that have sections of a kind."""
        return [module for module, (_, arrays) in self.arrays.items() if kind in arrays.tables]

    def is_describing(self, module: int) -> bool:
        """Return whether instructions of a module are described along with its values."""
        return bool(self.arrays[module][1].descriptions)

    def allocations(self) -> tuple[Section, allocations.Allocations]:
        """Return allocations and their values."""
        rows = self._table(BUFFERS, "allocations")
        count = len(rows["module"])
        nowhere = np.zeros(count, np.int64)
        rows["has_pointer"] = np.zeros(count, np.bool_)
        rows["page"] = Numbers(nowhere, np.zeros(count, np.bool_))
        number = rows["parameter_number"]
        rows["parameter_number"] = Numbers(np.maximum(number, 0), number >= 0)
        rows["other_attributes"] = Text(
            self._strings(), nowhere, nowhere, np.zeros(count, np.bool_)
        )
        allocations.add_kind(rows)
        allocated = allocations.Allocations(rows, self._table(BUFFERS, "values"))
        return self._section(BUFFERS), allocated

    def used_values(
        self,
        modules: set[int],
        assigned: used_values.Assigned,
        seeds: Words,
        account: Account | None,
    ) -> tuple[Section, used_values.UsedValues]:
        """Return used values of these modules."""
        heads = self._table(VALUES, "heads", modules)
        heads["check"] = used_values.check_of(heads, seeds[heads["module"]])
        used = used_values.UsedValues(heads)
        used.rows = used_values.known_rows(heads, assigned)
        used.positions = self._table(VALUES, "positions", modules)
        used.uses = self._table(VALUES, "uses", modules)
        pieces: list[Piece] = []
        owners: list[int] = []
        for module, (path, arrays) in self.arrays.items():
            if module in modules:
                used.totals.append((module, arrays.total_bytes, None, -1))
                first = int(np.searchsorted(heads["module"], module))
                owners += [first + row for row in arrays.descriptions]
                pieces.append(
                    Piece(module, f"{path}#{VALUES}", _lines(arrays.descriptions.values()))
                )
        section = Section(pieces, account)
        lines = np.arange(len(section))
        section.mark(lines, READ)
        section.settle()
        used.descriptions = {
            "text": Text(section.block, section.block.starts, section.block.ends),
            "head": np.array(owners, np.int64),
            "line": lines,
            "module": section.module_of,
        }
        return section, used

    def live_ranges(self) -> tuple[Section, live_ranges.LiveRanges]:
        """Return schedules, live ranges and the peak's values."""
        section = self._section(RANGES)
        ranges = live_ranges.read(section)
        ranges.sequence, ranges.ranges = (
            self._table(RANGES, "sequence"),
            self._table(RANGES, "ranges"),
        )
        ranges.peak = self._table(RANGES, "peak")
        ranges.peak["shape_index"].default = None
        ranges.peak["cumulative_bytes"] = Numbers(ranges.peak["cumulative_bytes"])
        ranges.facts = {m: self.arrays[m][1].facts for m in self.having(RANGES)}
        return section, ranges

    def _strings(self) -> Block:
        """Return all strings as lines, module after module."""
        if self._block is None:
            self._block = Block(*[_lines(arrays.strings) for _, arrays in self.arrays.values()])
        return self._block

    def _table(self, kind: str, table: str, modules: Container[int] | None = None) -> Columns:
        """Return a table of all modules, or of some."""
        parts: list[Columns] = []
        numbers: list[int] = []
        first = heads = 0
        for module, (_, arrays) in self.arrays.items():
            if kind in arrays.tables and (modules is None or module in modules):
                columns = dict(arrays.tables[kind][table])
                for name in columns:
                    if name in _TEXTS:
                        columns[name] = np.where(columns[name] < 0, -1, columns[name] + first)
                if "head" in columns:
                    columns["head"] = columns["head"] + heads
                    heads += _length(arrays.tables[kind]["heads"])
                parts.append(columns)
                numbers.append(module)
            first += len(arrays.strings)
        columns_of_all = {
            name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]
        }
        lengths = [_length(columns) for columns in parts]
        block = self._strings()
        return {
            "module": np.repeat(np.array(numbers, np.int64), lengths),
            **{n: _text(block, n, c) if n in _TEXTS else c for n, c in columns_of_all.items()},
        }

    def _section(self, kind: str) -> Section:
        """Return a section of these modules without any lines."""
        section = Section(())
        section.modules = np.array(self.having(kind), np.int64)
        return section


def _lines(texts: Iterable[str]) -> bytes:
    together = "\n".join(texts)
    return f"{together}\n".encode("ascii", "backslashreplace") if together else b""


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _text(block: Block, name: str, line: Ints) -> Text:
    start, stop = block.starts[line], block.ends[line]
    if name in _ALWAYS:
        return Text(block, start, stop)
    valid = line >= 0
    return Text(block, start, np.where(valid, stop, start), valid, _TEXTS[name])


def _states(kind: str, tables: dict[str, Columns]) -> Any:
    """Return the states of the lines that XLA would have written, without descriptions."""
    counts = Counter({name: _length(columns) for name, columns in tables.items()})
    read, known = counts.total(), 1
    if kind == VALUES:
        used = np.zeros(counts["heads"], np.bool_)
        used[tables["uses"]["head"]] = True
        none = counts["heads"] - int(used.sum())
        # Two titles below each head; the total, and around it two empty lines and a title.
        read, known = read + 2 * counts["heads"] + 1, none + 3
    elif kind == RANGES:
        read, known = read + 4, 0
    return np.repeat(np.array([READ, KNOWN], np.uint8), [read, known])
