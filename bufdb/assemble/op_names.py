"""The op_names of a batch by number, and what is left of them without what JAX adds.

A program of millions of instructions has about as many op_names. Each is stripped where it is met
first, what is left is kept in packed parts, and what is only compared is compared by hashes.
"""

from __future__ import annotations

import marshal
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bufdb.columnar.scan import Bools, Ints, Text
from bufdb.link.op_paths import op_path, strip_op_path

_REMEMBERED = 1 << 13
"""Op_names known not to be new, as many as stay in a cache: equal ones mostly stand close together.
What was forgotten and comes again has two numbers, which is no harm: numbers of equal texts become
one in `Stripped`."""
PART = 1 << 12
"""Texts that are packed together, to about a tenth: scopes stand in them again and again."""


def is_backward(op_name: bytes) -> bool:
    """Whether an op_name is of the backward pass, what that computes again included."""
    return b"transpose(" in op_name


class _Numbers(dict[bytes | None, int]):
    """Op_names with their numbers; of what is not known the number is asked for once."""

    def __init__(self, add: Callable[[bytes], int]) -> None:
        """Nothing is known but that no op_name has the number -1."""
        self._add = add
        self[None] = -1

    def __missing__(self, op_name: bytes) -> int:
        number = self[op_name] = self._add(op_name)
        return number


class OpNames:
    """What is left of op_names, by number."""

    def __init__(self) -> None:
        """No op_name has a number yet."""
        self._texts: list[str] = []
        """What is not packed: the last of all."""
        self._packed: list[bytes] = []
        """The others, as many in each as in any."""
        self._unpacked: tuple[int, list[str]] = -1, []
        """The part that was asked for last."""
        self.hashes = array("q")
        """Of each text."""
        self.is_backward = array("b")
        """Of each whether the backward pass computes it."""
        self._numbers = _Numbers(self._add)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, number: int) -> str:
        part, place = divmod(number, PART)
        if part == len(self._packed):
            return self._texts[place]
        if self._unpacked[0] != part:
            self._unpacked = part, marshal.loads(zlib.decompress(self._packed[part]))
        return self._unpacked[1][place]

    def numbers(self, op_name: Text) -> Ints:
        """The number of each op_name, -1 where there is none.

        One by one: to hash and sort them as columns took three times as long.
        """
        if len(self._numbers) > _REMEMBERED:
            self._numbers = _Numbers(self._add)
        found = map(self._numbers.__getitem__, op_name.tolist())
        return np.fromiter(found, np.int64, len(op_name))

    def _add(self, op_name: bytes) -> int:
        """The number of one that is new."""
        if len(self._texts) == PART:
            self._packed.append(zlib.compress(marshal.dumps(self._texts), 1))
            self._texts = []
        text = strip_op_path(op_path(op_name.decode(errors="replace")))
        self._texts.append(text)
        self.hashes.append(hash(text))
        self.is_backward.append(is_backward(op_name))
        return len(self.hashes) - 1


class Stripped(Sequence[str]):
    """What is left of some op_names, each text once; several of them may be one then."""

    def __init__(self, op_names: OpNames, is_wanted: Bools) -> None:
        """Take the op_names that are wanted, by number."""
        self._op_names = op_names
        wanted = np.flatnonzero(is_wanted)
        hashes = np.array(op_names.hashes)[wanted]
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        del hashes
        is_new = np.append(True, self._hashes[1:] != self._hashes[:-1])[: len(order)]
        self._hashes = self._hashes[is_new]
        self._examples = wanted[order[is_new]]
        self._places: Ints = np.full(len(op_names) + 1, -1)
        self._places[wanted[order]] = np.cumsum(is_new) - 1

    def places(self, numbers: Ints) -> Ints:
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
        return self._op_names[int(self._examples[place])]

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))
