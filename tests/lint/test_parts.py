"""A statement in parts of a size that engines plan."""

import pytest
import sqlglot

from bufdb import resources
from bufdb.lint import translate
from bufdb.lint.translate import Whole
from bufdb.query import catalogue, execute

QUERIES = {
    query.name: query for query in catalogue.Catalogue([resources.query_folder()]).load_all()
}


def parted(sql):
    return {
        name: part.sql("duckdb")
        for name, part in translate.parted(sqlglot.parse_one(sql, "duckdb"))
    }


def doubled(steps):
    """A statement whose text, put out in full, reads `runs` 2 ** steps times."""
    ctes = ["c0 AS (SELECT run_name FROM runs)"]
    ctes += [
        f"c{step} AS (SELECT a.run_name FROM c{step - 1} AS a CROSS JOIN c{step - 1} AS b)"
        for step in range(1, steps + 1)
    ]
    return f"WITH {', '.join(ctes)} SELECT run_name FROM c{steps}"


def test_what_is_read_seldom_is_one_part():
    made = parted("WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT x FROM b")
    assert list(made) == [""] and made[""].count("SELECT") == 3


def test_each_part_has_what_it_reads_and_no_more():
    made = parted(doubled(30))
    assert len(made) > 2 and list(made)[-1] == ""
    for name, text in made.items():
        tree = sqlglot.parse_one(text, "duckdb")
        own = {cte.alias for cte in tree.ctes}
        earlier = set(list(made)[: list(made).index(name)])
        read = {table.name for table in tree.find_all(sqlglot.exp.Table)}
        assert read - own <= earlier | {"runs"}
        assert own <= read and not own & made.keys()


def test_what_is_materialized_is_a_part():
    made = parted("WITH a AS MATERIALIZED (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT x FROM b")
    assert list(made) == ["a", ""]
    assert "MATERIALIZED" not in made[""]
    query = QUERIES["ranks"]
    assert "seats" in dict(translate.parts(query, "spark"))
    assert "MATERIALIZED" in query.sql
    assert "MATERIALIZED" not in translate.body(query, "spark")


@pytest.mark.parametrize(
    "name", ["scaling", "diff-modules", pytest.param("advice", marks=pytest.mark.slow)]
)
def test_no_part_reads_too_much(name):
    query = QUERIES[name]
    for _, part in translate.parted(Whole(query.sql).statement(query.sql)):
        reads = {}
        for cte in part.ctes:
            reads[cte.alias] = sum(
                reads.get(table.name, 1) for table in cte.this.find_all(sqlglot.exp.Table)
            )
        part.set("with_", None)
        tables = part.find_all(sqlglot.exp.Table)
        assert sum(reads.get(table.name, 1) for table in tables) <= translate.MOST_READS


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["scaling", "diff-modules"])
def test_the_parts_together_give_the_rows_of_the_query(demo, name):
    query = QUERIES[name]
    values = {"base": "cpu_b8", "new": "cpu_b16"} if query.param("base") else {}
    rows = execute.execute_query(demo, query, values).rows
    *first, (_, last) = translate.parted(Whole(query.sql).statement(query.sql))
    assert first
    texts = [f"{name} AS ({part.sql('duckdb', comments=False)})" for name, part in first]
    whole = f"WITH {', '.join(texts)} SELECT * FROM ({last.sql('duckdb', comments=False)})"
    assert execute.execute_with(demo, whole, values, query.name).rows == rows
