"""Ranges of bytes with the time in which they are occupied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints

PART_ROWS = 1 << 16


def parts(count: int) -> Iterator[slice]:
    """`count` rows in slices: what is worked out from them takes the memory of one."""
    for begin in range(0, count, PART_ROWS):
        yield slice(begin, min(begin + PART_ROWS, count))


@dataclass(frozen=True)
class Ranges:
    """Live byte ranges: row i holds [offset, offset + size) of an allocation from start to end."""

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
        """Return the ranges of these rows."""
        return Ranges(*(column[rows] for column in vars(self).values()))


def in_order(*columns: Any) -> Ints:
    """Return the rows by their first cells, then by their second ones, …; equal rows in any order.

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
        cells = column - least
        key = cells if key is None else key * width + cells
    return np.argsort(key)


def numbered(*columns: Any) -> Ints:
    """Return for each row the number of its cells among the distinct ones, which are in order."""
    order = in_order(*columns)
    is_new = np.zeros(len(order), np.bool_)
    for column in columns:
        ordered = column[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    number: Ints = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new)
    return number


def expanded(first: Ints, counts: Ints) -> Ints:
    """Return first[0], first[0] + 1, …, counts[0] numbers, then the same for the others."""
    before = np.cumsum(counts) - counts
    rows: Ints = np.arange(int(counts.sum())) + np.repeat(first - before, counts)
    return rows


# -- Sums of sizes by memory space and kind, exact whatever the sizes ------------------------------


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs of two columns in order, a row each, and the row of every pair."""
    order = np.lexsort((second, first))
    one, other = first[order], second[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return np.stack([one[is_new], other[is_new]], axis=1), number


def sums_by_kind(group: Ints, kind: Ints, size: Ints, groups: int, kinds: int) -> Any:
    """Sum the sizes of each group and kind, a row for each group and a column for each kind.

    The sums are Python's integers where 64 bits might not hold the sum of all.
    """
    exact: Any = size
    if np.abs(size.astype(np.float64)).sum() > 2**62:
        exact = size.astype(object)
    totals = np.zeros(groups * kinds, exact.dtype)
    np.add.at(totals, group * kinds + kind, exact)
    return totals.reshape(groups, kinds)
