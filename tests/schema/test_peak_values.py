"""The table peak_values, by the SQL of its invariant: every byte at the peak counts once."""

import random

import pytest
from small_db import Module, derive


def held(con, module_id=1):
    derive(con)
    return con.execute(
        "SELECT color, allocation_index, allocation_kind, value_id, held_bytes FROM peak_values "
        "WHERE module_id = ? ORDER BY ALL",
        [module_id],
    ).fetchall()


def test_shared_bytes_go_to_the_first_by_offset_then_size(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=30)
    module.value(2, 0, offset=0, size=40)  # covers value 1
    module.value(3, 0, offset=20, size=30)  # 20 to 50; value 2 holds 20 to 40
    module.value(4, 0, offset=60, size=10)  # apart
    module.close()
    assert held(con) == [(0, 0, "temp", 2, 40), (0, 0, "temp", 3, 10), (0, 0, "temp", 4, 10)]


def test_values_that_are_the_same_bytes_count_for_the_lowest_id(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(8, 0, offset=0, size=30)
    module.value(7, 0, offset=0, size=30)
    module.close()
    assert held(con) == [(0, 0, "temp", 7, 30)]


def test_only_values_live_at_the_peak_count_both_ends_included(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=10, live=(0, 4))
    module.value(2, 0, offset=10, size=50, live=(4, 6))  # peak at 4
    module.value(3, 0, offset=70, size=20, live=(5, 9))
    module.close()
    assert con.execute("SELECT peak_time FROM occupied_peaks").fetchall() == [(5,)]
    assert held(con) == [(0, 0, "temp", 2, 50), (0, 0, "temp", 3, 20)]


def test_other_allocations_count_for_their_largest_value_at_0(con):
    module = Module(con, 1)
    module.allocation(0, "parameter", 100)
    module.allocation(1, "output", 50)
    module.allocation(2, "constant", 8)
    module.allocation(3, "thread_local", 1000)
    module.allocation(4, "donated_parameter", 0)
    module.value(1, 0, offset=0, size=60)
    module.value(3, 0, offset=0, size=90)
    module.value(2, 0, offset=0, size=90)
    module.value(4, 0, offset=8, size=92)
    module.value(5, 2, offset=4, size=4)
    module.value(6, 3, offset=0, size=1000)
    module.close()
    assert held(con) == [
        (0, 0, "parameter", 2, 100),
        (0, 1, "output", None, 50),
        (0, 2, "constant", None, 8),
    ]


def test_a_module_without_live_ranges_has_no_known_peak(con):
    module = Module(con, 1, has_live_ranges=False)
    module.allocation(0, "parameter", 100)
    module.value(1, 0, offset=0, size=100, live=None)
    assert held(con) == []


def test_sizes_near_two_to_the_63_do_not_overflow(con):
    huge = 2**62
    module = Module(con, 1)
    module.allocation(0, "temp", 2**63 - 1)
    module.allocation(1, "parameter", 2**63 - 1)
    module.close()
    module.value(1, 0, offset=huge, size=huge + 5)
    module.value(2, 0, offset=0, size=huge + 1)
    assert held(con) == [
        (0, 0, "temp", 1, huge + 4),
        (0, 0, "temp", 2, huge + 1),
        (0, 1, "parameter", None, 2**63 - 1),
    ]


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(8))
def test_held_bytes_add_up_to_the_peak(con, seed):
    source = random.Random(seed)
    for module_id in (1, 2):
        module = Module(con, module_id)
        kinds = ["temp", "temp", "temp", "parameter", "output", "thread_local"]
        for index, kind in enumerate(kinds):
            module.allocation(index, kind, size=60, color=source.randrange(2))
        for value_id in range(source.randrange(40)):
            offset, start = source.randrange(50), source.randrange(10)
            module.value(
                value_id,
                source.randrange(len(kinds)),
                offset=offset,
                size=source.randrange(60 - offset),
                live=(start, start + source.randrange(5)),
            )
        module.close()
    derive(con)
    sums = con.execute(
        "SELECT module_id, color, sum(held_bytes) FROM peak_values GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    peaks = con.execute(
        "SELECT module_id, color, peak_bytes FROM memory_figures "
        "WHERE peak_bytes > 0 ORDER BY module_id, color"
    ).fetchall()
    assert sums == peaks
