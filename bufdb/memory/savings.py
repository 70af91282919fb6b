"""How far a peak falls without each set of ranges.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.columnar.sets import distinct
from bufdb.memory.maxima import SHIFT, Curves, Steps
from bufdb.memory.occupancy import (
    SLICE_ROWS,
    Occupancy,
    Timeline,
    accumulated,
    running_maximum,
    too_large,
    unions,
)
from bufdb.memory.ranges import Ranges, expanded, in_order, numbered

LARGE_PART = 100
"""Values below 1/100 of a peak are skipped."""
_PAIRS_EACH, _PAIRS = 64, 1 << 20
"""Limit on pairs of a range and an instant, or a piece of bytes, in a group: so many for each of
its ranges, and so many more. Only ranges that XLA does not make need more, in numbers."""
_CHUNK = 1 << 19
"""Pairs held at a time."""


@dataclass(frozen=True)
class Saved:
    """What each set saves; 64-bit integers, or Python's where those may not suffice."""

    saving: Ints
    """Bytes by which the highest point falls: 0 to the bytes that only the set holds there."""
    peak: Ints
    """The highest point without the set [bytes]."""
    peak_time: Ints
    """The first instant of that."""
    is_known: Bools
    """False in groups with ranges so entangled that counting them would take too long."""


class Savings:
    """The ranges of a batch, to compute what sets of them save."""

    def __init__(
        self, ranges: Ranges, occupied: Occupancy, groups: int, slice_rows: int = SLICE_ROWS
    ) -> None:
        """Take ranges that hold something (size above 0, end not before start).

        Args:
            ranges: what is live. Ends must fit into 64 bits.
            occupied: the occupancy of the same ranges.
            groups: number of groups.
            slice_rows: approximate number of ranges examined together; does not change the result.
        """
        self.ranges, self.occupied, self.groups = ranges, occupied, groups
        self.slice_rows = slice_rows
        self.is_huge = bool(too_large(ranges, groups).any())
        self._prepare(occupied.counted)

    def _prepare(self, counted: Bools) -> None:
        self.counted = counted
        self.alone = _Alone(self.ranges, counted, self.groups, self.is_huge, self.slice_rows)
        kind = object if self.is_huge else np.int64
        self.peak = self.occupied.peak.astype(kind)
        occupied = self.occupied
        curves = Steps(occupied.group, occupied.time, occupied.occupied.astype(kind, copy=False))
        if counted.any():
            kept, exact = ~counted[occupied.group], self.alone.unions()
            owner = np.concatenate([curves.owner[kept], exact.owner])
            time = np.concatenate([curves.time[kept], exact.time])
            value = np.concatenate([curves.value[kept], exact.value])
            order = np.lexsort((time, owner))
            curves = Steps(owner[order], time[order], value[order])
        curves = curves.from_zero(self.groups)
        self.curves = Curves(curves)

    def of(self, rows: Ints, sets: Ints, count: int, keep: Fraction = Fraction(0)) -> Saved:
        """Return what each of `count` sets saves.

        Args:
            rows: ranges that belong to a set, once for each set that they belong to.
            sets: the number of the set, from 0. A set has ranges of one group, and one at least.
            count: number of sets.
            keep: the share of the bytes that stays held, such as 1/2 for f32 made bf16; parts of a
                byte stay.
        """
        return self.of_each(rows, sets, count, [keep])[0]

    def of_each(self, rows: Ints, sets: Ints, count: int, keeps: Sequence[Fraction]) -> list[Saved]:
        """Do the same for several shares that stay; what the sets hold is looked up once."""
        if not all(0 <= keep <= 1 for keep in keeps):
            raise ValueError("a share that stays is between 0 and 1")
        group = np.zeros(count, np.int64)
        group[sets] = self.ranges.group[rows]
        # A set with nothing live at the peak saves nothing.
        peak_time = self.occupied.peak_time[self.ranges.group[rows]]
        is_there = (self.ranges.start[rows] <= peak_time) & (peak_time <= self.ranges.end[rows])
        matters = np.zeros(count, np.bool_)
        matters[sets[is_there]] = True
        number = np.cumsum(matters) - 1
        chosen = matters[sets]
        rows, sets = rows[chosen], number[sets[chosen]]
        curve_of = np.tile(group[matters], len(keeps))
        while True:
            known = ~self.alone.is_too_much[group]
            falls = _shares(self.alone.steps(rows, sets), keeps, int(matters.sum()))
            best, time = self.curves.highest(falls, curve_of)
            wrong = self._wrong(curve_of, time)
            if not wrong.any():
                break
            self._prepare(self.counted | wrong)
        peak, instant = self.peak[group], self.occupied.peak_time[group]
        columns = []
        for some, at in zip(np.split(best, len(keeps)), np.split(time, len(keeps)), strict=True):
            lower, lower_time = peak.copy(), instant.copy()
            lower[matters], lower_time[matters] = some, at
            lower = np.where(known, lower, peak)
            columns.append(Saved(peak - lower, lower, np.where(known, lower_time, instant), known))
        return columns

    def _wrong(self, group: Ints, time: Ints) -> Bools:
        """Return groups whose curve is not the union of the ranges at one of these instants."""
        wrong = np.zeros(self.groups, np.bool_)
        is_open = ~self.counted[group] & (time != self.occupied.peak_time[group])
        instants = distinct((group[is_open] << SHIFT) + time[is_open])
        if not len(instants):
            return wrong
        expected = self.curves.at(instants)
        r, owner = self.ranges, instants >> SHIFT
        first = np.searchsorted(instants, _instant(r.group, r.start))
        after_last = np.searchsorted(instants, _instant(r.group, r.end), "right")
        wrong = _are_too_many(r.group, after_last - first, self.groups)
        live = np.cumsum(
            np.bincount(first, minlength=len(instants) + 1)
            - np.bincount(after_last, minlength=len(instants) + 1)
        )[:-1]
        parts = np.cumsum(np.where(wrong[owner], 0, live)) // _CHUNK
        for part in distinct(parts).tolist():
            low, after = np.searchsorted(parts, [part, part + 1]).tolist()
            meets = (first < after) & (after_last > low) & (after_last > first)
            rows = np.flatnonzero(meets & ~wrong[r.group])
            begin = np.maximum(first[rows], low)
            number = np.minimum(after_last[rows], after) - begin
            at, some = expanded(begin, number), r.where(np.repeat(rows, number))
            there, held = unions(at, some.allocation, some.offset, some.size)
            difference = np.zeros(after - low, np.int64)
            difference[there - low] = held
            differs = difference != expected[low:after]
            wrong[owner[low:after][differs]] = True
        return wrong


