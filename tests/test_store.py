"""The database file: versions, views and what is refused."""

from pathlib import Path

import duckdb
import pytest

from bufdb import store
from bufdb.errors import DatabaseError


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t.duckdb")
    store.open_writable(path).close()
    return path


def change(path, sql):
    with duckdb.connect(path) as con:
        con.execute(sql)


def test_views_of_another_bufdb_are_renewed_when_writing(path):
    change(path, "DROP VIEW memory_figures; UPDATE schema_info SET views_hash = 'other'")
    store.open_writable(path).close()
    with duckdb.connect(path, read_only=True) as con:
        assert con.execute("SELECT * FROM memory_figures").fetchall() == []


def test_reading_takes_bufdbs_views_and_leaves_the_file_alone(path):
    change(path, "DROP VIEW memory_figures; UPDATE schema_info SET views_hash = 'other'")
    before = Path(path).read_bytes()
    with store.open_readable(path) as con:
        assert con.execute("SELECT * FROM memory_figures").fetchall() == []
    assert Path(path).read_bytes() == before
    assert [file.name for file in Path(path).parent.iterdir()] == ["t.duckdb"]


def test_another_schema_version_is_refused_with_the_remedy(path):
    change(path, "UPDATE schema_info SET schema_version = 99")
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match=r"schema version 99.*remove the file and run"):
            opened(path)


def test_a_database_of_something_else_is_refused(tmp_path):
    path = str(tmp_path / "other.duckdb")
    change(path, "CREATE TABLE mine (a INTEGER)")
    with pytest.raises(DatabaseError, match="other tables"):
        store.open_writable(path)
    with duckdb.connect(path) as con:
        assert con.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("mine",)]


def test_a_missing_database_is_not_made_by_reading(tmp_path):
    with pytest.raises(DatabaseError, match="no database"):
        store.open_readable(str(tmp_path / "none.duckdb"))
    assert list(tmp_path.iterdir()) == []
