"""The database file: versions, views and what is refused."""

import os
import re
import shutil
import struct
from pathlib import Path

import duckdb
import pytest

from bufdb.database import memory, narrowing, spill, store
from bufdb.errors import DatabaseError


@pytest.fixture
def path(empty_db, tmp_path):
    return str(shutil.copy(empty_db, tmp_path / "t.duckdb"))


def change(path, sql):
    with duckdb.connect(path) as con:
        con.execute(sql)


@pytest.mark.slow
def test_views_of_another_bufdb_are_renewed_when_writing(path):
    change(path, "DROP VIEW memory_figures; UPDATE schema_info SET views_hash = 'other'")
    store.open_writable(path).close()
    with duckdb.connect(path, read_only=True) as con:
        assert con.execute("SELECT * FROM memory_figures").fetchall() == []


@pytest.mark.slow
def test_row_groups_stay_as_small_as_they_were_made(path):
    more = "INSERT INTO memory_sums (module_id, color) SELECT 1, range FROM range(100_000)"
    for _ in range(2):
        with store.open_writable(path) as con:
            con.execute(more)
    store.open_writable(path).close()
    with duckdb.connect(path, read_only=True) as con:
        (largest, count) = con.execute(
            "SELECT max(count), sum(count) FROM pragma_storage_info('memory_sums') "
            "WHERE column_name = 'module_id' AND segment_type <> 'VALIDITY'"
        ).fetchone()
    assert (largest, count) == (store.ROW_GROUP_ROWS, 200_000)


def test_writing_spills_next_to_the_file(path):
    with store.open_writable(path) as con:
        row = con.execute("SELECT current_setting('temp_directory')").fetchone()
    assert row == (f"{path}.tmp",)


def test_a_file_that_may_only_be_read_is_not_written(path):
    Path(path).chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("root may write it all the same")
    with pytest.raises(DatabaseError, match="permission denied"):
        store.open_writable(path)


@pytest.mark.slow
def test_reading_takes_bufdbs_views_and_leaves_the_file_alone(path):
    change(path, "DROP VIEW memory_figures; UPDATE schema_info SET views_hash = 'other'")
    before = Path(path).read_bytes()
    with store.open_readable(path) as con:
        assert con.execute("SELECT * FROM memory_figures").fetchall() == []
    assert Path(path).read_bytes() == before
    assert [file.name for file in Path(path).parent.iterdir()] == ["t.duckdb"]


@pytest.mark.parametrize(
    ("version", "remedy"), [(6, "run 'bufdb upgrade "), (99, "pip install -U bufdb")]
)
def test_another_schema_version_is_refused_with_the_remedy(path, version, remedy):
    change(path, f"UPDATE schema_info SET schema_version = {version}")
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match=rf"schema version {version}.*{remedy}"):
            opened(path)


def test_a_database_of_nothing_is_none_of_bufdbs(tmp_path):
    path = str(tmp_path / "empty.duckdb")
    change(path, "CHECKPOINT")
    with pytest.raises(
        DatabaseError, match=r"is not a bufdb database; name another file with --db"
    ):
        store.open_readable(path)


def test_a_name_that_is_not_utf8_is_refused():
    with pytest.raises(DatabaseError, match=r"'a\\udcff\.duckdb' is not UTF-8"):
        store.open_writable(os.fsdecode(b"a\xff.duckdb"))


def test_where_nothing_can_be_written_queries_spill_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert Path(spill.spill_folder()).parent == tmp_path
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert spill.spill_folder() == ""


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


def checksum(block):
    """DuckDB's checksum of a block of whole 64-bit words."""
    hash_value = 5381
    for (word,) in struct.iter_unpack("<Q", block):
        hash_value ^= word * 0xBF58476D1CE4E5B9 % 2**64
    return struct.pack("<Q", hash_value)


def of_a_later_duckdb(data):
    header = data[8:12] + struct.pack("<Q", 9999) + data[20:4096]
    return checksum(header) + header + data[4096:]


