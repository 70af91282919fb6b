from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "memory-by-space", "run_name")


def test_one_row_for_each_module_and_memory_space(con):
    module = Module(con, 1, function_name="step", platform="tpu")
    module.allocation(0, "temp", 30, color=1)
    module.allocation(1, "parameter", 10)
    module.allocation(2, "donated_parameter", 5)
    module.allocation(3, "output", 3)
    module.allocation(4, "constant", 2)
    module.allocation(5, "thread_local", 100)
    module.value(1, 0, offset=0, size=20)
    module.close()
    old = Module(con, 2, run_name="a", function_name=None, has_live_ranges=False)
    old.allocation(0, "temp", 1000)
    holds(con, "memory-by-space", """
        run_name | function_name | module_key | color | memory_space_name | peak_bytes | need_bytes
        a        | NULL          | m2         | 0     | NULL              | NULL       | 1000
        r        | step          | m1         | 0     | hbm               | 20         | 20
        r        | step          | m1         | 1     | vmem              | 20         | 30

        module_peak_ratio | argument_bytes | output_bytes | alias_bytes | temp_bytes
        NULL              | 0              | 0            | 0           | 1000
        0.5               | 15             | 8            | 5           | 0
        0.5               | 0              | 0            | 0           | 30

        constant_bytes | thread_local_bytes | fragmentation_bytes | unknown_reason
        0              | 0                  | NULL                | the dump has no live ranges
        2              | 100                | 0                   | NULL
        0              | 0                  | 10                  | NULL
    """)  # fmt: skip
    assert len(answer(con, "memory-by-space", top_n=1)) == 1
    holds(con, "memory-by-space", """
        color | memory_space_name | peak_bytes | need_bytes
        1     | vmem              | 20         | 30
    """, color=1, platform="tpu", function="s*", run="r")  # fmt: skip
