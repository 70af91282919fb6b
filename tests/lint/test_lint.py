"""Header, SQL and catalog held together; the portable subset."""

import pytest
import sqlglot

from bufdb import resources
from bufdb.lint import lint, portable
from bufdb.query import header

GOOD = """\
-- title: Biggest modules
-- group: store
--
-- param top_n BIGINT = 20: Rows.
-- param run VARCHAR = NULL: A glob.
-- param least BIGINT = -1: Smallest size.
-- column run_name VARCHAR: The run.
-- column total_bytes HUGEINT: Sum [bytes].
WITH params AS (
  SELECT
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n,
    getvariable('run')::VARCHAR AS run,
    coalesce(getvariable('least')::BIGINT, -1) AS least
)
SELECT memory_figures.run_name, memory_figures.total_bytes
FROM memory_figures
CROSS JOIN params
WHERE (params.run IS NULL OR memory_figures.run_name GLOB params.run)
  AND memory_figures.total_bytes >= params.least
ORDER BY memory_figures.total_bytes DESC, memory_figures.module_id
LIMIT (SELECT top_n FROM params);
"""


def findings(con, tmp_path, text):
    path = tmp_path / "biggest_modules.sql"
    path.write_text(text)
    return [str(finding).removeprefix(str(tmp_path) + "/") for finding in lint.lint(con, path)]


def test_a_good_query_has_no_findings(con, tmp_path):
    assert findings(con, tmp_path, GOOD) == []


