"""Parameters, execution and ad-hoc SQL."""

import json
from pathlib import Path

import pytest

from bufdb.errors import BufdbError, UsageError
from bufdb.query.execute import ANSWER, bind, execute_query, execute_sql, sql_as_table
from bufdb.query.header import parse
from bufdb.query.result import Result
from bufdb.render import FORMATS
from bufdb.render.formats import render

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
    params = {"top_n": "-5", "share": "0.5", "function": "a'b; --", "deep": "TRUE", "frame": "leaf"}
    result = execute_query(con, QUERY, bind(QUERY, params))
    assert result.rows == [(-5, 0.5, "a'b; --", True, "leaf")]
    types = [type_name for _, type_name in result.columns]
    assert types == ["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "VARCHAR"]


def test_parameters_not_given_keep_the_defaults_and_none_leaks(con):
    execute_query(con, QUERY, bind(QUERY, {"top_n": "7", "deep": "1"}))
    assert execute_query(con, QUERY, {}).rows == [(20, None, None, False, "own")]


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
def test_a_wrong_parameter_is_reported(name, text, message):
    with pytest.raises(UsageError) as error:
        bind(QUERY, {name: text})
    assert str(error.value) == f"top-temps: {message}"


def test_a_failing_query_is_one_line(con):
    broken = parse(QUERY.sql.replace("AS frame", "AS frame FROM nowhere"), QUERY.path)
    with pytest.raises(BufdbError) as error:
        execute_query(con, broken, {})
    assert str(error.value).startswith("top-temps: Catalog Error: Table with name nowhere")
    assert "\n" not in str(error.value)


def test_explain_gives_a_plan_and_no_answer(con):
    result = execute_query(con, QUERY, {}, explain=True)
    assert "Projection" in result.rows[0][1]


def test_adhoc_sql(con):
    assert execute_sql(con, "SELECT 1 AS a, 'x' AS b") == Result(
        [("a", "INTEGER"), ("b", "VARCHAR")], [(1, "x")]
    )
    assert execute_sql(con, "FROM runs").rows == []
    assert len(execute_sql(con, "DESCRIBE runs").rows) == 5
    assert "Projection" in execute_sql(con, "SELECT 1", explain=True).rows[0][1]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("COPY (SELECT 1) TO 'x.csv'", "expected a SELECT, found COPY"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "expected a SELECT, found EXPLAIN"),
        ("DROP TABLE runs", "expected a SELECT, found DROP"),
        ("ATTACH 'x.duckdb'", "expected a SELECT, found ATTACH"),
        ("-- \xe9\n/* LOAD */ install httpfs", "expected a SELECT, found INSTALL"),
        ("SELECT 1; SELECT 2", "expected one statement, a SELECT, found 2: SELECT, SELECT"),
        ("-- nothing", "expected one statement, a SELECT, found none"),
    ],
)
def test_adhoc_sql_only_reads(con, sql, message):
    with pytest.raises(UsageError, match=message):
        execute_sql(con, sql)


def test_a_pivot_needs_its_values(con):
    with pytest.raises(UsageError, match=r"found PIVOT without its values \(ON … IN \(…\)\)"):
        execute_sql(con, "PIVOT runs ON run_name USING count(*)")
    assert execute_sql(con, "PIVOT runs ON run_name IN ('a') USING count(*)").rows == []


def test_an_answer_can_be_a_table(fresh):
    con = fresh()
    for sql, count in (("SELECT 1", 1), ("DESCRIBE runs", 5), ("; SELECT 'é;' AS x; -- é;", 1)):
        assert sql_as_table(con, sql) == count
        assert len(con.execute(f"FROM temp.main.{ANSWER}").fetchall()) == count
        con.execute(f"DROP TABLE temp.main.{ANSWER}")


def test_adhoc_sql_that_fails_is_one_line(con):
    for sql in ("SELECT 1 +", "SELECT nothing FROM runs", "SELECT 'a'::INTEGER"):
        with pytest.raises(BufdbError, match=r"^sql: .*Error: .*[^\n]$") as error:
            execute_sql(con, sql)
        assert "\n" not in str(error.value)


def cell(con, sql, format_name):
    return render(execute_sql(con, f"SELECT {sql} AS a"), format_name)[0]


