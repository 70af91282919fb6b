"""Occupied bytes over time: how much of the temp allocations live values really hold.

For each memory space the union of the byte ranges of its live values, as a step function, and its
maximum. Values that share bytes count once. The figures come from sorting alone, in
O(n log n) time and O(n) memory whatever the length of the schedule: XLA lets two values share bytes
only at an instant at which one ends and the other begins (BufferAssignment's rule; format section
8, rule 10), so between such instants sizes may be added, and at them only the values that begin or
end there need a union. This can only overcount, so it is exact wherever an exact union agrees:
that is checked at every maximum, which so is exact always, and at a sample of instants; a memory
space that fails is counted by `exact_steps` instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.memory.exact import exact_steps
from bufdb.memory.ranges import Ranges, spans

_SAMPLES = 16
"""Instants per memory space, besides the maximum, at which the sum is held against the union; all
of them where there are no more."""


@dataclass(frozen=True)
class Occupancy:
    """Steps (group, time, occupied bytes), and per group the first maximum."""

    group: Ints
    time: Ints
    occupied: Ints
    """Python integers instead where 64 bits may not do."""
    peak_time: Ints
    peak: Ints
    """As `occupied`; 0 at time 0 for a group without a range."""
    counted: Bools
    """Groups in which a sum was found wrong or too large, and which `exact_steps` has counted."""


def occupancy(ranges: Ranges, groups: int, last_time: Ints) -> Occupancy:
    """The occupied bytes of each group as a step function, rows only where it changes.

    Args:
        ranges: what is live; empty and reversed ranges hold nothing.
        groups: number of groups; some may have no range.
        last_time: per group, the last instant that counts (schedule length).
    """
    counts = (ranges.size > 0) & (ranges.start <= ranges.end)
    ranges = ranges if counts.all() else ranges.where(counts)
    wrong = too_large(ranges, groups)
    fits = ranges.where(~wrong[ranges.group]) if wrong.any() else ranges
    group, time, occupied = _by_sorting(fits)
    wrong |= _disagrees(fits, group, time, occupied, groups)
    keep = ~wrong[group]
    group, time, occupied = _changes(group[keep], time[keep], occupied[keep])
    within = time <= last_time[group]
    group, time, occupied = group[within], time[within], occupied[within]
    peak_time, peak = _maxima(group, time, occupied, groups)
    result = Occupancy(group, time, occupied, peak_time, peak, wrong)
    for number in np.flatnonzero(wrong).tolist():
        steps = exact_steps(ranges.where(ranges.group == number))
        result = _with(result, number, [s for s in steps if s[0] <= last_time[number]])
    return result


def _with(found: Occupancy, number: int, steps: list[tuple[int, int]]) -> Occupancy:
    """The same with the steps of one more group, which may need more than 64 bits."""
    times = np.array([time for time, _ in steps], np.int64)
    values = np.array([value for _, value in steps], object)
    place = int(np.searchsorted(found.group, number))
    best = max((value for _, value in steps), default=0)
    peak_time, peak = found.peak_time.copy(), found.peak.astype(object)
    peak_time[number] = next((time for time, value in steps if value == best), 0)
    peak[number] = best
    return Occupancy(
        np.insert(found.group, place, np.full(len(steps), number)),
        np.insert(found.time, place, times),
        np.insert(found.occupied.astype(object), place, values),
        peak_time,
        peak,
        found.counted,
    )


def too_large(ranges: Ranges, groups: int) -> Bools:
    """Groups whose bytes may not add up in 64 bits."""
    if not len(ranges.group):
        return np.zeros(groups, np.bool_)
    ends = ranges.offset.astype(np.float64) + ranges.size
    if ends.max() * len(ends) < 2.0**62:
        return np.zeros(groups, np.bool_)
    order = np.lexsort((ends, ranges.allocation, ranges.group))
    group, allocation = ranges.group[order], ranges.allocation[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (allocation[1:] != allocation[:-1])
    return np.bincount(group[last], weights=ends[order][last], minlength=groups) >= 2.0**62


def largest_sum(group: Ints, size: Ints, start: Ints, end: Ints, groups: int) -> list[int]:
    """Per group the largest sum of sizes live at one instant, shared bytes counted every time."""
    live = start <= end
    group, size, start, end = group[live], size[live], start[live], end[live]
    if np.abs(size.astype(np.float64)).sum() > 2**62:
        size = size.astype(object)
    keys = np.concatenate([group, group])
    times = np.concatenate([start, end + 1])
    changes = np.concatenate([size, -size])
    at, _, sums = accumulated(keys, times, changes)
    result = [0] * groups
    for number, (a, b) in enumerate(spans(at, groups)):
        if b > a:
            result[number] = max(0, int(sums[a:b].max()))
    return result


def _by_sorting(r: Ranges) -> tuple[Ints, Ints, Ints]:
    """(group, time, occupied bytes) wherever a range begins or ends or just has.

    Sizes of ranges strictly inside their life, plus the union of those at an end of theirs.
    """
    inner = np.flatnonzero(r.end - r.start >= 2)
    lone = np.flatnonzero(r.end > r.start)
    rows = np.concatenate([np.arange(len(r.start)), lone])
    instant = np.concatenate([r.start, r.end[lone]])
    at_group, at_time, held = unions(
        r.group[rows], instant, r.allocation[rows], r.offset[rows], r.size[rows]
    )
    group, time, occupied = accumulated(
        np.concatenate([r.group[inner], r.group[inner], at_group, at_group]),
        np.concatenate([r.start[inner] + 1, r.end[inner], at_time, at_time + 1]),
        np.concatenate([r.size[inner], -r.size[inner], held, -held]),
    )
    return group, time, occupied


def unions(
    group: Ints, time: Ints, allocation: Ints, offset: Ints, size: Ints
) -> tuple[Ints, Ints, Ints]:
    """Bytes in the union of the ranges of each (group, time)."""
    if not len(group):
        return group, time, size
    order = np.lexsort((offset, allocation, time, group))
    group, time, allocation = group[order], time[order], allocation[order]
    begin = offset[order]
    end = begin + size[order]
    first_at = np.ones(len(group), np.bool_)
    first_at[1:] = (group[1:] != group[:-1]) | (time[1:] != time[:-1])
    first = first_at.copy()
    first[1:] |= allocation[1:] != allocation[:-1]
    covered = running_maximum(end, np.cumsum(first) - 1)
    before = np.concatenate([begin[:1], covered[:-1]])
    fresh = np.where(first, begin, np.maximum(begin, before))
    held = np.maximum(end - fresh, 0)
    places = np.flatnonzero(first_at)
    return group[places], time[places], np.add.reduceat(held, places)


def running_maximum(values: Ints, segment: Ints) -> Ints:
    """Maximum of each segment's values so far; ranks keep segments apart without overflow."""
    ordered, rank = np.unique(values, return_inverse=True)
    width = len(ordered)
    highest = np.maximum.accumulate(segment * width + rank)
    result: Ints = ordered[highest - segment * width]
    return result


