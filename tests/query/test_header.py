"""The header grammar and the catalogue."""

from pathlib import Path

import pytest

from bufdb.errors import UsageError
from bufdb.query import catalogue, header
from bufdb.query.catalogue import Catalogue, query_folders
from bufdb.query.header import GROUPS, Column, Parameter, QueryFileError, parse
from bufdb.resources import query_folder

HEADER = """\
-- title: Largest things
-- group: peak
-- engines: duckdb, spark
--
-- Why one asks,
-- on two lines.
--
-- A second paragraph.
--
-- wrong when: the moon
-- is full.
--
-- param top_n BIGINT = 20: Rows
--   to return.
-- param frame VARCHAR = 'own' | 'leaf': Which one.
-- param color BIGINT = NULL: Only this: space.
-- param share DOUBLE = -0.5: Share.
-- param deep BOOLEAN = true: Whether.
-- column name VARCHAR: Its name,
--   in full.
-- column size_bytes DECIMAL(18,3): Size [bytes].
"""
SQL = HEADER + "SELECT 1;\n"


def test_a_header_comes_apart():
    query = parse(SQL, Path("q/largest_things.sql"))
    assert query.name == "largest-things"
    assert (query.title, query.group) == ("Largest things", "peak")
    assert query.engines == ("duckdb", "spark")
    assert query.description == "Why one asks,\non two lines.\n\nA second paragraph."
    assert query.wrong_when == "the moon is full."
    assert query.params == (
        Parameter("top_n", "BIGINT", 20, (), "Rows to return."),
        Parameter("frame", "VARCHAR", "own", ("own", "leaf"), "Which one."),
        Parameter("color", "BIGINT", None, (), "Only this: space."),
        Parameter("share", "DOUBLE", -0.5, (), "Share."),
        Parameter("deep", "BOOLEAN", True, (), "Whether."),
    )
    assert query.columns == (
        Column("name", "VARCHAR", "Its name, in full."),
        Column("size_bytes", "DECIMAL(18,3)", "Size [bytes]."),
    )
    assert query.sql == SQL


def test_engines_and_prose_are_optional():
    query = parse("-- title: T\n-- group: store\n-- column x BIGINT: X.\nSELECT 1", Path("t.sql"))
    assert query.engines == ("duckdb",)
    assert query.description == ""
    assert query.wrong_when is None
    assert query.params == ()


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("-- title: Again", ":22", "a second 'title:' line"),
        ("-- param x INT = 1: X", ":22", "expected 'param NAME BIGINT|DOUBLE|VARCHAR|BOOLEAN"),
        ("-- param x BIGINT: X", ":22", "expected 'param NAME"),
        ("-- param x BIGINT = ten: X", ":22", "x: ten is not a BIGINT"),
        ("-- param x BOOLEAN = 7: X", ":22", "x: 7 is not a BOOLEAN"),
        ("-- param x VARCHAR = own: X", ":22", "x: own is not a VARCHAR"),
        ("-- param top_n BIGINT = 1: X", ":22", "a second param 'top_n'"),
        ("-- column Name VARCHAR: X", ":22", "expected 'column NAME TYPE: text'"),
        ("-- column name VARCHAR: X", ":22", "a second column 'name'"),
    ],
)
def test_a_malformed_line_is_an_error_with_file_and_line(line, place, message):
    with pytest.raises(QueryFileError) as error:
        parse(HEADER + line + "\nSELECT 1;\n", Path("q/t.sql"))
    assert str(error.value).startswith(f"q/t.sql{place}: {message}")


COMMON = """\
-- title: T
-- group: peak
-- param run, top_n = 7
-- param by VARCHAR = 'op' | 'line': Key.
-- column run_name,
--   color
-- column part VARCHAR: Part.
-- alias by-line = t -p by line -p top_n 3: part AS line, run_name
-- alias by-any = t -p by line|op
WITH parts AS (
  SELECT a, 'b, c' AS b FROM d
)
SELECT
  parts.run_name, coalesce(parts.b, (
    1
  )) AS color,
  replace(parts.a, 'x', 'y') AS part
FROM parts
ORDER BY parts.a;
"""


