"""Ranges of bytes with the time in which they are occupied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints

Narrow = Any
"""A column of integers of 8 to 64 bits, as `narrow` makes."""
_LIMITS: dict[Any, int] = {np.int8: 2**7, np.int16: 2**15, np.int32: 2**31}


def narrow(column: Any) -> Narrow:
    """The same numbers in as few bytes as all of them fit into; of zeros alone, in none.

    For what waits: `wide` before arithmetic, or the result may not fit.
    """
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    if low == high == 0:
        return np.broadcast_to(np.zeros(1, np.int8), column.shape)
    for kind, limit in _LIMITS.items():
        if -limit <= low and high < limit - 1:
            return column.astype(kind, copy=False)
    return column.astype(np.int64, copy=False)


def wide(column: Narrow) -> Ints:
    """Numbers in 64 bits."""
    found: Ints = column.astype(np.int64, copy=False)
    return found


def put(column: Narrow, rows: Ints, numbers: Ints) -> Narrow:
    """A narrow column with other numbers in some rows: the same one, unless they do not fit."""
    if len(numbers) and narrow(numbers).itemsize > column.itemsize:
        column = column.astype(np.promote_types(column.dtype, narrow(numbers).dtype))
    column[rows] = numbers
    return column


def inserted(column: Narrow, places: Ints, numbers: Ints) -> Narrow:
    """A narrow column with more numbers, each before the place that is given for it."""
    kind = np.promote_types(column.dtype, narrow(numbers).dtype)
    return np.insert(column.astype(kind, copy=False), places, numbers)


PART_ROWS = 1 << 16


def parts(count: int) -> Iterator[slice]:
    """`count` rows in slices: what is worked out from narrow columns takes the memory of one."""
    for begin in range(0, count, PART_ROWS):
        yield slice(begin, min(begin + PART_ROWS, count))


@dataclass(frozen=True)
class Ranges:
    """Live byte ranges: row i holds [offset, offset + size) of an allocation from start to end.

    Columns may be narrow.
    """

    group: Ints
    """Number of the (module, memory space), ascending from 0."""
    allocation: Ints
    """Number of the allocation within its group."""
    offset: Ints
    size: Ints
    start: Ints
    end: Ints
    """Last instant, itself included."""

    def where(self, rows: Bools | Ints) -> Ranges:
        """The ranges of these rows, in wide columns."""
        return Ranges(*(wide(column[rows]) for column in vars(self).values()))

    def narrowed(self) -> Ranges:
        """The same in narrow columns: to be asked for `where`."""
        return Ranges(*map(narrow, vars(self).values()))


def in_order(*columns: Any) -> Ints:
    """The rows by their first cells, then by their second ones, …; equal rows in any order.

    Columns whose numbers fit into 63 bits together are sorted as one, in a seventh of the time that
    `np.lexsort` takes for three.
    """
    key: Any = None
    room = 1
    for column in columns:
        least = int(column.min(initial=0))
        width = int(column.max(initial=0)) - least + 1
        room *= width
        if room >= 2**63:
            return np.lexsort(columns[::-1])
        cells = wide(column) - least
        key = cells if key is None else key * width + cells
    return np.argsort(key)


def numbered(*columns: Any) -> Ints:
    """For each row the number of its cells among the distinct ones, which are in order."""
    order = in_order(*columns)
    is_new = np.zeros(len(order), np.bool_)
    for column in columns:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    number: Ints = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new)
    return number


def expanded(first: Ints, counts: Ints) -> Ints:
    """first[0], first[0] + 1, … as many as counts[0] says, then the same for the others."""
    before = np.cumsum(counts) - counts
    rows: Ints = np.arange(int(counts.sum())) + np.repeat(first - before, counts)
    return rows
