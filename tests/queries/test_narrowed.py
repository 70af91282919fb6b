"""A question about some runs or functions is answered as if the file held them alone.

The answer is the same.
"""

import shutil

import pytest
from places import ROOT

from bufdb.database import narrowing, ready, store
from bufdb.query import execute
from bufdb.query.catalogue import load
from bufdb.query.computed_views import OF_LINES, OF_MODULES

QUERIES = [load(path) for path in sorted((ROOT / "queries").glob("*.sql"))]
RUNS = ("cpu_b8", "gpu*", "batch=16", "none*")
"""The remaining rows do not depend on the query: each query runs with two of these in turn."""
SIDES = (("cpu_b8", "cpu_b8_remat"), ("batch=16", "tpu_b8"))


def cases():
    """Yield each query with each filter that it has."""
    for number, query in enumerate(QUERIES):
        names = {param.name for param in query.params}
        turn = (number % 4, (number + 1) % 4)
        sides = [{"run": RUNS[place]} for place in turn if "run" in names]
        sides += [{"base": base, "new": new} for base, new in SIDES if "new" in names]
        assert sides
        for params in sides:
            yield pytest.param(query, params, id=f"{query.name} {' '.join(params.values())}")


def answer(path, query, params, runs):
    """Return the answer and the number of the connection's temporary tables."""
    with store.open_readable(str(path), query.sql, runs=runs) as con:
        narrowed = con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
        result = execute.execute_query(con, query, execute.bind(query, params))
    return result, narrowed[0][0]


@pytest.mark.sample(54)
@pytest.mark.parametrize(("query", "params"), list(cases())[::-1])  # advice, the longest, is slow
def test_the_answer_is_that_of_the_whole_file(demo_db, demo, query, params):
    bound = execute.bind(query, params)
    narrow, tables = answer(demo_db, query, params, execute.runs_asked(bound))
    assert tables == 1
    assert narrow == execute.execute_query(demo, query, bound)


def of_functions():
    """Yield each query that shows a few functions, with every way to select them."""
    every = ({}, {"top_functions": "1"}, {"top_functions": "2", "run": "gpu*"},
             {"top_functions": "50"}, {"step": "3"}, {"peak": "2", "run": "cpu_b8"})  # fmt: skip
    for query in QUERIES:
        names = {param.name for param in query.params}
        if "top_functions" not in names:
            continue
        for params in every:
            if params.keys() <= names:
                yield pytest.param(query, params, id=f"{query.name} {params}")


@pytest.mark.sample(0, 48)
@pytest.mark.parametrize(("query", "params"), list(of_functions())[::-1])
def test_few_functions_answer_as_the_whole_file(demo_db, query, params, monkeypatch):
    whole = answer(demo_db, query, params, None)[0]
    monkeypatch.setattr(execute, "LEAST_MODULES", 1)
    assert answer(demo_db, query, params, None)[0] == whole
    runs = execute.runs_asked(execute.bind(query, params))
    assert answer(demo_db, query, params, runs)[0] == whole


@pytest.mark.slow
def test_other_modules_are_not_read_for_few_functions(demo_db, monkeypatch):
    monkeypatch.setattr(execute, "LEAST_MODULES", 1)
    query = next(query for query in QUERIES if query.name == "peak-by")
    counted = 'SELECT count(DISTINCT module_id) FROM "values"'
    with store.open_readable(str(demo_db), query.sql) as con:
        every = con.execute(counted).fetchall()
        with execute.functions_alone(con, query):
            assert con.execute(counted).fetchall() == [(3,)]
            assert con.execute("SELECT count(*) FROM modules").fetchall() == every
        assert con.execute(counted).fetchall() == every
        with pytest.raises(ValueError, match="stopped"), execute.functions_alone(con, query):
            raise ValueError("stopped")
        assert con.execute(counted).fetchall() == every


@pytest.mark.slow
def test_what_run_narrowed_stays_narrowed_behind_few_functions(demo_db, monkeypatch):
    monkeypatch.setattr(execute, "LEAST_MODULES", 1)
    query = next(query for query in QUERIES if query.name == "peak-by")
    counted = 'SELECT count(*) FROM "values"'
    with store.open_readable(str(demo_db), query.sql, runs=["cpu_b8"]) as con:
        of_run = con.execute(counted).fetchall()
        execute.execute_query(con, query, {"run": "cpu_b8"})
        assert con.execute(counted).fetchall() == of_run


