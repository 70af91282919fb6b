"""Instants at which most bytes live, however large the sums are, and traces out of order."""

import numpy as np

from bufdb.proto.places import Assignment, Values
from bufdb.proto.times import Live, exact, instant_of_most, trace_faults


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_the_first_instant_with_the_most_bytes_counts() -> None:
    start, end = ints(0, 2, 5), ints(4, 4, 7)
    assert instant_of_most(start, end, exact([10, 5, 15])) == 2
    assert instant_of_most(start, end, exact([10, 5, 16])) == 5
    assert instant_of_most(ints(), ints(), exact([])) == 0


def test_where_nothing_has_bytes_it_is_the_beginning() -> None:
    assert instant_of_most(ints(3, 4), ints(5, 6), exact([0, -5])) == 0


def test_sums_beyond_64_bits_are_right() -> None:
    most = 2**63 - 1
    start, end = ints(0, 1, 2, 6), ints(3, 3, 3, 7)
    assert instant_of_most(start, end, exact([most, most, most, most])) == 2
    assert instant_of_most(start, end, exact([1, 1, 2**64, 2**64 + 3])) == 6


def test_events_of_a_trace_never_go_back() -> None:
    values = Values(numbers=[3, 5, 9])
    live = Live(ints(0, 2, -1), ints(4, 6, -1))
    # 3 comes, 5 comes, 3 goes, 5 goes; 9 has no range, and 7 is no value.
    disordered = Assignment(traces=[(ints(3, 9, 5, 7, 3, 5), ints(0, 0, 2, 0, 1, 1))])
    assert trace_faults(disordered, values, live) == (0, 4)
    # The end of 5 (6) comes before all others; the two earlier ones are out of order.
    disordered = Assignment(traces=[(ints(5, 3, 3), ints(1, 0, 1)), (ints(5), ints(0))])
    assert trace_faults(disordered, values, live) == (2, 4)