def one_bit_off(data):
    return data[:4200] + bytes([data[4200] ^ 1]) + data[4201:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is an empty file; name another file with --db, or remove it and run"),
        (lambda data: b"BufferAssignment:\n" * 500, "is no DuckDB database; name another"),
        (lambda data: b"SQLite format 3\0" + data, "is no DuckDB database; name another"),
        (lambda data: data[:5000], "is damaged (.*); name another file with --db, or remove"),
        (one_bit_off, "is damaged (.*); name another file with --db, or remove"),
        (of_a_later_duckdb, "was written by another version of DuckDB than .*; upgrade with"),
    ],
)
def test_what_is_no_database_is_reported_in_one_line(path, change, message):
    Path(path).write_bytes(change(Path(path).read_bytes()))
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match=message) as error:
            opened(path)
        assert str(error.value).startswith(path) and "\n" not in str(error.value)


def test_a_directory_is_no_database(tmp_path):
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match="is a directory; --db names a database file"):
            opened(str(tmp_path))


def test_a_directory_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(DatabaseError) as error:
        store.open_writable(str(tmp_path / "none" / "a.duckdb"))
    assert str(error.value) == (
        f"cannot make {tmp_path}/none/a.duckdb: there is no directory {tmp_path}/none; "
        "make it, or name another file with --db"
    )


@pytest.mark.slow
def test_a_table_that_is_not_there_is_reported(path):
    """Another state of one version may lack it, and then its views are others, too."""
    change(path, "DROP TABLE occupied_peaks; UPDATE schema_info SET views_hash = 'other'")
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match=r"does not hold bufdb's tables .*bufdb upgrade"):
            opened(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "altered", ["DROP COLUMN page", "RENAME kind TO sort", "ALTER size_bytes TYPE DOUBLE"]
)
def test_a_column_that_is_not_there_is_reported(path, altered):
    change(path, f"ALTER TABLE allocations {altered}")
    with pytest.raises(DatabaseError, match=r"hold bufdb's tables \(no allocations\.\w+\); 'bufdb"):
        store.open_readable(path)


@pytest.mark.slow
def test_a_view_in_place_of_a_table_is_refused(path):
    change(path, "ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS FROM r")
    for opened in (store.open_readable, store.open_writable):
        with pytest.raises(DatabaseError, match="a view in place of the table runs; remove"):
            opened(path)


def test_a_file_that_may_only_be_read_is_read(path):
    Path(path).chmod(0o400)
    Path(path).parent.chmod(0o500)
    with store.open_readable(path) as con:
        assert con.execute("SELECT count(*) FROM value_details").fetchall() == [(0,)]
    Path(path).parent.chmod(0o700)


