"""Occupied bytes at each instant, from live ranges, in slices of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.columnar.sets import distinct
from bufdb.memory.ranges import PART_ROWS, Ranges, in_order, parts

# -- The instants of many step functions in one order, and in slices of it -------------------------
#
# What happens at an instant depends on the ranges that begin or end there and on what holds from
# before: so whole schedules are processed in slices, and intermediate results take the memory of a
# slice. There are few slices whatever the number of ranges, so that finding the rows of each costs
# no more than sorting them would.

SLICE_ROWS = 1 << 16
"""Approximate number of ranges that begin in a slice."""
_MOST_SLICES = 128


class Timeline:
    """(group, time) as one integer, in order."""

    def __init__(self, group: Any, start: Any, end: Any, slice_rows: int = SLICE_ROWS) -> None:
        """Take ranges that are not reversed.

        Args:
            group: the step function that each belongs to, from 0.
            start: first instant.
            end: last instant, itself included.
            slice_rows: approximate number of ranges that begin in a slice.
        """
        self.group, self.start, self.end, self.slice_rows = group, start, end, slice_rows
        self._points: Ints | None = None
        self._first = int(start.min(initial=0))
        self._width = int(end.max(initial=0)) - self._first + 3
        if (int(group.max(initial=0)) + 1) * self._width >= 2**62:
            # Instants and the next ones by number: nothing lies between.
            self._points = distinct(np.concatenate([start, start + 1, end, end + 1]))
            self._first, self._width = 0, len(self._points) + 1

    def keys(self, group: Any, time: Any) -> Ints:
        """Return (group, time) as integers, for a time at which ranges begin or end, or next."""
        if self._points is not None:
            time = np.searchsorted(self._points, time)
        keys: Ints = group * self._width + (time - self._first)
        return keys

    def parted(self, keys: Ints) -> tuple[Ints, Ints]:
        """Return the group and time of such integers."""
        group, time = np.divmod(keys, self._width)
        return group, time + self._first if self._points is None else self._points[time]

    def slices(self) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield the key after the last of each slice, and the rows that begin and end in it."""
        count = min(-(-len(self.start) // self.slice_rows), _MOST_SLICES)
        if count <= 1:
            rows = np.arange(len(self.start))
            yield 2**63 - 1, rows, rows
            return
        step = max(1, len(self.start) // (count << 10))
        some = slice(None, None, step)
        keys = [self.keys(self.group[some], x[some]) for x in (self.start, self.end)]
        sample = np.sort(np.concatenate(keys))
        bounds = distinct(sample[np.arange(1, count) * len(sample) // count])
        number = [self._slices_of(bounds, x) for x in (self.start, self.end)]
        for place, bound in enumerate([*bounds.tolist(), 2**63 - 1]):
            begins, ends = (np.flatnonzero(x == place) for x in number)
            yield bound, begins, ends

    def _slices_of(self, bounds: Ints, time: Any) -> Any:
        """Return in which slice each instant lies."""
        slices = np.empty(len(time), np.uint8)
        for part in parts(len(time)):
            slices[part] = np.searchsorted(bounds, self.keys(self.group[part], time[part]), "right")
        return slices


def running_sums(slices: Iterable[tuple[int, Any, Any]]) -> Iterator[tuple[Ints, Any]]:
    """Yield the sums after all changes of each key, slice by slice.

    Args:
        slices: the key after the last of a slice, keys of changes in it or beyond, changes.
    """
    keys, changes, total = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for bound, some, their in slices:
        keys, changes = np.concatenate([keys, some]), np.concatenate([changes, their])
        later = keys >= bound
        of_slice = np.flatnonzero(~later)
        order = of_slice[np.argsort(keys[of_slice])]
        if len(order):
            ordered, sums = keys[order], np.cumsum(changes[order]) + total
            last = np.append(ordered[1:] != ordered[:-1], True)
            total = sums[-1]
            yield ordered[last], sums[last]
        keys, changes = keys[later], changes[later]


# -- The same computed with Python's integers: for sizes that 64 bits do not hold ------------------


def exact_steps(r: Ranges) -> list[tuple[int, int]]:
    """Return (time, union of one group's ranges) wherever it changes, by a segment tree.

    Slow (about 0.1 ms per range) and right for any ranges and sizes.
    """
    changes: dict[int, int] = {}
    for number in distinct(r.allocation).tolist():
        part = r.where(r.allocation == number)
        columns = (part.start, part.end, part.offset, part.size)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        points = sorted({p for _, _, offset, size in rows for p in (offset, offset + size)})
        tree = _Cover(points)
        events: list[tuple[int, int, int, int]] = []
        for start, end, offset, size in rows:
            low, high = bisect_left(points, offset), bisect_left(points, offset + size)
            events += [(start, 1, low, high), (end + 1, -1, low, high)]
        for time, sign, low, high in sorted(events):
            before = tree.length[1]
            tree.add(low, high, sign)
            changes[time] = changes.get(time, 0) + tree.length[1] - before
    steps, occupied = [], 0
    for time, change in sorted(changes.items()):
        occupied += change
        if change:
            steps.append((time, occupied))
    return steps


class _Cover:
    """Length of the union of a changing set of ranges between fixed points."""

    def __init__(self, points: list[int]) -> None:
        self.points = points
        self.leaves = max(1, len(points) - 1)
        self.count = [0] * (4 * self.leaves)
        self.length = [0] * (4 * self.leaves)

    def add(self, low: int, high: int, sign: int) -> None:
        """Put in (sign 1) or take out (-1) the range between two points, given by number."""
        self._add(1, 0, self.leaves, low, high, sign)

    def _add(self, node: int, a: int, b: int, low: int, high: int, sign: int) -> None:
        if high <= a or b <= low:
            return
        if low <= a and b <= high:
            self.count[node] += sign
        else:
            middle = (a + b) // 2
            self._add(2 * node, a, middle, low, high, sign)
            self._add(2 * node + 1, middle, b, low, high, sign)
        if self.count[node]:
            self.length[node] = self.points[b] - self.points[a]
        elif b - a == 1:
            self.length[node] = 0
        else:
            self.length[node] = self.length[2 * node] + self.length[2 * node + 1]


# -- Occupied bytes over time: how much of the temp allocations live values really hold ------------
#
# For each memory space the union of the byte ranges of its live values, as a step function, and its
# maximum. Values that share bytes count once. The figures come from sorting alone, in O(n log n)
# time whatever the length of the schedule, slice after slice of it; what is held of all of it is a
# few bytes for each value and each step. XLA lets two values share bytes only at an instant at
# which one ends and the other begins (BufferAssignment's rule; format section 8, rule 10), so
# between such instants sizes may be added, and at them only the values that begin or end there need
# a union. This can only overcount, so it is exact wherever an exact union agrees: that is checked
# at every maximum, which so is exact always, and at a sample of instants; a memory space that fails
# is counted by `exact_steps` instead.

_SAMPLES = 16
"""Instants per memory space, besides the maximum, at which the sum is checked against the union;
all of them where there are no more."""


@dataclass(frozen=True)
class Occupancy:
    """Steps (group, time, occupied bytes), and per group the first maximum."""

    group: Ints
    time: Ints
    occupied: Ints
    """Python integers instead where 64 bits may not suffice."""
    peak_time: Ints
    peak: Ints
    """As `occupied`; 0 at time 0 for a group without a range."""
    counted: Bools
    """Groups in which a sum was found wrong or too large, and which `exact_steps` has counted."""


def occupancy(
    ranges: Ranges, groups: int, last_time: Ints, slice_rows: int = SLICE_ROWS
) -> Occupancy:
    """Return the occupied bytes of each group as a step function, rows only where it changes.

    Args:
        ranges: what is live; empty and reversed ranges hold nothing.
        groups: number of groups; some may have no range.
        last_time: per group, the last instant that counts (schedule length).
        slice_rows: approximate number of ranges examined together; does not change the result.
    """
    counts = (ranges.size > 0) & (ranges.start <= ranges.end)
    ranges = ranges if counts.all() else ranges.where(counts)
    wrong = too_large(ranges, groups)
    fits = ranges.where(~wrong[ranges.group]) if wrong.any() else ranges
    group, time, occupied = _by_sorting(fits, slice_rows)
    wrong |= _disagrees(fits, group, time, occupied, groups)
    kept = _changes(group, occupied) & ~wrong[group]
    kept &= time <= last_time[group]
    group, time, occupied = group[kept], time[kept], occupied[kept]
    peak_time, peak = _maxima(group, time, occupied, groups)
    result = Occupancy(group, time, occupied, peak_time, peak, wrong)
    for number in np.flatnonzero(wrong).tolist():
        steps = exact_steps(ranges.where(ranges.group == number))
        result = _with(result, number, [s for s in steps if s[0] <= last_time[number]])
    return result


def _with(before: Occupancy, number: int, steps: list[tuple[int, int]]) -> Occupancy:
    """Return the same with the steps of one more group, which may need more than 64 bits."""
    times = np.array([time for time, _ in steps], np.int64)
    values = np.array([value for _, value in steps], object)
    places = np.full(len(steps), np.searchsorted(before.group, number))
    best = max((value for _, value in steps), default=0)
    peak_time, peak = before.peak_time.copy(), before.peak.astype(object)
    peak_time[number] = next((time for time, value in steps if value == best), 0)
    peak[number] = best
    return Occupancy(
        np.insert(before.group, places, np.full(len(steps), number)),
        np.insert(before.time, places, times),
        np.insert(before.occupied.astype(object), places, values),
        peak_time,
        peak,
        before.counted,
    )


def too_large(ranges: Ranges, groups: int) -> Bools:
    """Return groups whose bytes may not add up in 64 bits."""
    if not len(ranges.group):
        return np.zeros(groups, np.bool_)
    if (_largest(ranges.offset) + _largest(ranges.size)) * len(ranges.group) < 2.0**61:
        return np.zeros(groups, np.bool_)
    ends = ranges.offset.astype(np.float64)
    ends += ranges.size
    if ends.max() * len(ends) < 2.0**62:
        return np.zeros(groups, np.bool_)
    order = np.lexsort((ends, ranges.allocation, ranges.group))
    group, allocation = ranges.group[order], ranges.allocation[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (allocation[1:] != allocation[:-1])
    return np.bincount(group[last], weights=ends[order][last], minlength=groups) >= 2.0**62


def largest_sum(
    group: Any, size: Any, start: Any, end: Any, groups: int, slice_rows: int = SLICE_ROWS
) -> list[int]:
    """Return each group's largest sum of sizes live at an instant; shared bytes count each time."""
    live = start <= end
    if not live.all():
        group, size, start, end = group[live], size[live], start[live], end[live]
    may_be_large = _largest(size) * len(size) > 2.0**62
    is_large = may_be_large and np.abs(size.astype(np.float64)).sum() > 2**62
    kind: Any = object if is_large else np.int64
    line = Timeline(group, start, end, slice_rows)

    def changes() -> Iterator[tuple[int, Any, Any]]:
        for bound, begins, ends in line.slices():
            keys = line.keys(group[begins], start[begins]), line.keys(group[ends], end[ends]) + 1
            yield bound, np.concatenate(keys), _signed(size[begins], size[ends], kind)

    best = np.zeros(groups, kind)
    for keys, sums in running_sums(changes()):
        np.maximum.at(best, line.parted(keys)[0], sums)
    result: list[int] = best.tolist()
    return result


def _signed(come: Any, go: Any, kind: Any = np.int64) -> Any:
    """Return what comes, then what goes, as changes."""
    return np.concatenate([come.astype(kind), -go.astype(kind)])


def _by_sorting(r: Ranges, slice_rows: int) -> tuple[Any, Any, Ints]:
    """Return (group, time, occupied bytes) where a range begins or ends, and an instant later.

    These are the sizes of ranges strictly inside their life, plus the union of those at an end.
    """
    line = Timeline(r.group, r.start, r.end, slice_rows)

    def changes() -> Iterator[tuple[int, Ints, Ints]]:
        for bound, begins, ends in line.slices():
            come, go = r.where(begins), r.where(ends)
            lone = go.end > go.start
            at, held = unions(
                np.append(line.keys(come.group, come.start), line.keys(go.group, go.end)[lone]),
                np.append(come.allocation, go.allocation[lone]),
                np.append(come.offset, go.offset[lone]),
                np.append(come.size, go.size[lone]),
            )
            # A range with instants inside its life holds its bytes in all of them.
            come, go = come.where(come.end - come.start >= 2), go.where(go.end - go.start >= 2)
            inner = line.keys(come.group, come.start) + 1, line.keys(go.group, go.end)
            keys = np.concatenate([*inner, at, at + 1])
            yield bound, keys, np.append(_signed(come.size, go.size), _signed(held, held))

    # Room for as many rows as there may be, which takes memory only where it is written: parts that
    # are joined would be there twice.
    most = 6 * len(r.group)
    group, time, occupied = (np.empty(most, np.int64) for _ in range(3))
    count = 0
    for keys, sums in running_sums(changes()):
        rows = slice(count, count + len(keys))
        group[rows], time[rows] = line.parted(keys)
        occupied[rows], count = sums, rows.stop
    return group[:count], time[:count], occupied[:count]


def unions(at: Ints, allocation: Ints, offset: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Return the bytes in the union of the ranges at each place, of places in order.

    Args:
        at: an instant of a group as one integer, or any other place.
        allocation: number of the allocation.
        offset: where in it a range begins.
        size: how long it is.
    """
    if not len(at):
        return at, size
    order = in_order(at, allocation, offset)
    at, allocation = at[order], allocation[order]
    begin = offset[order]
    end = begin + size[order]
    first_at = np.append(True, at[1:] != at[:-1])
    first = first_at.copy()
    first[1:] |= allocation[1:] != allocation[:-1]
    covered = running_maximum(end, np.cumsum(first) - 1)
    before = np.concatenate([begin[:1], covered[:-1]])
    fresh = np.where(first, begin, np.maximum(begin, before))
    held = np.maximum(end - fresh, 0)
    places = np.flatnonzero(first_at)
    return at[places], np.add.reduceat(held, places)


def running_maximum(values: Ints, segment: Ints) -> Ints:
    """Return the maximum of each segment's values so far; segments ascend from 0.

    Values of different segments are kept apart by room for all of them in each; where 64 bits do
    not hold that, by ranks.
    """
    least = int(values.min(initial=0))
    width = int(values.max(initial=0)) - least + 1
    if width * (int(segment.max(initial=0)) + 1) < 2**63:
        lowest = segment * width - least
        highest = values + lowest
        np.maximum.accumulate(highest, out=highest)
        highest -= lowest
        return highest
    ordered, rank = np.unique(values, return_inverse=True)
    width = len(ordered)
    highest = np.maximum.accumulate(segment * width + rank)
    result: Ints = ordered[highest - segment * width]
    return result


def accumulated(group: Ints, time: Ints, change: Ints) -> tuple[Ints, Ints, Ints]:
    """Return sums after all changes of each (group, time); changes of one group sum to 0."""
    order = in_order(group, time)
    group, time = group[order], time[order]
    sums = np.cumsum(change[order])
    last = np.ones(len(group), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (time[1:] != time[:-1])
    return group[last], time[last], sums[last]


def _changes(group: Any, occupied: Ints) -> Bools:
    """Return the rows at which the number changes; before a group's first row it is 0."""
    new = np.append(True, group[1:] != group[:-1])[: len(group)]
    keep: Bools = new & (occupied != 0)
    keep[1:] |= ~new[1:] & (occupied[1:] != occupied[:-1])
    return keep


def _maxima(group: Any, time: Any, occupied: Ints, groups: int) -> tuple[Ints, Ints]:
    """Return the first time and value of each group's maximum; 0 and 0 without rows."""
    peak_time, peak = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.maximum.at(peak, group, occupied)
    rows = np.flatnonzero((occupied == peak[group]) & (occupied > 0))[::-1]
    # The last write stays.
    peak_time[group[rows]] = time[rows]
    return peak_time, peak


def _disagrees(r: Ranges, group: Ints, time: Ints, occupied: Ints, groups: int) -> Bools:
    """Return groups in which the sum is not the union at the maximum or at one of the samples."""
    wrong = np.zeros(groups, np.bool_)
    rows, expected, count = [], [], 0
    for instant, sum_there in _samples(group, time, occupied, groups):
        live = [*live_at(r, instant)]
        rows.append(np.concatenate([np.empty(0, np.int64), *live]))
        expected.append(sum_there)
        count += len(rows[-1])
        # Together as many as take the memory of a part.
        if count > PART_ROWS:
            wrong |= _differ(r, rows, expected)
            rows, expected, count = [], [], 0
    return wrong | _differ(r, rows, expected) if rows else wrong


def _samples(group: Ints, time: Ints, occupied: Ints, groups: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield an instant of each group and the sum there: at the maximum, then at each sample.

    A group without such a sample has nothing at -1.
    """
    yield _maxima(group, time, occupied, groups)
    bounds = np.searchsorted(group, np.arange(groups + 1))
    counts = np.diff(bounds)
    for sample in range(min(_SAMPLES, int(counts.max(initial=0)))):
        some = counts > sample
        step = np.where(counts <= _SAMPLES, sample, counts * sample // _SAMPLES)
        row = np.where(some, bounds[:-1] + step, 0)
        yield np.where(some, time[row], -1), np.where(some, occupied[row], 0)


def _differ(r: Ranges, rows: list[Ints], expected: list[Ints]) -> Bools:
    """Return groups in which the union of the ranges in these rows is not as expected."""
    groups = len(expected[0])
    live = r.where(np.concatenate(rows))
    sample = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    at, held = unions(sample * groups + live.group, live.allocation, live.offset, live.size)
    difference = np.zeros(len(rows) * groups, np.int64)
    difference[at] = held
    wrong: Bools = (difference.reshape(len(rows), groups) != np.stack(expected)).any(axis=0)
    return wrong


def _largest(column: Any) -> float:
    """Return the largest number without its sign."""
    return max(float(column.max(initial=0)), -float(column.min(initial=0)))


def live_at(r: Ranges, time: Ints) -> Iterator[Ints]:
    """Yield the ranges that are live at an instant of their group."""
    for part in parts(len(r.group)):
        at = time[r.group[part]]
        yield part.start + np.flatnonzero((r.start[part] <= at) & (at <= r.end[part]))
