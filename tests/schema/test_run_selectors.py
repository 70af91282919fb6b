"""Parameter run of the saved queries selects by name or by a label."""

from bufdb.query.catalogue import load
from bufdb.query.execute import execute_query
from bufdb.resources import query_folder


def test_a_run_is_selected_by_its_name_and_each_label(demo):
    labels = demo.execute(
        "SELECT label || '=' || label_value FROM run_labels WHERE run_name = 'cpu_b16'"
    ).fetchall()
    rows = demo.execute("SELECT selector FROM run_selectors WHERE run_name = 'cpu_b16'").fetchall()
    assert labels
    assert sorted(rows) == sorted([("cpu_b16",), *labels])


def test_a_query_filters_by_label(demo):
    wanted = demo.execute(
        "SELECT run_name FROM run_labels WHERE label = 'batch' AND label_value = '16'"
    ).fetchall()
    result = execute_query(demo, load(query_folder() / "modules.sql"), {"run": "batch=16"})
    place = [name for name, _ in result.columns].index("run_name")
    assert {row[place] for row in result.rows} == {name for (name,) in wanted} != set()
