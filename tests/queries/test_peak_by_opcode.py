import pytest
from small_db import Module
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-opcode", "run_name")


@pytest.mark.slow
def test_bytes_of_the_peak_by_opcode_ties_by_name_unknown_last(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 20)
    module.allocation(2, "constant", 0)
    module.value(1, 0, offset=0, size=30, opcode="fusion")
    module.value(2, 0, offset=20, size=30, opcode="fusion")  # 20 bytes of its own
    module.value(3, 0, offset=60, size=20, opcode="copy")
    module.value(4, 0, offset=80, size=20)
    module.value(5, 1, offset=0, size=20, opcode="parameter")
    module.close()
    holds(con, "peak-by-opcode", """
        run_name | function_name | color | peak_bytes | held_bytes | held_ratio
        r        | step          | 0     | 110        | 50         | 0.45454545454545453
        r        | step          | 0     | 110        | 20         | 0.18181818181818182
        r        | step          | 0     | 110        | 20         | 0.18181818181818182
        r        | step          | 0     | 110        | 20         | 0.18181818181818182

        value_count | opcode
        2           | fusion
        1           | copy
        1           | parameter
        1           | NULL
    """)  # fmt: skip
    holds(con, "peak-by-opcode", """
        opcode
        fusion
    """, top_n=1)  # fmt: skip


@pytest.mark.slow
def test_a_function_by_its_largest_module_on_each_platform(con):
    sizes = ((1, "cpu", 10), (2, "cpu", 30), (3, "tpu", 20), (4, None, 30))
    for module_id, platform, size in sizes:
        module = Module(con, module_id, platform=platform)
        module.allocation(0, "output", size)
        module.close()
    holds(con, "peak-by-opcode", """
        peak_bytes
        30
        30
        20
    """)  # fmt: skip
    holds(con, "peak-by-opcode", """
        peak_bytes
        20
    """, platform="tpu")  # fmt: skip
    holds(con, "peak-by-opcode", """
        peak_bytes
        30
    """, top_functions=1)  # fmt: skip


def test_an_unknown_peak_is_a_row_with_the_reason(con):
    module = Module(con, 1, has_live_ranges=False)
    module.allocation(0, "parameter", 100)
    holds(con, "peak-by-opcode", """
        run_name | function_name | color | peak_bytes | held_bytes | held_ratio | value_count
        r        | f             | 0     | NULL       | NULL       | NULL       | NULL

        opcode | unknown_reason
        NULL   | the dump has no live ranges
    """)  # fmt: skip