@pytest.mark.by_hand  # `bufdb lint` checks all on each commit
@pytest.mark.parametrize(
    "path", sorted(resources.query_folder().glob("*.sql")), ids=lambda p: p.stem
)
def test_the_queries_that_come_with_bufdb(con, path):
    assert [str(finding) for finding in lint.lint(con, path)] == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: ", "titel: ", "1: expected a header line '-- title: …'"),
        ("top_n BIGINT = 20", "top_n BIGINT = 2O", "4: top_n: 2O is not a BIGINT"),
        ("memory_figures.total_bytes\n", "memory_figures.total\n", "does not have a column"),
        ("total_bytes HUGEINT", "total_bytes BIGINT", "column total_bytes HUGEINT has no col"),
        ("total_bytes HUGEINT", "sum_bytes HUGEINT", "column line sum_bytes HUGEINT: the query"),
        ("20) AS top_n", "21) AS top_n", "param top_n: default is 20 in its line, 21 in params"),
        ("run VARCHAR = NULL", "run VARCHAR = 'x'", "param run: default is 'x' in its line, None"),
        ("20) AS top_n", "true) AS top_n", "default is 20 in its line, True in params"),
        ("20) AS top_n", "2 * 10) AS top_n", "default is 20 in its line, None in params"),
        ("-1) AS least", "-'1') AS least", "default is -1 in its line, None in params"),
        ("top_n')::BIGINT", "top_n')::DOUBLE", "expected getvariable('top_n')::BIGINT in the CTE"),
        ("getvariable('run')", "getvariable('rum')", "param run: expected getvariable('run')::VAR"),
        ("-- param run VARCHAR = NULL: A glob.\n", "", "run is in the CTE params without a"),
        ("    getvariable('run')::VARCHAR AS run,\n", "", "param run is declared, but not in"),
        ("  AND memory_figures.total_bytes >= params.least\n", "", "param least is not used"),
        ("WITH params", "WITH inputs", "the first CTE must be params"),
        (">= params.least", ">= params.least + getvariable('x')", "outside the CTE params"),
        ("ORDER BY memory_figures.total_bytes DESC, memory_figures.module_id\n", "", "no final O"),
        ("SELECT memory_figures.run_name, memory_figures.total_bytes", "SELECT *", "list the"),
        ("WITH params", "DELETE FROM runs; WITH params", "expected one SELECT, found DELETE, SEL"),
        ("SELECT memory_figures.run_name, memory_figures.total_bytes\nFROM memory_figures",
         "SELECT run_name, total_bytes FROM values", 'write "values" for the table'),
        ("FROM memory_figures", "FROM _figures AS memory_figures", "_figures is a helper"),
        ("ORDER BY memory_figures.total_bytes DESC", "ORDER BY BY", "Parser Error: syntax"),
        ("WHERE (params", "WHERE ((params", "does not parse: Expecting )"),
        ("A glob.", "A glob." + " " * 90 + "x", "5: longer than 100 characters"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_found(con, tmp_path, old, new, message):
    assert old in GOOD
    messages = findings(con, tmp_path, GOOD.replace(old, new))
    assert any(message in finding for finding in messages), messages
    assert all(finding.startswith("biggest_modules.sql:") for finding in messages)


def test_column_lines_in_another_order_are_found(con, tmp_path):
    lines = GOOD.splitlines(keepends=True)
    text = "".join([*lines[:6], lines[7], lines[6], *lines[8:]])
    assert findings(con, tmp_path, text) == [
        "biggest_modules.sql: the column lines are not in the query's order: run_name, total_bytes"
    ]


def test_statements_that_write_are_refused(con, tmp_path):
    header = "-- title: T\n-- group: runs\n-- column x BIGINT: X\n"
    for sql in ("CREATE TABLE t (x BIGINT)", "INSERT INTO runs SELECT 1", "COPY runs TO 'x'"):
        assert "expected one SELECT" in findings(con, tmp_path, header + sql)[0]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT [1, 2] AS x ORDER BY 1", "Array is not in the portable subset"),
        ("SELECT t.* FROM t", "list the columns"),
        ("SELECT substr(t.x, -2, 1) AS q FROM t", "substr from 1, with a length"),
        ("SELECT {'a': 1} AS x", "Struct is not in the portable subset"),
        ("SELECT first(x ORDER BY x) AS x FROM t AS t", "is not in the portable subset"),
        ("SELECT t.x FROM t ORDER BY ALL", "name the columns; no ALL"),
        ("SELECT t.x, count(*) AS n FROM t GROUP BY ALL", "name the columns to group by"),
        ("SELECT t.x FROM t GROUP BY 1", "name the columns, not their numbers"),
        ("SELECT DISTINCT ON (t.x) t.x FROM t", "no DISTINCT ON"),
        ("SELECT t.x FROM t JOIN u USING (x)", "join with ON; no USING"),
        ("SELECT t.x FROM t, u", "join with ON or CROSS JOIN"),
        ("SELECT t.x FROM t ASOF JOIN u ON t.x >= u.x", "no USING, NATURAL or ASOF"),
        ("SELECT t.x FROM (SELECT 1 AS x)", "a subquery needs a name"),
        ("SELECT t.x AS y FROM t WHERE y > 1", "y is an alias"),
        ("SELECT t.x / t.y AS q FROM t", "divide by nullif(y, 0)"),
        ("SELECT pow(t.x, t.y) AS q FROM t", "the power is a whole number"),
        ("SELECT pow(t.x, 0.5) AS q FROM t", "the power is a whole number"),
        ("SELECT sqrt(t.x) AS q FROM t", "take the root of greatest(x, 0)"),
        ("SELECT sqrt(greatest(t.x, t.y)) AS q FROM t", "take the root of greatest(x, 0)"),
        ("SELECT t.xs[t.y] AS q FROM t", "a place in a list is a number written out"),
        ("SELECT t.xs[-1] AS q FROM t", "a place in a list is a number written out"),
        ("SELECT (t.x, t.y) AS q FROM t", "a row of values is only for VALUES or count"),
        ("SELECT max((t.x, t.y)) AS q FROM t", "a row of values is only for VALUES or count"),
        ("SELECT CAST(t.x AS INTEGER) AS q FROM t", "no cast to INT"),
        ("SELECT TRY_CAST(t.x AS INTEGER) AS q FROM t", "no cast to INT"),
        ("SELECT TRY_CAST(t.xs AS INTEGER[]) AS q FROM t", "no cast to INT[]"),
        ("SELECT CAST(t.x AS BIGINT) AS q FROM t", "a fraction is rounded here"),
        ("SELECT TRY_CAST(round(t.x) AS BIGINT) AS q FROM t", "a fraction is rounded here"),
        ("SELECT CAST(floor(t.x) AS BIGINT) AS q FROM t", "a fraction is rounded here"),
        ("SELECT regexp_matches(t.x, '\\d') AS q FROM t", "no backslash in a literal"),
        ("SELECT sum(t.x) OVER (ORDER BY t.x) AS q FROM t", "write the frame"),
        ("SELECT sum(t.x) OVER (ORDER BY t.x RANGE UNBOUNDED PRECEDING) AS q FROM t", "no RANGE"),
        ("SELECT list_transform(t.x, v -> v + 1) AS q FROM t", "is not in the portable subset"),
        ("SELECT t.x FROM t LIMIT (SELECT max(u.x) FROM u)", "a LIMIT is a number or"),
        ("SELECT jit_path(t.x) AS q FROM t", "Anonymous is not in the portable subset"),
        ("PIVOT t ON x", "is not in the portable subset"),
    ],
)
def test_what_is_not_portable_is_found(sql, message):
    messages = portable.findings(sqlglot.parse_one(sql, read="duckdb"))
    assert any(message in finding for finding in messages), messages


