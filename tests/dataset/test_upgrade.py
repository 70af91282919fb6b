"""`bufdb upgrade` of a dataset: what is of an earlier version is stored again."""

import contextlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile

import datasets
import duckdb
import pytest
import zstandard
from datasets import RUN, TODAY, all_rows, ask, copied, objects, stored
from places import DEMO, MEMORY, ROOT

import bufdb
from bufdb import cli
from bufdb.dataset import layout
from bufdb.dataset import upgrade as upgrading
from bufdb.dataset.compact import compact
from bufdb.dataset.upgrade import upgrade
from bufdb.errors import DatabaseError
from bufdb.ingest import upgrade as of_files

VERSIONS = ROOT / "data" / "versions"
READ_BY_7 = "read by a bufdb of schema 7"


@pytest.fixture
def kept(tmp_path):
    """A dataset that the bufdb of schema version 7 has written."""
    data = zstandard.ZstdDecompressor().decompress((VERSIONS / "dataset_7.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(tmp_path / "kept", filter="data")
    return tmp_path / "kept"


@pytest.fixture(scope="module")
def eighth(tmp_path_factory):
    """A dataset of schema version 8 to copy, and its rows."""
    root = tmp_path_factory.mktemp("eighth") / "set"
    with as_version(8):
        stored(root)
        return root, rows_on(root)


@contextlib.contextmanager
def as_version(number):
    """Let bufdb be of another schema version, within the block, as far as datasets know."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("bufdb.dataset.writer", "bufdb.dataset.snapshot", "bufdb.database.store"):
            patch.setattr(f"{module}.SCHEMA_VERSION", number)
        yield


def rows_on(root):
    """All rows, whatever version they are of."""
    return {**datasets.rows_on(root), "schema_info": []}


def of_version(root):
    """Whether everything that counts is of this version, by what is said of it otherwise."""
    try:
        rows_on(root)
    except DatabaseError as error:
        assert f"run 'bufdb upgrade {root}'" in str(error)
        return False
    return True


@pytest.mark.slow
def test_a_dataset_has_the_rows_of_an_upgraded_database(kept, tmp_path):
    assert not of_version(kept)
    profile = "SELECT profile_name, stack_frame_id, total_bytes, array_count FROM {} ORDER BY ALL"
    with duckdb.connect() as con:
        arrays = con.execute(profile.format(f"'{kept}/live_arrays/*/*.parquet'")).fetchall()
    done = bufdb.connect(on=kept).upgrade()
    assert arrays and ask(kept, profile.format("live_arrays")) == arrays
    totals = ask(kept, "SELECT sum(total_bytes) FROM live_totals")
    assert totals == ask(kept, "SELECT sum(total_bytes) FROM live_arrays") != [(None,)]
    assert (done.version_before, done.module_count, done.read_count) == (7, 4, 0)
    file = tmp_path / "same.duckdb"
    packed = (VERSIONS / "schema_7.duckdb.zst").read_bytes()
    file.write_bytes(zstandard.ZstdDecompressor().decompress(packed))
    of_files.upgrade(str(file))
    with duckdb.connect(str(file), read_only=True) as con:
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        expected = all_rows(con, catalog)
        keys = {key for (key,) in con.execute("SELECT module_id FROM modules").fetchall()}
        of_modules = [name for name, types in layout.columns(con, catalog).items()
                      if next(iter(types)) == "module_id"]  # fmt: skip
    rows = rows_on(kept)
    assert len(of_modules) > 25 and "instruction_times" in of_modules
    for table in of_modules:
        own_rows = [row for row in rows[table] if row[0] in keys]
        unlike = table == "files"  # when they were read
        assert unlike or own_rows == expected[table], table
    labels = [row for row in rows["run_labels"] if row[0] == "cpu_b8" and row[1] != "dt"]
    assert labels and labels == expected["run_labels"]
    assert ask(kept, "SELECT DISTINCT unknown_reason FROM instruction_executions") == [(READ_BY_7,)]


@pytest.mark.slow
def test_an_upgraded_dataset_is_ingested_into_and_compacted(kept):
    upgrade(str(kept))
    runs = ask(kept, "SELECT run_name, count(*) FROM modules GROUP BY ALL ORDER BY ALL")
    assert runs == [("cpu_b8", 3), ("gone", 1)]  # what was removed stays so
    before = rows_on(kept)
    assert upgrade(str(kept)).is_current
    compact(str(kept), [TODAY], grace_s=0)
    assert rows_on(kept) == before
    assert len(objects(kept)) < 50
    summary = stored(kept)  # nothing of it was kept: it is read again
    assert summary.module_count == 3
    assert ask(kept, "SELECT count(*) FROM diagnostics WHERE code = 'not_read_again'") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["parquet", "delta"])
def test_kept_dump_files_are_read_again(tmp_path, file_format, capfd):
    if file_format == "delta":
        pytest.importorskip("deltalake", reason="needs deltalake: pip install 'bufdb[delta]'")
    root, run = tmp_path / "set", copied(tmp_path / "run")
    with as_version(8):
        stored(root, run, run="cpu_b8", file_format=file_format)
        stored(root, MEMORY["cpu_b8"][0], run="cpu_b8", file_format=file_format)
        stored(root, DEMO / "gpu_b8", file_format=file_format, keeps_sources=False)
        before = rows_on(root)
    shutil.rmtree(run)
    assert not of_version(root)
    assert cli.run(["upgrade", str(root), "--jobs", "1"]) == 0
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.endswith("schema version 8 to 9, 5 modules: 3 read again, 2 copied")
    after = rows_on(root)
    notices = [row for row in after["diagnostics"] if row not in before["diagnostics"]]
    assert len(notices) == 2 and {row[3] for row in notices} == {"not_read_again"}
    for rows in (before, after):  # of the copied modules, one notice more
        rows["diagnostics"] = rows["row_counts"] = []
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize("stops", ["before the markers", "among the markers"])
def test_an_upgrade_that_ends_early_loses_nothing(tmp_path, monkeypatch, eighth, stops):
    first, before = eighth
    root = shutil.copytree(first, tmp_path / "set")
    whole = upgrading._MarkersLast.finish

    def stop(writer):
        if stops == "among the markers":
            writer.markers = writer.markers[:1]
            whole(writer)
        raise KeyboardInterrupt

    monkeypatch.setattr(upgrading._MarkersLast, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        upgrade(str(root))
    assert not of_version(root)
    if stops == "before the markers":  # to the bufdb that wrote it, it is what it was
        with as_version(8):
            assert rows_on(root) == before
    monkeypatch.undo()
    upgrade(str(root))
    assert rows_on(root) == before


def test_a_later_version_is_left_alone(kept):
    names = objects(kept)
    with as_version(6), pytest.raises(DatabaseError, match="later bufdb wrote it: pip install -U"):
        upgrade(str(kept))
    assert objects(kept) == names


def test_a_folder_without_dataset_is_refused(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("BUFDB_DB", str(tmp_path))
    for words in ([str(tmp_path)], ["--db", str(tmp_path)], []):
        assert cli.run(["upgrade", *words]) == 3
        assert "no dataset" in capfd.readouterr().err


@pytest.mark.slow
def test_dumps_are_given_back_from_a_large_dataset(tmp_path, monkeypatch):
    """Parts of files lie in no order in a view of Parquet objects."""
    monkeypatch.setattr("bufdb.dumps.contents.PART_BYTES", 4096)
    root, out = tmp_path / "set", tmp_path / "out"
    stored(root)
    monkeypatch.setattr("bufdb.dataset.snapshot.COPIED_BYTES", 0)
    assert cli.run(["export", "--sources", str(out), "--on", str(root)]) == 0
    restored = {file.name: file.read_bytes() for file in (out / "cpu_b8").iterdir()}
    assert restored == {file.name: file.read_bytes() for file in RUN.iterdir()}


KILLER = """
import os, signal, sys, time
from bufdb.dataset.upgrade import upgrade

def begun(root):
    pid = os.fork()
    if pid == 0:
        upgrade(root)
        os._exit(0)
    return pid

whole, *roots = sys.argv[1:]
start = time.monotonic()
os.waitpid(begun(whole), 0)
took = time.monotonic() - start
for number, root in enumerate(roots):
    pid = begun(root)
    time.sleep(took * (number + {instant}) / len(roots))
    os.kill(pid, signal.SIGKILL)
    print(os.WIFSIGNALED(os.waitpid(pid, 0)[1]))
"""
"""Upgrades the first dataset, then each of the others for a share of the time that this took."""


@pytest.mark.slow
def test_a_killed_upgrade_loses_nothing(tmp_path, eighth):
    """BUFDB_KILLS sets how many; each is at a random instant of its share of the time."""
    count, (first, before) = int(os.environ.get("BUFDB_KILLS", "2")), eighth
    root = shutil.copytree(first, tmp_path / "set")
    names = objects(root)
    roots = [shutil.copytree(root, tmp_path / str(number)) for number in range(count)]
    script = KILLER.format(instant=random.random())
    done = subprocess.run(
        [sys.executable, "-c", script, root, *roots], stdout=subprocess.PIPE, text=True, check=True
    )
    assert "True" in done.stdout, "none was killed"
    for one in roots:
        assert names <= objects(one), "what it read is there until it is done"
        if not of_version(one):
            upgrade(str(one))
        assert rows_on(one) == before, script
