"""Properties of every saved query that bufdb ships."""

from pathlib import Path

import pytest

from bufdb import resources
from bufdb.query import catalogue, execute
from bufdb.query.result import Result
from bufdb.render import formats

CATALOGUE = catalogue.Catalogue([resources.query_folder()])
QUERIES = {query.name: query for query in CATALOGUE.load_all()}
ALIASES = {name: CATALOGUE.find(name) for name in CATALOGUE.aliases}
VARYING = {"ingested_at", "file_content_bytes"}
"""Columns that no two ingests, or versions of zstd, agree on; golden files have * there instead."""

each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
each_name = pytest.mark.parametrize(
    "query", [*QUERIES.values(), *ALIASES.values()], ids=[*QUERIES, *ALIASES]
)


@each_query
def test_it_has_a_test_over_a_few_rows(query):
    name = query.name.replace("-", "_")
    assert (Path(__file__).parent / f"test_{name}.py").is_file()


@each_query
def test_it_takes_the_common_filters(query):
    names = {param.name for param in query.params}
    # A comparison names its two sides instead.
    sides = {"base", "new"} if "base" in names else {"run", "platform"}
    assert sides | {"function", "module", "top_n"} <= names
    # A diagnostic is about a file or a module, never about a memory space.
    assert ("color" in names) == (query.name != "diagnostics")


@pytest.mark.sample(25)
@each_query
def test_the_file_runs_unchanged_in_duckdb(con, query):
    text = query.path.read_text(encoding="utf-8")
    assert con.execute(text).fetchall() == []
    con.execute("SET VARIABLE top_n = 5; SET VARIABLE run = 'a*'; SET VARIABLE color = 0;")
    assert con.execute(text).fetchall() == []


@pytest.mark.sample(25)
@each_query
def test_the_text_of_the_file_is_what_runs(demo, query):
    plain = demo.execute(query.path.read_text(encoding="utf-8")).fetchall()
    assert plain == execute.execute_query(demo, query, {}).rows


@pytest.mark.sample(50)
@each_query
def test_module_selects_none_or_all(demo, query):
    if query.param("module") is not None:
        rows = [execute.execute_query(demo, query, params).rows for params in ({}, {"module": "*"})]
        none = execute.execute_query(demo, query, {"module": "none"}).rows
        assert rows[0] == rows[1] and none == []


@each_name
def test_its_answer_over_the_demo_dumps(demo, query, golden):
    """Those of aliases are as the queries gave them that had these names."""
    result = execute.execute_query(demo, query, {})
    assert [tuple(c) for c in result.columns] == [(c.name, c.type) for c in query.columns]
    golden(f"{query.name.replace('-', '_')}.csv", golden_text(result))


@pytest.mark.parametrize("query", ALIASES.values(), ids=ALIASES)
def test_an_alias_is_its_query_with_other_defaults(demo, query):
    whole = CATALOGUE.find(query.alias.text.split(" ")[0])
    rows = execute.execute_query(demo, whole, query.alias.settings).rows
    places = [
        [column.name for column in whole.columns].index(column) for column, _ in query.alias.columns
    ]
    assert [tuple(row[place] for place in places) for row in rows] == execute.execute_query(
        demo, query, {}
    ).rows


def golden_text(result):
    names = [name for name, _ in result.columns]
    rows = [
        tuple(
            "*" if name in VARYING else "[NULL]" if value is None else value
            for name, value in zip(names, row, strict=True)
        )
        for row in result.rows
    ]
    return formats.render(Result(result.columns, rows), "csv")[0]
