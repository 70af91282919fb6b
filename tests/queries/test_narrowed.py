"""A question about some runs is answered as if the file held them alone: the answer is the same."""

import pytest
from places import ROOT

from bufdb.database import store
from bufdb.query import execute
from bufdb.query.catalogue import load

QUERIES = [load(path) for path in sorted((ROOT / "queries").glob("*.sql"))]
RUNS = ("cpu_b8", "gpu*", "batch=16", "none*")
"""Which rows are left does not depend on the query: each is asked two of these in turn."""
SIDES = (("cpu_b8", "cpu_b8_remat"), ("batch=16", "tpu_b8"))


def cases():
    """Each query with each side that it can be asked about."""
    for number, query in enumerate(QUERIES):
        names = {param.name for param in query.params}
        turn = (number % 4, (number + 1) % 4)
        asked = [{"run": RUNS[place]} for place in turn if "run" in names]
        asked += [{"base": base, "new": new} for base, new in SIDES if "new" in names]
        assert asked
        for given in asked:
            yield pytest.param(query, given, id=f"{query.name} {' '.join(given.values())}")


@pytest.mark.sample(54)
@pytest.mark.parametrize(("query", "given"), list(cases()))
def test_the_answer_is_that_of_the_whole_file(demo_db, demo, query, given):
    bound = execute.bind(query, given)
    with store.open_readable(str(demo_db), query.sql, runs=execute.runs_asked(bound)) as con:
        tables = con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall()
        assert tables == [(1,)]
        narrow = execute.execute_query(con, query, bound)
    assert narrow == execute.execute_query(demo, query, bound)


def test_names_with_wildcards_mean_themselves():
    assert execute.runs_asked({"base": "a*[b]?", "new": "c"}) == ["a[*][[]b][?]", "c"]
    assert execute.runs_asked({"run": "a*", "base": None, "new": None}) == ["a*"]
    assert execute.runs_asked({"base": None, "new": "c"}) is None


def test_most_of_the_file_is_not_narrowed(demo_db):
    query = next(query for query in QUERIES if query.name == "peak")
    with store.open_readable(str(demo_db), query.sql, runs=["*"]) as con:
        views = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert ("values",) not in views
