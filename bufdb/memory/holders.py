"""Who holds the bytes at one instant: every byte counts for one range."""

from __future__ import annotations

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.memory.occupancy import running_maximum
from bufdb.memory.ranges import parts


def own_bytes(allocation: Ints, offset: Ints, size: Ints) -> Ints:
    """For each range how many of its bytes no range before it in the same allocation has.

    The order is that of the offsets; of equal ones the larger comes first, then the earlier row.
    So the sum over an allocation is the union of its ranges. Ends must fit into 64 bits and sizes
    be 0 or more: in a module whose peak is known they lie within the allocation.
    """
    if not len(size):
        return size
    order = np.lexsort((-size, offset, allocation))
    begin = offset[order]
    end = begin + size[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = allocation[order][1:] != allocation[order][:-1]
    covered = running_maximum(end, np.cumsum(is_first) - 1)
    before = np.concatenate([begin[:1], covered[:-1]])
    fresh = np.where(is_first, begin, np.maximum(begin, before))
    held = np.empty(len(order), np.int64)
    held[order] = np.maximum(end - fresh, 0)
    return held


def largest_rows(allocation: Ints, size: Ints, allocations: int) -> Ints:
    """For each allocation the row of its largest range, the first of equal ones; -1 without one."""
    largest = np.full(allocations, np.iinfo(np.int64).min)
    for part in parts(len(size)):
        np.maximum.at(largest, allocation[part], size[part])
    is_largest = np.empty(len(size), np.bool_)
    for part in parts(len(size)):
        is_largest[part] = size[part] == largest[allocation[part]]
    found = np.full(allocations, -1)
    rows = np.flatnonzero(is_largest)[::-1]
    # The last that is written stays.
    found[allocation[rows]] = rows
    return found
