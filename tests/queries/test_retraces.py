from small_db import Module, answer
from tables import holds


def compiled(con, module_id, shapes, output, size=10, run_name="r", function="f", color=0):
    module = Module(con, module_id, run_name, function, platform="cpu")
    for number, shape in enumerate(shapes):
        module.allocation(
            number,
            "parameter",
            0,
            color,
            parameter_number=number,
            parameter_shape_index="{}",
            parameter_shape=shape,
        )
    module.allocation(90, "output", size, color, output_shape=output)
    module.close()


def test_nothing_in_an_empty_database(con):
    holds(con, "retraces", "run_name")


def test_functions_compiled_twice_or_more_with_what_differs(con):
    compiled(con, 1, ["f32[1]", "f32[8]"], "f32[]", 10)
    compiled(con, 2, ["f32[1]", "f32[4]"], "f32[]", 30)
    compiled(con, 3, ["f32[1]", "f32[4]"], "f32[]", 20)
    compiled(con, 4, [], "f32[2]", function="g")
    compiled(con, 5, [], "f32[3]", function="g")
    compiled(con, 6, [], "f32[3]", function="once")
    compiled(con, 7, ["f32[1]"], "f32[]", run_name="other")
    holds(con, "retraces", """
        run_name | function_name | platform | color | module_count | signature_count
        r        | f             | cpu      | 0     | 3            | 2
        r        | g             | cpu      | 0     | 2            | 2

        repeated_count | varying_part | one_shape | other_shape | total_bytes | min_peak_bytes
        1              | parameter 1  | f32[4]    | f32[8]      | 60          | 10
        0              | result       | f32[2]    | f32[3]      | 20          | 10

        max_peak_bytes
        30
        10
    """)  # fmt: skip


def test_one_signature_again_and_none_known(con):
    for module_id in (1, 2):
        compiled(con, module_id, ["f32[1]"], "f32[]")
    for module_id in (3, 4):
        compiled(con, module_id, [None], None, function="old")
    holds(con, "retraces", """
        function_name | module_count | signature_count | repeated_count | varying_part | one_shape
        f             | 2            | 1               | 1              | NULL         | NULL
        old           | 2            | NULL            | 0              | NULL         | NULL

        other_shape
        NULL
        NULL
    """)  # fmt: skip


def test_the_range_of_peaks_is_unknown_if_one_is(con):
    compiled(con, 1, [], "f32[2]")
    compiled(con, 2, [], "f32[3]")
    Module(con, 3, function_name="f", platform="cpu")  # no allocations in any memory space
    row = answer(con, "retraces")[0]
    assert (*row[3:5], *row[10:]) == (0, 3, *[None] * 3, 1, "the dump has no allocations")


def test_ties_by_run_function_and_color(con):
    for module_id, run_name, color in ((1, "b", 0), (2, "a", 1), (3, "a", 0)):
        for number in (0, 1):
            compiled(con, 2 * module_id + number, [], "f32[]", 10, run_name, "f", color)
    holds(con, "retraces", """
        run_name | color
        a        | 0
        a        | 1
        b        | 0
    """)  # fmt: skip
    holds(con, "retraces", """
        run_name
        a
    """, top_n=1)  # fmt: skip
