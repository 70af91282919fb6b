"""Sizes as people write them: 123456, 16GiB, 1.5 GB."""

from __future__ import annotations

import re
from fractions import Fraction

from bufdb.errors import UsageError, quote

UNIT = r"[KMGTPE]iB|[kKMGTPE]B|B"
"""Units of bytes: KiB is 1024, kB and KB are 1000."""
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({UNIT})", re.ASCII)


def in_bytes(number: str, unit: str) -> Fraction:
    """A number of some unit in bytes."""
    if unit == "B":
        return Fraction(number)
    power = "KMGTPE".index(unit[0].upper()) + 1
    factor: int = (1024 if "i" in unit else 1000) ** power
    return Fraction(number) * factor


def as_limit(text: str, what: str) -> int:
    """Bytes of a text such as 1GB that is to bound something; `what` names it in a message.

    Raises:
        UsageError: it is no size, or none that leaves anything.
    """
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size < 1:
        raise UsageError(f"{what} wants a size such as 1GB, got {quote(text)}")
    return size


def parse_size(text: str) -> int:
    """Whole bytes, rounded down, of a text such as 123456, 32MiB or '1.5 GB'.

    Raises:
        ValueError: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    return int(text) if found is None else int(in_bytes(*found.groups()))
