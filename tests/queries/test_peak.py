import pytest
from small_db import Module
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak", "run_name")


@pytest.mark.slow
def test_values_at_the_peak_with_cumulative_share(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 30)
    module.allocation(2, "constant", 10)
    module.value(1, 0, offset=0, size=60, opcode="dot", op_name="jit(step)/dot",
                 source_file="model.py", source_line=7)  # fmt: skip
    module.value(2, 0, offset=40, size=20)  # inside value 1
    module.value(3, 0, offset=0, size=100, live=(20, 20), name="later", op_name="x")
    module.value(4, 1, offset=0, size=30, shape="f32[7]{0}", opcode="parameter")
    module.close()
    module.con.execute("UPDATE occupied_peaks SET peak_time = 5, occupied_temp_bytes = 60")
    holds(con, "peak", """
        run_name | function_name | color | held_bytes | low_saving_bytes | saving_bytes
        r        | step          | 0     | 60         | NULL             | NULL
        r        | step          | 0     | 30         | NULL             | NULL
        r        | step          | 0     | 10         | NULL             | NULL

        cumulative_ratio | allocation_kind | shape     | opcode    | instruction_name
        0.6              | temp            | f32[]     | dot       | v1
        0.9              | parameter       | f32[7]{0} | parameter | v4
        1.0              | constant        | NULL      | NULL      | NULL

        op_name       | source
        jit(step)/dot | model.py:7
        NULL          | NULL
        NULL          | NULL
    """)  # fmt: skip
    holds(con, "peak", """
        instruction_name
        v1
    """, top_n=1)  # fmt: skip


@pytest.mark.slow
def test_the_largest_module_and_function(con):
    for module_id, function, size in ((1, "f", 10), (2, "f", 20), (3, "g", 15)):
        module = Module(con, module_id, function_name=function)
        module.allocation(0, "output", size)
        module.value(module_id, 0, offset=0, size=size)
        module.close()
    holds(con, "peak", """
        instruction_name
        v2
    """)  # fmt: skip
    holds(con, "peak", """
        instruction_name
        v2
        v3
    """, top_functions=9)  # fmt: skip
    holds(con, "peak", """
        instruction_name
        v3
    """, function="g")  # fmt: skip


def test_ties_go_to_allocation_and_value(con):
    module = Module(con, 1)
    module.allocation(1, "temp", 20)
    module.allocation(0, "output", 10)
    module.value(2, 1, offset=0, size=10)
    module.value(1, 1, offset=10, size=10)
    module.value(3, 0, offset=0, size=10)
    module.close()
    holds(con, "peak", """
        instruction_name
        v3
        v1
        v2
    """)  # fmt: skip
