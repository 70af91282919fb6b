"""A question about some runs is answered as if the file held them alone: the answer is the same."""

import pytest
from places import ROOT

from bufdb.database import store
from bufdb.query import execute
from bufdb.query.catalogue import load

QUERIES = [load(path) for path in sorted((ROOT / "queries").glob("*.sql"))]
RUNS = ("cpu_b8", "gpu*", "batch=16", "none*")
SIDES = (("cpu_b8", "cpu_b8_remat"), ("batch=16", "tpu_b8"))


def cases():
    """Each query with each side that it can be asked about."""
    for query in QUERIES:
        names = {param.name for param in query.params}
        asked = [{"run": run} for run in RUNS] if "run" in names else []
        asked += [{"base": base, "new": new} for base, new in SIDES if "new" in names]
        assert asked
        for given in asked:
            yield pytest.param(query, given, id=f"{query.name} {' '.join(given.values())}")


def answer(path, query, given, runs):
    with store.open_readable(str(path), query.sql, runs=runs) as con:
        narrowed = con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
        result = execute.execute_query(con, query, execute.bind(query, given))
    return result, narrowed[0][0]


@pytest.mark.sample(54)
@pytest.mark.parametrize(("query", "given"), list(cases()))
def test_the_answer_is_that_of_the_whole_file(demo_db, query, given):
    runs = execute.runs_asked(execute.bind(query, given))
    narrow, tables = answer(demo_db, query, given, runs)
    assert tables == 1
    assert narrow == answer(demo_db, query, given, None)[0]


def test_names_with_wildcards_mean_themselves():
    assert execute.runs_asked({"base": "a*[b]?", "new": "c"}) == ["a[*][[]b][?]", "c"]
    assert execute.runs_asked({"run": "a*", "base": None, "new": None}) == ["a*"]
    assert execute.runs_asked({"base": None, "new": "c"}) is None


def test_most_of_the_file_is_not_narrowed(demo_db):
    query = next(query for query in QUERIES if query.name == "peak")
    with store.open_readable(str(demo_db), query.sql, runs=["*"]) as con:
        views = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert ("values",) not in views
