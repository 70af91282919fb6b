from datetime import datetime

import pytest
from small_db import Module, insert
from small_db import answer as answer_of
from tables import holds


def answer(con, query, **params):
    """Rows without the figures that only = 'regressions' is about (test_first_regression.py)."""
    reason = slice(23, None)
    return [(*row[:16], *filter(None, row[reason])) for row in answer_of(con, query, **params)]


def test_nothing_in_an_empty_database(con):
    assert answer(con, "series") == []


def compiled(con, module_id, run_name, size, function="f", shape="f32[1]"):
    module = Module(con, module_id, run_name, function, platform="cpu")
    module.allocation(0, "donated_parameter", size, parameter_number=0, parameter_shape=shape,
                      parameter_shape_index="{}", output_shape=shape)  # fmt: skip
    module.allocation(1, "temp", 3)
    module.close()


@pytest.mark.slow
def test_figures_in_order_of_time_with_the_change(con):
    for day, run_name in ((3, "a"), (1, "b"), (2, "c")):
        insert(con, "runs", run_name=run_name, dumped_at=datetime(2026, 1, day))
    compiled(con, 1, "a", 10)
    compiled(con, 2, "b", 20)
    compiled(con, 3, "c", 25, shape="f32[2]")
    holds(con, "series", """
        function_name | platform | compilation_place | color | run_name | label_value
        f             | cpu      | 1                 | 0     | b        | NULL
        f             | cpu      | 1                 | 0     | c        | NULL
        f             | cpu      | 1                 | 0     | a        | NULL

        fixed_labels | changed_labels | dumped_at           | peak_bytes | peak_change_bytes
        NULL         | NULL           | 2026-01-01 00:00:00 | 20         | NULL
        NULL         | NULL           | 2026-01-02 00:00:00 | 25         | 5
        NULL         | NULL           | 2026-01-03 00:00:00 | 10         | -15

        peak_change_ratio | temp_bytes | argument_bytes | output_bytes | signature_is_same
        NULL              | 3          | 20             | 20           | NULL
        0.25              | 3          | 25             | 25           | False
        -0.6              | 3          | 10             | 10           | False
    """, function="f")  # fmt: skip
    con.execute("UPDATE allocations SET parameter_shape = 'f32[2]', output_shape = 'f32[2]'")
    assert [row[15] for row in answer(con, "series")] == [None, True, True]
    assert len(answer(con, "series", top_n=2)) == 2


def test_an_unknown_peak_comes_first_and_says_why(con):
    compiled(con, 1, "a", 5)
    Module(con, 2, "a", "f", platform="cpu", has_live_ranges=False).allocation(0, "output", 99)
    compiled(con, 3, "b", 5)
    rows = [(row[2], row[4], row[9], row[10], *row[16:]) for row in answer(con, "series")]
    reason = "the dump has no live ranges"
    assert rows == [(1, "a", None, None, reason), (2, "a", 5, None), (2, "b", 5, 0)]


@pytest.mark.slow
def test_no_allocations_is_unknown_in_every_space(con):
    compiled(con, 1, "a", 5)
    Module(con, 2, "b", "f", platform="cpu")
    reason = "the dump has no allocations"
    for params in ({}, {"color": 0}):
        rows = [(row[3], row[4], row[9], *row[16:]) for row in answer(con, "series", **params)]
        assert rows == [(0, "a", 5), (0, "b", None, reason)]


@pytest.mark.slow
def test_compilations_are_followed_by_signature_then_by_size(con):
    for run_name, shapes in (("a", "x"), ("b", "xyz"), ("c", "wy")):
        for place, shape in enumerate(shapes):
            compiled(con, ord(run_name) * 10 + place, run_name, 100 - place, shape=shape)
    rows = [(row[2], row[4], row[9], row[15]) for row in answer(con, "series")]
    # Run b has the most, so its compilations x, y and z are 1, 2 and 3.
    assert rows == [
        (1, "a", 100, None), (1, "b", 100, True), (1, "c", 100, False),
        (2, "b", 99, None), (2, "c", 99, True),
        (3, "b", 98, None),
    ]  # fmt: skip


@pytest.mark.slow
def test_functions_by_largest_peak_and_equal_times_by_run(con):
    compiled(con, 1, "b", 5)
    compiled(con, 2, "a", 5)
    compiled(con, 3, "a", 9, function="g")
    rows = [(row[0], row[4], row[10]) for row in answer(con, "series")]
    assert rows == [("g", "a", None), ("f", "a", None), ("f", "b", 0)]


def labelled(con, **runs):
    """One run of f for each; its peak is the number of the day on which it was dumped, from 1."""
    for day, (run_name, labels) in enumerate(runs.items(), 1):
        insert(con, "runs", run_name=run_name, dumped_at=datetime(2026, 1, day))
        compiled(con, day, run_name, day)
        for label, value in labels.items():
            insert(con, "run_labels", run_name=run_name, label=label, label_value=value)


def orders(con, **params):
    return [(*row[4:8], row[10]) for row in answer(con, "series", **params)]


@pytest.mark.slow
def test_what_labels_change_from_run_to_run(con):
    labelled(con, a={"batch": "8", "host": "x"}, b={"batch": "16"}, c={"batch": "16"})
    holds(con, "series", """
        run_name | label_value | fixed_labels | changed_labels      | peak_change_bytes
        a        | NULL        | NULL         | NULL                | NULL
        b        | NULL        | NULL         | batch=8>16 host=x>- | 1
        c        | NULL        | NULL         | NULL                | 1
    """)  # fmt: skip
    assert [row[0] for row in orders(con, run="batch=16")] == ["b", "c"]


@pytest.mark.slow
def test_fixed_keeps_runs_of_other_labels_apart(con):
    labelled(con, a={"batch": "8"}, b={"batch": "16"}, c={"batch": "8"}, d={"batch": "16"}, e={})
    holds(con, "series", """
        run_name | label_value | fixed_labels | changed_labels | peak_change_bytes
        e        | NULL        | NULL         | NULL           | NULL
        b        | NULL        | batch=16     | NULL           | NULL
        d        | NULL        | batch=16     | NULL           | 2
        a        | NULL        | batch=8      | NULL           | NULL
        c        | NULL        | batch=8      | NULL           | 2
    """, fixed="rank, batch")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "order"),
    [
        (("16", "8", "0.5", "8"), "cbda"),  # numbers, equal ones by time
        (("0.10.0", "v0.9.1", "0.9.0rc1", "0.11"), "cbad"),  # versions
        (("b", "a", "8", "1.2.3"), "abcd"),  # neither: by time
    ],
)
def test_a_label_puts_runs_in_its_order(con, values, order):
    labels = [{"v": value} for value in values]
    labelled(con, **dict(zip("abcd", labels, strict=True)), without={})
    ordered = orders(con, label="v")
    assert "".join(row[0] for row in ordered) == order
    assert [row[1] for row in ordered] == [values["abcd".index(name)] for name in order]
    assert orders(con, label="w") == []
