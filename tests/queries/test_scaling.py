import pytest
from small_db import Module, answer, insert


def test_nothing_in_an_empty_database(con):
    assert answer(con, "scaling") == []


def compiled(con, module_id, run_name, size, labels, function="f"):
    module = Module(con, module_id, run_name, function, platform="cpu")
    module.allocation(0, "output", size)
    module.allocation(1, "temp", 10 * size)
    module.value(1, 1, 0, 1)
    module.allocation(2, "thread_local", 1000)
    module.close()
    for label, value in labels.items():
        insert(con, "run_labels", run_name=run_name, label=label, label_value=value)


def sizes(con, peaks, **labels):
    """A run for each size, with a peak of so many bytes."""
    for module_id, (size, peak) in enumerate(peaks.items()):
        compiled(con, module_id, f"b{size}", peak - 1, {"batch": str(size), **labels})


def test_points_on_a_line(con):
    sizes(con, {2: 300, 4: 500, 8: 900})
    # 100 + 100 * batch, whichever point is left out
    row = ("f", "cpu", 1, 0, "", 3, 2.0, 8.0, 900, 3, "linear", 100, 100.0, 0.0, 0.0)
    assert answer(con, "scaling") == [(*row, None, None, None, None, None, None)]
    given = {"size": 16, "budget": 1099}
    assert answer(con, "scaling", **given) == [(*row, 1700, 1700, 1700, 9, 9, None)]
    assert answer(con, "scaling", budget=1100)[0][18:20] == (10, 10)
    assert answer(con, "scaling", label="rank") == []


def test_a_forecast_is_as_wide_as_its_points_are_apart(con):
    sizes(con, {1: 1000, 2: 2010, 3: 3000})
    (row,) = answer(con, "scaling", size=10, budget=10_000)
    assert row[10] == "linear"
    # 1,010 a step without the last, 990 without the first, 1,000 without the middle.
    assert row[15:18] == (9930, 10_028, 10_090)
    assert row[18:20] == (9, 10)


def test_two_points_are_on_every_line(con):
    sizes(con, {8: 800, 16: 1600})
    (row,) = answer(con, "scaling", size=64, budget=16000)
    assert row[:10] == ("f", "cpu", 1, 0, "", 2, 8.0, 16.0, 1600, 2)
    assert set(row[10:20]) == {None}
    assert row[20] == "a line through fewer than three sizes says nothing"


def test_a_quadratic_program_is_fitted_by_a_parabola(con):
    sizes(con, {n: 500 + 30 * n + 2 * n * n for n in (16, 32, 64, 128)})
    (row,) = answer(con, "scaling", size=1024, budget=500 + 30 * 1000 + 2 * 1000 * 1000)
    assert row[9:15] == (4, "quadratic", 500, 30.0, 2.0, 0.0)
    assert row[15:20] == (2_128_372, 2_128_372, 2_128_372, 1000, 1000)
    # A line through the same would be off by more than half there.
    assert answer(con, "scaling", size=1024, budget=400)[0][19] <= 0


def test_a_parabola_that_is_nearer_goes_before_a_line_that_would_do(con):
    sizes(con, {n: 100_000 + 1000 * n + n * n for n in (10, 20, 30, 40)})
    assert answer(con, "scaling")[0][10] == "quadratic"


@pytest.mark.parametrize(
    ("peaks", "reason"),
    [
        ({1: 10, 2: 10, 3: 40}, "no line fits, and a parabola takes four sizes"),
        (
            {1: 10, 2: 40, 3: 10, 4: 90},
            "neither a line nor a parabola is within max_error of every figure",
        ),
        # It would fall for ever.
        (
            {1: 1000, 2: 1800, 3: 2400, 4: 2800},
            "neither a line nor a parabola is within max_error of every figure",
        ),
    ],
)
def test_where_no_curve_fits_there_is_no_forecast(con, peaks, reason):
    sizes(con, peaks)
    (row,) = answer(con, "scaling", size=9, budget=1000)
    assert set(row[10:20]) == {None}
    assert row[20] == reason
    assert answer(con, "scaling", max_error=9)[0][10] == "linear"


def test_other_labels_keep_fits_apart_unless_they_do_not_matter(con):
    number = 0
    for dtype in ("f32", "bf16"):
        for batch in (1, 2, 3):
            labels = {"batch": str(batch), "dtype": dtype, "commit": str(number)}
            compiled(con, number, f"r{number}", 99 * batch, labels)
            number += 1
    rows = [(row[4], row[5], row[12]) for row in answer(con, "scaling")]
    assert rows == [
        ("commit=2 dtype=f32", 1, None),
        ("commit=5 dtype=bf16", 1, None),
        ("commit=1 dtype=f32", 1, None),
        ("commit=4 dtype=bf16", 1, None),
        ("commit=0 dtype=f32", 1, None),
        ("commit=3 dtype=bf16", 1, None),
    ]
    rows = [(row[4], row[5], row[12]) for row in answer(con, "scaling", fixed="dtype, remat")]
    assert rows == [("dtype=bf16", 3, 99.0), ("dtype=f32", 3, 99.0)]
    assert len(answer(con, "scaling", top_n=3)) == 3


def test_metrics(con):
    for module_id, batch in enumerate((1, 2, 3)):
        compiled(con, module_id, f"b{batch}", 100 * batch, {"batch": str(batch)})
    slopes = [answer(con, "scaling", metric=name)[0][12] for name in ("peak", "temp", "total")]
    assert slopes == [100.0, 1000.0, 1100.0]


def test_what_does_not_grow_has_no_largest_size_and_text_is_no_size(con):
    for module_id, batch in enumerate(("1", "2", "full", "nan")):
        compiled(con, module_id, f"b{batch}", 7, {"batch": batch})
    assert answer(con, "scaling", size=5, budget=100) == [
        ("f", "cpu", 1, 0, "", 2, 1.0, 2.0, 8, 2, "constant", 8, 0.0, 0.0, 0.0, 8, 8, 8, None, None,
         None),
    ]  # fmt: skip


def test_an_unknown_peak_is_no_point_and_is_told(con):
    for module_id, batch in enumerate((1, 2, 4)):
        compiled(con, module_id, f"b{batch}", 100 * batch, {"batch": str(batch)})
    con.execute("UPDATE modules SET peak_unknown_reason = 'why' WHERE module_id = 2")
    con.execute("DELETE FROM occupied_peaks WHERE module_id = 2")
    row = answer(con, "scaling")[0]
    assert (row[5], row[7], row[8], *row[21:]) == (2, 2.0, 201, 1, "why")
    assert answer(con, "scaling", metric="temp")[0][5] == 3
    con.execute("UPDATE modules SET peak_unknown_reason = 'why'")
    con.execute("DELETE FROM occupied_peaks")
    assert answer(con, "scaling") == [("f", "cpu", 1, 0, "", 0, *[None] * 15, 3, "why")]


def test_what_has_a_fit_comes_first(con):
    compiled(con, 1, "a", 1, {"batch": "1"})
    compiled(con, 2, "b", 1, {"batch": "2"})
    compiled(con, 3, "b", 900, {}, function="once")
    assert [(row[0], row[5]) for row in answer(con, "scaling")] == [("f", 2), ("once", 1)]
