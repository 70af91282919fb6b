"""A saved query as one statement over tables, and as Spark's SQL."""

import pytest
import sqlglot

from bufdb import resources
from bufdb.errors import BufdbError, UsageError
from bufdb.lint import translate
from bufdb.lint.spark import glob_regex, portable_regex
from bufdb.lint.translate import Whole
from bufdb.query import catalogue, execute, header

QUERIES = {
    query.name: query for query in catalogue.Catalogue([resources.query_folder()]).load_all()
}
HEAD = "-- title: T\n-- group: overview\n-- column x VARCHAR: X.\n"


def spark(sql, tmp_path):
    """The text of a query for Spark, on one line."""
    query = header.parse(HEAD + sql, tmp_path / "q.sql")
    return " ".join(translate.body(query, "spark").split())


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", sorted(QUERIES, reverse=True))  # advice, the longest, is slow
def test_the_statement_gives_duckdb_the_rows_of_the_query(demo, name):
    query = QUERIES[name]
    sides = {"base": "cpu_b8", "new": "cpu_b16"} if query.param("base") else {}
    statement = Whole(query.sql).statement(query.sql).sql("duckdb", comments=False)
    rows = execute.execute_query(demo, query, sides).rows
    assert execute.execute_with(demo, statement, sides, name).rows == rows
    views = {name for name in Whole(query.sql).views if f"FROM {name} " in statement}
    assert all(f"{name} AS (" in statement for name in views)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT sum(size_bytes) AS x FROM allocations", "SUM(CAST(`allocations`.`size_bytes` AS"),
        ("SELECT size_bytes / 2 AS x FROM allocations", "CAST(`allocations`.`size_bytes` AS DOUBL"),
        ("SELECT 1 / nullif(color, 0) AS x FROM allocations", "<> 0 THEN CAST(1 AS DOUBLE) /"),
        ("SELECT 0.1 AS x", "CAST(0.1 AS DOUBLE)"),
        ("SELECT TRY_CAST(floor(color / 2) AS BIGINT) AS x FROM allocations",
         "< CAST('9223372036854775808' AS DOUBLE) THEN CAST(FLOOR("),
        ("SELECT min(kind) OVER w AS x FROM allocations WINDOW w AS (PARTITION BY color)",
         "OVER (PARTITION BY `allocations`.`color`)"),
        ("SELECT count(*) FILTER (WHERE color > 0) OVER () AS x FROM allocations",
         "COUNT(CASE WHEN `allocations`.`color` > 0 THEN 1 END) OVER ()"),
        ("SELECT string_agg(kind, ' ' ORDER BY kind) AS x FROM allocations",
         "'key_0', `allocations`.`kind`, 'text', `allocations`.`kind` ) END ) ), "
         "item -> item.text ), ' ' )"),
        ("SELECT regexp_replace(op_name, '([[]a)', '\\1', 'g') AS x FROM instructions",
         r"REGEXP_REPLACE(`instructions`.`op_name`, '([\\[]a)', '$1')"),
        ("SELECT string_split(kind, '.')[1] AS x FROM allocations", "GET(SPLIT("),
        ("SELECT list_slice(string_split(kind, '.'), 1, -1 - color) AS x FROM allocations",
         "GREATEST(SIZE(SPLIT("),
        ("SELECT len(string_split(kind, '.')) AS x FROM allocations", "SIZE(SPLIT("),
        ("SELECT size_bytes::HUGEINT AS x FROM allocations", "AS DECIMAL(38, 0))"),
        ("SELECT kind GLOB 'a*' AS x FROM allocations", "RLIKE"),
        ("SELECT base_name(op_name) AS x FROM instructions", r"'[^/]*\\z', 0)"),
        ("SELECT regexp_matches(kind, 'a|'\n'b') AS x FROM allocations", "RLIKE 'a|b'"),
        ("SELECT instruction_name AS x FROM \"values\"", "FROM `values` AS `values`"),
    ],
)  # fmt: skip
def test_what_is_written_for_spark(tmp_path, sql, text):
    assert text in spark(sql, tmp_path)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT regexp_replace(kind, 'a', 'b') AS x FROM allocations", "first of several matches"),
        ("SELECT regexp_matches(kind, kind) AS x FROM allocations", "that is not a literal"),
        ("SELECT kind[1:3] AS x FROM allocations", "a slice"),
        ("SELECT string_agg(kind, ' ') AS x FROM allocations", "string_agg without an order"),
        ("SELECT list_slice(string_split(kind, '.'), 2, 3) AS x FROM allocations",
         "list_slice from another place than 1"),
        ("DELETE FROM runs", "it is not a SELECT"),
        ("SELECT first(kind ORDER BY color) AS x FROM allocations", "first(… ORDER BY …)"),
        ("WITH RECURSIVE w AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM w WHERE x < 3) "
         "SELECT x FROM w", "it is recursive"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_with_the_reason(tmp_path, sql, reason):
    with pytest.raises(BufdbError) as caught:
        spark(sql, tmp_path)
    assert reason in str(caught.value)


def test_a_with_inside_is_among_those_of_all(con, tmp_path):
    sql = (
        "WITH a AS (SELECT 1 AS x) SELECT q.x FROM (WITH a AS (SELECT 2 AS x) SELECT a.x FROM a) "
        "AS q CROSS JOIN a"
    )
    statement = Whole(sql).statement(sql)
    assert len(statement.ctes) == 2
    assert con.execute(statement.sql("duckdb")).fetchall() == [(2,)]


def test_a_limit_is_a_bound_constant_of_32_bits(tmp_path):
    sql = (
        "WITH params AS (SELECT coalesce(getvariable('top_n')::BIGINT, 20) AS top_n)\n"
        "SELECT runs.run_name AS x FROM runs ORDER BY x LIMIT (SELECT top_n FROM params)"
    )
    text = spark(sql, tmp_path)
    assert "LIMIT CAST(LEAST(COALESCE(CAST(:top_n AS BIGINT), 20), 2147483647) AS INT)" in text
    assert "getvariable" not in text.lower()


def test_the_header_goes_along_and_says_what_is_not_claimed(tmp_path):
    query = header.parse(HEAD + "SELECT run_name AS x FROM runs ORDER BY x", tmp_path / "q.sql")
    text = translate.transpile(query, "spark")
    assert text.startswith("-- unverified: the query claims duckdb only\n-- title: T\n")


def test_an_unknown_dialect_is_reported(tmp_path):
    query = header.parse(HEAD + "SELECT run_name AS x FROM runs ORDER BY x", tmp_path / "q.sql")
    with pytest.raises(UsageError, match="no SQL dialect 'sparc'"):
        translate.transpile(query, "sparc")


@pytest.mark.parametrize(
    "pattern", ["a*", "a?c", "[!a]bc", "[ab]*", "f(x)|.$^+{}", "*.py", "^a", "a[*]b", "a[?]b"]
)
def test_the_regex_of_a_glob_matches_the_same_names(con, pattern):
    names = ["abc", "a.c", "bbc", "f(x)|.$^+{}", "fx", "x.py", "xzpy", "^a", "a", "", "a*b", "a?b",
             "[x", ".x", "a\nc", "abc\n"]  # fmt: skip
    glob = glob_regex(sqlglot.parse_one(f"'{pattern}'", read="duckdb")).sql("duckdb")
    for name in names:
        same, translated = con.execute(
            f"SELECT n GLOB $pattern, regexp_matches(n, {glob}) FROM (SELECT $name AS n)",
            {"pattern": pattern, "name": name},
        ).fetchone()
        assert same == translated, (pattern, name)


@pytest.mark.parametrize("pattern", ["[[]x[]]$", "a.b", "(?s)a.b", "[^]]+$", r"\ba|b[.]", "x|[a&]"])
def test_a_portable_regex_matches_the_same_texts(con, pattern):
    for text in ["[x]", "[x]\n", "a\nb", "acb", "]]a", "b.", "a&", "xx", ""]:
        same, translated = con.execute(
            "SELECT regexp_extract($text, $pattern), regexp_extract($text, $portable)",
            {"text": text, "pattern": pattern, "portable": portable_regex(pattern)},
        ).fetchone()
        assert same == translated, (pattern, text)