def test_names_alone_are_entries_that_many_queries_share():
    query = parse(COMMON, Path("t.sql"))
    known = header.common()
    assert query.params[0] == known["param", "run"]
    assert query.params[1] == known["param", "top_n"]._replace(default=7)
    assert query.columns[:2] == (known["column", "run_name"], known["column", "color"])


def test_an_alias_is_the_query_with_other_defaults_and_columns():
    query = parse(COMMON, Path("t.sql"))
    line, every = (query.under(alias.name) for alias in query.aliases)
    assert (line.name, line.alias.text) == ("by-line", "t -p by line -p top_n 3")
    assert line.title == f"{query.title} (by line, top_n 3)", (
        "which the report lists next to others"
    )
    assert [(param.name, param.default, param.choices) for param in line.params] == [
        ("run", None, ()),
        ("top_n", 3, ()),
        ("by", "line", ("line",)),
    ]
    assert line.columns == (Column("line", "VARCHAR", "Part."), query.columns[0])
    assert line.sql == (
        "-- by-line: t -p by line -p top_n 3\n"
        "WITH parts AS (\n  SELECT a, 'b, c' AS b FROM d\n)\n"
        "SELECT\n  replace(parts.a, 'x', 'y') AS line,\n  parts.run_name\n"
        "FROM parts\nORDER BY parts.a;\n"
    )
    assert line.with_settings({"run": "a", "by": None, "top_n": 5}) == {
        "run": "a", "by": "line", "top_n": 5
    }  # fmt: skip
    assert query.unasked_columns({"by": "line"}) == {"color"}
    assert query.unasked_columns({}) == line.unasked_columns({}) == set()
    assert (every.columns, every.params[2].choices) == (query.columns, ("line", "op"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("param run,", "param rum,", "3: param rum is not in header.sql: expected its type"),
        ("top_n = 7", "top_n = x", "3: top_n: x is not a BIGINT"),
        ("run_name,", "run_name = 1,", "5: column run_name is not in header.sql"),
        ("= t -p by line -", "= u -p by line -", "8: expected 'alias NAME = t -p NAME VALUE"),
        ("-p by line -p", "-p by shape -p", "8: alias by-line: the query takes no -p by shape"),
        ("-p top_n 3", "-p top 3", "8: alias by-line: the query takes no -p top 3"),
    ],
)
def test_what_is_neither_declared_nor_shared_is_reported(old, new, message):
    with pytest.raises(QueryFileError) as error:
        parse(COMMON.replace(old, new, 1), Path("t.sql"))
    assert message in str(error.value)


def test_an_alias_is_found_and_hides_no_query(tmp_path):
    for folder, name in (("a", "t"), ("b", "by_line")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.sql").write_text(COMMON.replace("= t", f"= {name}"))
    catalog = Catalogue([tmp_path / "a", tmp_path / "b"])
    assert catalog.find("by_line").alias.text == "t -p by line -p top_n 3"
    assert [query.name for query in catalog.load_all()] == ["t"]
    assert [str(clash).partition(": ")[2] for clash in catalog.clashes] == [
        f"left out, for {tmp_path / 'a' / 't.sql'} is named '{name}' too; rename it"
        for name in ("by-line", "by-line", "by-any")
    ]


def test_former_groups_of_a_users_queries_are_known():
    assert parse(SQL.replace("group: peak", "group: waste"), Path("t.sql")).group == "saving"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- group: peak\n-- column x BIGINT: X\nSELECT 1", "expected a header line '-- title: …'"),
        ("-- title: T\n-- column x BIGINT: X\nSELECT 1", "expected a header line '-- group: …'"),
        ("-- title: T\n-- group: peak\nSELECT 1", "expected a header line '-- column NAME TYPE"),
        ("-- title: T\n-- group: odd\n-- column x BIGINT: X\nSELECT 1", "expected group peak"),
        ("-- title: T\n-- group: peak\n-- column x BIGINT: X\n\n", "expected a SELECT below"),
        (HEADER.replace("spark", "oracle") + "SELECT 1", "expected engine duckdb | spark"),
        ("", "expected a SELECT below"),
    ],
)
def test_what_is_missing_is_reported(text, message):
    with pytest.raises(QueryFileError, match=message.replace("|", "[|]")):
        parse(text, Path("t.sql"))


