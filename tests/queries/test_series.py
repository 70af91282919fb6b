from datetime import datetime

from small_db import Module, answer, insert


def test_nothing_in_an_empty_database(con):
    assert answer(con, "series") == []


def compiled(con, module_id, run_name, size, function="f", shape="f32[1]"):
    module = Module(con, module_id, run_name, function, platform="cpu")
    module.allocation(0, "donated_parameter", size, parameter_number=0, parameter_shape=shape,
                      parameter_shape_index="{}", output_shape=shape)  # fmt: skip
    module.allocation(1, "temp", 3)
    module.close()


def test_figures_in_order_of_time_with_the_change(con):
    for day, run_name in ((3, "a"), (1, "b"), (2, "c")):
        insert(con, "runs", run_name=run_name, dumped_at=datetime(2026, 1, day))
    compiled(con, 1, "a", 10)
    compiled(con, 2, "b", 20)
    compiled(con, 3, "c", 25, shape="f32[2]")
    assert answer(con, "series", function="f") == [
        ("f", "cpu", 0, "b", datetime(2026, 1, 1), 20, None, None, 3, 20, 20, None),
        ("f", "cpu", 0, "c", datetime(2026, 1, 2), 25, 5, 0.25, 3, 25, 25, False),
        ("f", "cpu", 0, "a", datetime(2026, 1, 3), 10, -15, -0.6, 3, 10, 10, False),
    ]
    con.execute("UPDATE allocations SET parameter_shape = 'f32[2]', output_shape = 'f32[2]'")
    assert [row[11] for row in answer(con, "series")] == [None, True, True]
    assert len(answer(con, "series", top_n=2)) == 2


def test_the_peak_of_a_run_is_unknown_if_one_compilation_has_no_known_peak(con):
    compiled(con, 1, "a", 5)
    Module(con, 2, "a", "f", platform="cpu", has_live_ranges=False).allocation(0, "output", 99)
    compiled(con, 3, "b", 5)
    rows = [(row[3], row[5], row[6], *row[12:]) for row in answer(con, "series")]
    reason = "the peak of 1 of 2 compilations is unknown: the dump has no live ranges"
    assert rows == [("a", None, None, reason), ("b", 5, None)]


def test_functions_by_largest_peak_and_equal_times_by_run(con):
    compiled(con, 1, "b", 5)
    compiled(con, 2, "a", 5)
    compiled(con, 3, "a", 9, function="g")
    rows = [(row[0], row[3], row[6]) for row in answer(con, "series")]
    assert rows == [("g", "a", None), ("f", "a", None), ("f", "b", 0)]
