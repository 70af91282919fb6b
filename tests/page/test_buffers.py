"""Values that are one buffer: by hand, and in the arrays of ingest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.memory import buffers as arrays
from bufdb.page.picture import Life, buffers

SLOT = (0, 0, 8)
ITSELF = [("{}", True)]


def test_what_a_loop_merges_and_what_goes_in_are_one():
    stack = Life(SLOT, False, 0, 3, [("{}", True), ("{1}", False)])
    phi = Life(SLOT, True, 3, 9, [("{1}", True)])
    assert buffers([stack, phi]) == [0, 0]


def test_results_in_place_of_each_other_are_two():
    assert buffers([Life(SLOT, False, 0, 3, ITSELF), Life(SLOT, False, 3, 9, ITSELF)]) == [0, 1]


def test_what_lies_elsewhere_or_ended_before_is_another():
    phi = Life(SLOT, True, 5, 9, [("{1}", True)])
    elsewhere = Life((0, 8, 8), False, 5, 9, [("{1}", False)])
    before = Life(SLOT, False, 0, 3, [("{1}", False)])
    at_another_index = Life(SLOT, False, 5, 9, [("{2}", False)])
    assert buffers([phi, elsewhere, before, at_another_index]) == [0, 1, 2, 3]


LIVES = st.lists(
    st.builds(
        lambda slot, is_phi, start, length, index, others: Life(
            (0, slot, 1),
            is_phi,
            start,
            start + length,
            [(index, True), *((other, False) for other in others)],
        ),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 12),
        st.integers(0, 4),
        st.sampled_from(["{}", "{1}"]),
        st.lists(st.sampled_from(["{}", "{1}", "{2}"]), max_size=2),
    ),
    max_size=10,
)


@pytest.mark.slow
@given(LIVES)
def test_buffers_are_those_that_savings_take_away(lives):
    """Both number the rows of one table alike."""
    rows = [(row, *position) for row, life in enumerate(lives) for position in life.positions]
    indices = sorted({index for _, index, _ in rows})
    expected = arrays.buffers(
        np.array([life.slot[1] for life in lives], np.int64),
        np.array([life.is_phi for life in lives], np.bool_),
        np.array([life.start_time for life in lives], np.int64),
        np.array([life.end_time for life in lives], np.int64),
        np.array([row for row, _, _ in rows], np.int64),
        np.array([indices.index(index) for _, index, _ in rows], np.uint64),
        np.array([is_defining for _, _, is_defining in rows], np.bool_),
    )
    assert buffers(lives) == expected.tolist()
