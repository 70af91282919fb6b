import pytest

import bufdb


@pytest.mark.slow
def test_it_shows_what_is_alike_once_and_sizes_with_units(demo_db, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = bufdb.connect(demo_db).query("advice", run="gpu_b8")
    shown = str(rows)
    assert repr(rows) == shown
    assert shown.startswith("run gpu_b8 · function train_step · platform gpu · color 0")
    assert "saved …/model/train.py:65" in shown
    assert "1.34 MiB      1.72 MiB" in shown
    assert max(map(len, shown.splitlines())) <= 80
    low = rows.columns.index("low_saving_bytes")
    assert 1400000 in [row[low] for row in rows.fetchall()]  # exact


def test_a_notebook_shows_it_whole_and_takes_nothing_for_markup(demo_db):
    db = bufdb.connect(demo_db)
    html = db.sql("SELECT '<b>' AS name, 16777216 AS size_bytes")._repr_html_()
    assert html.startswith("<pre ") and "&lt;b&gt;     16.0 MiB" in html


def test_it_is_a_relation(demo_db):
    rows = bufdb.connect(demo_db).sql("SELECT range AS n FROM range(50)")
    assert len(rows) == 50 and rows.columns == ["n"]
    assert str(rows).endswith("\n39\n… 10 more rows")
    assert rows.limit(2).fetchall() == [(0,), (1,)]
    assert str(rows.limit(1)) == "n\n-\n0"
    assert rows.aggregate("sum(n)").fetchall() == [(1225,)]
    assert rows["n"].limit(1).fetchall() == [(0,)]
    assert type(rows.relation).__name__ == "DuckDBPyRelation"
