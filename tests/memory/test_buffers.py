"""Ranges that are one buffer, against linking every pair."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bufdb.memory.buffers import buffers, labels_of_buffers, shared_slots
from bufdb.memory.ranges import Ranges

Row = tuple[int, int, bool, int, int, list[int]]
"""offset, size, whether it is a phi, first and last instant, indexes: the first defines it"""


def buffer_numbers(rows: list[Row]) -> list[int]:
    zeros = np.zeros(len(rows), np.int64)
    offset, size, start, end = (np.array([row[n] for row in rows], np.int64) for n in (0, 1, 3, 4))
    is_phi = np.array([row[2] for row in rows], np.bool_)
    slot = shared_slots(Ranges(zeros, zeros, offset, size, start, end), is_phi)
    places = [(n, index, at == 0) for n, row in enumerate(rows) for at, index in enumerate(row[5])]
    row = np.array([n for n, _, _ in places], np.int64)
    index = np.array([index for _, index, _ in places], np.uint64)
    defining = np.array([first for _, _, first in places], np.bool_)
    return buffers(slot, is_phi, start, end, row, index, defining).tolist()


def by_pairs(rows: list[Row]) -> list[int]:
    lowest = list(range(len(rows)))
    for _ in rows:
        for u, (o, s, u_phi, begin, end, u_index) in enumerate(rows):
            for p, (po, ps, p_phi, p_begin, p_end, p_index) in enumerate(rows):
                touches = (o, s) == (po, ps) and begin <= p_end + 1 and p_begin <= end + 1
                if p_phi and touches and (u_phi or p_index[0] in u_index[1:]):
                    lowest[u] = lowest[p] = min(lowest[u], lowest[p])
    return lowest


ROW = st.tuples(
    st.sampled_from([0, 8]),
    st.sampled_from([4, 8]),
    st.booleans(),
    st.integers(0, 20),
    st.integers(0, 4),
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(drawn=st.lists(ROW, max_size=30))
def test_buffers_are_those_of_linking_every_pair(drawn):
    rows = [(o, s, phi, at, at + length, index) for o, s, phi, at, length, index in drawn]
    assert buffer_numbers(rows) == by_pairs(rows)
    with patch("bufdb.memory.buffers.SLICE_ROWS", 2):
        assert buffer_numbers(rows) == by_pairs(rows)


STACK: list[Row] = [
    (0, 8, False, 0, 3, [0, 5]),  # a broadcast, into the loop's tuple at 5
    (0, 8, True, 3, 6, [5]),  # the body's phi
    (0, 8, False, 6, 8, [0, 5]),  # the fusion in place, into the body's tuple
    (0, 8, True, 8, 12, [5, 7]),  # the while's phi, into the next loop's tuple at 7
    (0, 8, True, 12, 20, [7]),  # the next loop's phi
]


def test_the_stack_of_a_loop_is_one_buffer():
    assert buffer_numbers(STACK) == [0, 0, 0, 0, 0]


def test_results_in_place_of_each_other_are_two_buffers():
    assert buffer_numbers([(0, 8, False, 0, 3, [0]), (0, 8, False, 3, 6, [0, 5])]) == [0, 1]


def test_what_is_at_another_place_in_the_tuple_only_lies_there():
    rows = [(0, 8, False, 0, 3, [5, 4]), *STACK[1:2]]
    assert buffer_numbers(rows) == [0, 1]


def test_lives_apart_are_two_buffers_even_of_phis():
    rows = [(0, 8, True, 0, 3, [5]), (0, 8, True, 5, 9, [5]), (0, 8, True, 10, 12, [6])]
    assert buffer_numbers(rows) == [0, 1, 1]


def test_other_bytes_are_another_buffer():
    rows = [*STACK[:2], (0, 4, True, 3, 6, [5]), (8, 8, True, 3, 6, [5])]
    assert buffer_numbers(rows) == [0, 0, 2, 3]


def test_slots_without_a_phi_need_no_positions():
    zeros, times = np.zeros(4, np.int64), np.arange(4)
    offset = np.array([0, 0, 8, 8])
    ranges = Ranges(zeros, zeros, offset, zeros + 8, times, times)
    none = np.zeros(4, np.bool_)
    assert shared_slots(ranges, none).tolist() == [-1] * 4
    slot = shared_slots(ranges, np.array([False, False, False, True]))
    assert slot[:2].tolist() == [-1, -1]
    assert slot[2] == slot[3] >= 0
    alone = shared_slots(ranges.where(np.arange(3)), np.array([False, False, True]))
    assert alone.tolist() == [-1] * 3


def test_a_buffer_has_the_label_of_what_holds_its_bytes():
    buffer = np.array([0, 1, 0, 3, 3, 5])
    label = np.array([7, 2, 9, -1, 7, -1])
    holds = np.array([False, True, True, True, False, False])
    assert labels_of_buffers(buffer, label, holds).tolist() == [9, 2, 9, -1, -1, -1]
    none = np.zeros(6, np.bool_)
    assert labels_of_buffers(buffer, label, none).tolist() == [7, 2, 7, 7, 7, -1]
