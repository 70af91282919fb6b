"""By how much peaks would fall without some of the ranges, each set of them by itself.

    saving(S) = max U(t) - max (U(t) - X_S(t))      both maxima over all t

U(t) are the occupied bytes at t (the union of the live ranges), X_S(t) those that ranges of S and
no others occupy: so U - X_S is the union of all other ranges. Same instructions, same order, same
places, and S holds nothing.

Bytes are shared at an instant at which one range ends and another begins (BufferAssignment's rule;
format section 8, rule 10), so X_S is a step function of O(ranges of S) steps, and all sets of a
batch take O(n log n). Where ranges break the rule, sizes are counted twice and both U and U - X_S
come out too large at those instants, never too small: a maximum that is right at its instant is
right. That is checked for every set; a group that fails is counted instant by instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.memory.maxima import SHIFT, Steps, highest
from bufdb.memory.occupancy import Occupancy, accumulated, running_maximum, too_large, unions
from bufdb.memory.ranges import Ranges, expanded, numbered

LARGE_PART = 100
"""Of what is smaller than this part of a peak nobody asks what it costs to do without."""
_PAIRS_EACH, _PAIRS = 64, 1 << 20
"""Pairs of a range and an instant or a piece of bytes that a group may take: so many for each of
its ranges, and so many more. Only ranges that XLA does not make need more, in numbers."""
_CHUNK = 1 << 19
"""Pairs held at a time."""


@dataclass(frozen=True)
class Saved:
    """What each set saves; 64-bit integers, or Python's where those may not do."""

    saving: Ints
    """Bytes by which the highest point falls: 0 to the bytes that only the set holds there."""
    peak: Ints
    """The highest point without the set [bytes]."""
    peak_time: Ints
    """The first instant of that."""
    is_known: Bools
    """False in groups with ranges so entangled that counting them would take too long."""


class Savings:
    """The ranges of a batch, to be asked what sets of them save."""

    def __init__(self, ranges: Ranges, occupied: Occupancy, groups: int) -> None:
        """Take ranges that hold something (size above 0, end not before start).

        Args:
            ranges: what is live. Ends must fit into 64 bits.
            occupied: the occupancy of the same ranges.
            groups: number of groups.
        """
        self.ranges, self.occupied, self.groups = ranges, occupied, groups
        self.is_huge = bool(too_large(ranges, groups).any())
        self._prepare(occupied.counted)

    def _prepare(self, counted: Bools) -> None:
        self.counted = counted
        self.alone = _Alone(self.ranges, counted, self.groups, self.is_huge)
        kind = object if self.is_huge else np.int64
        self.peak = self.occupied.peak.astype(kind)
        kept = ~counted[self.occupied.group]
        exact = self.alone.unions()
        owner = np.concatenate([self.occupied.group[kept], exact.owner])
        time = np.concatenate([self.occupied.time[kept], exact.time])
        value = np.concatenate([self.occupied.occupied[kept].astype(kind), exact.value])
        order = np.lexsort((time, owner))
        curves = Steps(owner[order], time[order], value[order])
        self.curves = curves.from_zero(self.groups)

    def of(self, rows: Ints, sets: Ints, count: int, keep: Fraction = Fraction(0)) -> Saved:
        """What each of `count` sets saves.

        Args:
            rows: ranges that belong to a set, once for each set that they belong to.
            sets: the number of the set, from 0. A set has ranges of one group, and one at least.
            count: number of sets.
            keep: the share of the bytes that stays held, such as 1/2 for f32 made bf16; parts of a
                byte stay.
        """
        if not 0 <= keep <= 1:
            raise ValueError("a share that stays is between 0 and 1")
        group = np.zeros(count, np.int64)
        group[sets] = self.ranges.group[rows]
        # A set of which nothing is live at the peak saves nothing.
        peak_time = self.occupied.peak_time[self.ranges.group[rows]]
        is_there = (self.ranges.start[rows] <= peak_time) & (peak_time <= self.ranges.end[rows])
        matters = np.zeros(count, np.bool_)
        matters[sets[is_there]] = True
        number = np.cumsum(matters) - 1
        chosen = matters[sets]
        rows, sets = rows[chosen], number[sets[chosen]]
        while True:
            known = ~self.alone.is_too_much[group]
            falls = self.alone.steps(rows, sets)
            value = falls.value if keep == 0 else falls.value - _kept(falls.value, keep)
            falls = Steps(falls.owner, falls.time, value).from_zero(int(matters.sum()))
            best, time = highest(self.curves, falls, group[matters])
            wrong = self._wrong(group[matters], time)
            if not wrong.any():
                break
            self._prepare(self.counted | wrong)
        peak, instant = self.peak[group], self.occupied.peak_time[group]
        peak[matters], instant[matters] = best, time
        saving = self.peak[group] - peak
        return Saved(
            np.where(known, saving, 0),
            np.where(known, peak, self.peak[group]),
            np.where(known, instant, self.occupied.peak_time[group]),
            known,
        )

    def _wrong(self, group: Ints, time: Ints) -> Bools:
        """Groups whose curve is not the union of the ranges at one of these instants."""
        wrong = np.zeros(self.groups, np.bool_)
        asked = ~self.counted[group] & (time != self.occupied.peak_time[group])
        instants = np.unique((group[asked] << SHIFT) + time[asked])
        if not len(instants):
            return wrong
        keys = (self.curves.owner << SHIFT) + self.curves.time
        expected = self.curves.value[np.searchsorted(keys, instants, "right") - 1]
        r, owner = self.ranges, instants >> SHIFT
        first = np.searchsorted(instants, (r.group << SHIFT) + r.start)
        counts = np.searchsorted(instants, (r.group << SHIFT) + r.end, "right") - first
        wrong = _are_too_many(r.group, counts, self.groups)
        live = np.cumsum(
            np.bincount(first, minlength=len(instants) + 1)
            - np.bincount(first + counts, minlength=len(instants) + 1)
        )[:-1]
        parts = np.cumsum(np.where(wrong[owner], 0, live)) // _CHUNK
        for part in np.unique(parts).tolist():
            low, behind = np.searchsorted(parts, [part, part + 1])
            begin, stop = np.maximum(first, low), np.minimum(first + counts, behind)
            number = np.where(wrong[r.group], 0, np.maximum(stop - begin, 0))
            at = expanded(begin, number)
            rows = np.repeat(np.arange(len(number)), number)
            there, held = unions(at, r.allocation[rows], r.offset[rows], r.size[rows])
            found = np.zeros(behind - low, np.int64)
            found[there - low] = held
            differs = found != expected[low:behind]
            wrong[owner[low:behind][differs]] = True
        return wrong


