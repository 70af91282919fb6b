"""The distinct peaks of occupied bytes over time.

Sink the water from the highest step down: hills rise out of it, grow and meet. Where two meet, the
lower one ends, of equal ones the later; it is a peak of its own if it stands high enough above that
valley.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bufdb.columnar.scan import Ints

LEAST_DROP = 20
"""A hill counts if it stands at least one part in so many of the highest above its valley."""
_ROUNDS = 4
"""Rounds in which nearly all hills end; those that are left are taken valley by valley."""


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
        """The valley behind each; -1 behind the last of a group."""
        return np.append(self.before[1:], self.before.dtype.type(-1))


def hills(group: Ints, time: Ints, height: Ints, groups: int) -> Hills:
    """The distinct peaks of step functions; a group without a row has none.

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
    found: list[tuple[Ints, Ints]] = []
    for _ in range(_ROUNDS):
        tops = _without_lower(tops, least[group[tops.row]], found)
    found.append(_by_valleys(tops, least[group[tops.row]]))
    rows, valley = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((rows, _descending(height[rows]), group[rows]))
    rows, valley = rows[order], valley[order]
    owner = group[rows]
    ordinal = np.arange(len(rows)) - np.searchsorted(owner, owner) + 1
    return Hills(owner, ordinal, time[rows], height[rows], valley)


def _tops(group: Ints, height: Ints) -> _Tops:
    """Rows higher than their neighbours, and the lowest between each and the one before."""
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


def _without_lower(tops: _Tops, least: Ints, found: list[tuple[Ints, Ints]]) -> _Tops:
    """The tops without those that end at one of their two valleys; of these, the ones that count.

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
    found.append((tops.row[counts], valley[counts]))
    kept = np.flatnonzero(~ends)
    # Between two that stay lies the lowest of the valleys between them.
    before = np.minimum.reduceat(tops.before[: kept[-1] + 1], np.append(0, kept[:-1] + 1))
    return _Tops(tops.row[kept], tops.height[kept], before)


def _by_valleys(tops: _Tops, least: Ints) -> tuple[Ints, Ints]:
    """Rows and valleys of the tops that count: hills on both sides of a valley, the highest first.

    One hill is left of each group in the end, with the valley 0.
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
    """Numbers by which `np.lexsort` puts the largest first, also of Python's integers."""
    _, rank = np.unique(values, return_inverse=True)
    return -rank