def accumulated(group: Ints, time: Ints, change: Ints) -> tuple[Ints, Ints, Ints]:
    """Sums after all changes of each (group, time); changes of one group sum to 0."""
    order = np.lexsort((time, group))
    group, time = group[order], time[order]
    sums = np.cumsum(change[order])
    last = np.ones(len(group), np.bool_)
    last[:-1] = (group[1:] != group[:-1]) | (time[1:] != time[:-1])
    return group[last], time[last], sums[last]


def _changes(group: Ints, time: Ints, occupied: Ints) -> tuple[Ints, Ints, Ints]:
    """Only the rows at which the number changes; before a group's first row it is 0."""
    before = np.concatenate([np.zeros(1, np.int64), occupied[:-1]])
    new = np.ones(len(group), np.bool_)
    new[1:] = group[1:] != group[:-1]
    keep = occupied != np.where(new, 0, before)
    return group[keep], time[keep], occupied[keep]


def _maxima(group: Ints, time: Ints, occupied: Ints, groups: int) -> tuple[Ints, Ints]:
    """First time and value of each group's maximum; 0 and 0 without rows."""
    peak_time, peak = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    order = np.lexsort((time, -occupied, group))
    ordered = group[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    rows = order[first]
    peak_time[group[rows]], peak[group[rows]] = time[rows], occupied[rows]
    nothing = peak <= 0
    peak_time[nothing], peak[nothing] = 0, 0
    return peak_time, peak


def _disagrees(r: Ranges, group: Ints, time: Ints, occupied: Ints, groups: int) -> Bools:
    """Groups in which the sum is not the union at the maximum or at one of the samples."""
    wrong = np.zeros(groups, np.bool_)
    peak_time, peak = _maxima(group, time, occupied, groups)
    _compare(r, peak_time, peak, wrong)
    bounds = np.searchsorted(group, np.arange(groups + 1))
    counts = np.diff(bounds)
    for sample in range(_SAMPLES):
        some = counts > sample
        if not some.any():
            break
        step = np.where(counts <= _SAMPLES, sample, counts * sample // _SAMPLES)
        row = np.where(some, bounds[:-1] + step, 0)
        _compare(r, np.where(some, time[row], -1), np.where(some, occupied[row], 0), wrong)
    return wrong


def _compare(r: Ranges, time: Ints, expected: Ints, wrong: Bools) -> None:
    if not len(r.group):
        return
    at = time[r.group]
    live = r.where((r.start <= at) & (at <= r.end))
    union_group, _, held = unions(live.group, live.group, live.allocation, live.offset, live.size)
    found = np.zeros(len(wrong), np.int64)
    found[union_group] = held
    wrong |= found != expected
