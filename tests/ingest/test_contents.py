"""The dump files that a database keeps: byte for byte, equal ones once, gone with their modules."""

import shutil

import duckdb
import pytest
import xxhash
from ingesting import ingest_into, rows
from places import DEMO

from bufdb.database import runs, store
from bufdb.database.contents import stored_parts
from bufdb.dumps import contents
from bufdb.ingest.ingest import ingest

RUN = DEMO / "cpu_b8"


def stored_files(con: duckdb.DuckDBPyConnection) -> dict[str, bytes]:
    """The stored files by content_hash."""
    ((catalog,),) = con.execute("SELECT current_database()").fetchall()
    files: dict[str, bytes] = {}
    for content_hash, ordinal, size, compressed in stored_parts(con, catalog):
        assert (ordinal == 0) == (content_hash not in files)
        piece = contents.expanded(compressed, size)
        files[content_hash] = files.get(content_hash, b"") + piece
    return files


def read_files(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return con.execute("SELECT path, content_hash FROM files ORDER BY ALL").fetchall()


@pytest.mark.parametrize("block_bytes", [10 << 20, 2000], ids=["small", "large"])
def test_files_are_kept_byte_for_byte(con, monkeypatch, block_bytes):
    monkeypatch.setattr("bufdb.ingest.group.PART_BYTES", 3000)
    monkeypatch.setattr("bufdb.dumps.contents.PART_BYTES", 3000)
    ingest_into(con, RUN, block_bytes=block_bytes)
    files = stored_files(con)
    assert read_files(con)
    for path, content_hash in read_files(con):
        assert files[content_hash] == (RUN / path).read_bytes()
    assert files.keys() == {content_hash for _, content_hash in read_files(con)}
    assert rows(con, "SELECT max(part_ordinal) > 0, max(size_bytes) FROM file_contents") == [
        (True, 3000)
    ]


def test_equal_files_of_two_runs_are_kept_once(con):
    ingest_into(con, RUN, run="one")
    before = rows(con, "SELECT count(*), sum(compressed_bytes) FROM file_contents")
    ingest_into(con, RUN, run="two")
    assert rows(con, "SELECT count(*), sum(compressed_bytes) FROM file_contents") == before
    runs.remove_runs(con, ["one"])
    assert rows(con, "SELECT count(*), sum(compressed_bytes) FROM file_contents") == before
    runs.remove_runs(con, ["two"])
    assert rows(con, "SELECT count(*) FROM file_contents") == [(0,)]


def test_a_text_that_is_rewritten_is_kept_as_it_was(con, tmp_path):
    for file in RUN.iterdir():
        text = file.read_bytes()
        changed = "\ufeff".encode("utf-16-le") + text.decode().encode("utf-16-le")
        is_values = file.name.endswith("-values.txt")
        (tmp_path / file.name).write_bytes(changed if is_values else text)
    ingest_into(con, tmp_path, run="r")
    files = stored_files(con)
    for path, content_hash in read_files(con):
        assert files[content_hash] == (tmp_path / path).read_bytes()


def test_without_sources_nothing_is_stored_files(con):
    ingest_into(con, RUN, keeps_sources=False)
    assert read_files(con) and stored_files(con) == {}


def test_a_changed_file_replaces_what_was_kept(con, tmp_path):
    shutil.copytree(RUN, tmp_path / "r")
    ingest_into(con, tmp_path / "r")
    for file in (tmp_path / "r").glob("*-buffer-assignment.txt"):
        file.write_bytes(file.read_bytes() + b"\n")
    ingest_into(con, tmp_path / "r")
    assert stored_files(con).keys() == {content_hash for _, content_hash in read_files(con)}


@pytest.mark.slow
def test_other_processes_keep_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("bufdb.ingest.processes.FEW_BYTES", 0)
    of_jobs = []
    for jobs in (1, 2):
        db = str(tmp_path / f"{jobs}.duckdb")
        ingest(db, [DEMO], run="r", jobs=jobs)
        with store.open_readable(db) as con:
            of_jobs.append(stored_in(con))
    assert of_jobs[0] == of_jobs[1] != {}


def stored_in(con: duckdb.DuckDBPyConnection) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for content_hash, _, size, compressed in stored_parts(con, "bufdb"):
        piece = contents.expanded(compressed, size)
        files[content_hash] = files.get(content_hash, b"") + piece
    return files


def test_a_large_module_that_is_lost_leaves_nothing(con, tmp_path, monkeypatch):
    shutil.copytree(RUN, tmp_path / "r")
    calls = []

    def changed(job):
        calls.append(job)
        if len(calls) % 2 == 0:  # once it is loaded, and once it is read
            raise OSError(5, "it changed")

    monkeypatch.setattr("bufdb.ingest.group.check_unchanged", changed)
    ingest_into(con, tmp_path / "r", block_bytes=2000)
    assert len(calls) >= 2
    assert stored_files(con).keys() == {content_hash for _, content_hash in read_files(con)}


@pytest.mark.parametrize("size", [2, 4, contents.PART_BYTES + 1])
def test_a_part_of_another_size_is_damaged(size):
    (part,) = contents.parts("0", [b"abc"])
    assert contents.expanded(part.compressed, 3) == b"abc"
    with pytest.raises(OSError, match="damaged"):
        contents.expanded(part.compressed, size)


def test_a_part_that_is_no_frame_is_damaged():
    with pytest.raises(OSError, match="damaged"):
        contents.expanded(b"no frame", 3)


def test_a_bomb_is_not_expanded():
    (part,) = contents.parts("0", [bytes(100 << 20)])
    with pytest.raises(OSError, match="damaged"):
        contents.expanded(part.compressed, 3)


def test_hashes_of_what_is_kept_are_those_of_files(con):
    ingest_into(con, RUN)
    for content_hash, data in stored_files(con).items():
        assert xxhash.xxh3_128_hexdigest(data) == content_hash