@pytest.mark.parametrize(
    ("sql", "text", "in_json"),
    [
        ("TIMESTAMPTZ '2026-01-02 03:04:05+00'", "2026-01-02 03:04:05+00", None),
        ("TIMESTAMP '2026-01-02 03:04:05'", "2026-01-02 03:04:05", None),
        ("TIMESTAMP_NS '2026-01-02 03:04:05.123456789'", "2026-01-02 03:04:05.123456789", None),
        ("TIMESTAMP 'infinity'", "infinity", None),
        ("DATE '-infinity'", "-infinity", None),
        ("DATE '9999-12-31'", "9999-12-31", None),
        ("DATE '12026-01-02'", "12026-01-02", None),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)", None),
        ("TIME '24:00:00'", "24:00:00", None),
        ("TIMETZ '03:04:05+02'", "03:04:05+02", None),
        ("INTERVAL 1 MONTH", "1 month", None),
        ("INTERVAL '400 days 1 hour'", "400 days 01:00:00", None),
        ("'a\\xFFb'::BLOB", "a\\xFFb", None),
        ("'0101'::BIT", "0101", None),
        ("'00000000-0000-0000-0000-00000000000f'::UUID",)
        + 2 * ("00000000-0000-0000-0000-00000000000f",),
        ("0.0000001::DECIMAL(18, 10)", "0.0000001000", None),
        ("(2::HUGEINT << 100)", str(2**101), 2**101),
        ("'NaN'::DOUBLE", "nan", ...),
        ("[1, NULL]", "[1, null]", [1, None]),
        ("{'a': now() - now(), 'b b': 1}", '{"a": "00:00:00", "b b": 1}', ...),
        ("[[DATE 'infinity'], NULL]", '[["infinity"], null]', [["infinity"], None]),
        ("MAP {1: INTERVAL 1 DAY}", '{"1": "1 day"}', {"1": "1 day"}),
        ("MAP {[1]: 'x'}", "{[1]=x}", None),
        ("MAP {TRUE: 1}", '{"true": 1}', {"true": 1}),
        ("union_value(k := DATE 'infinity')", "infinity", None),
        ("'x'::ENUM ('x', 'y')", "x", None),
        ("NULL", None, ...),
    ],
)
def test_values_that_python_lacks_come_as_duckdbs_text(con, sql, text, in_json):
    con.execute("SET TimeZone = 'UTC'")
    csv = (
        ""
        if text is None
        else f'"{text.replace(chr(34), chr(34) * 2)}"'
        if "," in text or ('"' in text)
        else text
    )
    assert cell(con, sql, "csv") == f"a\n{csv}\n"
    shown = cell(con, sql, "table").splitlines()[-1].strip()
    assert shown == ("-" if text is None else text)
    if in_json is not ...:
        (row,) = json.loads(cell(con, sql, "json"))
        assert row == {"a": text if in_json is None else in_json}
    assert cell(con, sql, "jsonl") and cell(con, sql, "markdown")


def test_every_type_of_duckdb_renders_in_every_format(con):
    for format_name in FORMATS:
        text = render(execute_sql(con, "FROM test_all_types()"), format_name)[0]
        assert "290309-12-22 (BC)" in text
    rows = json.loads(render(execute_sql(con, "FROM test_all_types()"), "json")[0])
    (expected,) = con.execute(
        'SELECT list({timestamp_tz: timestamp_tz::VARCHAR, interval: "interval"::VARCHAR, '
        "date_array: date_array::VARCHAR[]}) FROM test_all_types()"
    ).fetchall()[0]
    assert [{name: row[name] for name in expected[0]} for row in rows] == expected


def test_an_answer_as_text_keeps_order_and_names(con):
    sql = "SELECT i, i, now() AS i FROM range(5000) AS t (i) ORDER BY hash(i); -- a comment"
    result = execute_sql(con, sql)
    expected = con.execute("SELECT i FROM range(5000) AS t (i) ORDER BY hash(i)").fetchall()
    assert [row[:1] for row in result.rows] == expected
    assert [name for name, _ in result.columns] == ["i", "i", "i"]
    assert result.columns[2][1] == "TIMESTAMP WITH TIME ZONE"
