import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "top-temps", "run_name")


def test_the_largest_arena_has_its_largest_values(con):
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=1,
           source_file="model.py", source_line=7)  # fmt: skip
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "temp", 50)
    module.allocation(2, "parameter", 5000)
    module.value(1, 0, offset=0, size=60, shape="f32[15]{0}", opcode="dot",
                 op_name="jit(step)/dot", stack_frame_id=1)  # fmt: skip
    module.value(2, 1, offset=0, size=50, shape="s32[5]{0}")
    module.value(3, 0, offset=60, size=40)
    module.value(4, 2, offset=0, size=5000)
    module.value(5, 0, offset=0, size=60, is_phi=True)
    module.close()
    again = Module(con, 2, function_name="step")
    again.allocation(0, "temp", 149)
    again.value(1, 0, offset=0, size=149)
    again.close()
    other = Module(con, 3, function_name=None)
    other.allocation(0, "temp", 8)
    other.value(1, 0, offset=0, size=8)
    other.close()
    holds(con, "top-temps", """
        run_name | function_name | color | temp_bytes | size_bytes | shape      | opcode
        r        | step          | 0     | 150        | 60         | f32[15]{0} | dot
        r        | step          | 0     | 150        | 50         | s32[5]{0}  | NULL
        r        | m3            | 0     | 8          | 8          | f32[]      | NULL

        instruction_name | op_name       | source
        v1               | jit(step)/dot | model.py:7
        v2               | NULL          | NULL
        v1               | NULL          | NULL
    """, top_n=2)  # fmt: skip


@pytest.mark.slow
def test_a_module_asked_for_stands_for_its_function(con):
    for number, size in enumerate((10, 30, 20), start=1):
        module = Module(con, number, function_name="step" if number < 3 else None)
        module.allocation(0, "temp", size)
        module.value(1, 0, offset=0, size=size)
        module.close()
    holds(con, "top-temps", """
        temp_bytes
        30
        20
    """)  # fmt: skip
    holds(con, "top-temps", """
        function_name | color | temp_bytes
        step          | 0     | 10
    """, module="m1")  # fmt: skip
    holds(con, "top-temps", """
        function_name | color | temp_bytes
        m3            | 0     | 20
        step          | 0     | 10
    """, module="m[13]")  # fmt: skip
    holds(con, "top-temps", """
        function_name | color | temp_bytes
        m3            | 0     | 20
    """, function="m*")  # fmt: skip


def names(con):
    return [row["instruction_name"] for row in answer(con, "top-temps")]


@pytest.mark.slow
def test_a_buffer_is_listed_once(con):
    module = Module(con, 1, schedule_length=20)
    module.allocation(0, "temp", 40)
    module.allocation(1, "temp", 10)
    module.value(1, 0, offset=0, size=10, live=(4, 6))  # what the loop gives back
    module.value(2, 0, offset=0, size=10, live=(1, 2))  # what it begins with
    module.value(3, 0, offset=0, size=10, live=(2, 6), is_phi=True)
    module.value(4, 0, offset=0, size=10, live=(7, 9))  # another one, in its place
    module.value(5, 0, offset=10, size=10, live=(1, 6))  # next to it
    module.value(6, 0, offset=0, size=8, live=(9, 9))  # smaller
    module.value(7, 1, offset=0, size=10, live=(1, 6))  # elsewhere
    module.value(8, 0, offset=30, size=10, live=(1, 6), is_phi=True)
    module.close()
    holds(con, "top-temps", """
        instruction_name
        v2
        v4
        v5
        v7
        v6
    """)  # fmt: skip
    con.execute("UPDATE instructions SET op_name = 'a' WHERE instruction_name IN ('v1', 'v3')")
    holds(con, "top-temps", """
        instruction_name
        v1
        v4
        v5
        v7
        v6
    """)  # fmt: skip


def test_without_live_ranges_each_value_is_listed(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 10)
    module.value(1, 0, offset=0, size=10, live=None)
    module.value(2, 0, offset=0, size=10, live=None)
    module.close()
    holds(con, "top-temps", """
        instruction_name
        v1
        v2
    """)  # fmt: skip


@pytest.mark.slow
def test_ties_go_to_the_lower_value_id_and_the_first_run(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name=run_name)
        module.allocation(0, "temp", 20)
        module.value(9, 0, offset=0, size=10)
        module.value(8, 0, offset=10, size=10)
        module.close()
    holds(con, "top-temps", """
        run_name | instruction_name
        a        | v8
        a        | v9
        b        | v8
        b        | v9
    """)  # fmt: skip
    holds(con, "top-temps", """
        run_name
        a
    """, top_functions=1, top_n=1)  # fmt: skip


def test_an_arena_without_live_ranges_counts_and_filters_apply(con):
    module = Module(con, 1, function_name="old", platform="tpu", has_live_ranges=False)
    module.allocation(0, "temp", 20, color=1)
    module.value(1, 0, offset=0, size=10, live=None)
    rows = answer(con, "top-temps", function="o?d", platform="tpu", color=1)
    assert [(row["temp_bytes"], row[-1]) for row in rows] == [
        (None, "the dump has no live ranges"),
        (20, None),
    ]
    holds(con, "top-temps", "run_name", color=0)
