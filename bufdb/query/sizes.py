"""Sizes as people write them: 123456, 16GiB, 1.5 GB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bufdb.errors import UsageError, quote

if TYPE_CHECKING:
    from fractions import Fraction

UNIT = r"[KMGTPE]iB|[kKMGTPE]B|B"
"""Units of bytes: KiB is 1024, kB and KB are 1000."""
_SIZE = rf"(?a)(\d+(?:\.\d+)?)\s*({UNIT})"


_UNCLEAR = r"(?ai)(\d+(?:\.\d+)?)\s*(?:([kmgt])i?b?)?"
"""A number without a unit, or with a unit in another spelling."""
SMALLEST_BARE = 10**6
"""From here on a number without a unit is bytes; a smaller one may be meant as GiB."""


def require_unit(text: str, what: str) -> None:
    """Require a unit for an ambiguous memory limit; `what` begins the error message.

    Raises:
        UsageError: it is a small number without a unit, or with an invalid one.
    """
    number = re.fullmatch(_UNCLEAR, text)
    if number is None or re.fullmatch(_SIZE, text) or not float(number[1]):
        return
    if text.isdecimal() and float(text) >= SMALLEST_BARE:
        return
    unit = (number[2] or "G").upper()
    other = f"{number[1]}{unit}B" if number[2] or "." in number[1] else f"{number[1]}B"
    raise UsageError(f"{what}: {number[1]}{unit}iB or {other}? It wants the unit")


def in_bytes(number: str, unit: str) -> Fraction:
    """Return a number with a unit in bytes."""
    from fractions import Fraction  # 3 ms, for what few commands are given

    if unit == "B":
        return Fraction(number)
    power = "KMGTPE".index(unit[0].upper()) + 1
    factor: int = (1024 if "i" in unit else 1000) ** power
    return Fraction(number) * factor


def as_limit(text: str, what: str) -> int:
    """Return the bytes of a limit such as 1GB; `what` names it in a message.

    Raises:
        UsageError: it is not a size, or is 0.
    """
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size < 1:
        raise UsageError(f"{what} wants a size such as 1GB, got {quote(text)}")
    return size


def parse_size(text: str) -> int:
    """Return the bytes, rounded down, of a text such as 123456, 32MiB or '1.5 GB'.

    Raises:
        ValueError: it is not a size.
    """
    match = re.fullmatch(_SIZE, text.strip())
    return int(text) if match is None else int(in_bytes(*match.groups()))
