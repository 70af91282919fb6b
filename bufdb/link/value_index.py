"""The values of a batch, to be found by name and index or by number.

Names are compared by 64-bit hashes, seeded per module (a clash would show as two values of one name
and is reported), in arrays sorted once, so that memory is what the largest module's keys need: each
name has its hash once and is a number elsewhere, and numbers take the bytes that they need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Ints, Words
from bufdb.columnar.sets import distinct, union
from bufdb.memory.ranges import narrow, parts, wide

LARGEST_ID = (1 << 40) - 1


class ValueIndex:
    """The values of a batch, sorted by module and number, to be found by name and index.

    Columns of numbers are narrow: they are made wide before arithmetic.
    """

    NUMBERS = ("module", "value_id", "allocation_index", "offset_bytes", "size_bytes")

    def __init__(self) -> None:
        self.parts: list[Columns] = []

    def add(self, **columns: Any) -> None:
        """Take the values of one round: a column per name that `finish` asks for."""
        for name in self.NUMBERS:
            columns[name] = narrow(columns[name])
        columns["extra"] = _of_bytes(columns["extra"])
        self.parts.append(columns)

    def finish(self) -> None:
        """Sort what was added; from here on values can be found."""
        module, value_id = self._joined("module"), self._joined("value_id")
        order = narrow(np.lexsort((value_id, module)))
        self.module, self.value_id = narrow(module[order]), narrow(value_id[order])
        del module, value_id
        self._number_names(self._joined("name_key")[order])
        for name in ("key", "extra", "allocation_index", "offset_bytes", "size_bytes", "is_phi"):
            setattr(self, name, self._joined(name)[order])
        self.parts = []
        self.numbers = self._numbers(self.module, self.value_id)
        self._sort_keys()

    def _joined(self, name: str) -> Any:
        """A column of all rounds, which give it up."""
        kinds = {"name_key": np.uint64, "key": np.uint64, "extra": np.uint8, "is_phi": np.bool_}
        columns = [part.pop(name) for part in self.parts]
        found = np.concatenate([np.empty(0, kinds.get(name, np.int8)), *columns])
        del columns
        return found

    def _number_names(self, name_key: Words) -> None:
        order = narrow(np.argsort(name_key, kind="stable"))
        ordered = name_key[order]
        del name_key  # here most is held of all that the index is made of
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = ordered[1:] != ordered[:-1]
        self.names, self.first = ordered[is_new], narrow(order[is_new])
        del ordered
        kind = np.int32 if len(order) < 2**31 else np.int64
        self.name = np.empty(len(order), kind)
        self.name[order] = np.cumsum(is_new, dtype=kind)
        self.name -= 1

    def _sort_keys(self) -> None:
        """Put the keys in order, as long as values are looked up by them."""
        order = np.argsort(self.key)
        self.sorted_key = self.key[order]
        if (self.sorted_key[1:] == self.sorted_key[:-1]).any():
            # Of values with one name the first is found, whatever else is in the batch.
            order = np.argsort(self.key, kind="stable")
        self.by_key = narrow(order)
        del self.key

    module: Any
    value_id: Any
    names: Words
    """Hashes of the names of what defines values, ascending."""
    name: Any
    """Which of them each value has."""
    first: Any
    """The first value of each name."""
    key: Words
    """Hash of name and index; only from `forget_order` on."""
    extra: Any
    """By which the hash of the whole short text differs from `key`."""
    allocation_index: Any
    offset_bytes: Any
    size_bytes: Any
    is_phi: Bools

    def __len__(self) -> int:
        return len(self.value_id)

    def forget_order(self) -> None:
        """Put the keys back in the order of the values, which no name is looked up in any more."""
        self.key = np.empty_like(self.sorted_key)
        self.key[self.by_key] = self.sorted_key
        del self.by_key, self.sorted_key

    def forget_placements(self) -> None:
        """Give up where values lie, in time for the largest section."""
        del self.allocation_index, self.offset_bytes, self.size_bytes, self.is_phi

    def forget_texts(self) -> None:
        """Give up what short texts are held to; all are read."""
        del self.key, self.extra

    def forget_names(self) -> None:
        """Give up the hashes of names; what is asked from here on is asked by number."""
        del self.names

    def duplicates(self) -> Ints:
        """The module of each value that has the name, or the number, of another."""
        duplicate = self.sorted_key[1:] == self.sorted_key[:-1]
        rows = union(
            self.by_key[1:][duplicate],
            1 + np.flatnonzero(self.numbers[1:] == self.numbers[:-1]),
        )
        return wide(self.module[rows])

    def by_name(self, keys: Words) -> Ints:
        """The row of each key, -1 where no value has it."""
        return lookup(self.sorted_key, self.by_key, keys)

    def by_number(self, module: Ints, value_id: Ints) -> Ints:
        """The row of each value by number, -1 where there is none."""
        rows = places_of(self.numbers, self._numbers(module, value_id))
        return np.where(value_id < LARGEST_ID, rows, -1)

    def name_keys(self, rows: Ints) -> Words:
        """Hashes of the names of the values in these rows."""
        found: Words = self.names[self.name[rows]]
        return found

    def names_of(self, keys: Words, rows: Ints) -> Ints:
        """Which name each key is, -1 if it defines no value; mostly that of the value beside it.

        Args:
            keys: hashes of names.
            rows: a value for each, or -1.
        """
        if not len(self):
            return np.full(len(keys), -1)
        found = wide(self.name[rows])
        others = np.flatnonzero((rows < 0) | (self.name_keys(rows) != keys))
        found[others] = places_of(self.names, keys[others])
        return found

    def checks(self, rows: Ints) -> Words:
        """Hash of the whole short text of the values in these rows."""
        found: Words = self.key[rows] ^ self.extra[rows]
        return found

    def modules(self) -> Ints:
        """The modules that have values."""
        return distinct(wide(self.module))

    @staticmethod
    def _numbers(module: Any, value_id: Any) -> Any:
        """Module and number in one; XLA counts values from 0, so 40 bits are ample."""
        if value_id.max(initial=0) >= LARGEST_ID:
            value_id = np.minimum(wide(value_id), LARGEST_ID)
        return (wide(module) << 40) | value_id if module.any() else value_id

    def is_defined(self, names: Words) -> Bools:
        """Which instruction names define a value."""
        return isin(names, self.names)


def _of_bytes(column: Words) -> Any:
    """The same in a byte each, if they fit: of a short text a hash of few bits is left."""
    return column.astype(np.uint8) if column.max(initial=0) < 2**8 else column


def places_of(ordered: Any, wanted: Any) -> Ints:
    """For each wanted key where it stands first in the sorted keys, or -1."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    sought = wanted
    if ordered.dtype.kind == "i" and ordered.itemsize < wanted.itemsize:
        # Or all of the sorted ones would be made wide.
        least, most = np.iinfo(ordered.dtype).min, np.iinfo(ordered.dtype).max
        sought = np.clip(wanted, least, most).astype(ordered.dtype)
    if ordered.dtype.kind != "u":
        return _places_of(ordered, sought, wanted)
    found = np.empty(len(wanted), np.int64)
    for part in parts(len(wanted)):
        # Hashes come in no order, and in order each is found near the one before it, in the cache:
        # among a million keys sorting them first takes a fifth of the time.
        order = np.argsort(wanted[part])
        some = wanted[part][order]
        found[part][order] = _places_of(ordered, some, some)
    return found


def _places_of(ordered: Any, sought: Any, wanted: Any) -> Ints:
    """The same, `sought` being what is wanted in the type of the sorted keys."""
    place = np.minimum(np.searchsorted(ordered, sought), len(ordered) - 1)
    return np.where(ordered[place] == wanted, place, -1)


def lookup(ordered: Any, rows: Any, wanted: Any) -> Ints:
    """For each wanted key the row that belongs to it in the sorted keys, or -1."""
    place = places_of(ordered, wanted)
    return place if not len(ordered) else np.where(place >= 0, wide(rows[place]), -1)


def isin(values: Words, ordered: Words) -> Bools:
    """Which values are among the sorted ones."""
    found: Bools = places_of(ordered, values) >= 0
    return found
