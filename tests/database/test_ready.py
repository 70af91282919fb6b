"""The ready-made database: kept next to compiled code, or made in memory where it cannot be."""

import os

import duckdb
import pytest

from bufdb import resources
from bufdb.database import definitions, ready, store

VERSION = store.SCHEMA_VERSION


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder of the test's own."""
    monkeypatch.setattr(ready, "_FOLDER", tmp_path / "cache" / "bufdb")
    return tmp_path / "cache" / "bufdb"


def tables(con):
    with ready.attached_schema(con, VERSION):
        sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = ? ORDER BY ALL"
        return [name for (name,) in con.execute(sql, [ready.READY]).fetchall()]


@pytest.mark.slow
def test_it_is_made_once_and_again_if_it_is_damaged(cache):
    with duckdb.connect() as con:
        assert tables(con) == sorted(definitions.tables())
        (file,) = cache.iterdir()
        made = file.stat()
        assert tables(con) == sorted(definitions.tables())
        assert file.stat().st_mtime_ns == made.st_mtime_ns
        file.write_bytes(file.read_bytes()[:5000])
        assert tables(con) == sorted(definitions.tables())
    assert [path.stat().st_size for path in cache.iterdir()] == [made.st_size]


def names(con, question):
    """Return the tables, views and macros of the one for a question."""
    with ready.attached_schema(con, VERSION, question):
        parts = (
            f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE database_name = ? AND NOT internal"
            for kind in ("table", "view", "function")
        )
        sql = " UNION ".join(parts)
        return {name for (name,) in con.execute(sql, [ready.VIEWS] * 3).fetchall()}


def test_one_for_a_question_has_what_the_question_needs(cache):
    question = "SELECT place FROM answered_functions"
    needed = definitions.views(question, comments=False).keys()
    with duckdb.connect() as con:
        for _ in range(2):
            assert names(con, question) == {*needed, "empty_answered_functions", *ready.WITHIN}
        assert len([*cache.iterdir()]) == 2  # one has what any question needs
        cache.rename(cache.with_name("before"))
        cache.touch()  # nothing can be written
        assert names(con, question) == {*needed, "empty_answered_functions", *ready.WITHIN}


def test_one_for_a_question_has_columns_and_own_rows_of_all(cache):
    tables = sorted(definitions.CONSTANT)
    with duckdb.connect() as con:
        with ready.attached_schema(con, VERSION):
            rows = [con.execute(f"FROM {ready.READY}.{table}").fetchall() for table in tables]
            listed = con.execute(ready.own_columns(ready.READY)).fetchall()
            columns = [row for row in listed if row[0] in definitions.tables()]
        with ready.attached_schema(con, VERSION, "SELECT place FROM answered_functions"):
            own = f"{ready.VIEWS}.{ready.OWN}"
            assert rows == [con.execute(f"FROM {own}.{name}").fetchall() for name in tables]
            assert con.execute(f"FROM {own}.{ready.COLUMNS}").fetchall() == columns
    assert all(rows)


def test_an_interrupt_while_it_is_made_is_no_missing_file(cache, monkeypatch):
    furnish, calls = ready._furnish, []

    def interrupted(con, version, question):
        calls.append(con)
        if len(calls) == 1:
            raise RuntimeError("Query interrupted")  # what DuckDB makes of ^C
        furnish(con, version, question)

    monkeypatch.setattr(ready, "_furnish", interrupted)
    with duckdb.connect() as con, pytest.raises(RuntimeError, match="interrupted"):
        tables(con)
    assert not [*cache.iterdir()]


def test_its_name_changes_with_a_file_of_the_schema(tmp_path, monkeypatch):
    folder = tmp_path / "views"
    folder.mkdir()
    monkeypatch.setattr(resources, "schema_folders", lambda *_: [folder])
    marks = []
    for name, text, time in (
        ("a", "1", 1),
        ("a", "1", 2),
        ("a", "12", 2),
        ("b", "", 2),
        ("b", "", 2),
    ):
        (folder / f"{name}.sql").write_text(text)
        os.utime(folder / f"{name}.sql", ns=(time, time))
        definitions.schema_mark.cache_clear()
        marks.append(definitions.schema_mark())
    definitions.schema_mark.cache_clear()
    assert len(set(marks)) == 4 and marks[3] == marks[4]


@pytest.mark.slow
def test_a_file_in_the_users_cache_folder_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    planted = tmp_path / "bufdb" / f"schema-{VERSION}-{definitions.schema_mark()}.duckdb"
    planted.parent.mkdir()
    planted_at(planted)
    with duckdb.connect() as con:
        assert tables(con) == sorted(definitions.tables())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mode", "link"])
def test_a_file_that_others_may_write_is_not_believed(cache, how):
    name = f"schema-{VERSION}-{definitions.schema_mark()}.duckdb"
    cache.mkdir(parents=True)
    planted = cache / name if how == "mode" else cache.parent / "other.duckdb"
    planted_at(planted)
    planted.chmod(0o666 if how == "mode" else 0o600)
    if how == "link":
        (cache / name).symlink_to(planted)
    with duckdb.connect() as con:
        assert tables(con) == sorted(definitions.tables())
    assert (cache / name).stat().st_mode & 0o777 == 0o644 and not (cache / name).is_symlink()


def planted_at(path):
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE planted (a INTEGER)")


@pytest.mark.slow
def test_where_nothing_can_be_written_it_is_made_in_memory(cache):
    cache.parent.write_text("a file in place of the folder")
    with store.open_empty() as con:
        assert con.execute("SELECT current_database()").fetchall() == [("memory",)]
        assert con.execute("SELECT count(*) FROM module_peaks").fetchall() == [(0,)]


@pytest.mark.slow
def test_those_of_many_other_versions_go(cache, monkeypatch):
    cache.mkdir(parents=True)
    monkeypatch.setattr(ready, "_KEPT", 16)
    for number in range(20):
        (cache / f"schema-{number}-x.duckdb").touch()
    (cache / "other.txt").touch()
    with duckdb.connect() as con:
        tables(con)
    left = sorted(file.name for file in cache.iterdir())
    assert len(left) == 17 and "other.txt" in left
    assert f"schema-{VERSION}-{definitions.schema_mark()}.duckdb" in left
