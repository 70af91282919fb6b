"""Ownership of bytes: by hand, and against a count of every byte at every instant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.export.tenancy import tenancies
from bufdb.export.values import HloValue

LAST = 9


def value(number, offset, size, start, end, kind="temp", allocation=0):
    return HloValue(
        number, allocation, kind, offset, size, start, end, f"v{number}", "u8[]", "", "", ()
    )


def parts(*values):
    return [
        (part.value.value_id, part.offset_bytes, part.size_bytes, part.start_time, part.end_time)
        for part in tenancies(values, LAST)
    ]


def test_a_value_alone_has_its_bytes_as_long_as_it_lives():
    assert parts(value(1, 0, 10, 2, 5), value(2, 10, 4, 0, 9)) == [
        (2, 10, 4, 0, 9),
        (1, 0, 10, 2, 5),
    ]


def test_the_next_value_gets_the_bytes_when_the_first_has_ended():
    assert parts(value(1, 0, 10, 0, 5), value(2, 0, 10, 5, 9)) == [
        (1, 0, 10, 0, 5),
        (2, 0, 10, 6, 9),
    ]


def test_the_value_with_the_lower_offset_has_the_bytes():
    assert parts(value(1, 4, 6, 0, 9), value(2, 0, 8, 3, 5)) == [
        (1, 4, 6, 0, 2),
        (2, 0, 8, 3, 5),
        (1, 8, 2, 3, 5),
        (1, 4, 6, 6, 9),
    ]


def test_of_values_in_one_place_the_largest_first_has_the_bytes():
    assert parts(value(1, 0, 4, 0, 9), value(2, 0, 6, 0, 5), value(3, 0, 4, 0, 9)) == [
        (2, 0, 6, 0, 5),
        (1, 0, 4, 6, 9),
    ]


def test_bytes_regained_at_once_stay_one_tenancy():
    assert parts(value(1, 0, 6, 0, 3), value(2, 0, 6, 4, 9), value(3, 4, 8, 0, 9)) == [
        (1, 0, 6, 0, 3),
        (3, 6, 6, 0, 9),
        (2, 0, 6, 4, 9),
    ]


def test_a_value_within_another_has_nothing():
    assert parts(value(1, 0, 10, 0, 9), value(2, 2, 3, 4, 5)) == [(1, 0, 10, 0, 9)]


def test_what_holds_no_temp_bytes_is_left_out():
    assert not parts(
        value(1, 0, 10, None, None),
        value(2, 0, 0, 0, 5),
        value(3, 0, 8, 5, 4),
        value(4, 0, 8, LAST + 1, LAST + 2),
        value(5, 0, 8, 0, 5, kind="output"),
    )


VALUES = st.lists(
    st.tuples(*[st.integers(0, 12)] * 2, *[st.integers(0, LAST)] * 2, st.integers(0, 1)),
    max_size=8,
)


@pytest.mark.slow
@given(VALUES)
def test_each_byte_has_one_tenant_at_each_instant(rows):
    values = [
        value(number, offset, size, start, end, allocation=allocation)
        for number, (offset, size, start, end, allocation) in enumerate(rows)
    ]
    holders = {}
    for part in tenancies(values, LAST):
        assert part.start_time <= part.end_time
        for time in range(part.start_time, part.end_time + 1):
            for byte in range(part.offset_bytes, part.offset_bytes + part.size_bytes):
                place = (part.value.allocation_index, byte, time)
                assert place not in holders
                holders[place] = part.value
    for allocation in (0, 1):
        for time in range(LAST + 1):
            for byte in range(25):
                live = [
                    value
                    for value in values
                    if value.allocation_index == allocation
                    and value.offset_bytes <= byte < value.offset_bytes + value.size_bytes
                    and value.start_time <= time <= value.end_time
                ]
                holder = holders.get((allocation, byte, time))
                assert (holder is None) == (not live)
                if live:
                    order = [
                        (value.offset_bytes, -value.size_bytes, value.value_id) for value in live
                    ]
                    assert holder.value_id == min(order)[2]
