"""Savings of sets of ranges, against the union of all the others at every instant."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bufdb.memory import savings
from bufdb.memory.occupancy import SLICE_ROWS, occupancy
from bufdb.memory.ranges import Ranges
from bufdb.memory.savings import Savings

HUGE = 2**62
Row = tuple[int, int, int, int, int, int]
"""group, allocation, offset, size, first and last instant"""
Pairs = list[tuple[int, int]]
"""range and set"""


def union(rows: list[Row], time: int) -> int:
    """Bytes held at one instant, piece by piece."""
    live = [row for row in rows if row[4] <= time <= row[5]]
    total = 0
    for allocation in {row[1] for row in live}:
        spans = [(o, o + s) for _, a, o, s, _, _ in live if a == allocation]
        edges = sorted({edge for piece in spans for edge in piece})
        for low, high in pairwise(edges):
            total += (high - low) * any(a <= low and high <= b for a, b in spans)
    return total


def by_counting(rows: list[Row], pairs: Pairs, count: int, keep: Fraction = Fraction(0)):
    """Return (saving, highest point without, its first instant) of each set."""
    set_savings = []
    for number in range(count):
        members = {row for row, owner in pairs if owner == number}
        group = rows[min(members)][0]
        all_rows = [row for row in rows if row[0] == group]
        others = [row for n, row in enumerate(rows) if row[0] == group and n not in members]
        heights = []
        for time in range(max(row[5] for row in all_rows) + 1):
            whole, rest = union(all_rows, time), union(others, time)
            heights.append((rest + -(-(whole - rest) * keep // 1), whole))
        peak = max(height for height, _ in heights)
        first = [height for height, _ in heights].index(peak)
        set_savings.append((max(whole for _, whole in heights) - peak, peak, first))
    return set_savings


def prepared(rows: list[Row], slice_rows: int = SLICE_ROWS) -> Savings:
    ranges = Ranges(*np.array(rows, np.int64).reshape(-1, 6).T)
    groups = 1 + max((row[0] for row in rows), default=0)
    last = np.full(groups, 2**39)
    return Savings(ranges, occupancy(ranges, groups, last), groups, slice_rows)


def savings_of(
    rows: list[Row],
    pairs: Pairs,
    count: int,
    keep: Fraction = Fraction(0),
    slice_rows: int = SLICE_ROWS,
):
    one, sets = np.array(pairs, np.int64).reshape(-1, 2).T
    saved = prepared(rows, slice_rows).of(one, sets, count, keep)
    assert saved.is_known.all()
    columns = (saved.saving.tolist(), saved.peak.tolist(), saved.peak_time.tolist())
    return list(zip(*columns, strict=True))


TIMES, SMALL = st.integers(0, 12), st.integers(0, 9)
LARGE = st.sampled_from([0, 1, 7, HUGE - 1, HUGE, HUGE + 7])


def tables(offsets: st.SearchStrategy[int], sizes: st.SearchStrategy[int]):
    row = st.tuples(st.integers(0, 2), st.integers(0, 1), offsets, sizes, TIMES, TIMES)
    rows = st.lists(row, min_size=1, max_size=25)
    return rows.map(lambda all_rows: [r for r in all_rows if r[3] > 0 and r[4] <= r[5]])


@st.composite
def sharing(draw: st.DrawFn) -> list[Row]:
    """Ranges as XLA makes them: those that share bytes are live together at most for a moment."""
    kept: list[Row] = []
    slots = st.tuples(SMALL, st.integers(1, 9))
    few = draw(st.lists(slots, min_size=1, max_size=6))
    for group, allocation, slot, start, end in draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from(few), TIMES, TIMES),
            max_size=30,
        )
    ):
        row = (group, allocation, *slot, start, end)
        clash = any(
            (group, allocation) == other[:2]
            and slot[0] < other[2] + other[3]
            and other[2] < sum(slot)
            and start < other[5]
            and other[4] < end
            for other in kept
        )
        if not clash and start <= end:
            kept.append(row)
    return kept


@st.composite
def with_sets(draw: st.DrawFn, rows: st.SearchStrategy[list[Row]]):
    """Ranges in sets of one group each, some in none and some in two."""
    kept = draw(rows)
    assume(kept)
    names = st.sets(st.integers(0, 3), max_size=2)
    pairs = {(n, (row[0], name)) for n, row in enumerate(kept) for name in draw(names)}
    numbers = {owner: place for place, owner in enumerate(sorted({owner for _, owner in pairs}))}
    return kept, sorted((row, numbers[owner]) for row, owner in pairs), len(numbers)


def each_alone(rows: list[Row]):
    return rows, [(n, n) for n in range(len(rows))], len(rows)


SLICES = st.integers(1, 9) | st.just(SLICE_ROWS)
"""Ranges looked at together: the figures are the same whatever their number."""


@pytest.mark.slow
@settings(max_examples=120)
@given(case=with_sets(sharing()), slice_rows=SLICES)
def test_savings_are_those_of_counting(case, slice_rows):
    assert savings_of(*case, slice_rows=slice_rows) == by_counting(*case)


@pytest.mark.slow
@settings(max_examples=100)
@given(rows=sharing())
def test_savings_of_each_range_are_those_of_counting(rows):
    assert savings_of(*each_alone(rows)) == by_counting(*each_alone(rows))


@pytest.mark.slow
@settings(max_examples=200)
@given(case=with_sets(tables(SMALL, SMALL)), slice_rows=SLICES)
@example(each_alone([(0, 0, 0, 4, 0, 9), (0, 0, 0, 4, 0, 9)]), 1)
@example(each_alone([(0, 0, 0, 4, 0, 9), (0, 0, 2, 4, 3, 9), (0, 1, 0, 1, 5, 5)]), 1)
def test_savings_are_exact_for_odd_sharing(case, slice_rows):
    assert savings_of(*case, slice_rows=slice_rows) == by_counting(*case)


@pytest.mark.slow
@settings(max_examples=100)
@given(case=with_sets(st.one_of(tables(LARGE, LARGE), sharing())), part=st.integers(0, 8))
def test_a_part_may_stay_and_sizes_may_be_huge(case, part):
    assume(all(row[2] + row[3] < 2**63 for row in case[0]))
    keep = Fraction(part, 8)
    assert savings_of(*case, keep) == by_counting(*case, keep)


def test_a_second_peak_caps_what_the_first_gives():
    rows = [(0, 0, 0, 100, 2, 3), (0, 0, 100, 10, 0, 9), (0, 0, 110, 70, 6, 7)]
    assert savings_of(rows, [(0, 0), (1, 1), (2, 2)], 3) == [(30, 80, 6), (10, 100, 2), (0, 110, 2)]


def test_two_plateaus_fall_together_alone():
    rows = [(0, 0, 0, 50, 0, 1), (0, 0, 60, 50, 4, 5), (0, 0, 120, 10, 0, 9)]
    pairs = [(0, 0), (1, 1)]
    assert savings_of(rows, pairs, 2) == [(0, 60, 4), (0, 60, 0)]
    assert savings_of(rows, [(0, 0), (1, 0)], 1) == [(50, 10, 0)]


def test_without_the_only_range_nothing_is_left():
    assert savings_of([(0, 0, 0, 8, 3, 5)], [(0, 0)], 1) == [(8, 0, 0)]


def test_bytes_handed_over_belong_to_both_or_neither():
    rows = [(0, 0, 0, 8, 0, 4), (0, 0, 0, 8, 4, 9), (0, 0, 8, 2, 4, 4)]
    assert savings_of(*each_alone(rows)) == [(0, 10, 4), (0, 10, 4), (2, 8, 0)]
    assert savings_of(rows, [(0, 0), (1, 0)], 1) == [(8, 2, 4)]


def test_a_violation_counts_where_it_matters():
    """At 60 two values on the same bytes: the sum there is 16, the union 8."""
    rows = [(0, 0, 100 * n, 1, 3 * n, 3 * n + 1) for n in range(100)]
    rows += [(0, 0, 50_000, 20, 150, 155), (0, 0, 60_000, 8, 30, 90), (0, 0, 60_000, 8, 40, 80)]
    pairs = [(100, 0)]
    assert savings_of(rows, pairs, 1) == by_counting(rows, pairs, 1) == [(12, 9, 30)]


@pytest.mark.parametrize("slice_rows", [1, SLICE_ROWS])
def test_what_would_take_too_long_is_unknown(monkeypatch, slice_rows):
    rows = [(0, 0, 0, 4, 0, 9), (0, 0, 2, 4, 3, 9), (1, 0, 0, 8, 0, 3), (1, 0, 8, 2, 0, 9)]
    monkeypatch.setattr(savings, "_PAIRS", 0)
    monkeypatch.setattr(savings, "_PAIRS_EACH", 1)
    saved = prepared(rows, slice_rows).of(np.arange(4), np.arange(4), 4)
    assert saved.is_known.tolist() == [False, False, True, True]
    assert saved.saving.tolist() == [0, 0, 8, 2]
    assert saved.peak.tolist() == [6, 6, 2, 8]


def test_long_checks_are_done_in_parts(monkeypatch):
    rows = [(0, 0, 10 * n, 9 - n % 3, n, 40 - n) for n in range(20)]
    rows += [(0, 0, 1000, 30 + n, 50 + 3 * n, 51 + 3 * n) for n in range(20)]
    expected = savings_of(*each_alone(rows))
    monkeypatch.setattr(savings, "_CHUNK", 3)
    assert savings_of(*each_alone(rows)) == expected == by_counting(*each_alone(rows))


@pytest.mark.parametrize("keep", [Fraction(-1, 2), Fraction(3, 2)])
def test_a_share_is_between_nothing_and_all(keep):
    with pytest.raises(ValueError, match="between 0 and 1"):
        prepared([(0, 0, 0, 8, 3, 5)]).of(np.array([0]), np.array([0]), 1, keep)


def test_nothing_saves_nothing():
    saved = prepared([]).of(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    assert saved.saving.tolist() == []