@pytest.mark.slow
def test_the_subset_is_asked_for_only_where_it_is_claimed(con, tmp_path):
    text = GOOD.replace("AS run,", "AS run,").replace(
        "memory_figures.total_bytes\n",
        "memory_figures.total_bytes::FLOAT::HUGEINT AS total_bytes\n",
    )
    assert findings(con, tmp_path, text) == []
    claimed = text.replace("-- group", "-- engines: duckdb, spark\n-- group")
    assert "no cast to" in findings(con, tmp_path, claimed)[0]


ASKED = """\
-- title: Functions
-- group: store
-- engines: duckdb, spark
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), or a module's largest space if it holds nothing there.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- column run_name VARCHAR: The run.
SELECT asked_functions.run_name
FROM asked_functions
ORDER BY asked_functions.run_name, asked_functions.module_id;
"""


def test_a_parameter_can_be_read_by_a_view(con, tmp_path):
    assert findings(con, tmp_path, ASKED) == []
    start, end = ASKED.index("-- param color"), ASKED.index("-- param module")
    without = ASKED[:start] + ASKED[end:]
    assert "a view reads the variable color" in findings(con, tmp_path, without)[0]
    other = ASKED.replace("color VARCHAR = NULL", "color BIGINT = 0")
    assert "a view reads it as VARCHAR = NULL" in findings(con, tmp_path, other)[0]


def test_filter_parameters_come_first_in_one_wording(tmp_path):
    params = list(header.parse(ASKED, tmp_path / "functions.sql").params)
    assert list(lint.filter_findings(params)) == []
    assert list(lint.filter_findings(params[::2])) == []
    start, end = ASKED.index("Memory space"), ASKED.index("-- param module")
    every = f"{ASKED[:start]}{lint.EVERY_SPACE}\n{ASKED[end:]}"
    of_all = header.parse(every, tmp_path / "functions.sql")
    assert list(lint.filter_findings(of_all.params)) == []
    other = header.parse(ASKED.replace("own memory", "memory"), tmp_path / "functions.sql")
    for wrong in (params[::-1], [header.Parameter("n", "BIGINT", 1, (), "N."), *params],
                  other.params):  # fmt: skip
        assert "the first param line must be: param run" in next(lint.filter_findings(wrong))


def test_the_columns_of_an_alias_are_held_to_the_query(con, tmp_path):
    alias = "-- alias sums = biggest-modules -p top_n 1: total_bytes AS sum_bytes\nWITH params"
    text = GOOD.replace("WITH params", alias)
    assert findings(con, tmp_path, text) == []
    (finding,) = findings(con, tmp_path, text.replace(": total_bytes AS", ": bytes AS"))
    assert finding.endswith("alias sums: there is no column bytes")


def test_a_common_entry_in_full_is_found():
    query = header.parse(ASKED, resources.query_folder() / "functions.sql")
    messages = list(lint._repeated(query))
    assert messages[0] == "param run is a common one: write 'param run'"
    assert len(messages) == 6


@pytest.mark.parametrize(
    ("name", "text", "unit"),
    [
        ("peak_bytes", "Peak.", "[bytes]"),
        ("end_time", "Last such instant.", "[program order]"),
        ("byte_steps", "Size times life.", "x program order]"),
        ("peak_ratio", "Share.", "(0 to 1) or divided by"),
        ("dumped_at", "When.", "[UTC]"),
    ],
)
def test_the_text_of_a_quantity_says_its_unit(name, text, unit):
    column = header.Column(name, "BIGINT", text)
    message = f"column line {name}: its text must say {unit}"
    assert list(lint.unit_findings([column])) == [message]
    good = header.Column(name, "BIGINT", f"{text} {unit}")
    assert list(lint.unit_findings([good, header.Column("color", "BIGINT", "x")])) == []
