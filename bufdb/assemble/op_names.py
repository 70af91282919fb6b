"""The op_names of a batch by number, and what is left of them without what JAX adds.

A program of millions of instructions has about as many op_names. Their text is kept end to end,
packed where it is long, and what is only compared is compared by hashes.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from bufdb.columnar.scan import Bools, Ints, Text
from bufdb.link.context import SECRET
from bufdb.link.op_paths import op_path, strip_op_path
from bufdb.memory.ranges import Narrow, narrow

_REMEMBERED = 1 << 16
"""Texts known not to be new. What was forgotten and comes again has two numbers, which is no harm:
numbers of equal texts become one in `Stripped`."""
PACKED_BYTES = 1 << 20
"""Text that is packed, to about a tenth: scopes stand in it again and again."""


class OpNames:
    """Texts by number, end to end."""

    def __init__(self) -> None:
        """No text has a number yet."""
        self._text = bytearray()
        """What is not packed: the last of all."""
        self._packed: list[bytes] = []
        self._firsts = [0]
        """The first text in each of the packed parts, and in what is not packed."""
        self._unpacked: tuple[int, bytes] = -1, b""
        """The part that was asked for last."""
        self._stops = array("I")
        """Where each text ends in its part."""
        self._numbers: dict[int, int] = {}
        """By the hash of a text its number."""

    def __len__(self) -> int:
        return len(self._stops)

    def __getitem__(self, number: int) -> bytes:
        part = bisect_right(self._firsts, number) - 1
        begin = 0 if number == self._firsts[part] else self._stops[number - 1]
        if part == len(self._packed):
            return bytes(self._text[begin : self._stops[number]])
        if self._unpacked[0] != part:
            self._unpacked = part, zlib.decompress(self._packed[part])
        return self._unpacked[1][begin : self._stops[number]]

    def numbers(self, op_name: Text) -> Ints:
        """The number of each op_name, -1 where there is none."""
        numbers, nulls = np.full(len(op_name), -1), op_name.is_null()
        rows = np.arange(len(op_name)) if nulls is None else np.flatnonzero(~nulls)
        keys, first, inverse = np.unique(
            op_name.take(rows).hashes(SECRET), return_index=True, return_inverse=True
        )
        if len(self._numbers) > _REMEMBERED:
            self._numbers.clear()
        known = np.array([self._numbers.get(key, -1) for key in keys.tolist()], np.int64)
        new = np.flatnonzero(known < 0)
        known[new] = np.arange(len(self), len(self) + len(new))
        self._numbers.update(zip(keys[new].tolist(), known[new].tolist(), strict=True))
        texts = [text or b"" for text in op_name.take(rows[first[new]]).tolist()]
        ends = accumulate(map(len, texts), initial=len(self._text))
        next(ends)
        self._stops.extend(ends)
        self._text += b"".join(texts)
        if len(self._text) > PACKED_BYTES:
            self._packed.append(zlib.compress(self._text, 1))
            self._firsts.append(len(self))
            self._text = bytearray()
        numbers[rows] = known[inverse]
        return numbers

    def stripped(self, number: int) -> str:
        """The text of a number without what JAX adds."""
        return strip_op_path(op_path(self[number].decode(errors="replace")))


class Stripped(Sequence[str]):
    """What is left of some op_names, each text once; several of them may be one then."""

    def __init__(self, op_names: OpNames, is_wanted: Bools) -> None:
        """Take the op_names that are wanted, by number."""
        self._op_names = op_names
        wanted = np.flatnonzero(is_wanted)
        # A list of these numbers would be the largest thing that is held here.
        found = (hash(op_names.stripped(number)) for number in wanted.data)
        hashes = np.fromiter(found, np.int64, len(wanted))
        order = narrow(np.argsort(hashes, kind="stable"))
        self._hashes = hashes[order]
        del hashes
        is_new = np.append(True, self._hashes[1:] != self._hashes[:-1])[: len(order)]
        self._hashes = self._hashes[is_new]
        self._examples = wanted[order[is_new]]
        self._places: Narrow = np.full(len(op_names) + 1, -1, np.int32)
        self._places[wanted[order]] = np.cumsum(is_new, dtype=np.int32) - 1

    def places(self, numbers: Narrow) -> Narrow:
        """For each op_name, by number or -1, where in this its text is."""
        return self._places[numbers]

    def find(self, text: str) -> int:
        """Where a text is, or -1."""
        place = int(np.searchsorted(self._hashes, hash(text)))
        return place if place < len(self) and self._hashes[place] == hash(text) else -1

    def __len__(self) -> int:
        return len(self._hashes)

    # A sequence takes slices too, which nobody asks for here.
    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._op_names.stripped(int(self._examples[place]))

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))
