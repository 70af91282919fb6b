"""The highest points of step functions, and the distinct peaks of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Ints

# -- The highest point of many step functions, each a curve lowered here and there -----------------

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
    """Python integers instead where 64 bits may not suffice."""

    def from_zero(self, owners: int) -> Steps:
        """Return the same with a row at time 0 for all `owners`, where functions are 0 at first."""
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
    """Return the largest value of `curve - fall` for each fall, and the first time of it.

    Falls may rise, that is be below 0. O(n log n) for n rows, by a table of the highest rows of 1,
    2, 4, … rows, with only one level held at a time.

    Args:
        curves: an owner for each curve, with a row at time 0 (`Steps.from_zero`).
        falls: what is subtracted from a curve, in the same form.
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
        """Return the values at these instants: owner and time in one (SHIFT)."""
        return self._value[np.searchsorted(self._keys, keys, "right") - 1]

    def highest(self, falls: Steps, curve_of: Ints) -> tuple[Ints, Ints]:
        """Do what the function of that name does."""
        if not len(falls.owner):
            return np.empty(0, self._value.dtype), np.empty(0, np.int64)
        curve = curve_of[falls.owner] << SHIFT
        # The rows of the curve that a row of the fall meets, with the one in force at its time.
        low = np.searchsorted(self._keys, curve + falls.time, "right") - 1
        until = np.append(falls.time[1:], 0)
        until[np.append(falls.owner[1:] != falls.owner[:-1], True)] = 1 << SHIFT
        high = np.searchsorted(self._keys, curve + until)
        tops = self._order[_lowest(self._rank, low, high)]
        left = self._value[tops] - falls.value
        is_first = np.append(True, falls.owner[1:] != falls.owner[:-1])
        best = np.maximum.reduceat(left, np.flatnonzero(is_first))
        rows = np.flatnonzero(left == best[np.cumsum(is_first) - 1])
        _, first = np.unique(falls.owner[rows], return_index=True)
        rows = rows[first]
        time = self._keys[tops[rows]] & ((1 << SHIFT) - 1)
        return best, np.maximum(time, falls.time[rows])


def _lowest(rank: Any, low: Ints, high: Ints) -> Ints:
    """Return the least of rank[low:high] for each pair; no range is empty."""
    level = np.frexp((high - low).astype(np.float64))[1] - 1
    order = np.argsort(level.astype(np.int8), kind="stable")
    top = int(level[order[-1]])
    bounds = np.searchsorted(level[order], np.arange(top + 2)).tolist()
    least = np.empty(len(low), rank.dtype)
    for power in range(top + 1):
        rows = order[bounds[power] : bounds[power + 1]]
        least[rows] = np.minimum(rank[low[rows]], rank[high[rows] - 2**power])
        rank = np.minimum(rank[: -(2**power)], rank[2**power :])
    return least


# -- The distinct peaks of occupied bytes over time ------------------------------------------------
#
# Lower the water from the highest step down: hills rise out of it, grow and meet. Where two meet,
# the lower one ends, the later of equal ones; it is a peak of its own if it is high enough above
# that valley.

LEAST_DROP = 20
"""A hill counts if it rises above its valley by the highest one's height over this, at least."""
_ROUNDS = 4
"""Rounds in which nearly all hills end; the rest is processed valley by valley."""


@dataclass(frozen=True)
class Hills:
    """The distinct peaks of each group, the highest first, of equal ones the earlier."""

    group: Ints
    ordinal: Ints
    """1 for the highest of its group."""
    time: Ints
    """First instant at the top."""
    height: Ints
    valley: Ints
    """The lowest step between the hill and a higher one, on the way on which that is highest; 0 for
    the highest hill."""


@dataclass(frozen=True)
class _Tops:
    """Local maxima of all groups, ascending by group and time, and what lies between them."""

    row: Ints
    height: Ints
    before: Ints
    """The valley before each; -1 before the first of a group."""

    def after(self) -> Ints:
        """Return the valley after each; -1 after the last of a group."""
        return np.append(self.before[1:], self.before.dtype.type(-1))


