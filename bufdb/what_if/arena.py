"""How many bytes XLA reserves for temporaries: its heap simulator over live ranges.

Buffers are placed from the largest down, each in the smallest gap that is free while it lives, as
`GlobalDecreasingSizeBestFitHeap` does; and again from the longest-lived down. The lower of both
arenas is taken, as `ChooseBestHeapAlgorithm` does.
"""

from __future__ import annotations

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.memory.ranges import Ranges

ALIGNMENT = 64
"""Offsets are multiples of it; GPUs take more, which moves an arena by some bytes a buffer."""
_ENDLESS = 1 << 62


def buffers(ranges: Ranges) -> Ranges:
    """Ranges that begin at one byte, each while the one before lives, as one: what XLA places."""
    order = np.lexsort((ranges.start, ranges.offset, ranges.allocation))
    allocation, offset, size, start, end = (
        column[order]
        for column in (ranges.allocation, ranges.offset, ranges.size, ranges.start, ranges.end)
    )
    if not len(order):
        return ranges
    is_place = np.ones(len(order), np.bool_)
    is_place[1:] = (allocation[1:] != allocation[:-1]) | (offset[1:] != offset[:-1])
    # Ends so far in the same place: those of a later place are above all before it.
    lift = np.cumsum(is_place) * (int(end.max()) + 2)
    reached = np.maximum.accumulate(end + lift)
    is_first = is_place.copy()
    is_first[1:] |= start[1:] + lift[1:] > reached[:-1]
    first = np.flatnonzero(is_first)
    return Ranges(
        np.zeros(len(first), np.int64),
        allocation[first],
        offset[first],
        np.maximum.reduceat(size, first),
        start[first],
        np.maximum.reduceat(end, first),
    )


def arena_bytes(ranges: Ranges) -> int:
    """Bytes that the ranges take when they are placed again, in all allocations together."""
    placed = buffers(ranges)
    total = 0
    for number in np.unique(placed.allocation).tolist():
        rows = placed.allocation == number
        size, start, end = placed.size[rows], placed.start[rows], placed.end[rows]
        orders = (
            np.lexsort((start, start - end, -size)),
            np.lexsort((start, -size, start - end)),
        )
        total += min(_height(size[order], start[order], end[order]) for order in orders)
    return total


def _height(size: Ints, start: Ints, end: Ints) -> int:
    """The end of the highest of the buffers, placed one after another."""
    begin, height = np.zeros(len(size), np.int64), 0
    for number in range(len(size)):
        meets = (start[:number] <= end[number]) & (end[:number] >= start[number])
        low = begin[:number][meets]
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate((low + size[:number][meets])[order])
        free = -(-np.concatenate([[0], high]) // ALIGNMENT) * ALIGNMENT
        room = np.concatenate([low, [_ENDLESS]]) - free
        fits = np.where(room >= size[number], room, _ENDLESS)
        # The first of the smallest gaps; the one above all is the largest.
        begin[number] = free[int(np.argmin(fits))] if fits.min() < _ENDLESS // 2 else free[-1]
        height = max(height, int(begin[number] + size[number]))
    return height
