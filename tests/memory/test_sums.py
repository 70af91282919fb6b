"""Sums by group and kind, against Python's integers."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.memory.ranges import distinct_pairs, sums_by_kind

SIZE = st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))
ROW = st.tuples(st.integers(0, 3), st.integers(0, 5), SIZE)


@pytest.mark.slow
@given(st.lists(ROW, max_size=12))
def test_sums_are_exact_whatever_the_sizes(rows):
    group, kind, size = np.array(rows, np.int64).reshape(-1, 3).T
    expected = defaultdict(int)
    for row in rows:
        expected[row[:2]] += row[2]
    sums = sums_by_kind(group, kind, size, 4, 6)
    assert sums.shape == (4, 6)
    assert sums.tolist() == [[expected[row, column] for column in range(6)] for row in range(4)]
    totals = [sum(expected[row, column] for column in range(6)) for row in range(4)]
    assert sums[:, [0, 1, 2, 3, 4, 5]].sum(axis=1).tolist() == totals


@given(st.lists(st.tuples(SIZE, SIZE), max_size=12))
def test_pairs_are_numbered_in_order(pairs):
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    distinct, number = distinct_pairs(first, second)
    assert [tuple(pair) for pair in distinct.tolist()] == sorted(set(pairs))
    assert [tuple(distinct[row].tolist()) for row in number.tolist()] == pairs
