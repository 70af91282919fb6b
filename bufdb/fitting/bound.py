"""How little work any mixture of plans does, by their traces.

Of equal layers some are as one plan has them and the others as another: bytes and work of the
mixture are on the line between those of the two. So the lower hull of all plans is a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Point = tuple[int, int]
"""Bytes, and work."""


def hull(points: Iterable[Point]) -> list[Point]:
    """Return the points below which no mixture of others is, the least bytes first."""
    kept: list[Point] = []
    for point in sorted(set(points)):
        if kept and point[1] >= kept[-1][1]:
            continue
        while len(kept) > 1 and not _is_below(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _is_below(a: Point, b: Point, c: Point) -> bool:
    """Return whether the second of three points is below the line between the others."""
    return (b[1] - a[1]) * (c[0] - a[0]) < (c[1] - a[1]) * (b[0] - a[0])


def least(points: Iterable[Point], size: int) -> float:
    """Return the least work of mixtures that have at most `size` bytes.

    Raises:
        ValueError: all points have more.
    """
    kept = hull(points)
    for (low, most), (high, less) in pairwise(kept):
        if low <= size < high:
            return most + (less - most) * (size - low) / (high - low)
    if not kept or kept[0][0] > size:
        raise ValueError(f"no point has at most {size} bytes")
    return kept[-1][1]