class _Alone:
    """Where ranges hold their bytes alone, and the pieces of bytes that several cover."""

    def __init__(self, r: Ranges, counted: Bools, groups: int, is_huge: bool) -> None:
        """Work out the pieces.

        Args:
            r: the ranges.
            counted: groups to be looked at at every instant at which something changes.
            groups: number of groups.
            is_huge: whether sums may need more than 64 bits.
        """
        self.r, self.counted, self.groups = r, counted, groups
        self.kind = object if is_huge else np.int64
        slow = counted[r.group]
        single = r.start == r.end
        rows = np.flatnonzero(~slow)
        last = np.flatnonzero(~slow & ~single)
        self.is_too_much = np.zeros(groups, np.bool_)
        more, at, until = self._every_instant(slow)
        every = np.concatenate([rows, last, more])
        time = np.concatenate([r.start[rows], r.end[last], at])
        shared = self._shared(every, time)
        shared[len(rows) + len(last) :] = True
        at_start, at_end = np.ones(len(slow), np.bool_), np.ones(len(slow), np.bool_)
        at_start[rows] = ~shared[: len(rows)]
        at_end[last] = ~shared[len(rows) : len(rows) + len(last)]
        at_end[single] = at_start[single]
        self.begin = r.start + ~at_start
        self.stop = np.where(slow, self.begin, np.maximum(r.end + at_end, self.begin))
        """Each range holds its bytes alone from `begin` to the instant before `stop`."""
        ends = np.concatenate([time[: len(rows) + len(last)] + 1, until])
        self._cut(every[shared], time[shared], ends[shared])

    def _every_instant(self, slow: Bools) -> tuple[Ints, Ints, Ints]:
        """The ranges of slow groups, once for each span of time in which nothing changes."""
        r, rows = self.r, np.flatnonzero(slow)
        group = r.group[rows] << SHIFT
        events = np.unique(np.concatenate([group + r.start[rows], group + r.end[rows] + 1]))
        first = np.searchsorted(events, group + r.start[rows])
        counts = np.searchsorted(events, group + r.end[rows] + 1) - first
        self.is_too_much |= _are_too_many(r.group[rows], counts, self.groups)
        counts = np.where(self.is_too_much[r.group[rows]], 0, counts)
        place = expanded(first, counts)
        low = (1 << SHIFT) - 1
        return np.repeat(rows, counts), events[place] & low, events[place + 1] & low

    def _shared(self, rows: Ints, time: Ints) -> Bools:
        """Which ranges have bytes in common with another one at an instant of theirs."""
        r = self.r
        begin = r.offset[rows]
        place = numbered(r.group, r.allocation)[rows]
        order = np.lexsort((begin, (place << SHIFT) + time))
        place, time, begin = place[order], time[order], begin[order]
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = (place[1:] != place[:-1]) | (time[1:] != time[:-1])
        reached = running_maximum(begin + r.size[rows][order], np.cumsum(is_first) - 1)
        meets = np.zeros(len(rows) + 1, np.bool_)
        meets[1:-1] = ~is_first[1:] & (begin[1:] < reached[:-1])
        shared = np.empty(len(rows), np.bool_)
        shared[order] = meets[:-1] | meets[1:]
        return shared

    def _cut(self, rows: Ints, at: Ints, until: Ints) -> None:
        """Pieces of the bytes of ranges between all edges of their instant, and who covers them."""
        r = self.r
        place = numbered(r.group[rows], at, r.allocation[rows])
        begin, end = r.offset[rows], r.offset[rows] + r.size[rows]
        edge = numbered(np.concatenate([place, place]), np.concatenate([begin, end]))
        first, behind = edge[: len(rows)], edge[len(rows) :]
        counts = behind - first
        self.is_too_much |= _are_too_many(r.group[rows], counts, self.groups)
        kept = ~self.is_too_much[r.group[rows]]
        rows, at, until, first, counts = (x[kept] for x in (rows, at, until, first, counts))
        piece = expanded(first, counts)
        number = int(edge.max(initial=-1)) + 1
        position = np.zeros(number + 1, np.int64)
        position[edge] = np.concatenate([begin, end])
        self.cover = np.bincount(piece, minlength=number)
        """How many ranges cover each piece."""
        self.size = position[1:] - position[:-1]
        self.at, self.until, self.group = (np.zeros(number, np.int64) for _ in range(3))
        for name, column in (("at", at), ("until", until), ("group", r.group[rows])):
            getattr(self, name)[piece] = np.repeat(column, counts)
        owner = np.repeat(rows, counts)
        self.piece = piece[np.argsort(owner, kind="stable")]
        """The pieces of each range, which are those from first[range] to first[range + 1]."""
        counts = np.bincount(owner, minlength=len(r.group))
        self.first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def unions(self) -> Steps:
        """The occupied bytes of the groups that are looked at at every instant."""
        rows = np.flatnonzero((self.cover > 0) & self.counted[self.group])
        return self._sums(self.group[rows], self.at[rows], self.until[rows], self.size[rows])

    def steps(self, rows: Ints, sets: Ints) -> Steps:
        """For each set the bytes that it holds and no other range does.

        Args:
            rows: ranges, once for each set that they belong to.
            sets: number of the set of each.
        """
        r = self.r
        alone = self.stop[rows] > self.begin[rows]
        counts = np.diff(self.first)[rows]
        piece = self.piece[expanded(self.first[rows], counts)]
        owner = np.repeat(sets, counts)
        order = np.lexsort((owner, piece))
        piece, owner = piece[order], owner[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (piece[1:] != piece[:-1]) | (owner[1:] != owner[:-1])
        firsts = np.flatnonzero(is_new)
        piece, owner = piece[firsts], owner[firsts]
        whole = np.diff(np.append(firsts, len(order))) == self.cover[piece]
        piece, owner, lone = piece[whole], owner[whole], rows[alone]
        return self._sums(
            np.concatenate([sets[alone], owner]),
            np.concatenate([self.begin[lone], self.at[piece]]),
            np.concatenate([self.stop[lone], self.until[piece]]),
            np.concatenate([r.size[lone], self.size[piece]]),
        )

    def _sums(self, owner: Ints, begin: Ints, stop: Ints, size: Ints) -> Steps:
        """Steps of what holds `size` from `begin` to the instant before `stop`."""
        size = size.astype(self.kind)
        return Steps(
            *accumulated(
                np.concatenate([owner, owner]),
                np.concatenate([begin, stop]),
                np.concatenate([size, -size]),
            )
        )


def _are_too_many(group: Ints, counts: Ints, groups: int) -> Bools:
    """Groups whose ranges have more pairs than may be looked at."""
    pairs = np.bincount(group, weights=counts, minlength=groups)
    found: Bools = pairs > _PAIRS_EACH * np.bincount(group, minlength=groups) + _PAIRS
    return found


def _kept(size: Ints, keep: Fraction) -> Ints:
    """Sizes times a share, rounded up; without a product that 64 bits do not hold."""
    above, below = keep.limit_denominator(1 << 20).as_integer_ratio()
    kept: Ints = size // below * above - (-(size % below) * above) // below
    return kept
