"""Rows in order, by several columns at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bufdb.memory.ranges import in_order

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-3, 3))))
def test_rows_are_in_order_with_any_cells(rows):
    columns = [np.array([row[place] for row in rows], np.int64) for place in range(3)]
    for some in (columns, columns[::-1], columns[1:]):
        order = in_order(*some).tolist()
        cells = list(zip(*(column.tolist() for column in some), strict=True))
        assert [cells[row] for row in order] == sorted(cells)
        assert sorted(order) == list(range(len(rows)))