def hills(group: Ints, time: Ints, height: Ints, groups: int) -> Hills:
    """Return the distinct peaks of step functions; a group without a row has none.

    Args:
        group: the function of each row, ascending.
        time: first instant of each step, ascending within a group.
        height: what holds from then on, 0 or more; another than that of the row before.
        groups: number of groups.
    """
    highest = np.zeros(groups, height.dtype)
    np.maximum.at(highest, group, height)
    least = np.maximum(-(-highest // LEAST_DROP), 1)
    tops = _tops(group, height)
    pairs: list[tuple[Ints, Ints]] = []
    for _ in range(_ROUNDS):
        tops = _without_lower(tops, least[group[tops.row]], pairs)
    pairs.append(_by_valleys(tops, least[group[tops.row]]))
    rows, valley = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    order = np.lexsort((rows, _descending(height[rows]), group[rows]))
    rows, valley = rows[order], valley[order]
    owner = group[rows]
    ordinal = np.arange(len(rows)) - np.searchsorted(owner, owner) + 1
    return Hills(owner, ordinal, time[rows], height[rows], valley)


def _tops(group: Ints, height: Ints) -> _Tops:
    """Return rows higher than their neighbors, and the lowest between each and the one before."""
    if not len(group):
        return _Tops(group, height, height)
    begins = np.ones(len(group), np.bool_)
    begins[1:] = group[1:] != group[:-1]
    rises, falls = begins.copy(), np.append(begins[1:], True)
    rises[1:] |= height[1:] > height[:-1]
    falls[:-1] |= height[1:] < height[:-1]
    row = np.flatnonzero(rises & falls)
    before = np.minimum.reduceat(height[: row[-1] + 1], np.append(0, row[:-1]))
    before[np.append(True, group[row[1:]] != group[row[:-1]])] = -1
    return _Tops(row, height[row], before)


def _without_lower(tops: _Tops, least: Ints, pairs: list[tuple[Ints, Ints]]) -> _Tops:
    """Return the tops without those that end at one of their valleys; note which of these count.

    The water sinks to the higher valley of a hill first. If the hill across that one is higher, the
    hill ends there, whatever is further away.
    """
    if len(tops.row) < 2:
        return tops
    after = tops.after()
    left, right = np.append(0, tops.height[:-1]), np.append(tops.height[1:], 0)
    ends_left = (tops.before >= after) & (tops.before >= 0) & (left >= tops.height)
    ends_right = (after >= tops.before) & (after >= 0) & (right > tops.height)
    ends = ends_left | ends_right
    valley = np.maximum(tops.before, after)
    counts = ends & (tops.height - valley >= least)
    pairs.append((tops.row[counts], valley[counts]))
    kept = np.flatnonzero(~ends)
    # Between two that stay, the lowest of the valleys between them counts.
    before = np.minimum.reduceat(tops.before[: kept[-1] + 1], np.append(0, kept[:-1] + 1))
    return _Tops(tops.row[kept], tops.height[kept], before)


def _by_valleys(tops: _Tops, least: Ints) -> tuple[Ints, Ints]:
    """Return rows and valleys of the tops that count; hills join at the highest valley first.

    One hill of each group is left in the end, with the valley 0.
    """
    hill = list(range(len(tops.row)))

    def top(place: int) -> int:
        while hill[place] != place:
            hill[place] = hill[hill[place]]
            place = hill[place]
        return place

    places = np.flatnonzero(tops.before >= 0)
    places = places[np.argsort(-tops.before[places], kind="stable")]
    height, before, enough = tops.height.tolist(), tops.before.tolist(), least.tolist()
    valley = dict.fromkeys(range(len(tops.row)), 0)
    for place in places.tolist():
        one, other = top(place - 1), top(place)
        lower, higher = (other, one) if height[one] >= height[other] else (one, other)
        hill[lower] = higher
        if height[lower] - before[place] >= enough[lower]:
            valley[lower] = before[place]
        else:
            del valley[lower]
    chosen = np.array(list(valley), np.int64)
    return tops.row[chosen], np.array(list(valley.values()), tops.before.dtype)


def _descending(values: Ints) -> Ints:
    """Return numbers by which `np.lexsort` puts the largest first, also of Python's integers."""
    _, rank = np.unique(values, return_inverse=True)
    return -rank
