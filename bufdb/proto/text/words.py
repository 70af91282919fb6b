"""Words of an HLO text: what stands between quotes and in braces."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from bufdb.proto.shapes import Index

_ESCAPED = [
    *(f"\\{byte:03o}" for byte in range(32)),
    *(chr(byte) for byte in range(32, 127)),
    *(f"\\{byte:03o}" for byte in range(127, 256)),
]
for _byte, _escape in (
    (9, "\\t"),
    (10, "\\n"),
    (13, "\\r"),
    (34, '\\"'),
    (39, "\\'"),
    (92, "\\\\"),
):
    _ESCAPED[_byte] = _escape


def braces(numbers: Iterable[int]) -> str:
    """A list of numbers as it is printed."""
    return f"{{{','.join(map(str, numbers))}}}"


@lru_cache(maxsize=1 << 14)
def index_text(index: Index) -> str:
    """A shape index as it is printed."""
    return braces(index)


def escaped(text: bytes) -> str:
    """Text for between quotes, as C escapes it."""
    return "".join([_ESCAPED[byte] for byte in text])


def quoted(text: bytes) -> str:
    """Text between quotes."""
    if text.isascii() and b'"' not in text and b"\\" not in text and b"'" not in text:
        plain = text.decode("ascii")
        if plain.isprintable():
            return f'"{plain}"'
    return f'"{escaped(text)}"'


@lru_cache(maxsize=256)
def word(text: bytes) -> str:
    """A word that XLA prints as it stands; what is none cannot end a line."""
    return text.decode("ascii") if text.isalnum() and text.isascii() else escaped(text)