def test_a_database_that_is_open_for_writing_is_left_as_it_is(con, monkeypatch):
    monkeypatch.setattr(execute, "LEAST_MODULES", 1)
    query = next(query for query in QUERIES if query.name == "peak")
    with execute.functions_alone(con, query):
        views = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert ("values",) not in views


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "run", ["cpu_b8", "cpu_b8_old", "cpu_b8_remat", "cpu_b16", "gpu_b8", "tpu_b8"]
)
def test_what_is_not_planned_has_no_rows(demo_db, run):
    query = next(query for query in QUERIES if query.name == "advice")
    with store.open_readable(str(demo_db), query.sql) as con:
        sql = (
            "SELECT module_id, color FROM memory_figures WHERE run_name = ? "
            "ORDER BY peak_bytes DESC NULLS LAST LIMIT 1"
        )
        ((module_id, color),) = con.execute(sql, [run]).fetchall()
        with execute.of_function(con, [query], {"run": run, "color": "all"}, module_id, color):
            for view, need in OF_MODULES.items():
                if need is not None:
                    rows = con.execute(f"SELECT count(*) FROM {view}").fetchall()
                    whole = f"SELECT count(*) FROM {ready.VIEWS}.main.{view} WHERE module_id = ?"
                    assert con.execute(whole, [module_id]).fetchall() == rows, view


def test_lines_of_libraries_are_those_of_the_patterns(demo_db, tmp_path):
    path = shutil.copy(demo_db, tmp_path / "demo.duckdb")
    file = "/venv/lib/python3.11/site-packages/flax/core.py"
    with store.open_writable(str(path)) as con:
        for table in ("instructions", "value_origins"):
            con.execute(f"UPDATE {table} SET source_file = '{file}' WHERE source_line % 3 > 0")
    query = next(query for query in QUERIES if query.name == "advice")
    with store.open_readable(str(path), query.sql) as con:
        ((module_id, color),) = con.execute(
            "SELECT module_id, color FROM memory_figures "
            "WHERE run_name = 'cpu_b8_old' AND function_name = 'train_step'"
        ).fetchall()
        with execute.of_function(con, [query], {"color": "all"}, module_id, color):
            for view in OF_LINES:
                cells = "SELECT value_id, own_source_file, own_source_line, library_source"
                rows = con.execute(f"{cells} FROM {view} ORDER BY ALL").fetchall()
                whole = f"{ready.VIEWS}.main.{view} WHERE module_id = {module_id}"
                assert con.execute(f"{cells} FROM {whole} ORDER BY ALL").fetchall() == rows
                if rows:
                    assert "library flax/core.py" in {
                        str(row[-1]).partition(":")[0] for row in rows
                    }


@pytest.mark.parametrize("is_undone", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_computed_views_go_unless_nothing_follows(demo_db, is_undone, is_last):
    counted = "SELECT (SELECT count(*) FROM modules), (SELECT count(*) FROM asked_functions)"
    with store.open_readable(str(demo_db), "FROM asked_functions, modules") as con:
        whole = con.execute(counted).fetchall()
        few = {"memory_figures": "FROM memory_figures LIMIT 1"}
        none = {"asked_functions": "FROM asked_functions"}
        needs = {"asked_functions": "SELECT 1 FROM memory_figures OFFSET 1"}
        with narrowing.computed(con, few | none, needs, is_undone=is_undone, is_last=is_last):
            within = con.execute(counted).fetchall()
            assert within == [(whole[0][0], 0)]
            # DuckDB knows that a view which is hidden so has no rows, and plans none of it.
            plan = con.execute("EXPLAIN FROM modules JOIN asked_functions USING (module_id)")
            assert "Empty Result" in plan.fetchall()[0][1]
        assert con.execute(counted).fetchall() == (within if is_last else whole)


def test_names_with_wildcards_mean_themselves():
    assert execute.runs_asked({"base": "a*[b]?", "new": "c"}) == ["a[*][[]b][?]", "c"]
    assert execute.runs_asked({"run": "a*", "base": None, "new": None}) == ["a*"]
    assert execute.runs_asked({"base": None, "new": "c"}) is None


def test_most_of_the_file_is_not_narrowed(demo_db):
    query = next(query for query in QUERIES if query.name == "peak")
    with store.open_readable(str(demo_db), query.sql, runs=["*"]) as con:
        views = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert ("values",) not in views
