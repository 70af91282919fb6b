"""Protocol buffers, as far as writing needs them: numbers, texts and messages as fields.

The encoding is that of protobuf.dev/programming-guides/encoding. A message is the concatenation of
its fields, by `b"".join` or `+`.
"""

from __future__ import annotations

from collections.abc import Iterable

from bufdb.errors import BufdbError

_VARINT, _LENGTH = 0, 2


def varint(number: int) -> bytes:
    """Encode a signed 64-bit integer; a negative one as its two's complement.

    Raises:
        BufdbError: it does not fit.
    """
    if not -(2**63) <= number < 2**63:
        raise BufdbError(f"{number} does not fit into 64 bits")
    number &= 2**64 - 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def integer(field: int, number: int) -> bytes:
    """Encode a field of type int64, uint64 (of 63 bits), bool or enum."""
    return varint(field << 3 | _VARINT) + varint(number)


def packed(field: int, numbers: Iterable[int]) -> bytes:
    """Encode a repeated field of numbers."""
    return message(field, b"".join(map(varint, numbers)))


def message(field: int, body: bytes) -> bytes:
    """Encode a field that is a message."""
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def text(field: int, words: str) -> bytes:
    """Encode a field of type string."""
    return message(field, words.encode())
