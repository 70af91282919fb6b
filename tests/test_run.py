"""Parameters, execution and ad-hoc SQL."""

from pathlib import Path

import pytest

from bufdb.errors import BufdbError, UsageError
from bufdb.run import Result, bind, run_query, run_sql
from bufdb.saved_query import parse

QUERY = parse(
    """\
-- title: T
-- group: live
-- param top_n BIGINT = 20: N.
-- param share DOUBLE = NULL: S.
-- param function VARCHAR = NULL: F.
-- param deep BOOLEAN = false: D.
-- param frame VARCHAR = 'own' | 'leaf': F.
-- column top_n BIGINT: N.
SELECT
  coalesce(getvariable('top_n')::BIGINT, 20) AS top_n,
  getvariable('share')::DOUBLE AS share,
  getvariable('function')::VARCHAR AS function,
  coalesce(getvariable('deep')::BOOLEAN, FALSE) AS deep,
  coalesce(getvariable('frame')::VARCHAR, 'own') AS frame;
""",
    Path("top_temps.sql"),
)


def test_values_are_typed_and_bound(con):
    given = {"top_n": "-5", "share": "0.5", "function": "a'b; --", "deep": "TRUE", "frame": "leaf"}
    result = run_query(con, QUERY, bind(QUERY, given))
    assert result.rows == [(-5, 0.5, "a'b; --", True, "leaf")]
    types = [type_name for _, type_name in result.columns]
    assert types == ["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "VARCHAR"]


def test_parameters_not_given_keep_the_defaults_and_none_leaks(con):
    run_query(con, QUERY, bind(QUERY, {"top_n": "7", "deep": "1"}))
    assert run_query(con, QUERY, {}).rows == [(20, None, None, False, "own")]


def test_a_name_with_dashes_is_the_parameter_with_underscores():
    assert bind(QUERY, {"top-n": "1"}) == {"top_n": 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("top_n", "ten", "parameter top_n wants BIGINT, got 'ten'"),
        ("top_n", "9223372036854775808", "parameter top_n wants BIGINT, got '9223372036854775808'"),
        ("share", "half", "parameter share wants DOUBLE, got 'half'"),
        ("deep", "maybe", "parameter deep wants BOOLEAN, got 'maybe'"),
        ("frame", "up", "parameter frame is one of 'own', 'leaf', got 'up'"),
        ("top", "1", "no parameter 'top'; did you mean 'top_n'?"),
        ("zzz", "1", "no parameter 'zzz'; it has top_n, share, function, deep, frame"),
    ],
)
def test_a_wrong_parameter_is_told(name, text, message):
    with pytest.raises(UsageError) as error:
        bind(QUERY, {name: text})
    assert str(error.value) == f"top-temps: {message}"


def test_a_failing_query_is_one_line(con):
    broken = parse(QUERY.sql.replace("AS frame", "AS frame FROM nowhere"), QUERY.path)
    with pytest.raises(BufdbError) as error:
        run_query(con, broken, {})
    assert str(error.value).startswith("top-temps: Catalog Error: Table with name nowhere")
    assert "\n" not in str(error.value)


def test_explain_gives_a_plan_and_no_answer(con):
    result = run_query(con, QUERY, {}, explain=True)
    assert "Projection" in result.rows[0][1]


def test_adhoc_sql(con):
    assert run_sql(con, "SELECT 1 AS a, 'x' AS b") == Result(
        [("a", "INTEGER"), ("b", "VARCHAR")], [(1, "x")]
    )
    assert run_sql(con, "FROM runs").rows == []
    assert len(run_sql(con, "DESCRIBE runs").rows) == 5
    assert "Projection" in run_sql(con, "SELECT 1", explain=True).rows[0][1]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COPY (SELECT 1) TO 'x.csv'", "expected a SELECT, found COPY"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "expected a SELECT, found EXPLAIN"),
        ("DROP TABLE runs", "expected a SELECT, found DROP"),
        ("ATTACH 'x.duckdb'", "expected a SELECT, found ATTACH"),
        ("SELECT 1; SELECT 2", "expected one statement, a SELECT, found 2: SELECT, SELECT"),
        ("-- nothing", "expected one statement, a SELECT, found none"),
    ],
)
def test_adhoc_sql_only_reads(con, sql, message):
    with pytest.raises(UsageError, match=message):
        run_sql(con, sql)


def test_adhoc_sql_that_fails_is_one_line(con):
    for sql in ("SELECT 1 +", "SELECT nothing FROM runs", "SELECT 'a'::INTEGER"):
        with pytest.raises(BufdbError, match=r"^sql: .*Error: .*[^\n]$") as error:
            run_sql(con, sql)
        assert "\n" not in str(error.value)
