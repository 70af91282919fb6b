"""Columns that wait take as few bytes as their numbers need, and no number is changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.memory.ranges import in_order, narrow, put, wide

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)


@given(st.lists(NUMBERS))
def test_narrow_numbers_are_the_same(numbers):
    column = np.array(numbers, np.int64)
    assert narrow(column).tolist() == wide(narrow(column)).tolist() == numbers
    assert wide(narrow(column)).dtype == np.int64


@pytest.mark.parametrize(
    ("most", "size"),
    [(126, 1), (127, 2), (2**15 - 1, 4), (2**31 - 2, 4), (2**31 - 1, 8), (2**63 - 1, 8)],
)
def test_the_number_behind_the_largest_fits_too(most, size):
    column = narrow(np.array([most]))
    assert column.itemsize == size
    assert most == 2**63 - 1 or (column + 1).tolist() == [most + 1]


def test_zeros_take_no_memory():
    zeros = narrow(np.zeros(10**6, np.int64))
    assert zeros.strides == (0,) and zeros[5:8].tolist() == [0, 0, 0]


@given(st.lists(NUMBERS, min_size=1), st.data())
def test_what_is_put_into_a_column_is_there_whatever_its_size(numbers, data):
    rows = data.draw(st.lists(st.integers(0, len(numbers) - 1), unique=True))
    new = data.draw(st.lists(NUMBERS, min_size=len(rows), max_size=len(rows)))
    column = put(np.zeros(len(numbers), np.int8), np.arange(len(numbers)), np.array(numbers))
    column = put(column, np.array(rows, np.int64), np.array(new, np.int64))
    expected = dict(enumerate(numbers)) | dict(zip(rows, new, strict=True))
    assert column.tolist() == list(expected.values())


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-3, 3))))
def test_rows_are_in_order_whether_their_cells_fit_into_one_integer_or_not(rows):
    columns = [np.array([row[place] for row in rows], np.int64) for place in range(3)]
    for some in (columns, columns[::-1], columns[1:], [narrow(column) for column in columns]):
        order = in_order(*some).tolist()
        cells = list(zip(*(column.tolist() for column in some), strict=True))
        assert [cells[row] for row in order] == sorted(cells)
        assert sorted(order) == list(range(len(rows)))
