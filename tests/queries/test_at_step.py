import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "at-step", "run_name")


def one_module(con):
    module = Module(con, 1, function_name="step", schedule_length=9)
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 20)
    module.allocation(2, "output", 5)
    module.allocation(3, "thread_local", 1000)
    module.allocation(4, "temp", 50, color=1)
    module.value(1, 0, offset=0, size=30, live=(2, 4), program_order=2, opcode="dot",
                 op_name="jit(step)/dot", source_file="a.py", source_line=3)  # fmt: skip
    module.value(2, 0, offset=20, size=20, live=(4, 6), program_order=4)  # shares 20 to 30
    module.value(3, 0, offset=50, size=10, live=(4, 9), program_order=3)
    module.value(4, 0, offset=60, size=30, live=(6, 9), program_order=6)
    module.value(5, 1, offset=0, size=20, live=(0, 9))
    module.value(6, 3, offset=0, size=1000, live=None)
    module.value(7, 4, offset=0, size=50, live=(0, 9))
    module.close()


def test_values_at_the_peak_unless_told_otherwise(con):
    one_module(con)
    holds(con, "at-step", """
        run_name | function_name | color | step_time | occupied_bytes | held_bytes
        r        | step          | 0     | 6         | 85             | 30
        r        | step          | 0     | 6         | 85             | 20
        r        | step          | 0     | 6         | 85             | 20
        r        | step          | 0     | 6         | 85             | 10
        r        | step          | 0     | 6         | 85             | 5

        allocation_kind | instruction_name | source
        temp            | v4               | NULL
        temp            | v2               | NULL
        parameter       | v5               | NULL
        temp            | v3               | NULL
        output          | NULL             | NULL
    """)  # fmt: skip
    first, *_, last = answer(con, "at-step")
    assert (first["cumulative_ratio"], last["cumulative_ratio"]) == (30 / 85, 1.0)
    assert (first["start_time"], first["end_time"], last["start_time"]) == (6, 9, None)
    assert (first["shape"], first["shape_index"], last["shape"]) == ("f32[]", "{}", None)


@pytest.mark.slow
def test_shared_bytes_count_once_at_any_step(con):
    one_module(con)
    rows = answer(con, "at-step", step=4)
    holds(con, "at-step", """
        step_time | occupied_bytes | held_bytes | instruction_name
        4         | 75             | 30         | v1
        4         | 75             | 20         | v5
        4         | 75             | 10         | v2
        4         | 75             | 10         | v3
        4         | 75             | 5          | NULL
    """, step=4)  # fmt: skip
    assert rows[0]["source"] == "a.py:3"
    assert sum(row["held_bytes"] for row in answer(con, "at-step", step=0)) == 25


def test_an_instant_that_is_not_there_is_told(con):
    one_module(con)
    for step in (-1, 10):
        holds(con, "at-step", """
            run_name | function_name | color | step_time | held_bytes | unknown_reason
            r        | step          | 0     | NULL      | NULL       | its instants are 0 to 9
        """, step=step)  # fmt: skip
    assert answer(con, "at-step", step=9)[0]["occupied_bytes"] == 65


@pytest.mark.slow
def test_the_step_of_an_instruction_and_its_module(con):
    one_module(con)
    larger = Module(con, 2, function_name="large")
    larger.allocation(0, "output", 1000)
    larger.close()

    def first(**params):
        row = answer(con, "at-step", **params)[0]
        return row["function_name"], row["color"], row["step_time"]

    assert first() == ("large", 0, 0)
    assert first(instruction="v3") == ("step", 0, 3)
    assert first(instruction="v3", step=5) == ("step", 0, 5)
    assert first(module="m1") == ("step", 0, 6)
    holds(con, "at-step", """
        function_name | color | step_time | occupied_bytes | held_bytes
        step          | 1     | 0         | 50             | 50
    """, color=1)  # fmt: skip


@pytest.mark.slow
def test_a_name_that_is_not_scheduled_is_told_with_the_nearest(con):
    one_module(con)
    con.execute("UPDATE instructions SET program_order = NULL WHERE instruction_name = 'v6'")

    def reasons(**params):
        rows = answer(con, "at-step", **params)
        assert all(value is None for row in rows for value in row[:16])
        return [row["unknown_reason"] for row in rows]

    holds(con, "at-step", """
        unknown_reason
        no module has 'v9' in its schedule; did you mean 'v1', 'v2', 'v3'?
    """, instruction="v9")  # fmt: skip
    holds(con, "at-step", """
        unknown_reason
        no module has 'v6' in its schedule; did you mean 'v1', 'v2', 'v3'?
    """, instruction="v6")  # fmt: skip
    holds(con, "at-step", """
        unknown_reason
        no module has 'nowhere' in its schedule
    """, instruction="nowhere")  # fmt: skip
    holds(con, "at-step", "run_name", instruction="v1", function="x")
    holds(con, "at-step", """
        unknown_reason
        no module has 'nowhere' in its schedule
    """, instruction="nowhere", step=5)  # fmt: skip


def test_an_instruction_of_a_module_with_an_unknown_peak(con):
    one_module(con)
    old = Module(con, 2, function_name="old", has_live_ranges=False)
    old.allocation(0, "temp", 8)
    old.value(1, 0, offset=0, size=8, live=None, name="w", program_order=1)
    holds(con, "at-step", """
        function_name | unknown_reason
        old           | the dump has no live ranges
    """, instruction="w")  # fmt: skip
    holds(con, "at-step", """
        unknown_reason
        no module has 'x' in its schedule
        the dump has no live ranges
    """, instruction="x")  # fmt: skip


def test_sizes_near_two_to_the_63(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 2**63 - 1)
    module.close()
    module.value(1, 0, offset=2**62, size=2**62 + 5)
    con.execute("UPDATE occupied_peaks SET occupied_temp_bytes = 2::HUGEINT**62 + 5")
    holds(con, "at-step", """
        held_bytes
        4611686018427387909
    """)  # fmt: skip
