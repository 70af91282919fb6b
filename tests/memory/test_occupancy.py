"""Occupied bytes over time, against counting byte by byte."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bufdb.memory.occupancy import SLICE_ROWS, largest_sum, occupancy, running_maximum
from bufdb.memory.ranges import Ranges

HUGE = 2**62
Row = tuple[int, int, int, int, int, int]
"""group, allocation, offset, size, first and last instant"""


def ranges(rows: list[Row]) -> Ranges:
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    return Ranges(*columns)


def union(rows: list[Row], group: int, time: int) -> int:
    """Bytes held at one instant, by merging intervals; sizes of 0 and less hold nothing."""
    live = sorted(
        (allocation, offset, offset + size)
        for owner, allocation, offset, size, start, end in rows
        if owner == group and start <= time <= end and size > 0
    )
    total, last, reached = 0, -1, 0
    for allocation, begin, end in live:
        if allocation != last:
            last, reached = allocation, begin
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def by_counting(rows: list[Row], groups: int, last_time: list[int]):
    steps, peaks = [], []
    for group in range(groups):
        before, best = 0, (0, 0)
        for time in range(last_time[group] + 1):
            now = union(rows, group, time)
            if now != before:
                steps.append((group, time, now))
            if now > best[1]:
                best = (time, now)
            before = now
        peaks.append(best)
    return steps, peaks


def occupancy_of(rows: list[Row], groups: int, last_time: list[int], slice_rows: int = SLICE_ROWS):
    result = occupancy(ranges(rows), groups, np.array(last_time, np.int64), slice_rows)
    columns = (result.group.tolist(), result.time.tolist(), result.occupied.tolist())
    peaks = list(zip(result.peak_time.tolist(), result.peak.tolist(), strict=True))
    return list(zip(*columns, strict=True)), peaks


TIMES = st.integers(0, 12)
SMALL = st.integers(0, 9)
LARGE = st.sampled_from([0, 1, 7, HUGE - 1, HUGE, HUGE + 7])


def tables(offsets: st.SearchStrategy[int], sizes: st.SearchStrategy[int]):
    row = st.tuples(st.integers(0, 2), st.integers(0, 1), offsets, sizes, TIMES, TIMES)
    return st.lists(row, max_size=25)


@st.composite
def sharing(draw: st.DrawFn) -> list[Row]:
    """Ranges as XLA makes them: those that share bytes are live together at most for a moment."""
    kept: list[Row] = []
    for row in draw(tables(SMALL, SMALL)):
        group, allocation, offset, size, start, end = row
        clash = any(
            (group, allocation) == other[:2]
            and offset < other[2] + other[3]
            and other[2] < offset + size
            and start < other[5]
            and other[4] < end
            for other in kept
        )
        if not clash and start <= end:
            kept.append(row)
    return kept


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=sharing(), last=st.lists(st.integers(0, 14), min_size=4, max_size=4))
def test_occupancy_is_that_of_counting(rows, last):
    assert occupancy_of(rows, 4, last) == by_counting(rows, 4, last)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=tables(SMALL, SMALL))
@example([(0, 0, 0, 4, 0, 9), (0, 0, 0, 4, 0, 9)])
@example([(0, 0, 0, 4, 0, 9), (0, 0, 2, 4, 3, 9), (0, 1, 0, 1, 5, 5)])
def test_the_peak_is_exact_for_odd_sharing(rows):
    """The steps may overcount between the sampled instants then; the maximum never does."""
    last = [12] * 3
    steps, peaks = occupancy_of(rows, 3, last)
    true_steps, true_peaks = by_counting(rows, 3, last)
    assert peaks == true_peaks
    if len(steps) <= 3 * 16:
        assert steps == true_steps


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows=st.one_of(sharing(), tables(SMALL, SMALL)), slice_rows=st.integers(1, 9))
@example([(0, 0, 0, 4, 0, 2**61), (0, 0, 0, 4, 2**61, 2**61), (1, 0, 0, 9, -5, 7)], 1)
@example([(0, 0, 0, 4, 0, 9), (1, 0, 0, 4, 9, 12), (0, 0, 0, 4, 9, 9)], 1)
def test_the_size_of_a_slice_changes_nothing(rows, slice_rows):
    last = [12] * 3
    assert occupancy_of(rows, 3, last, slice_rows) == occupancy_of(rows, 3, last)
    columns = ranges([row for row in rows if row[3] > 0])
    sums = columns.group, columns.size, columns.start, columns.end, 3
    assert largest_sum(*sums, slice_rows) == largest_sum(*sums)


@pytest.mark.slow
@given(rows=st.one_of(sharing(), tables(SMALL, SMALL)), together=st.integers(0, 9))
def test_the_size_of_a_step_changes_nothing(rows, together):
    last = [13, 8, 13]
    with mock.patch("bufdb.memory.occupancy.PART_ROWS", together):
        some = occupancy(ranges(rows), 3, np.array(last))
    assert some.counted.tolist() == occupancy(ranges(rows), 3, np.array(last)).counted.tolist()
    assert some.peak.tolist() == [peak for _, peak in by_counting(rows, 3, last)[1]]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(rows=tables(LARGE, LARGE))
@example([(0, 0, HUGE, HUGE - 1, 0, 3), (0, 1, 0, HUGE, 2, 5), (0, 1, HUGE, HUGE - 1, 2, 2)])
@example([(0, n, 0, HUGE, 0, 3) for n in range(5)] + [(1, 0, 0, 8, 1, 2)])
def test_sizes_near_the_end_of_64_bits_are_exact(rows):
    assume(all(offset + size < 2**63 for _, _, offset, size, _, _ in rows))
    assert occupancy_of(rows, 3, [13] * 3) == by_counting(rows, 3, [13] * 3)


def test_a_long_schedule_of_large_sizes_next_to_a_short_one():
    rows = [(0, 0, 0, 8, 1, 2), *((1, n, 0, HUGE, 3, 300) for n in range(5)), (2, 0, 0, 8, 0, 3)]
    steps = [(0, 1, 8), (0, 3, 0), (1, 3, 5 * HUGE), (1, 301, 0), (2, 0, 8), (2, 4, 0)]
    assert occupancy_of(rows, 3, [400] * 3) == (steps, [(1, 8), (3, 5 * HUGE), (0, 8)])


def test_a_group_of_large_sizes_may_have_any_number():
    rows = [(0, 0, 0, 8, 1, 2), *((200, n, 0, HUGE, 3, 4) for n in range(5))]
    assert occupancy_of(rows, 201, [9] * 201)[0][2:] == [(200, 3, 5 * HUGE), (200, 5, 0)]


def test_nothing_is_occupied_without_ranges():
    assert occupancy_of([], 2, [5, 5]) == ([], [(0, 0), (0, 0)])
    assert occupancy_of([(1, 0, 0, 0, 0, 5), (1, 0, 0, 8, 5, 3)], 2, [5, 5]) == (
        [],
        [(0, 0), (0, 0)],
    )


def test_values_that_touch_share_their_bytes_at_that_instant():
    rows = [(0, 0, 0, 8, 0, 2), (0, 0, 0, 8, 2, 4), (0, 0, 8, 4, 2, 2)]
    assert occupancy_of(rows, 1, [9]) == ([(0, 0, 8), (0, 2, 12), (0, 3, 8), (0, 5, 0)], [(2, 12)])


def test_the_same_bytes_of_two_allocations_count_twice():
    rows = [(0, 0, 0, 8, 0, 2), (0, 1, 0, 8, 0, 2)]
    assert occupancy_of(rows, 1, [2]) == ([(0, 0, 16)], [(0, 16)])


def test_of_equal_maxima_the_first_counts():
    rows = [(0, 0, 0, 8, 1, 1), (0, 0, 0, 8, 5, 6)]
    assert occupancy_of(rows, 1, [9])[1] == [(1, 8)]


def test_a_violation_is_found_in_a_long_schedule():
    """Two values on the same bytes at the maximum: the sum says 16, the union 8."""
    steps = [(0, 0, 100 * n, 1, 3 * n, 3 * n + 1) for n in range(200)]
    rows = [*steps, (0, 0, 50_000, 8, 30, 90), (0, 0, 50_000, 8, 40, 90)]
    assert occupancy_of(rows, 1, [700])[1] == by_counting(rows, 1, [700])[1]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(rows=st.one_of(tables(SMALL, SMALL), tables(SMALL, LARGE)))
def test_the_largest_sum_counts_shared_bytes_every_time(rows):
    expected = [
        max(sum(s for g, _, _, s, a, b in rows if g == group and a <= t <= b) for t in range(13))
        for group in range(4)
    ]
    r = ranges(rows)
    assert largest_sum(r.group, r.size, r.start, r.end, 4) == expected


@pytest.mark.parametrize("sizes", [[2**62] * 4, [2**63 - 1] * 2, [2**62, -(2**62)]])
def test_the_largest_sum_is_exact(sizes):
    count = len(sizes)
    zeros = np.zeros(count, np.int64)
    (found_sum,) = largest_sum(zeros, np.array(sizes, np.int64), zeros, zeros + 3, 1)
    assert found_sum == max(0, sum(sizes))


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)))
def test_maxima_of_segments_are_separate_whatever_their_size(segments):
    values = np.array([value for some in segments for value in some], np.int64)
    segment = np.repeat(np.arange(len(segments)), [len(some) for some in segments])
    expected = [max(some[: end + 1]) for some in segments for end in range(len(some))]
    assert running_maximum(values, segment).tolist() == expected