class _Alone:
    """Where ranges hold their bytes alone, and the pieces of bytes that several cover."""

    def __init__(
        self, r: Ranges, counted: Bools, groups: int, is_huge: bool, slice_rows: int
    ) -> None:
        """Compute the pieces.

        Args:
            r: the ranges.
            counted: groups to be examined at every instant at which something changes.
            groups: number of groups.
            is_huge: whether sums may need more than 64 bits.
            slice_rows: approximate number of ranges examined together.
        """
        self.r, self.counted, self.groups = r, counted, groups
        self.kind = object if is_huge else np.int64
        self.is_too_much = np.zeros(groups, np.bool_)
        self._shares_start = np.zeros(len(r.group), np.bool_)
        self._shares_end = np.zeros(len(r.group), np.bool_)
        """Whether a range has bytes in common with another one at an end of its life."""
        met = list(self._meetings(slice_rows)) or [(np.empty(0, np.int64),) * 3]
        if counted.any():
            met.append(self._every_instant())
        self._cut(met)

    def _meetings(self, slice_rows: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Ranges that share bytes at an instant at which they begin or end; until the next one."""
        r = self.r
        fast = slice(None) if not self.counted.any() else np.flatnonzero(~self.counted[r.group])
        group, start, end = r.group[fast], r.start[fast], r.end[fast]
        line = Timeline(group, start, end, slice_rows)
        for _, begins, ends in line.slices():
            ends = ends[start[ends] < end[ends]]
            rows = np.append(begins, ends)
            time = np.append(start[begins], end[ends])
            at = line.keys(group[rows], time)
            rows = rows if isinstance(fast, slice) else fast[rows]
            shared = _shared(at, r.where(rows))
            self._shares_start[rows[: len(begins)]] = shared[: len(begins)]
            self._shares_end[rows[len(begins) :]] = shared[len(begins) :]
            single = rows[: len(begins)][start[begins] == end[begins]]
            self._shares_end[single] = self._shares_start[single]
            yield rows[shared], time[shared], time[shared] + 1

    def _lives(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return from when each range holds its bytes alone, and the instant after that time."""
        some = self.r.where(rows)
        begin = some.start + self._shares_start[rows]
        stop = np.maximum(some.end + ~self._shares_end[rows], begin)
        return begin, np.where(self.counted[some.group], begin, stop)

    def _every_instant(self) -> tuple[Ints, Ints, Ints]:
        """Return the ranges of slow groups, once for each span of time in which nothing changes."""
        rows = np.flatnonzero(self.counted[self.r.group])
        r = self.r.where(rows)
        group = r.group << SHIFT
        events = distinct(np.concatenate([group + r.start, group + r.end + 1]))
        first = np.searchsorted(events, group + r.start)
        counts = np.searchsorted(events, group + r.end + 1) - first
        self.is_too_much |= _are_too_many(r.group, counts, self.groups)
        counts = np.where(self.is_too_much[r.group], 0, counts)
        place = expanded(first, counts)
        low = (1 << SHIFT) - 1
        return np.repeat(rows, counts), events[place] & low, events[place + 1] & low

    def _cut(self, met: list[tuple[Ints, Ints, Ints]]) -> None:
        """Pieces of the bytes of ranges between all edges of their instant, and who covers them."""
        pairs = np.zeros(self.groups)
        rooms = sum(np.bincount(self.r.group[rows], minlength=self.groups) for rows, _, _ in met)
        parts: dict[str, list[Ints]] = {}
        number = 0
        for rows, at, until in met:
            r = self.r.where(rows)
            place = numbered(r.group, at, r.allocation)
            begin, end = r.offset, r.offset + r.size
            edge = numbered(np.concatenate([place, place]), np.concatenate([begin, end]))
            first, after = edge[: len(rows)], edge[len(rows) :]
            pairs += np.bincount(r.group, weights=after - first, minlength=self.groups)
            self.is_too_much |= pairs > _PAIRS_EACH * rooms + _PAIRS
            counts = np.where(self.is_too_much[r.group], 0, after - first)
            piece, count = expanded(first, counts), int(edge.max(initial=-1)) + 1
            position = np.zeros(count + 1, np.int64)
            position[edge] = np.concatenate([begin, end])
            columns = {"cover": np.bincount(piece, minlength=count), "size": np.diff(position)}
            for name, column in (("at", at), ("until", until), ("group", r.group)):
                columns[name] = np.zeros(count, np.int64)
                columns[name][piece] = np.repeat(column, counts)
            columns |= {"piece": piece + number, "owner": np.repeat(rows, counts)}
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
            number += count
        self._join({name: np.concatenate(parts.pop(name)) for name in list(parts)})

    def _join(self, pieces: dict[str, Ints]) -> None:
        """Join the pieces of all slices; pieces beyond the limit belong to no group."""
        self.cover, self.size = pieces["cover"], pieces["size"]
        """How many ranges cover each piece, and its bytes."""
        self.at, self.until, self.group = pieces["at"], pieces["until"], pieces["group"]
        owner, piece = pieces["owner"], pieces["piece"]
        if self.is_too_much.any():
            self.cover = np.where(self.is_too_much[self.group], 0, self.cover)
            kept = ~self.is_too_much[self.r.group[owner]]
            owner, piece = owner[kept], piece[kept]
        self.piece = piece[np.argsort(owner, kind="stable")]
        """The pieces of each range, which are those from first[range] to first[range + 1]."""
        counts = np.bincount(owner, minlength=len(self.r.group))
        self.first = np.append(0, np.cumsum(counts))

    def unions(self) -> Steps:
        """Return the occupied bytes of the groups that are examined at every instant."""
        rows = np.flatnonzero((self.cover > 0) & self.counted[self.group])
        columns = (self.group, self.at, self.until, self.size)
        return self._sums(*(column[rows] for column in columns))

    def steps(self, rows: Ints, sets: Ints) -> Steps:
        """Return for each set the bytes that it holds and no other range does.

        Args:
            rows: ranges, once for each set that they belong to.
            sets: number of the set of each.
        """
        begin, stop = self._lives(rows)
        alone = np.flatnonzero(stop > begin)
        first = self.first[rows]
        counts = self.first[rows + 1] - first
        piece, owner = self.piece[expanded(first, counts)], np.repeat(sets, counts)
        order = in_order(piece, owner)
        piece, owner = piece[order], owner[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (piece[1:] != piece[:-1]) | (owner[1:] != owner[:-1])
        firsts = np.flatnonzero(is_new)
        piece, owner = piece[firsts], owner[firsts]
        whole = np.diff(np.append(firsts, len(order))) == self.cover[piece]
        piece, owner = piece[whole], owner[whole]
        return self._sums(
            np.concatenate([sets[alone], owner]),
            np.concatenate([begin[alone], self.at[piece]]),
            np.concatenate([stop[alone], self.until[piece]]),
            np.concatenate([self.r.size[rows[alone]], self.size[piece]]),
        )

    def _sums(self, owner: Ints, begin: Ints, stop: Ints, size: Ints) -> Steps:
        """Return the steps of what holds `size` from `begin` to the instant before `stop`."""
        size = size.astype(self.kind)
        return Steps(
            *accumulated(
                np.concatenate([owner, owner]),
                np.concatenate([begin, stop]),
                np.concatenate([size, -size]),
            )
        )


def _shared(at: Ints, r: Ranges) -> Bools:
    """Return which ranges have bytes in common with another one at an instant of theirs."""
    order = in_order(at, r.allocation, r.offset)
    at, allocation, begin = at[order], r.allocation[order], r.offset[order]
    is_first = np.ones(len(at), np.bool_)
    is_first[1:] = (at[1:] != at[:-1]) | (allocation[1:] != allocation[:-1])
    reached = running_maximum(begin + r.size[order], np.cumsum(is_first) - 1)
    meets = np.zeros(len(at) + 1, np.bool_)
    meets[1:-1] = ~is_first[1:] & (begin[1:] < reached[:-1])
    shared = np.empty(len(at), np.bool_)
    shared[order] = meets[:-1] | meets[1:]
    return shared


def _instant(group: Ints, time: Ints) -> Ints:
    """Group and time in one."""
    instants: Ints = (group << SHIFT) + time
    return instants


def _are_too_many(group: Ints, counts: Ints, groups: int) -> Bools:
    """Return whether the ranges of each group have more pairs than may be compared."""
    pairs = np.bincount(group, weights=counts, minlength=groups)
    is_large: Bools = pairs > _PAIRS_EACH * np.bincount(group, minlength=groups) + _PAIRS
    return is_large


def _shares(falls: Steps, keeps: Sequence[Fraction], count: int) -> Steps:
    """Return the falls of `count` sets for each share that stays, end to end, from time 0."""
    values = [falls.value if not keep else falls.value - _kept(falls.value, keep) for keep in keeps]
    owners = [falls.owner + place * count for place in range(len(keeps))]
    times = np.tile(falls.time, len(keeps))
    together = Steps(np.concatenate(owners), times, np.concatenate(values))
    return together.from_zero(len(keeps) * count)


def _kept(size: Ints, keep: Fraction) -> Ints:
    """Return sizes times a share, rounded up, without a product that 64 bits do not hold."""
    above, below = keep.limit_denominator(1 << 20).as_integer_ratio()
    kept: Ints = size // below * above - (-(size % below) * above) // below
    return kept
