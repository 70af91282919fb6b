"""Values that share a place with a live carrier, compared with checking all pairs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bufdb.memory.buffers import places, sharers

SMALL = st.integers(0, 3)
ROWS = st.lists(st.tuples(SMALL, SMALL, st.integers(-2, 9), st.integers(-2, 9), st.booleans()))
LARGE = st.integers(-(2**63), 2**63 - 1)


@given(ROWS)
def test_sharers_are_those_of_all_pairs(rows):
    columns = [np.array([row[n] for row in rows], np.int64) for n in range(4)]
    carrier = np.array([row[4] for row in rows], np.bool_)
    place = places(columns[:2], carrier)
    sharer = sharers(place, columns[2], columns[3], carrier)
    for row, (a, b, start, end, _) in enumerate(rows):
        others = {
            other
            for other, (c, d, begin, stop, is_carrier) in enumerate(rows)
            if is_carrier and (a, b) == (c, d) and begin <= stop and start <= end
            and begin <= end and start <= stop
        }  # fmt: skip
        assert sharer[row] in others or (not others and sharer[row] == -1)


@given(st.lists(st.tuples(LARGE, LARGE, st.booleans())))
def test_places_are_equal_where_all_columns_are(rows):
    columns = [np.array([row[n] for row in rows], np.int64) for n in range(2)]
    numbers = places(columns, np.array([row[2] for row in rows], np.bool_)).tolist()
    carried = {row[:2] for row in rows if row[2]}
    for number, row in zip(numbers, rows, strict=True):
        assert (number >= 0) == (row[:2] in carried)
    pairs = {(number, row[:2]) for number, row in zip(numbers, rows, strict=True) if number >= 0}
    assert len(pairs) == len(carried) == len({number for number, _ in pairs})
