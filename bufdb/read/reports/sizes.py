"""Sizes as messages print them: rounded, and made exact where a shape says the same.

Written by `tsl::strings::HumanReadableNumBytes` (`6.00MiB`) and by the TPU compiler (`512.00M`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from bufdb.read.shape import Shape, shape_of

PATTERN = r"\d{1,15}(?:\.\d{1,3})?(?:[KMGTPE](?:iB|B)?|B)"
_SIZE = re.compile(r"(\d+)(?:\.(\d+))?(?:([KMGTPE])(?:iB|B)?|B)")
_TILE = re.compile(r"\{([\d,]*):T\(([\d,]+)\)")
LIMIT = 2**63


@dataclass(frozen=True)
class Amount:
    """Bytes that were printed rounded: those nearest to the text, and how far off they may be."""

    size_bytes: int
    slack_bytes: int
    """Half of the last digit; 0 where the text is exact."""

    def __add__(self, other: Amount) -> Amount:
        """Of both together."""
        return Amount(self.size_bytes + other.size_bytes, self.slack_bytes + other.slack_bytes)

    def may_be(self, size_bytes: int) -> bool:
        """Whether a size would be printed so."""
        return abs(size_bytes - self.size_bytes) <= self.slack_bytes


def amount_of(text: str) -> Amount | None:
    """An amount from its text; None if it is none, or past 63 bits."""
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    whole, fraction, unit = found[1], found[2] or "", found[3]
    scale = 1024 ** ("KMGTPE".index(unit) + 1) if unit else 1
    digits = 10 ** len(fraction)
    size = (int(whole + fraction) * scale + digits // 2) // digits
    slack = -(-scale // (2 * digits)) if unit else 0
    return Amount(size, slack) if size + slack < LIMIT else None


def size_of(shape: str, printed: Amount) -> tuple[int, bool]:
    """Bytes of a buffer, and whether they are exact.

    Those of the shape's elements or, in a tiled layout, of its whole tiles, if they would be
    printed so; else what is printed.
    """
    parsed = shape_of(shape)
    for size in (parsed.logical_bytes, _tiled_bytes(parsed)):
        if size is not None and printed.may_be(size):
            return size, True
    return printed.size_bytes, not printed.slack_bytes


def _tiled_bytes(shape: Shape) -> int | None:
    """Bytes with the last dimensions rounded up to whole tiles; None if the layout has none.

    A further tiling, such as (2,1), orders the elements of a tile and adds none.
    """
    tiled = _TILE.match(shape.layout or "")
    if tiled is None or shape.dimensions is None or not shape.logical_bytes:
        return None
    order = [int(part) for part in tiled[1].split(",") if part]
    tile = [int(part) for part in tiled[2].split(",") if part]
    if sorted(order) != list(range(len(shape.dimensions))) or 0 in tile or not shape.element_count:
        return None
    sizes = [shape.dimensions[place] or 0 for place in reversed(order)]
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    first = len(sizes) - len(tile)
    whole = [-(-size // step) * step for size, step in zip(sizes[first:], tile, strict=True)]
    count = prod(sizes[:first]) * prod(whole)
    size = -(-count * shape.logical_bytes // shape.element_count)
    return size if size < LIMIT else None
