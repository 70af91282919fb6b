import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "long-lived", "run_name")


def test_size_times_lifetime_both_ends_included(con):
    module = Module(con, 1, function_name="step", schedule_length=9)
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 500)
    module.value(1, 0, offset=0, size=50, live=(3, 4))
    module.value(2, 0, offset=50, size=20, live=(0, 9), opcode="dot", op_name="jit(step)/dot",
                 source_file="a.py", source_line=3)  # fmt: skip
    module.value(3, 0, offset=0, size=25, live=(5, 8), is_phi=True)
    module.value(4, 0, offset=70, size=10, live=None)
    module.value(5, 0, offset=70, size=0, live=(0, 9))
    module.value(6, 1, offset=0, size=500, live=(0, 9))
    module.close()
    holds(con, "long-lived", """
        run_name | function_name | color | byte_steps | lifetime_ratio | size_bytes | start_time
        r        | step          | 0     | 200.0      | 1.0            | 20         | 0
        r        | step          | 0     | 100.0      | 0.2            | 50         | 3
        r        | step          | 0     | 100.0      | 0.4            | 25         | 5

        end_time | is_at_peak | shape | opcode | instruction_name | shape_index | op_name
        9        | True       | f32[] | dot    | v2               | {}          | jit(step)/dot
        4        | True       | f32[] | NULL   | v1               | {}          | NULL
        8        | False      | f32[] | NULL   | v3               | {}          | NULL

        source
        a.py:3
        NULL
        NULL
    """)  # fmt: skip
    assert len(answer(con, "long-lived", top_n=1)) == 1


@pytest.mark.slow
def test_functions_by_peak_and_ties_by_value_id(con):
    for module_id, run_name, size in ((1, "b", 10), (2, "a", 10), (3, "c", 11)):
        module = Module(con, module_id, run_name=run_name, schedule_length=9)
        module.allocation(0, "temp", 50)
        module.value(9, 0, offset=0, size=size)
        module.value(8, 0, offset=20, size=size)
        module.close()
    holds(con, "long-lived", """
        run_name | instruction_name
        c        | v8
        c        | v9
        a        | v8
        a        | v9
    """, top_functions=2)  # fmt: skip
    assert {row["run_name"] for row in answer(con, "long-lived", run="[ab]")} == {"a", "b"}
    holds(con, "long-lived", "run_name", platform="tpu")
