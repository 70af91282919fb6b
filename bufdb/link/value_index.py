"""The values of a batch, to be found by name and index or by number.

Names are compared by 64-bit hashes, seeded per module (a clash would show as two values of one name
and is reported), in arrays sorted once, so that memory is what the largest module's keys need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Words

LARGEST_ID = (1 << 40) - 1


class ValueIndex:
    """The values of a batch, sorted by module and number, to be found by name and index."""

    HASHES = ("name_key", "key", "check")
    BYTES = ("offset_bytes", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[Columns] = []

    def add(self, **columns: Any) -> None:
        """Take the values of one round: a column per name that `finish` asks for."""
        self.parts.append(columns)

    def finish(self) -> None:
        """Sort what was added; from here on values can be found."""
        order: Ints | None = None
        kinds = {name: np.dtype(np.uint64) for name in self.HASHES} | {"is_phi": np.dtype(np.bool_)}
        placed = ("allocation_index", *self.BYTES, "is_phi")
        for name in ("module", "value_id", *self.HASHES, *placed):
            kind = kinds.get(name, np.dtype(np.int64))
            columns = [part.pop(name) for part in self.parts]
            column = np.concatenate([np.empty(0, kind), *columns])
            if name == "value_id":
                order = np.lexsort((column, self.module))
                self.module = self.module[order]
            setattr(self, name, column if order is None else column[order])
        self.parts = []
        self.numbers = self._numbers(self.module, self.value_id)
        self.names, self.first = np.unique(self.name_key, return_index=True)
        self.by_key = np.argsort(self.key)
        self.sorted_key = self.key[self.by_key]
        if (self.sorted_key[1:] == self.sorted_key[:-1]).any():
            # Of values with one name the first is found, whatever else is in the batch.
            self.by_key = np.argsort(self.key, kind="stable")

    module: Ints
    value_id: Ints
    name_key: Words
    key: Words
    check: Words
    allocation_index: Ints
    offset_bytes: Ints
    size_bytes: Ints
    is_phi: Bools

    def __len__(self) -> int:
        return len(self.value_id)

    def forget_placements(self) -> None:
        """Give up what only live ranges are looked up by, in time for the largest section."""
        del self.key, self.by_key, self.sorted_key
        del self.allocation_index, self.offset_bytes, self.size_bytes, self.is_phi

    def duplicates(self) -> Ints:
        """The module of each value that has the name, or the number, of another."""
        duplicate = self.sorted_key[1:] == self.sorted_key[:-1]
        rows = np.union1d(
            self.by_key[1:][duplicate],
            1 + np.flatnonzero(self.numbers[1:] == self.numbers[:-1]),
        )
        found: Ints = self.module[rows]
        return found

    def by_name(self, keys: Words) -> Ints:
        """The row of each key, -1 where no value has it."""
        return lookup(self.sorted_key, self.by_key, keys)

    def by_number(self, module: Ints, value_id: Ints) -> Ints:
        """The row of each value by number, -1 where there is none."""
        wanted = self._numbers(module, value_id)
        rows = lookup(self.numbers, np.arange(len(self)), wanted)
        return np.where(value_id < LARGEST_ID, rows, -1)

    def checks(self, rows: Ints) -> Words:
        """Hash of the whole short text of the values in these rows."""
        found: Words = self.check[rows]
        return found

    def modules(self) -> Ints:
        """The modules that have values."""
        return np.unique(self.module)

    @staticmethod
    def _numbers(module: Ints, value_id: Ints) -> Ints:
        """Module and number in one; XLA counts values from 0, so 40 bits are ample."""
        return (module << 40) | np.minimum(value_id, LARGEST_ID)

    def is_defined(self, names: Words) -> Bools:
        """Which instruction names define a value."""
        found: Bools = lookup(self.names, self.first, names) >= 0
        return found


def lookup(ordered: Any, rows: Ints, wanted: Any) -> Ints:
    """For each wanted key the row that belongs to it in the sorted keys, or -1."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[place] == wanted, rows[place], -1)


def isin(values: Words, ordered: Words) -> Bools:
    """Which values are among the sorted ones."""
    found: Bools = lookup(ordered, np.arange(len(ordered)), values) >= 0
    return found
