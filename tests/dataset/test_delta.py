"""Delta tables: readers see one copy of each module, and concurrent writers lose nothing."""

import json
import os
import subprocess
import sys

import duckdb
import pytest
from datasets import INIT, RUN, ask, change, copied, prepared, rows_on, stored
from places import ROOT

from bufdb.dataset import delta as delta_writer
from bufdb.dataset import delta as log
from bufdb.dataset import layout
from bufdb.dataset.storage import Listed
from bufdb.errors import DatabaseError, UsageError

deltalake = pytest.importorskip("deltalake", reason="needs deltalake: pip install 'bufdb[delta]'")

WRITE = """
import sys
from pathlib import Path
from bufdb.dataset.dump_ingest import ingest

root, *runs = sys.argv[1:]
for number, path in enumerate(map(Path, runs)):
    ingest(root, [path], run=path.name, metadata={"dt": "2026-01-31"}, file_format="delta")
"""


def delta(url, path=RUN, **more):
    return stored(url, path, file_format="delta", **more)


def as_others_read(root, table):
    """Rows of a Delta table by module, as delta-rs lists its files."""
    uris = deltalake.DeltaTable(str(root / table)).file_uris()
    with duckdb.connect() as con:
        sql = "SELECT module_id, count(*) FROM read_parquet(?, union_by_name = true) GROUP BY ALL"
        return dict(con.execute(sql, [uris]).fetchall())


def last_commit(root, table):
    return max((root / table / log.FOLDER).glob("*.json"))


def test_a_module_ingested_again_is_read_once(tmp_path):
    run = copied(tmp_path / "run")
    delta(tmp_path / "set", run)
    before = as_others_read(tmp_path / "set", "values")
    change(run)
    delta(tmp_path / "set", run)
    stored(tmp_path / "plain", run)
    assert rows_on(tmp_path / "set")["values"] == rows_on(tmp_path / "plain")["values"]
    assert rows_on(tmp_path / "set")["files"] == rows_on(tmp_path / "plain")["files"]
    assert as_others_read(tmp_path / "set", "values") == before
    assert set(as_others_read(tmp_path / "set", "modules").values()) == {1}


def test_the_same_again_commits_nothing(tmp_path):
    prepared(tmp_path, "delta")
    commits = sorted(tmp_path.glob("*/_delta_log/*"))
    assert delta(tmp_path).unchanged_count == 3
    assert sorted(tmp_path.glob("*/_delta_log/*")) == commits


def test_what_is_pruned_is_gone_for_bufdb_and_for_others(tmp_path):
    run = copied(tmp_path / "run")
    delta(tmp_path / "set", run)
    for file in run.glob(f"{INIT.partition('-')[0]}*"):
        file.unlink()
    delta(tmp_path / "set", run, prune=True)
    assert ask(tmp_path / "set", "SELECT count(*) FROM modules") == [(2,)]
    assert len(as_others_read(tmp_path / "set", "values")) == 2


def test_a_format_once_chosen_stays(tmp_path):
    prepared(tmp_path / "set", "delta")
    stored(tmp_path / "set", run="other")
    assert len(as_others_read(tmp_path / "set", "values")) == 6
    with pytest.raises(UsageError, match="format delta, not parquet"):
        stored(tmp_path / "set", file_format="parquet")
    stored(tmp_path / "plain")
    with pytest.raises(UsageError, match="format parquet, not delta"):
        delta(tmp_path / "plain")


def test_several_writers_lose_nothing_and_see_whole_modules(tmp_path):
    runs = [copied(tmp_path / f"run{number}") for number in range(2)]
    other = copied(tmp_path / "changed" / "run0")
    change(other)
    root = tmp_path / "set"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITE, str(root), *map(str, some)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for some in ([runs[0], other], [runs[1], runs[0]])
    ]
    while any(writer.poll() is None for writer in writers):
        if (root / "modules").exists() and (root / "values").exists():
            sql = 'SELECT count(DISTINCT module_id), count(*) FROM "values" GROUP BY run_name'
            joined = sql.replace('"values"', '"values" JOIN modules USING (module_id)')
            assert len(set(ask(root, joined))) <= 1, "each run has the same values, or none"
    assert [writer.returncode for writer in writers] == [0, 0]
    rows = ask(root, "SELECT run_name, count(*) FROM modules GROUP BY ALL ORDER BY ALL")
    assert rows == [(f"run{number}", 3) for number in range(2)]


def test_a_reader_restarts_after_deleted_rows(tmp_path, monkeypatch):
    run, root = copied(tmp_path / "run"), tmp_path / "set"
    delta(root, run)
    change(run)
    read = log.read
    again = []

    def late(con, place, table, names):
        result = read(con, place, table, names)
        if table == "runs" and not again:  # the markers have been read, the other tables not
            again.append(table)
            monkeypatch.setattr(log, "read", read)
            delta(root, run)
            monkeypatch.setattr(log, "read", late)
        return result

    monkeypatch.setattr(log, "read", late)
    rows = rows_on(root)
    assert again == ["runs"]
    assert len({row[0] for row in rows["values"]}) == len(rows["modules"]) == 3


def test_what_a_killed_writer_left_is_not_counted(tmp_path, monkeypatch):
    put = delta_writer.DeltaWriter._append

    def killed(self, table, select):
        if table == "modules":
            raise KeyboardInterrupt
        put(self, table, select)

    monkeypatch.setattr(delta_writer.DeltaWriter, "_append", killed)
    with pytest.raises(KeyboardInterrupt):
        delta(tmp_path / "set")
    monkeypatch.undo()
    assert ask(tmp_path / "set", 'SELECT count(*) FROM "values"') == [(0,)]
    delta(tmp_path / "set")
    prepared(tmp_path / "plain")
    assert rows_on(tmp_path / "set")["values"] == rows_on(tmp_path / "plain")["values"]


