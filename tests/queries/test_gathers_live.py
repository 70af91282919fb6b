import pytest
from small_db import Module, answer, insert, rows, shape
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "gathers-live", "run_name")


def test_results_alive_at_the_fullest_instant(con):
    array, table = shape(con, "f32[8]{0}"), shape(con, "(f32[2]{0}, f32[8]{0})")
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 500)
    module.value(1, 0, 0, 100, (0, 3), "g1", array, opcode="all-gather")
    module.value(2, 0, 100, 60, (3, 5), "g2", array, opcode="all-gather-start",
                 shape_index="{1}", op_name="jit(step)/dot", source_file="model.py",
                 source_line=7)  # fmt: skip
    module.value(3, 0, 160, 16, (3, 5), "g2", table)
    module.value(4, 0, 200, 90, (4, 9), "g3", array, opcode="all-gather")
    module.value(5, 0, 300, 200, (0, 9), "dot", array, opcode="dot")
    module.saves(1, 90)
    module.close()
    # 0: 100, 3: 160, 4: 150, 6: 90.
    holds(con, "gathers-live", """
        run_name | function_name | color | peak_bytes | gathered_bytes | gathered_count
        r        | step          | 0     | 376        | 160            | 2
        r        | step          | 0     | 376        | 160            | 2

        gathered_time | size_bytes | saving_bytes | start_time | end_time | shape
        3             | 100        | 90           | 0          | 3        | f32[8]{0}
        3             | 60         | NULL         | 3          | 5        | f32[8]{0}

        instruction_name | op_name       | source
        g1               | NULL          | NULL
        g2               | jit(step)/dot | model.py:7
    """)  # fmt: skip
    holds(con, "gathers-live", "run_name", color=1)


def test_the_first_of_equal_instants_and_ties_by_run_and_value(con):
    array = shape(con, "f32[8]{0}")
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        module.allocation(0, "temp", 500)
        module.value(1, 0, 0, 20, (7, 8), shape=array, opcode="all-gather")
        module.value(3, 0, 0, 10, (1, 2), shape=array, opcode="all-gather")
        module.value(2, 0, 10, 10, (1, 2), shape=array, opcode="all-gather")
        module.close()
    holds(con, "gathers-live", """
        run_name | gathered_time | instruction_name
        a        | 1             | v2
        a        | 1             | v3
        b        | 1             | v2
        b        | 1             | v3
    """)  # fmt: skip
    assert len(answer(con, "gathers-live", top_n=1)) == 1


def moved(con):
    """A gathered array that goes to VMEM and comes back."""
    array = shape(con, "f32[8]{0}")
    module = Module(con, 1, function_name="step", platform="tpu")
    module.allocation(0, "temp", 500)
    module.allocation(1, "temp", 100, color=1)
    module.value(1, 0, 0, 100, (0, 3), "g", array, opcode="all-gather", op_name="jit(step)/dot",
                 source_file="m.py", source_line=7, text="%g = all-gather(%w)")  # fmt: skip
    module.value(2, 1, 0, 100, (3, 5), "out", array, opcode="copy-start", shape_index="{0}")
    module.value(3, 0, 100, 100, (5, 9), "back", array, opcode="copy-start", shape_index="{0}")
    module.value(4, 0, 200, 90, (5, 9), "h", array, opcode="all-gather",
                 source_file="m.py", source_line=7)  # fmt: skip
    module.value(5, 0, 300, 100, (5, 9), "other", array, opcode="copy-start", shape_index="{0}")
    module.use(1, "out")
    module.use(2, "back")
    insert(con, "positions", module_id=1, value_id=1, instruction_name="g", shape_index="{}")
    for value_id in (3, 4):
        module.saves(value_id, 90)
    module.close()


@pytest.mark.slow
def test_what_was_gathered_and_then_moved_is_a_gathered_array(con):
    moved(con)
    gathers = {
        row["instruction_name"]: (row["gathered_bytes"], row["gathered_count"], row["source"])
        for row in rows(con, "gathers-live", color=0)
    }
    assert gathers == {"back": (190, 2, "m.py:7"), "h": (190, 2, "m.py:7")}
    assert [row["instruction_name"] for row in rows(con, "gathers-live", color=1)] == ["out"]
    (row,) = [row for row in rows(con, "collectives", color=0) if row["instruction_name"] == "g"]
    assert (row["written_bytes"], row["live_bytes"], row["end_time"]) == (100, 100, 9)


@pytest.mark.slow
def test_a_move_is_no_copy_to_avoid(con):
    moved(con)
    assert [(row["kind"], row["value_count"]) for row in rows(con, "advice", color=0)] == [
        ("gather", 2),
        ("dtype", 3),  # the program, all of it f32
    ]
    con.execute("UPDATE live_ranges SET end_time = 7 WHERE value_id = 2")
    con.execute("DELETE FROM instructions WHERE instruction_name IN ('g', 'h')")
    assert {row["sureness"] for row in rows(con, "copies", color=0) if row["is_kept_twice"]} == {
        "unlikely"
    }
    assert [row for row in rows(con, "advice", color=0) if row["kind"] == "copy"] == []
