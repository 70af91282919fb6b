import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "at-offset", "run_name")


def one_module(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 50)
    module.allocation(1, "temp", 100)
    module.allocation(2, "parameter", 500)
    module.value(1, 1, offset=0, size=30, live=(4, 6), opcode="dot", op_name="jit(step)/dot",
                 source_file="a.py", source_line=3)  # fmt: skip
    module.value(2, 1, offset=30, size=70, live=(0, 9))
    module.value(3, 1, offset=0, size=100, live=(0, 3))
    module.value(4, 1, offset=0, size=40, live=(6, 8), is_phi=True)
    module.value(5, 1, offset=0, size=0, live=(0, 9))
    module.value(6, 2, offset=0, size=500)
    module.close()


def test_first_byte_of_the_largest_arena_in_time_order(con):
    one_module(con)
    holds(con, "at-offset", """
        instruction_name
        v3
        v1
        v4
    """)  # fmt: skip
    first = answer(con, "at-offset")[1]
    assert (first["run_name"], first["function_name"], first["color"]) == ("r", "step", 0)
    assert (first["allocation_index"], first["allocation_size_bytes"]) == (1, 100)
    assert (first["start_time"], first["end_time"]) == (4, 6)
    assert (first["offset_bytes"], first["size_bytes"], first["is_phi"]) == (0, 30, False)
    assert (first["shape"], first["opcode"], first["shape_index"]) == ("f32[]", "dot", "{}")
    assert (first["op_name"], first["source"]) == ("jit(step)/dot", "a.py:3")
    holds(con, "at-offset", """
        instruction_name
        v3
    """, top_n=1)  # fmt: skip


@pytest.mark.slow
def test_a_range_of_bytes_ends_before_its_end(con):
    one_module(con)
    holds(con, "at-offset", """
        instruction_name
        v3
        v1
        v4
    """, first_byte=29)  # fmt: skip
    holds(con, "at-offset", """
        instruction_name
        v3
        v2
        v1
        v4
    """, first_byte=29, byte_count=2)  # fmt: skip
    holds(con, "at-offset", """
        instruction_name
        v3
        v2
        v4
    """, first_byte=30)  # fmt: skip
    holds(con, "at-offset", "run_name", first_byte=100)


def test_any_allocation_by_its_index(con):
    one_module(con)
    holds(con, "at-offset", """
        instruction_name
        v6
    """, allocation=2)  # fmt: skip
    holds(con, "at-offset", "run_name", allocation=7)


@pytest.mark.slow
def test_the_module_with_the_largest_arena_ties_by_run(con):
    for module_id, run_name, size in ((1, "b", 50), (2, "a", 50), (3, "c", 40)):
        module = Module(con, module_id, run_name=run_name, platform="cpu")
        module.allocation(0, "temp", size)
        module.value(1, 0, offset=0, size=10, live=None)
        module.value(2, 0, offset=0, size=20, live=(0, 1))
        module.close()
    holds(con, "at-offset", """
        run_name | start_time | instruction_name
        a        | 0          | v2
        a        | NULL       | v1
    """)  # fmt: skip
    assert answer(con, "at-offset", run="[bc]")[0]["run_name"] == "b"
    assert answer(con, "at-offset", module="m3")[0]["run_name"] == "c"
    holds(con, "at-offset", "run_name", platform="gpu")
    holds(con, "at-offset", "run_name", function="g")
    holds(con, "at-offset", "run_name", color=1)


def test_sizes_near_two_to_the_63(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 2**63 - 1)
    module.value(1, 0, offset=2**62, size=2**62 + 5, live=None)
    params = {"first_byte": 2**62 + 7, "byte_count": 2**63 - 1}
    holds(con, "at-offset", """
        size_bytes
        NULL
        4611686018427387909
    """, **params)  # fmt: skip


def test_a_module_with_an_unknown_peak_has_a_row_that_says_why(con):
    Module(con, 1, peak_unknown_reason="values of temp allocation 0 are missing")
    holds(con, "at-offset", """
        run_name | function_name | color | allocation_index | allocation_size_bytes | start_time
        r        | f             | NULL  | NULL             | NULL                  | NULL

        end_time | offset_bytes | size_bytes | is_phi | shape | opcode | instruction_name
        NULL     | NULL         | NULL       | NULL   | NULL  | NULL   | NULL

        shape_index | op_name | source | unknown_reason
        NULL        | NULL    | NULL   | values of temp allocation 0 are missing
    """)  # fmt: skip
    holds(con, "at-offset", "run_name", module="m2")
