import pytest
from small_db import Module, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "timeline", "run_name")


def one_module(con, steps, module_id=1, **cells):
    """A module with 10 fixed bytes and the given steps (start_time, occupied temp bytes)."""
    module = Module(con, module_id, schedule_length=9, **cells)
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 10)
    insert(con, "occupied_peaks", module_id=module_id,
           peak_time=max(steps, key=lambda step: (step[1], -step[0]))[0],
           occupied_temp_bytes=max(size for _, size in steps))  # fmt: skip
    for start_time, size in steps:
        insert(con, "occupancy_steps", module_id=module_id, start_time=start_time,
               occupied_temp_bytes=size)  # fmt: skip
    for order in range(9):
        insert(con, "instructions", module_id=module_id, instruction_name=f"i{order}",
               program_order=order, opcode="dot", op_name=f"jit(f)/{order}")  # fmt: skip


def test_a_row_for_each_step_without_a_gap(con):
    one_module(con, [(2, 30), (5, 90), (9, 0)], function_name="step")
    holds(con, "timeline", """
        run_name | function_name | color | start_time | end_time | lowest_bytes | occupied_bytes
        r        | step          | 0     | 0          | 1        | 10           | 10
        r        | step          | 0     | 2          | 4        | 40           | 40
        r        | step          | 0     | 5          | 8        | 100          | 100
        r        | step          | 0     | 9          | 9        | 10           | 10

        peak_ratio | occupied_time | instruction_name | opcode | op_name
        0.1        | 0             | i0               | dot    | jit(f)/0
        0.4        | 2             | i2               | dot    | jit(f)/2
        1.0        | 5             | i5               | dot    | jit(f)/5
        0.1        | 9             | NULL             | NULL   | NULL
    """)  # fmt: skip


def test_neighbors_merge_at_their_first_highest_moment(con):
    steps = [(0, 10), (1, 20), (3, 50), (4, 40), (5, 90), (6, 0), (7, 90)]
    one_module(con, steps)
    holds(con, "timeline", """
        start_time | end_time | lowest_bytes | occupied_bytes | occupied_time
        0          | 3        | 20           | 60             | 3
        4          | 5        | 50           | 100            | 5
        6          | 9        | 10           | 100            | 7
    """, top_n=3)  # fmt: skip
    holds(con, "timeline", """
        start_time | end_time | lowest_bytes | occupied_bytes | occupied_time
        0          | 9        | 10           | 100            | 5
    """, top_n=1)  # fmt: skip


def test_a_module_that_holds_no_temps_is_flat(con):
    module = Module(con, 1, schedule_length=4)
    module.allocation(0, "output", 10)
    module.close()
    holds(con, "timeline", """
        start_time | end_time | lowest_bytes | occupied_bytes | peak_ratio
        0          | 4        | 10           | 10             | 1.0
    """)  # fmt: skip


@pytest.mark.slow
def test_the_largest_module_that_filters_leave(con):
    one_module(con, [(0, 20)], module_id=1, run_name="b", platform="cpu")
    one_module(con, [(0, 20)], module_id=2, run_name="a", function_name="g")
    one_module(con, [(0, 10)], module_id=3, run_name="c")
    holds(con, "timeline", """
        run_name
        a
    """)  # fmt: skip
    holds(con, "timeline", """
        run_name
        b
    """, platform="cpu")  # fmt: skip
    holds(con, "timeline", """
        run_name
        c
    """, module="m3")  # fmt: skip
    holds(con, "timeline", """
        run_name
        b
    """, function="f", run="[bc]")  # fmt: skip
    holds(con, "timeline", "run_name", color=1)
