"""Ranges of bytes with the time in which they are occupied."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints


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
        """The ranges of these rows."""
        return Ranges(
            self.group[rows],
            self.allocation[rows],
            self.offset[rows],
            self.size[rows],
            self.start[rows],
            self.end[rows],
        )


def spans(group: Ints, groups: int) -> list[tuple[int, int]]:
    """First row of each group, and the one behind its last."""
    bounds = np.searchsorted(group, np.arange(groups + 1)).tolist()
    return list(pairwise(bounds))


def numbered(*columns: Any) -> Ints:
    """For each row the number of its cells among the distinct ones, which are in order."""
    order: Ints = np.lexsort(columns[::-1])
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
