"""The values of a batch, to be found by name and index or by number.

Names are compared by 64-bit hashes, seeded per module (a collision would show as two values of one
name and is reported), in arrays sorted once, so that memory is what the keys of the largest module
need: a name's hash is stored once, names are numbers elsewhere, and numbers are narrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Words
from bufdb.columnar.sets import distinct, union
from bufdb.memory.ranges import parts

LARGEST_ID = (1 << 40) - 1


class ValueIndex:
    """The values of a batch, sorted by module and number, to be found by name and index."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []

    def add(self, **columns: Any) -> None:
        """Take the values of one round: a column per name that `finish` asks for."""
        columns["extra"] = _of_bytes(columns["extra"])
        self.parts.append(columns)

    def finish(self) -> None:
        """Sort what was added; from here on values can be found."""
        module, value_id = self._joined("module"), self._joined("value_id")
        order = np.lexsort((value_id, module))
        self.module, self.value_id = module[order], value_id[order]
        del module, value_id
        self._number_names(self._joined("name_key")[order])
        for name in (
            *("key", "extra", "allocation_index", "offset_bytes", "size_bytes", "is_phi"),
            "logical_bytes",
        ):
            setattr(self, name, self._joined(name)[order])
        self.parts = []
        self.numbers = self._numbers(self.module, self.value_id)
        self._sort_keys()

    def _joined(self, name: str) -> Any:
        """Join a column of all rounds, and remove it from them."""
        kinds = {"name_key": np.uint64, "key": np.uint64, "extra": np.uint8, "is_phi": np.bool_}
        columns = [part.pop(name) for part in self.parts]
        column = np.concatenate([np.empty(0, kinds.get(name, np.int64)), *columns])
        del columns
        return column

    def _number_names(self, name_key: Words) -> None:
        order = np.argsort(name_key, kind="stable")
        ordered = name_key[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = ordered[1:] != ordered[:-1]
        self.names, self.first = ordered[is_new], order[is_new]
        self.name = np.empty(len(order), np.int64)
        self.name[order] = np.cumsum(is_new) - 1

    def _sort_keys(self) -> None:
        """Sort the keys, as long as values are looked up by them."""
        order = np.argsort(self.key)
        self.sorted_key = self.key[order]
        if (self.sorted_key[1:] == self.sorted_key[:-1]).any():
            # Of values with one name the first is found, whatever else is in the batch.
            order = np.argsort(self.key, kind="stable")
        self.by_key = order

    module: Ints
    value_id: Ints
    names: Words
    """Hashes of the names of what defines values, ascending."""
    name: Ints
    """Which of them each value has."""
    first: Ints
    """The first value of each name."""
    key: Words
    """Hash of name and index."""
    extra: Any
    """By which the hash of the whole short text differs from `key`."""
    allocation_index: Ints
    offset_bytes: Ints
    size_bytes: Ints
    is_phi: Bools
    logical_bytes: Ints
    """Bytes of the shape, -1 if unknown; only until the printed peak is compared with them."""

    def __len__(self) -> int:
        return len(self.value_id)

    def duplicates(self) -> Ints:
        """Return the module of each value that has the name, or the number, of another."""
        duplicate = self.sorted_key[1:] == self.sorted_key[:-1]
        rows = union(
            self.by_key[1:][duplicate],
            1 + np.flatnonzero(self.numbers[1:] == self.numbers[:-1]),
        )
        modules: Ints = self.module[rows]
        return modules

    def by_name(self, keys: Words) -> Ints:
        """Return the row of each key, -1 where no value has it."""
        return lookup(self.sorted_key, self.by_key, keys)

    def by_number(self, module: Ints, value_id: Ints) -> Ints:
        """Return the row of each value by number, -1 where there is none."""
        rows = places_of(self.numbers, self._numbers(module, value_id))
        return np.where(value_id < LARGEST_ID, rows, -1)

    def name_keys(self, rows: Ints) -> Words:
        """Return the hashes of the names of the values in these rows."""
        keys: Words = self.names[self.name[rows]]
        return keys

    def names_of(self, keys: Words, rows: Ints) -> Ints:
        """Return the name that each key is, -1 if it defines no value; mostly that of its row.

        Args:
            keys: hashes of names.
            rows: a value for each, or -1.
        """
        if not len(self):
            return np.full(len(keys), -1)
        names = self.name[rows]
        others = np.flatnonzero((rows < 0) | (self.name_keys(rows) != keys))
        names[others] = places_of(self.names, keys[others])
        return names

    def checks(self, rows: Ints) -> Words:
        """Return the hash of the whole short text of the values in these rows."""
        hashes: Words = self.key[rows] ^ self.extra[rows]
        return hashes

    def modules(self) -> Ints:
        """Return the modules that have values."""
        return distinct(self.module)

    @staticmethod
    def _numbers(module: Ints, value_id: Ints) -> Ints:
        """Return module and number in one; XLA counts values from 0, so 40 bits suffice."""
        if value_id.max(initial=0) >= LARGEST_ID:
            value_id = np.minimum(value_id, LARGEST_ID)
        numbers: Ints = (module << 40) | value_id
        return numbers

    def is_defined(self, names: Words) -> Bools:
        """Return which instruction names define a value."""
        return isin(names, self.names)


def _of_bytes(column: Words) -> Any:
    """Return the same in a byte each, if they fit: a short text leaves a hash of few bits."""
    return column.astype(np.uint8) if column.max(initial=0) < 2**8 else column


def places_of(ordered: Any, wanted: Any) -> Ints:
    """Return the first place of each wanted key in the sorted keys, or -1."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    if ordered.dtype.kind != "u":
        return _places_of(ordered, wanted)
    places = np.empty(len(wanted), np.int64)
    for part in parts(len(wanted)):
        # Hashes are in no order; in order, each is found in the cache near the one before it: among
        # a million keys sorting them first takes a fifth of the time.
        order = np.argsort(wanted[part])
        some = wanted[part][order]
        places[part][order] = _places_of(ordered, some)
    return places


def _places_of(ordered: Any, wanted: Any) -> Ints:
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[place] == wanted, place, -1)


def lookup(ordered: Any, rows: Any, wanted: Any) -> Ints:
    """Return the row of each wanted key in the sorted keys, or -1."""
    place = places_of(ordered, wanted)
    return place if not len(ordered) else np.where(place >= 0, rows[place], -1)


def isin(values: Words, ordered: Words) -> Bools:
    """Return which values are among the sorted ones."""
    is_in: Bools = places_of(ordered, values) >= 0
    return is_in