def test_a_file_name_with_dashes_is_refused():
    with pytest.raises(QueryFileError, match="snake_case"):
        parse(SQL, Path("largest-things.sql"))


def test_a_query_is_found_with_dashes_or_underscores(tmp_path):
    (tmp_path / "largest_things.sql").write_text(SQL)
    catalogue = Catalogue([tmp_path])
    assert catalogue.find("largest-things") == catalogue.find("largest_things")


def test_a_misspelling_gets_a_suggestion(tmp_path):
    (tmp_path / "largest_things.sql").write_text(SQL)
    with pytest.raises(UsageError) as error:
        Catalogue([tmp_path]).find("largest-thing")
    assert str(error.value) == (
        "no saved query 'largest-thing'; did you mean 'largest-things'? 'bufdb queries' lists them"
    )
    with pytest.raises(UsageError, match="no saved query 'xyz'; 'bufdb queries' lists them"):
        Catalogue([tmp_path]).find("xyz")


def test_the_second_of_two_files_of_one_name_is_a_problem(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.sql").write_text(SQL)
    (tmp_path / "b" / "other.sql").write_text(SQL)
    (tmp_path / "b" / "damaged.sql").write_text("SELECT 1")
    catalogue = Catalogue([tmp_path / "a", tmp_path / "b"])
    first, second = (tmp_path / folder / "same.sql" for folder in ("a", "b"))
    assert catalogue.find("same").path == first
    assert [query.name for query in catalogue.load_all()] == ["other", "same"]
    clash, damaged = map(str, catalogue.problems())
    assert clash == f"{second}: left out, for {first} is named 'same' too; rename it"
    assert damaged.startswith(f"{tmp_path / 'b' / 'damaged.sql'}:1: expected a header line")


def test_one_folder_named_twice_is_no_conflict(tmp_path):
    (tmp_path / "same.sql").write_text(SQL)
    assert list(Catalogue([tmp_path, tmp_path / "." / ""]).paths) == ["same"]


def test_query_folders_come_from_four_places(tmp_path):
    for name in ("option", "env1", "env2", "config/bufdb/queries"):
        (tmp_path / name).mkdir(parents=True)
    environ = {
        "BUFDB_QUERIES": f"{tmp_path / 'env1'}:{tmp_path / 'env2'}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    folders = query_folders([tmp_path / "option"], environ)
    assert (folders[0] / "top_temps.sql").is_file()
    names = ["option", "env1", "env2", "config/bufdb/queries"]
    assert folders[1:] == [tmp_path / name for name in names]
    (tmp_path / "home" / ".config" / "bufdb" / "queries").mkdir(parents=True)
    home = query_folders([], {"HOME": str(tmp_path / "home")})
    assert home[1:] == [tmp_path / "home" / ".config" / "bufdb" / "queries"]
    assert len(query_folders([], {"HOME": str(tmp_path)})) == 1


def test_a_named_folder_must_exist(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        query_folders([tmp_path / "none"], {})


def test_the_whole_catalogue_comes_in_order_of_groups(tmp_path):
    for name, group in (("b", "peak"), ("a", "store"), ("c", "peak")):
        (tmp_path / f"{name}.sql").write_text(SQL.replace("group: peak", f"group: {group}"))
    assert [query.name for query in Catalogue([tmp_path]).load_all()] == ["b", "c", "a"]


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    (tmp_path / "odd.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(QueryFileError, match="cannot read the query"):
        catalogue.load(tmp_path / "odd.sql")


def test_shipped_files_name_groups_of_the_grammar():
    """Former names are for files of users."""
    named = {
        path.name: line.removeprefix("-- group: ")
        for path in query_folder().rglob("*.sql")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("-- group: ")
    }
    assert len(named) > 80
    assert {name: group for name, group in named.items() if group not in GROUPS} == {}
