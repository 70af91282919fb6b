"""The distinct peaks, against letting the water sink step by step."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bufdb.memory.maxima import LEAST_DROP, hills


def by_sinking(heights: list[int]) -> list[tuple[int, int, int]]:
    """(time, height, valley) of one function whose step n begins at n, the highest first."""
    top: dict[int, int] = {}
    hill_rows = []
    for step in sorted(range(len(heights)), key=lambda n: (-heights[n], n)):
        near = {top[n] for n in (step - 1, step + 1) if n in top}
        higher = min(near, key=lambda n: (-heights[n], n), default=step)
        for other in near - {higher}:
            drop = heights[other] - heights[step]
            if drop > 0 and drop * LEAST_DROP >= max(heights):
                hill_rows.append((other, heights[other], heights[step]))
        for n in top:
            if top[n] in near:
                top[n] = higher
        top[step] = higher
    if heights:
        hill_rows.append((heights.index(max(heights)), max(heights), 0))
    return sorted(hill_rows, key=lambda hill: (-hill[1], hill[0]))


def hills_of(functions: list[list[int]], kind: type = np.int64) -> list[list[tuple[int, int, int]]]:
    group = np.repeat(np.arange(len(functions)), [len(f) for f in functions])
    time = np.array([n for f in functions for n in range(len(f))], np.int64)
    result = hills(group, time, np.array([h for f in functions for h in f], kind), len(functions))
    rows = [[] for _ in functions]
    for owner, ordinal, *hill in zip(
        *(column.tolist() for column in vars(result).values()), strict=True
    ):
        rows[owner].append(tuple(hill))
        assert ordinal == len(rows[owner])
    return rows


def steps(heights: list[int]) -> list[int]:
    """Drop repeated heights, as in occupancy, where each step differs from the one before."""
    return [h for n, h in enumerate(heights) if n == 0 or h != heights[n - 1]]


FEW, FINE = st.integers(0, 6), st.integers(0, 200)
FUNCTIONS = st.lists(st.one_of(st.lists(FEW), st.lists(FINE)).map(steps), max_size=6)


@pytest.mark.slow
@settings(max_examples=150)
@given(functions=FUNCTIONS)
@example([[0, 5, 0, 5, 0], [], [7], [3, 1, 3, 2, 3]])
def test_hills_are_those_of_sinking_water(functions):
    assert hills_of(functions) == [by_sinking(f) for f in functions]


@pytest.mark.parametrize("turn", [1, -1])
def test_hills_that_end_one_after_the_other(turn):
    """Ever lower hills with ever higher valleys: in each round only the last one ends."""
    ladder = [height for n in range(40) for height in (1000 - 10 * n, 10 * n)][::turn]
    assert hills_of([ladder]) == [by_sinking(ladder)]
    assert len(hills_of([ladder])[0]) == 40


def test_low_hills_do_not_count():
    ladder = [height for n in range(125) for height in (1000 - 4 * n, 4 * n)]
    assert hills_of([ladder]) == [by_sinking(ladder)]
    assert len(hills_of([ladder])[0]) == 120


def test_slopes_that_meet():
    """Most hills are left for the valleys, and whole slopes of them end at one."""
    slope = [height for n in range(30) for height in (1000 - 10 * n, 10 * n)]
    low = [height for n in range(30) for height in (1000 - 2 * n, 990 - 2 * n)]
    for heights in (slope + slope[::-1], slope[::-1] + slope, low[::-1] + low + slope):
        assert hills_of([steps(heights)]) == [by_sinking(steps(heights))]


def test_sizes_that_64_bits_do_not_hold():
    huge = [2**64, 2**63, 2**64, 2**64 - 7, 2**64 + 1]
    assert hills_of([huge], object) == [[(4, 2**64 + 1, 0), (0, 2**64, 2**63)]]


def test_a_hill_counts_from_a_twentieth_on():
    assert hills_of([[100, 94, 99]]) == [[(0, 100, 0), (2, 99, 94)]]
    assert hills_of([[100, 95, 99]]) == [[(0, 100, 0)]]
