"""Holders of the bytes at the peak, against counting byte by byte."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from bufdb.memory.buffers import largest_rows, own_bytes

SMALL = st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9))
HUGE = 2**62


def columns(rows):
    return np.array(rows, np.int64).reshape(-1, 3).T


@given(st.lists(SMALL, max_size=15))
@example([(0, 0, 3), (0, 0, 4), (0, 2, 3), (0, 6, 1), (1, 0, 3), (1, 0, 3)])
def test_every_byte_counts_for_the_first_range_that_has_it(rows):
    expected, taken = [0] * len(rows), set()
    for place in sorted(range(len(rows)), key=lambda n: (rows[n][1], -rows[n][2], n)):
        allocation, offset, size = rows[place]
        new_bytes = {(allocation, byte) for byte in range(offset, offset + size)} - taken
        expected[place] = len(new_bytes)
        taken |= new_bytes
    assert own_bytes(*columns(rows)).tolist() == expected


def test_ends_near_the_last_of_64_bits_are_exact():
    rows = [(0, HUGE, HUGE - 1), (0, 0, HUGE + 1), (1, 2**63 - 2, 1), (1, 0, 2**63 - 1)]
    assert own_bytes(*columns(rows)).tolist() == [HUGE - 2, HUGE + 1, 0, 2**63 - 1]


@given(st.lists(SMALL, max_size=15))
def test_the_largest_is_the_first_of_equal_ones(rows):
    allocation, _, size = columns(rows)
    expected = []
    for number in range(4):
        ranked = [(-row[2], place) for place, row in enumerate(rows) if row[0] == number]
        expected.append(min(ranked)[1] if ranked else -1)
    assert largest_rows(allocation, size, 4).tolist() == expected
