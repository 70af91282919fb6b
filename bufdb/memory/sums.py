"""Sums of sizes by memory space and kind, exact whatever the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columnar.scan import Ints


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """The distinct pairs of two columns in order, a row each, and the row of every pair."""
    order = np.lexsort((second, first))
    one, other = first[order], second[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return np.stack([one[is_new], other[is_new]], axis=1), number


def sums_by_kind(group: Ints, kind: Ints, size: Ints, groups: int, kinds: int) -> Any:
    """Sum of the sizes of each group and kind, a row for each group and a column for each kind.

    Of Python's integers where 64 bits might not hold the sum of all.
    """
    exact: Any = size
    if np.abs(size.astype(np.float64)).sum() > 2**62:
        exact = size.astype(object)
    totals = np.zeros(groups * kinds, exact.dtype)
    np.add.at(totals, group * kinds + kind, exact)
    return totals.reshape(groups, kinds)