def test_a_query_that_outgrows_memory_spills_and_leaves_nothing(path, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with store.open_readable(path) as con:
        (folder,) = con.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    assert Path(folder).parent == tmp_path and Path(folder).name.startswith("bufdb-")
    assert not Path(folder).exists()


LIMIT = "SELECT current_setting('memory_limit'), current_setting('threads')"


@pytest.mark.slow
def test_a_query_has_a_memory_limit_and_threads_to_match(path):
    with store.open_readable(path) as con:
        assert con.execute(LIMIT).fetchall()[0][0] == "732.4 MiB"
    token = memory.MEMORY_LIMIT.set(130_000_000)
    try:
        with store.open_readable(path, allow_files=True) as con:
            assert con.execute(LIMIT).fetchall() == [("123.9 MiB", 1)]
        with store.open_writable(path) as con:
            assert con.execute(LIMIT).fetchall()[0][0] == "123.9 MiB"
    finally:
        memory.MEMORY_LIMIT.reset(token)


def test_one_thread_answers_from_a_small_file_alone(path, monkeypatch):
    def count(con):
        own = "current_setting('threads') - current_setting('external_threads')"  # those it starts
        with con:
            return con.execute(f"SELECT {own} + 1").fetchall()[0][0]

    several = min(count(duckdb.connect()), memory.FOR_QUESTIONS // memory.BYTES_PER_THREAD)
    assert count(store.open_readable(path)) == 1
    with store.open_readable(path) as con:  # nor do others wait for files
        assert con.execute("SELECT current_setting('async_threads')").fetchall() == [(0,)]
    assert count(store.open_readable(path, allow_files=True)) == several
    monkeypatch.setattr(store, "SMALL_FILE", 0)
    assert count(store.open_readable(path)) == several


def test_of_a_file_it_is_known_which_tables_are_empty(path):
    with store.open_readable(path, "FROM modules") as con:
        assert narrowing.is_empty(con, "modules") and narrowing.module_count(con) == 0
        assert not narrowing.is_empty(con, "role_rules")  # bufdb's own rows
        assert not narrowing.is_empty(con, "of another name")
    with store.open_writable(path) as con:
        con.execute("INSERT INTO run_labels VALUES ('base', 'batch', '8', FALSE)")
    with store.open_readable(path, "FROM modules") as con:
        assert not narrowing.is_empty(con, "run_labels")
    with store.open_readable(path, "FROM modules", before={"runs": []}) as con:
        assert not narrowing.is_empty(con, "runs")  # which may have more than the file


def test_own_questions_about_a_small_file_are_planned_soon(path, monkeypatch):
    def left_out(con):
        with con:
            return con.execute("SELECT current_setting('disabled_optimizers')").fetchall()[0][0]

    names = set(memory.PLANNED_SOON["disabled_optimizers"].split(","))
    assert set(left_out(store.open_readable(path, "FROM modules")).split(",")) == names
    assert left_out(store.open_readable(path)) == ""
    assert left_out(store.open_readable(path, "FROM modules", allow_files=True)) == ""
    monkeypatch.setitem(memory.PLANNED_SOON, "disabled_optimizers", "a rule that is gone")
    assert left_out(store.open_readable(path, "FROM modules")) == ""


@pytest.mark.slow
def test_what_is_larger_than_memory_is_sorted_on_disk(path, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    token = memory.MEMORY_LIMIT.set(40_000_000)
    sql = "SELECT max(hash(a)) FROM (SELECT i AS a FROM range(4000000) AS t(i) ORDER BY hash(i))"
    try:
        with store.open_readable(path) as con:
            ((largest,),) = con.execute(sql).fetchall()
            spilled = list(tmp_path.glob("bufdb-*"))
    finally:
        memory.MEMORY_LIMIT.reset(token)
    assert largest > 2**63 and len(spilled) == 1
    assert not list(tmp_path.glob("bufdb-*"))


@pytest.mark.slow
def test_what_other_tests_start_from_is_a_new_database(fresh):
    described = (
        "SELECT table_name, sql, comment FROM duckdb_tables()",
        "SELECT view_name, sql, comment FROM duckdb_views() WHERE NOT internal",
        "SELECT function_name, parameters, macro_definition, comment "
        "FROM duckdb_functions() WHERE NOT internal",
        "SELECT table_name, column_name, data_type, comment "
        "FROM duckdb_columns() WHERE NOT internal",
        "SELECT table_name, constraint_text FROM duckdb_constraints()",
        "FROM schema_info",
        "FROM op_categories",
        "FROM role_rules",
        "FROM memory_spaces",
        # Which `open_copy` leaves to DuckDB.
        "SELECT name, value FROM duckdb_settings() WHERE name NOT LIKE '%memory%'",
    )
    with fresh() as copy, store.open_writable(":memory:") as new:
        for sql in described:
            query = f"{sql} ORDER BY ALL"
            # `* REPLACE` is printed in any order.
            texts = [str(opened.execute(query).fetchall()) for opened in (copy, new)]
            actual, expected = (sorted(re.findall(r"\w+|\S", text)) for text in texts)
            assert actual == expected, sql


def test_an_interrupt_while_opening_is_no_damage(tmp_path, monkeypatch):
    path = tmp_path / "t.duckdb"
    store.open_writable(str(path)).close()

    def interrupted(*_, **__):
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    monkeypatch.setattr(store.duckdb, "connect", interrupted)
    with pytest.raises(duckdb.InterruptException):
        store.open_writable(str(path))
