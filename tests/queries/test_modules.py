from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "modules", "run_name")


def test_figures_biggest_value_and_order(con):
    small = Module(con, 1, function_name="small", platform="cpu")
    small.allocation(0, "parameter", 10)
    small.allocation(1, "donated_parameter", 5)
    small.allocation(2, "output", 3)
    small.allocation(3, "constant", 2)
    small.allocation(4, "temp", 100)
    small.allocation(5, "thread_local", 7)
    small.value(1, 0, offset=0, size=10, name="p")
    small.value(3, 4, offset=0, size=40, name="tie")
    small.value(2, 4, offset=40, size=40, live=(5, 6), name="first")
    small.close()
    unknown = Module(con, 2, function_name="unknown", has_live_ranges=False)
    unknown.allocation(0, "temp", 9000)
    bare = Module(con, 3, function_name=None)
    bare.close()
    holds(con, "modules", """
        run_name | function_name | module_key | platform | color | peak_bytes | need_bytes
        r        | unknown       | m2         | NULL     | 0     | NULL       | 9000
        r        | NULL          | m3         | NULL     | NULL  | NULL       | NULL
        r        | small         | m1         | cpu      | 0     | 100        | 120

        argument_bytes | output_bytes | alias_bytes | constant_bytes | temp_bytes | total_bytes
        0              | 0            | 0           | 0              | 9000       | 9000
        NULL           | NULL         | NULL        | NULL           | NULL       | NULL
        15             | 8            | 5           | 2              | 100        | 127

        biggest_value_bytes | biggest_value | unknown_reason
        NULL                | NULL          | the dump has no live ranges
        NULL                | NULL          | the dump has no allocations
        40                  | first         | NULL
    """)  # fmt: skip


def test_one_row_per_memory_space_and_ties_by_run_key_and_color(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name=run_name)
        module.allocation(0, "parameter", 8, color=1)
        module.allocation(1, "parameter", 8, color=0)
        module.close()
    holds(con, "modules", """
        run_name | color
        a        | 0
        a        | 1
        b        | 0
        b        | 1
    """, color="all")  # fmt: skip
    holds(con, "modules", """
        color
        1
        1
    """, color=1)  # fmt: skip
    holds(con, "modules", """
        run_name
        b
    """, run="b*", top_n=1)  # fmt: skip


def test_filters_on_function_and_platform(con):
    Module(con, 1, function_name="train_step", platform="gpu")
    Module(con, 2, function_name="trainXstep", platform="cpu")
    holds(con, "modules", """
        function_name
        train_step
    """, function="train_*")  # fmt: skip
    holds(con, "modules", """
        function_name
        trainXstep
    """, platform="cpu")  # fmt: skip


def test_device_memory_is_color_0_or_the_largest(con):
    for module_id, sizes in ((1, (8, 90, 7)), (2, (0, 5, 6)), (3, (0, 4, 4))):
        module = Module(con, module_id)
        for color, size in enumerate(sizes):
            module.allocation(color, "output", size, color=color)
        module.close()
    rows = {row["module_key"]: row["color"] for row in answer(con, "modules")}
    assert rows == {"m1": 0, "m2": 2, "m3": 1}
    assert len(answer(con, "modules", color="all")) == 9
    holds(con, "modules", """
        module_key
        m1
        m2
        m3
    """, color="2")  # fmt: skip
