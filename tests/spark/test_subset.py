"""Constructs that the portable subset accepts by a special rule give one answer on each engine."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot
from engine_claims import comparable

from bufdb.errors import BufdbError
from bufdb.lint import portable, translate
from bufdb.query import execute, header
from bufdb.spark import tables

HEAD = "-- title: T\n-- group: overview\n-- column x {kind}: X.\n"


def saved(sql, kind, tmp_path):
    tree = sqlglot.parse_one(sql, read="duckdb")
    assert portable.findings(tree) == []
    return header.parse(HEAD.format(kind=kind) + sql, tmp_path / "q.sql")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        # Places in a list: from 1 on, NULL beyond its end and in what is no list.
        ("SELECT string_split('a,b', ',')[1] AS x", "VARCHAR"),
        ("SELECT string_split('a,b', ',')[3] AS x", "VARCHAR"),
        ("SELECT TRY_CAST(string_split('8,x', ',') AS DOUBLE[])[1] AS x", "DOUBLE"),
        # Whole powers, of what is below 0 too; too large is not finite.
        ("SELECT pow(t.y, 2) AS x FROM (VALUES (3.5), (-1e9), (0)) AS t(y) ORDER BY t.y", "DOUBLE"),
        ("SELECT pow(t.y, 3) AS x FROM (VALUES (3.5), (-1e9), (0)) AS t(y) ORDER BY t.y", "DOUBLE"),
        ("SELECT isfinite(pow(1e200, 2)) AS x", "BOOLEAN"),
        ("SELECT isfinite(CAST(t.y AS DOUBLE)) AS x FROM (VALUES (1, '1e308'), (2, 'inf'), "
         "(3, '-inf'), (4, 'nan'), (5, NULL)) AS t(n, y) ORDER BY t.n", "BOOLEAN"),
        ("SELECT sqrt(greatest(t.y, 0)) AS x FROM (VALUES (2.0), (-2.0), (0.0)) AS t(y) "
         "ORDER BY t.y", "DOUBLE"),
        # Whole numbers of floating point: down to the next, NULL beyond the type.
        ("SELECT TRY_CAST(floor(t.y) AS BIGINT) AS x FROM (VALUES (-1.5), (2.5), (1e17), (1e30), "
         "(-1e30)) AS t(y) ORDER BY t.y", "BIGINT"),
        ("SELECT TRY_CAST(ceil(t.y) AS BIGINT) AS x FROM (VALUES (-1.5), (2.5)) AS t(y) "
         "ORDER BY t.y", "BIGINT"),
        ("SELECT TRY_CAST(floor(CAST(t.y AS DOUBLE)) AS BIGINT) AS x FROM (VALUES (1, 'inf'), "
         "(2, 'nan'), (3, '9223372036854775807')) AS t(n, y) ORDER BY t.n", "BIGINT"),
        ("SELECT TRY_CAST(round(t.y) AS HUGEINT) AS x FROM (VALUES (2.5), (-2.5), (1e20), (1e300)) "
         "AS t(y) ORDER BY t.y", "HUGEINT"),
        # Division is floating point, whatever is divided.
        ("SELECT t.y / nullif(t.z, 0) AS x FROM (VALUES (1, 3), (1, 0), (7, 2)) AS t(y, z) "
         "ORDER BY t.y, t.z", "DOUBLE"),
        ("SELECT sum(t.y) / nullif(count(*), 0) AS x FROM (VALUES (1), (2)) AS t(y)", "DOUBLE"),
        # Rows of values: as many as differ, NULL is a value among them.
        ("SELECT count(DISTINCT (t.y, t.z)) AS x FROM (VALUES (1, 1), (1, 2), (1, 2), (1, NULL), "
         "(NULL, NULL)) AS t(y, z)", "BIGINT"),
    ],
)  # fmt: skip
def test_the_engines_say_the_same(connection, tmp_path, sql, kind):
    query = saved(sql, kind, tmp_path)
    with duckdb.connect() as con:
        expected = execute.execute_query(con, query, {}).rows
    assert comparable(tables.answer(connection[1], query, {}).rows) == comparable(expected)


def test_an_error_stops_each_engine(connection, tmp_path):
    sql = "SELECT CASE WHEN t.y > 1 THEN error('too many') END AS x FROM (VALUES ({})) AS t(y)"
    fine = saved(sql.format(1), "VARCHAR", tmp_path)
    assert tables.answer(connection[1], fine, {}).rows == [(None,)]
    with pytest.raises(BufdbError, match="too many"):
        tables.answer(connection[1], saved(sql.format(2), "VARCHAR", tmp_path), {})


def test_a_part_that_fails_says_why(connection, tmp_path, monkeypatch):
    query = saved("SELECT 1 AS x", "INTEGER", tmp_path)
    parts = [("one", "SELECT raise_error('of the part') AS x"), ("", "SELECT x FROM one")]
    monkeypatch.setattr(translate, "parts", lambda query, dialect: parts)
    with pytest.raises(BufdbError, match="of the part"):
        tables.answer(connection[1], query, {})
