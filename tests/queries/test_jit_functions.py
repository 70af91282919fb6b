from small_db import Module, answer
from tables import holds


def compiled(con, module_id, run_name, function, size, shape=None):
    module = Module(con, module_id, run_name, function)
    module.allocation(
        0,
        "donated_parameter",
        size,
        parameter_number=0,
        parameter_shape_index="{}",
        parameter_shape=shape,
        output_shape=shape,
    )
    module.allocation(1, "temp", 3)
    module.close()


def test_nothing_in_an_empty_database(con):
    holds(con, "jit-functions", "function_name")


def test_counts_and_range_of_peaks_of_a_function(con):
    compiled(con, 1, "a", "f", 10, "f32[1]")
    compiled(con, 2, "a", "f", 40, "f32[2]")
    compiled(con, 3, "b", "f", 20, "f32[2]")
    compiled(con, 4, "b", "f", 30)
    compiled(con, 5, "b", None, 5)
    unknown = Module(con, 6, "b", "f", has_live_ranges=False)
    unknown.allocation(0, "temp", 50)
    holds(con, "jit-functions", """
        function_name | platform | color | run_count | module_count | signature_count
        f             | NULL     | 0     | 2         | 5            | 2
        m5            | NULL     | 0     | 1         | 1            | NULL

        min_peak_bytes | median_peak_bytes | max_peak_bytes | max_temp_bytes | unknown_count
        NULL           | NULL              | NULL           | 50             | 1
        5              | 5                 | 5              | 3              | 0

        unknown_reason
        the dump has no live ranges
        NULL
    """)  # fmt: skip
    con.execute("DELETE FROM modules WHERE module_id = 6")
    assert answer(con, "jit-functions")[0] == ("f", None, 0, 2, 4, 2, 10, 20, 40, 3)
    holds(con, "jit-functions", """
        function_name | platform | color | run_count | module_count | signature_count
        f             | NULL     | 0     | 1         | 2            | 2

        min_peak_bytes | median_peak_bytes | max_peak_bytes | max_temp_bytes
        10             | 10                | 40             | 3
    """, run="a")  # fmt: skip


def test_unknown_peaks_come_first_and_ties_by_name(con):
    for module_id, function in ((1, "z"), (2, "b"), (3, "a")):
        module = Module(con, module_id, "r", function)
        module.allocation(0, "parameter", 8)
        if function != "z":
            module.close()
    holds(con, "jit-functions", """
        function_name | max_peak_bytes
        z             | NULL
        a             | 8
        b             | 8
    """)  # fmt: skip
    assert len(answer(con, "jit-functions", top_n=2)) == 2


def test_functions_of_two_backends_are_two(con):
    for module_id, platform in ((1, "tpu"), (2, "gpu"), (3, "gpu")):
        module = Module(con, module_id, "r", "f", platform=platform)
        module.allocation(0, "parameter", 8)
        module.close()
    holds(con, "jit-functions", """
        function_name | platform | color | run_count | module_count
        f             | gpu      | 0     | 1         | 2
        f             | tpu      | 0     | 1         | 1
    """)  # fmt: skip