def test_what_delta_rs_compacts_and_checkpoints_is_the_same(tmp_path):
    for run in ("one", "other"):
        delta(tmp_path, run=run)
    rows = rows_on(tmp_path)
    for table in ("values", "modules"):
        one = deltalake.DeltaTable(str(tmp_path / table))
        one.optimize.compact()
        one.create_checkpoint()
    for commit in sorted((tmp_path / "values" / log.FOLDER).glob("0*.json"))[:-1]:
        commit.unlink()  # as once their time is over
    delta(tmp_path, run="third")
    assert ask(tmp_path, "SELECT count(*) FROM modules") == [(9,)]
    kept = ask(
        tmp_path,
        'FROM "values" WHERE module_id IN (SELECT module_id FROM modules '
        "WHERE run_name <> 'third') ORDER BY ALL",
    )
    assert kept == rows["values"]


def protocol(reader, *features):
    action = {"minReaderVersion": reader, "minWriterVersion": 7 if features else 5}
    lists = ("readerFeatures", "writerFeatures") if features else ()
    return {"protocol": {**action, **{name: list(features) for name in lists}}}


def added(path, **more):
    fixed = {"partitionValues": {"dt": "2026-01-31"}, "size": 1, "modificationTime": 1}
    return {"add": {"path": path, **fixed, "dataChange": True, **more}}


VECTOR = {"storageType": "u", "pathOrInlineDv": "a" * 20, "sizeInBytes": 1, "cardinality": 1}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (protocol(3, "deletionVectors"), "deletion vectors"),
        (added("x", deletionVector=VECTOR), "Delta log"),
        (protocol(2), "readers of version 2"),
        (protocol(3, "columnMapping"), "columnMap"),
        (protocol(3, "unheardOf"), "unheardOf"),
        (added("../../x.parquet"), "in its Delta log, but gone"),
        (added("dt=2026-01-31/gone.parquet"), "in its Delta log, but gone"),
        ({"add": 3}, "damaged"),
        ({"protocol": {}}, "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_list_of_files_lacks_is_refused(tmp_path, action, words):
    prepared(tmp_path, "delta")
    (tmp_path / "values" / log.FOLDER / f"{1:020}.json").write_text(json.dumps(action))
    with pytest.raises(DatabaseError, match=words) as error:
        rows_on(tmp_path)
    assert "\n" not in str(error.value)


def test_a_missing_commit_is_refused(tmp_path):
    for run in ("one", "other"):
        delta(tmp_path, run=run)
    min((tmp_path / "values" / log.FOLDER).glob("*.json")).unlink()
    with pytest.raises(DatabaseError, match="missing"):
        rows_on(tmp_path)


def test_the_last_version_is_that_of_a_commit_or_a_checkpoint():
    def names(*texts):
        return {f"values/{log.FOLDER}/{text}": Listed(0.0, 1) for text in texts}

    assert log.version({}, "values") == -1
    assert log.version(names(f"{7:020}.checkpoint.parquet"), "values") == 7
    assert log.version(names(f"{8:020}.json", f"{7:020}.checkpoint.parquet"), "values") == 8


def test_folders_have_names_that_delta_rs_can_write(tmp_path):
    root = tmp_path / "a+b=c 'ü #?*"
    delta(root)
    assert ask(root, "SELECT count(*) FROM modules") == [(3,)]
    assert all(table.name in layout.tables() for table in root.iterdir())
    for name in ("d[1]", "%20", "a|b"):
        with pytest.raises(UsageError, match="to a path with"):
            delta(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_compacting_is_left_to_delta_tools(call, tmp_path):
    prepared(tmp_path, "delta")
    code, _, err = call("compact", tmp_path)
    assert code == 2 and "optimize" in err


def test_a_format_is_that_of_a_dataset(call, tmp_path):
    code, _, err = call("ingest", RUN, "--format", "delta", "--db", tmp_path / "x.duckdb")
    assert code == 2 and "--out" in err


def test_without_delta_rs_it_says_what_to_install(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    code, _, err = call("ingest", RUN, "--format", "delta", "--out", tmp_path / "set")
    assert code == 2 and "bufdb[delta]" in err
    assert not (tmp_path / "set").exists()


def test_reading_without_delta_rs_names_the_extra(call, tmp_path, monkeypatch):
    prepared(tmp_path, "delta")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    code, _, err = call("summary", "--on", tmp_path)
    assert code == 2 and err.count("\n") == 1 and "pip install 'bufdb[delta]'" in err


def test_a_log_is_not_read_through_links(tmp_path):
    prepared(tmp_path / "set", "delta")
    commit = last_commit(tmp_path / "set", "values")
    commit.rename(tmp_path / "outside")
    commit.symlink_to(tmp_path / "outside")
    with pytest.raises(DatabaseError, match=r"^[^\n]*$"):
        rows_on(tmp_path / "set")


def test_a_log_in_a_bucket_is_read_through_its_file_system(tmp_path):
    system = pytest.importorskip("fsspec").filesystem("memory")
    prepared(tmp_path / "set", "delta")
    system.put(f"{tmp_path}/set/", "/delta-set", recursive=True)
    assert ask("memory://delta-set", "SELECT count(*) FROM modules") == [(3,)]
    system.rm("/delta-set", recursive=True)
