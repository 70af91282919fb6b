import datetime

import pytest
from small_db import Module, answer, insert
from tables import holds

DAY = [datetime.datetime(2026, 1, day) for day in range(1, 10)]


def test_nothing_in_an_empty_database(con):
    holds(con, "first-regression", "function_name")


def series(con, *peaks, function="f", signature=None):
    """One run for each peak; the first one is named last, so that names do not order them."""
    count = len(peaks)
    for number, peak in enumerate(peaks):
        run = f"r{count - number}"
        if not con.execute("SELECT 1 FROM runs WHERE run_name = ?", [run]).fetchall():
            insert(con, "runs", run_name=run, dumped_at=DAY[number])
        made = Module(con, 100 * ord(function) + number, run, function)
        made.allocation(0, "output", 0, output_shape=signature[number] if signature else None)
        made.allocation(1, "temp", peak or 1)
        if peak is not None:
            made.value(1, 1, 0, peak)
            made.close()


def rows(con, **params):
    return [
        (row["function_name"], row["run_name"], *row[9:16])
        for row in answer(con, "first-regression", **params)
    ]


@pytest.mark.slow
def test_the_first_run_that_exceeds_the_one_before(con):
    series(con, 100, 104, 50, 60, 200, signature="aaaab")
    holds(con, "first-regression", """
        function_name | run_name | previous_run_name | previous_bytes | figure_bytes | delta_bytes
        f             | r2       | r3                | 50             | 60           | 10

        delta_ratio | signature_is_same | regression_count
        0.2         | True              | 2
    """)  # fmt: skip
    holds(con, "first-regression", """
        function_name | run_name | previous_run_name | previous_bytes | figure_bytes | delta_bytes
        f             | r1       | r2                | 60             | 200          | 140

        delta_ratio        | signature_is_same | regression_count
        2.3333333333333335 | False             | 1
    """, factor=2)  # fmt: skip
    assert rows(con, factor=1.03)[0][1:3] == ("r4", "r5")
    assert rows(con, least_bytes=11)[0][1] == "r1"
    assert rows(con, factor=4) == []
    assert rows(con, run="r[345]") == []
    assert answer(con, "first-regression")[0]["dumped_at"] == DAY[3]


@pytest.mark.slow
def test_exactly_the_factor_does_not_exceed(con):
    series(con, 100, 150)
    assert rows(con, factor=1.5) == []
    assert len(rows(con, factor=1.49)) == 1


@pytest.mark.slow
def test_a_run_whose_figure_is_unknown_is_no_predecessor(con):
    series(con, 100, None, 150)
    holds(con, "first-regression", """
        function_name | run_name | previous_run_name | previous_bytes | figure_bytes | delta_bytes
        f             | r1       | r3                | 100            | 150          | 50

        delta_ratio | signature_is_same | regression_count
        0.5         | NULL              | 1
    """)  # fmt: skip
    assert answer(con, "first-regression")[0]["unknown_count"] == 1
    holds(con, "first-regression", """
        function_name | run_name | previous_run_name | previous_bytes | figure_bytes | delta_bytes
        f             | r1       | r2                | 1              | 150          | 149

        delta_ratio | signature_is_same | regression_count
        149.0       | NULL              | 1
    """, figure="temps")  # fmt: skip


@pytest.mark.slow
def test_an_unknown_figure_is_no_regression(con):
    series(con, 100, None, 100)
    series(con, 100, 100, function="g")
    holds(con, "first-regression", """
        function_name | platform | compilation_place | color | run_name | label_value
        f             | NULL     | 1                 | 0     | NULL     | NULL

        fixed_labels | changed_labels | dumped_at | previous_run_name | previous_bytes
        NULL         | NULL           | NULL      | NULL              | NULL

        figure_bytes | delta_bytes | delta_ratio | signature_is_same | regression_count
        NULL         | NULL        | NULL        | NULL              | NULL

        unknown_count | unknown_reason
        1             | no peak is stored for this memory space
    """)  # fmt: skip


def test_growth_from_nothing_has_no_ratio(con):
    series(con, 0, 5)
    assert rows(con)[0][3:7] == (0, 5, 5, None)


@pytest.mark.slow
def test_largest_growth_first_and_filters(con):
    series(con, 100, 110, function="f")
    series(con, 100, 190, function="g")
    series(con, 100, 110, function="e")
    assert [row[0] for row in rows(con)] == ["g", "e", "f"]
    assert [row[0] for row in rows(con, top_n=1)] == ["g"]
    assert [row[0] for row in rows(con, function="[ef]")] == ["e", "f"]
    assert rows(con, color=1) == rows(con, platform="tpu") == []


@pytest.mark.slow
def test_labels_order_and_separate_runs(con):
    series(con, 100, 200, 100, 210)
    for run, batch, version in (
        ("r4", 8, "0.9"),
        ("r3", 16, "0.9"),
        ("r2", 8, "0.10"),
        ("r1", 16, "0.10"),
    ):
        for label, value in (("batch", str(batch)), ("jax", version + ".0")):
            insert(con, "run_labels", run_name=run, label=label, label_value=value)
    assert answer(con, "first-regression")[0][4:8] == ("r3", None, None, "batch=8>16")
    holds(con, "first-regression", "function_name", fixed="batch")
    holds(con, "first-regression", """
        run_name | label_value | fixed_labels | changed_labels
        r1       | 0.10.0      | batch=16     | jax=0.9.0>0.10.0
    """, fixed="batch", factor=1.01, label="jax")  # fmt: skip
    holds(con, "first-regression", """
        run_name
        r3
    """, label="batch", factor=1.5)  # fmt: skip
