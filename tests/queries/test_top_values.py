import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "top-values", "run_name")


@pytest.mark.slow
def test_equal_values_are_one_row(con):
    for module_id in (1, 2):
        module = Module(con, module_id, function_name="step", platform="cpu")
        module.allocation(0, "temp", 100)
        module.allocation(1, "parameter", 40)
        module.allocation(2, "thread_local", 1000)
        same = {"opcode": "dot", "source_file": "a.py", "source_line": 3, "shape": "f32[5]{0}"}
        module.value(1, 0, offset=0, size=20, op_name="jit(step)/b/dot", **same)
        module.value(2, 0, offset=20, size=20, op_name="jit(step)/a/dot", **same)
        module.value(3, 1, offset=0, size=40, live=None)
        module.value(4, 2, offset=0, size=1000)
        module.value(5, 0, offset=0, size=20, is_phi=True)
        module.value(6, 0, offset=0, size=0)
        module.close()
    module.value(7, 0, offset=0, size=20, shape="f32[5]{0}")
    holds(con, "top-values", """
        run_name | function_name | platform | color | size_bytes | value_count | module_count
        r        | step          | cpu      | 0     | 40         | 2           | 2
        r        | step          | cpu      | 0     | 20         | 4           | 2
        r        | step          | cpu      | 0     | 20         | 1           | 1

        allocation_kind | shape     | opcode | source | instruction_name | op_name
        parameter       | f32[]     | NULL   | NULL   | v3               | NULL
        temp            | f32[5]{0} | dot    | a.py:3 | v1               | jit(step)/a/dot
        temp            | f32[5]{0} | NULL   | NULL   | v7               | NULL
    """)  # fmt: skip
    assert len(answer(con, "top-values", top_n=2)) == 2
    assert len(answer(con, "top-values", function="s*", platform="cpu", color=0)) == 3
    holds(con, "top-values", "run_name", run="x")


def test_modules_without_functions_go_by_key(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name=run_name, function_name=None)
        module.allocation(0, "output", 8)
        module.value(1, 0, offset=0, size=8)
        module.close()
    holds(con, "top-values", """
        run_name | function_name
        a        | m2
        b        | m1
    """)  # fmt: skip
