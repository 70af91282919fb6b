"""Numbers and texts as few bytes: columns of varints, string tables, gzip.

A slot of the page is gzip of: the length of the head as 32 bits, little endian; the head, JSON in
UTF-8; then column after column, each number a zigzag varint: 2n, or -2n-1 if it is negative, in
groups of seven bits, lowest first, the eighth bit set on all but the last. A column of differences
has each number minus the one before it. The head's `columns` lists name, count, whether these are
differences, and bytes of each. 100,000 values are a megabyte, as JSON rows they would be 25.

Invariant: the same content gives the same bytes; every number is one that JavaScript has exactly.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LARGEST = 2**52 - 1
"""The largest number of a column: doubled, it is still exact in JavaScript."""
_LARGEST_IN_JSON = 2**53 - 1


class TooLargeError(ValueError):
    """A number that a page cannot show exactly."""


@dataclass(frozen=True)
class Column:
    """Whole numbers."""

    name: str
    numbers: Sequence[int]
    is_delta: bool = False
    """Whether differences take fewer bytes."""


class Texts:
    """A string table: text in, its number out, in order of first use; -1 for None."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        """The number of a text."""
        if text is None:
            return -1
        return self.numbers.setdefault(text, len(self.numbers))


def pack(head: Mapping[str, Any], columns: Iterable[Column] = ()) -> bytes:
    """A slot's bytes.

    Raises:
        TooLargeError: a number of a column is larger than JavaScript has exactly.
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
    """JSON without spaces; whole numbers that JavaScript would round are text."""
    return json.dumps(
        _exact(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def varints(numbers: Iterable[int]) -> bytes:
    """Zigzag varints.

    Raises:
        TooLargeError: a number is beyond LARGEST.
    """
    out = bytearray()
    append = out.append
    for number in numbers:
        if not -LARGEST <= number <= LARGEST:
            raise TooLargeError(f"{number} is more than a page can show exactly")
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
    """What JSON has, with nothing that a reader in JavaScript would see otherwise."""
    if isinstance(value, Mapping):
        return {str(key): _exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    if isinstance(value, int) and abs(value) > _LARGEST_IN_JSON:
        return str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value if isinstance(value, int | float | str | None) else str(value)
