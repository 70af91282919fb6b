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


def test_points_on_a_line(con):
    for module_id, (batch, peak) in enumerate([(2, 300), (4, 500), (8, 900)]):
        compiled(con, module_id, f"b{batch}", peak - 1, {"batch": str(batch)})
    # 100 + 100 * batch
    row = ("f", "cpu", 1, 0, "", 3, 2.0, 8.0, 900, 100, 100.0, 1.0, 0.0)
    assert answer(con, "scaling") == [(*row, None, None)]
    assert answer(con, "scaling", size=16, budget=1099) == [(*row, 1700, 9)]
    assert answer(con, "scaling", budget=1100)[0][14] == 10
    assert answer(con, "scaling", label="rank") == []


def test_points_off_the_line(con):
    for module_id, (batch, peak) in enumerate([(1, 10), (2, 10), (3, 40)]):
        compiled(con, module_id, f"b{batch}", peak - 1, {"batch": str(batch)})
    # Means 2 and 20; slope (-1 * -10 + 0 + 1 * 20) / 2 = 15; line 5, 20, 35; errors 5, -10, 5;
    # r2 = 1 - (25 + 100 + 25) / (100 + 100 + 400).
    row = answer(con, "scaling")[0]
    assert row[9:11] == (-10, 15.0)
    assert row[11] == pytest.approx(0.75)
    assert row[12] == pytest.approx(1.0)


def test_other_labels_keep_fits_apart_unless_they_do_not_matter(con):
    for module_id, (batch, dtype) in enumerate([(1, "f32"), (2, "f32"), (1, "bf16"), (2, "bf16")]):
        labels = {"batch": str(batch), "dtype": dtype, "commit": str(module_id)}
        compiled(con, module_id, f"r{module_id}", 99 * batch, labels)
    rows = [(row[4], row[5], row[10]) for row in answer(con, "scaling")]
    assert rows == [
        ("commit=1 dtype=f32", 1, None),
        ("commit=3 dtype=bf16", 1, None),
        ("commit=0 dtype=f32", 1, None),
        ("commit=2 dtype=bf16", 1, None),
    ]
    rows = [(row[4], row[5], row[10]) for row in answer(con, "scaling", fixed="dtype, remat")]
    assert rows == [("dtype=bf16", 2, 99.0), ("dtype=f32", 2, 99.0)]
    assert len(answer(con, "scaling", top_n=3)) == 3


def test_metrics(con):
    for module_id, batch in enumerate((1, 2)):
        compiled(con, module_id, f"b{batch}", 100 * batch, {"batch": str(batch)})
    slopes = [answer(con, "scaling", metric=name)[0][10] for name in ("peak", "temp", "total")]
    assert slopes == [100.0, 1000.0, 1100.0]


def test_a_flat_line_has_no_largest_size_and_text_is_no_size(con):
    for module_id, batch in enumerate(("1", "2", "full", "nan")):
        compiled(con, module_id, f"b{batch}", 7, {"batch": batch})
    assert answer(con, "scaling", size=5, budget=100) == [
        ("f", "cpu", 1, 0, "", 2, 1.0, 2.0, 8, 8, 0.0, 1.0, 0.0, 8, None),
    ]


def test_an_unknown_peak_is_no_point_and_is_told(con):
    for module_id, batch in enumerate((1, 2, 4)):
        compiled(con, module_id, f"b{batch}", 100 * batch, {"batch": str(batch)})
    con.execute("UPDATE modules SET peak_unknown_reason = 'why' WHERE module_id = 2")
    con.execute("DELETE FROM occupied_peaks WHERE module_id = 2")
    row = answer(con, "scaling")[0]
    assert (row[5], row[7], row[8], *row[15:]) == (2, 2.0, 201, 1, "why")
    assert answer(con, "scaling", metric="temp")[0][5] == 3
    con.execute("UPDATE modules SET peak_unknown_reason = 'why'")
    con.execute("DELETE FROM occupied_peaks")
    assert answer(con, "scaling") == [("f", "cpu", 1, 0, "", 0, *[None] * 9, 3, "why")]


def test_what_has_a_fit_comes_first(con):
    compiled(con, 1, "a", 1, {"batch": "1"})
    compiled(con, 2, "b", 1, {"batch": "2"})
    compiled(con, 3, "b", 900, {}, function="once")
    assert [(row[0], row[5]) for row in answer(con, "scaling")] == [("f", 2), ("once", 1)]
