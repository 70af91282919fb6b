from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "fragmentation", "run_name")


def test_holes_around_the_values_at_the_peak(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "temp", 30)
    module.allocation(2, "parameter", 500)
    module.value(1, 0, offset=10, size=20)
    module.value(2, 0, offset=20, size=20)  # overlaps value 1: no hole between them
    module.value(3, 0, offset=60, size=30)
    module.value(4, 0, offset=45, size=5, live=(20, 30))
    module.value(5, 2, offset=0, size=500)
    module.value(6, 0, offset=40, size=0)
    module.close()
    # 160 - 30 are the temps; 60 of them are occupied: 10..40 and 60..90.
    holds(con, "fragmentation", """
        run_name | function_name | color | fragmentation_bytes | allocation_index
        r        | step          | 0     | 70                  | 1
        r        | step          | 0     | 70                  | 0
        r        | step          | 0     | 70                  | 0
        r        | step          | 0     | 70                  | 0

        allocation_bytes | hole_offset_bytes | hole_bytes | hole_ratio | value_below | value_above
        30               | 0                 | 30         | 1.0        | NULL        | NULL
        100              | 40                | 20         | 0.2        | v2          | v3
        100              | 0                 | 10         | 0.1        | NULL        | v1
        100              | 90                | 10         | 0.1        | v3          | NULL
    """)  # fmt: skip


def test_ties_by_run_allocation_and_offset(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        module.allocation(1, "temp", 10)
        module.allocation(0, "temp", 10)
        module.value(1, 1, offset=4, size=2)
        module.value(2, 0, offset=0, size=6)
        module.close()
    holds(con, "fragmentation", """
        run_name | allocation_index | hole_offset_bytes
        a        | 0                | 6
        a        | 1                | 0
        a        | 1                | 6
        b        | 0                | 6
        b        | 1                | 0
        b        | 1                | 6
    """)  # fmt: skip
    assert len(answer(con, "fragmentation", run="a", top_n=2)) == 2


def test_a_full_allocation_has_none(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 10)
    module.value(1, 0, offset=0, size=10)
    module.close()
    holds(con, "fragmentation", "run_name")
