"""The highest point of many step functions, each a curve lowered here and there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Ints

SHIFT = 40
"""Owner and time in one integer: times are places in a schedule, which has fewer than 2^40 steps,
and there are fewer than 2^22 owners."""


@dataclass(frozen=True)
class Steps:
    """Step functions end to end: each has `value` from `time` until the next row of its owner."""

    owner: Ints
    """Number of the function, ascending."""
    time: Ints
    """Ascending within an owner."""
    value: Ints
    """Python integers instead where 64 bits may not do."""

    def from_zero(self, owners: int) -> Steps:
        """The same with a row at time 0 for all `owners`; before its first row a function is 0."""
        begins = np.zeros(owners, np.bool_)
        begins[self.owner[self.time == 0]] = True
        lacking = np.flatnonzero(~begins)
        if not len(lacking):
            return self
        places = np.searchsorted(self.owner, lacking)
        return Steps(
            np.insert(self.owner, places, lacking),
            np.insert(self.time, places, 0),
            np.insert(self.value, places, 0),
        )


def highest(curves: Steps, falls: Steps, curve_of: Ints) -> tuple[Ints, Ints]:
    """The largest value of `curve - fall` for each fall, and the first time at which it has it.

    Falls may rise, that is be below 0. O(n log n) for n rows, by a table of the highest rows of
    1, 2, 4, … rows, of which only one level is held at a time.

    Args:
        curves: an owner for each curve, with a row at time 0 (`Steps.from_zero`).
        falls: what is taken from a curve; the same.
        curve_of: for each owner in `falls` its curve.
    """
    return Curves(curves).highest(falls, curve_of)


class Curves:
    """Curves in the order of their values, to be lowered by many falls."""

    def __init__(self, curves: Steps) -> None:
        """Take curves as `highest` does."""
        self._value = curves.value
        self._keys = curves.owner << SHIFT
        self._keys += curves.time
        self._order = np.argsort(-curves.value, kind="stable")
        self._rank = np.empty(len(self._order), np.int64)
        self._rank[self._order] = np.arange(len(self._order))

    def at(self, keys: Ints) -> Any:
        """The values at these instants: owner and time in one (SHIFT)."""
        return self._value[np.searchsorted(self._keys, keys, "right") - 1]

    def highest(self, falls: Steps, curve_of: Ints) -> tuple[Ints, Ints]:
        """As the function of that name."""
        if not len(falls.owner):
            return np.empty(0, self._value.dtype), np.empty(0, np.int64)
        curve = curve_of[falls.owner] << SHIFT
        # The rows of the curve that a row of the fall meets: the one under way at its time, too.
        low = np.searchsorted(self._keys, curve + falls.time, "right") - 1
        until = np.append(falls.time[1:], 0)
        until[np.append(falls.owner[1:] != falls.owner[:-1], True)] = 1 << SHIFT
        high = np.searchsorted(self._keys, curve + until)
        found = self._order[_lowest(self._rank, low, high)]
        left = self._value[found] - falls.value
        is_first = np.append(True, falls.owner[1:] != falls.owner[:-1])
        best = np.maximum.reduceat(left, np.flatnonzero(is_first))
        rows = np.flatnonzero(left == best[np.cumsum(is_first) - 1])
        _, first = np.unique(falls.owner[rows], return_index=True)
        rows = rows[first]
        time = self._keys[found[rows]] & ((1 << SHIFT) - 1)
        return best, np.maximum(time, falls.time[rows])


def _lowest(rank: Any, low: Ints, high: Ints) -> Ints:
    """The least of rank[low:high] for each pair, of which none is empty."""
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    order = np.argsort(level.astype(np.int8), kind="stable")
    top = int(level[order[-1]])
    bounds = np.searchsorted(level[order], np.arange(top + 2)).tolist()
    found = np.empty(len(low), rank.dtype)
    for power in range(top + 1):
        rows = order[bounds[power] : bounds[power + 1]]
        found[rows] = np.minimum(rank[low[rows]], rank[high[rows] - 2**power])
        rank = np.minimum(rank[: -(2**power)], rank[2**power :])
    return found
