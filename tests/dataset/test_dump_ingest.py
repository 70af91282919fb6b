"""Dumps into a dataset: what is written, under which names, in which order, and what is not."""

import json
import os
import shutil
import subprocess
import sys

import duckdb
import pytest
from datasets import (
    INIT,
    LIVE,
    RUN,
    TODAY,
    all_rows,
    ask,
    change,
    copied,
    objects,
    prepared,
    rows_on,
    stored,
)
from ingesting import ingest_into
from places import DEMO
from pprof_writer import Sample, packed

from bufdb.database.runs import LIVE_TABLES
from bufdb.dataset import layout, storage
from bufdb.dataset.compact import compact
from bufdb.dataset.dump_ingest import ingest
from bufdb.errors import DatabaseError, UsageError
from bufdb.ingest import processes

MODULES = "SELECT run_name, module_key, has_live_ranges FROM modules ORDER BY ALL"


@pytest.mark.slow
def test_a_module_has_an_object_for_each_table_with_rows_of_it(tmp_path):
    summary = prepared(tmp_path)
    assert (summary.module_count, summary.exit_code) == (3, 0)
    rows = rows_on(tmp_path)
    names = objects(tmp_path)
    for table in layout.tables():
        places_of = {name for name in names if layout.parse(name).table == table}
        owners = 4 if table == "diagnostics" else 3
        assert len(places_of) <= owners
        assert bool(places_of) == bool(rows[table]), table
    assert {layout.parse(name).day for name in names} == {TODAY}
    keys = {layout.parse(name).owner_id for name in objects(tmp_path, "modules")}
    assert keys == {row[0] for row in rows["modules"]}


@pytest.mark.slow
def test_types_are_exact(tmp_path):
    prepared(tmp_path)
    with duckdb.connect() as con:
        for path in tmp_path.glob("*/dt=*/*.parquet"):
            types = {row[1] for row in con.execute(f"DESCRIBE FROM '{path}'").fetchall()}
            assert types <= {
                "BIGINT", "BIGINT[]", "BLOB", "BOOLEAN", "DATE", "DECIMAL(20,0)", "DECIMAL(38,0)",
                "INTEGER", "TIMESTAMP", "VARCHAR",
            }  # fmt: skip
        of_peaks = con.execute(f"DESCRIBE FROM '{tmp_path}/peaks/*/*.parquet'").fetchall()
        assert ("occupied_temp_bytes", "DECIMAL(38,0)") in {row[:2] for row in of_peaks}


@pytest.mark.slow
def test_any_process_writes_the_same_bytes(tmp_path):
    for seed in ("1", "2"):
        root = tmp_path / seed
        command = [sys.executable, "-m", "bufdb", "ingest", str(RUN), "--out", str(root)]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
    one, other = (
        {
            name: (tmp_path / seed / name).read_bytes()
            for name in objects(tmp_path / seed)
            # They say when they were ingested.
            if layout.parse(name).table not in ("runs",)
        }
        for seed in ("1", "2")
    )
    assert one.keys() == other.keys() and len(one) > 20
    assert [name for name in one if one[name] != other[name]] == []


@pytest.mark.slow
def test_what_is_unchanged_is_not_written_again(tmp_path):
    prepared(tmp_path)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in objects(tmp_path)}
    assert stored(tmp_path).unchanged_count == 3
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in objects(tmp_path)} == before


@pytest.mark.slow
def test_names_do_not_depend_on_the_place(tmp_path):
    for name in ("one", "other"):
        stored(tmp_path / name)
    # Those of runs apart: when it was ingested is part of a run's row.
    keys = {layout.parse(name).owner_id for name in objects(tmp_path / "one", "modules")}
    one, other = (
        {name for name in objects(tmp_path / root) if layout.parse(name).owner_id in keys}
        for root in ("one", "other")
    )
    assert one == other and len(one) > 50


@pytest.mark.slow
def test_the_latest_rows_of_a_module_count(tmp_path, con):
    run = copied(tmp_path / "cpu_b8")
    stored(tmp_path / "set", run)
    before, whole = objects(tmp_path / "set", "live_ranges"), rows_on(tmp_path / "set")
    (run / LIVE).unlink()
    assert stored(tmp_path / "set", run).replaced_count == 1
    assert len(objects(tmp_path / "set", "modules")) == 4
    assert objects(tmp_path / "set", "live_ranges") == before  # an older version's stay
    ingest_into(con, run, labels={})
    actual, expected = rows_on(tmp_path / "set"), all_rows(con, "memory")
    assert len(actual["live_ranges"]) < len(whole["live_ranges"])
    for table in set(expected) - {"runs", "run_labels", "schema_info"}:
        assert actual[table] == expected[table], table


@pytest.mark.slow
def test_what_was_before_counts_again_when_it_comes_back(tmp_path):
    run = copied(tmp_path / "cpu_b8")
    stored(tmp_path / "set", run)
    first = rows_on(tmp_path / "set")
    change(run)
    stored(tmp_path / "set", run)
    assert rows_on(tmp_path / "set")["files"] != first["files"]
    shutil.copytree(RUN, run, dirs_exist_ok=True)
    stored(tmp_path / "set", run)
    again = rows_on(tmp_path / "set")
    assert again["values"] == first["values"] and again["files"] == first["files"]


@pytest.mark.slow
def test_markers_are_written_after_what_they_commit(tmp_path, monkeypatch):
    order = []
    put = storage.Folder.put

    def noted(self, made, name):
        order.append(layout.parse(name))
        put(self, made, name)

    monkeypatch.setattr(storage.Folder, "put", noted)
    stored(tmp_path)
    for marker in layout.MARKERS:
        for number, name in enumerate(order):
            if name.table == marker:
                later = {other.owner_id for other in order[number + 1 :]}
                assert name.owner_id not in later
    first_module = next(n for n, name in enumerate(order) if name.table == "modules")
    assert "runs" in {name.table for name in order[:first_module]}


@pytest.mark.slow
def test_pruned_modules_are_gone_and_can_come_back(tmp_path):
    run = copied(tmp_path / "cpu_b8")
    stored(tmp_path / "set", run)
    first = rows_on(tmp_path / "set")
    for path in run.glob(f"{INIT}*"):
        path.unlink()
    assert stored(tmp_path / "set", run).pruned_count == 0
    assert len(rows_on(tmp_path / "set")["modules"]) == 3
    assert stored(tmp_path / "set", run, prune=True).pruned_count == 1
    rows = rows_on(tmp_path / "set")
    assert len(rows["modules"]) == 2
    gone = {row[0] for row in first["modules"]} - {row[0] for row in rows["modules"]}
    assert not [row for row in rows["values"] if row[0] in gone]
    shutil.copytree(RUN, run, dirs_exist_ok=True)
    stored(tmp_path / "set", run)
    assert rows_on(tmp_path / "set")["values"] == first["values"]


@pytest.mark.slow
def test_hosts_with_parts_of_one_run_need_not_agree(tmp_path):
    one, other = copied(tmp_path / "host0" / "dumps"), copied(tmp_path / "host1" / "dumps")
    for path in one.glob(f"{INIT}*"):
        path.unlink()
    for path in set(other.iterdir()) - set(other.glob(f"{INIT}*")):
        path.unlink()
    for number, path in enumerate((one, other)):
        label = {"host": str(number), f"of{number}": "yes"}
        stored(tmp_path / "set", path, run="job", labels=label)
    assert ask(tmp_path / "set", "SELECT run_name, source_path FROM runs") == [("job", str(other))]
    assert len(ask(tmp_path / "set", MODULES)) == 3
    labels = "SELECT label, label_value FROM run_labels WHERE label <> 'dt' ORDER BY ALL"
    assert ask(tmp_path / "set", labels) == [("host", "1"), ("of0", "yes"), ("of1", "yes")]


@pytest.mark.slow
def test_own_globs_hold_for_dumps_from_elsewhere(tmp_path):
    stored(tmp_path, RUN, run="r", own_globs=["tiny_net"])
    stored(tmp_path, DEMO / "gpu_b8", run="r")
    patterns = ask(tmp_path, "SELECT own_pattern, count(*) FROM modules GROUP BY ALL")
    assert [(pattern is None, count) for pattern, count in patterns] == [(False, 5)]


KEPT = "modules outside these paths keep their previous --own"


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_note_names_places_with_other_own_globs(tmp_path, is_compacted):
    """Without a number that counts only what was looked up."""
    stored(tmp_path, RUN, run="r")
    stored(tmp_path, DEMO / "gpu_b8", run="r")
    if is_compacted:
        compact(str(tmp_path), [TODAY])
    (note,) = stored(tmp_path, RUN, run="r", own_globs=["tiny_net"]).notes
    assert note.startswith(f"run r: {KEPT}; ")
    stored(tmp_path, DEMO / "gpu_b8", run="r", own_globs=["other"])
    assert stored(tmp_path, RUN, run="r", own_globs=["other"]).notes == []
    assert stored(tmp_path, DEMO / "tpu_b8", run="r", own_globs=["other"]).notes == []
    assert stored(tmp_path, DEMO / "tpu_b8", run="r").notes == []


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("metadata", "mtime", "day"),
    [
        ({}, 1_750_000_000, "2025-06-15"),
        ({"dt": "2024-02-29"}, 1_750_000_000, "2024-02-29"),
        ({}, 0, layout.UNKNOWN_DAY),
    ],
)
def test_the_day_is_what_metadata_says_or_when_it_was_dumped(tmp_path, metadata, mtime, day):
    run = copied(tmp_path / "run")
    for path in run.iterdir():
        os.utime(path, (mtime, mtime))
    ingest(str(tmp_path / "set"), [run], metadata=metadata)
    for path in run.iterdir():
        os.utime(path)
    change(run)
    ingest(str(tmp_path / "set"), [run])  # a run stays on its day
    assert {layout.parse(name).day for name in objects(tmp_path / "set")} == {day}


def test_a_label_that_is_no_day_is_refused(tmp_path):
    with pytest.raises(UsageError, match="dt of run cpu_b8"):
        ingest(str(tmp_path / "set"), [RUN], labels={"dt": "../../x"})
    assert not objects(tmp_path / "set")


@pytest.mark.slow
def test_an_unreadable_module_is_reported_alone(tmp_path, monkeypatch):
    from bufdb.ingest import group

    load = group.load

    def broken(files, *more):
        if files.key == INIT:
            raise OSError(5, "Input/output error")
        return load(files, *more)

    monkeypatch.setattr(group, "load", broken)
    summary = stored(tmp_path / "set")
    assert (summary.exit_code, summary.module_count, summary.skipped_count) == (4, 2, 1)
    codes = ask(tmp_path / "set", "SELECT code FROM diagnostics WHERE module_id IS NULL")
    assert codes == [("unreadable_file",)]


@pytest.mark.slow
def test_the_command_writes_and_says_what_it_did(call, tmp_path):
    code, out, err = call("ingest", RUN, "--out", tmp_path / "set", "--label", "batch=8")
    assert (code, out) == (0, "") and "ingested 3 modules" in err
    assert not (tmp_path / "bufdb.duckdb").exists()
    code, out, _ = call("query", "runs", "--on", tmp_path / "set", "--format", "json")
    assert code == 0 and json.loads(out)[0]["module_count"] == 3


@pytest.mark.slow
def test_processes_that_read_change_no_object(call, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "FEW_BYTES", 0)
    for jobs in ("1", "2"):
        paths = (RUN, RUN.parent / "tpu_b8")
        assert call("ingest", *paths, "--out", tmp_path / jobs, "--jobs", jobs, "-q")[0] == 0
    folders = (tmp_path / "1", tmp_path / "2")
    one, two = ({path.relative_to(it) for path in it.rglob("*.parquet")} for it in folders)
    # File names contain a hash of the contents; rows about the run have the time of the ingest.
    assert {path.parts[0] for path in one ^ two} <= {"runs"}
    assert len(one & two) > 20


@pytest.mark.slow
def test_rows_of_another_schema_version_are_refused(tmp_path):
    prepared(tmp_path)
    with duckdb.connect() as con:
        for name in objects(tmp_path, "modules"):
            sql = f"SELECT * REPLACE (4 AS schema_version) FROM read_parquet('{tmp_path}/{name}')"
            con.execute(f"CREATE OR REPLACE TABLE rows AS {sql}")
            con.execute(f"COPY rows TO '{tmp_path}/{name}' (FORMAT parquet)")
    with pytest.raises(DatabaseError, match="schema version 4"):
        rows_on(tmp_path)


@pytest.mark.slow
def test_however_an_ingest_is_cut_its_rows_are_the_same(tmp_path, monkeypatch):
    prepared(tmp_path / "one")
    monkeypatch.setattr("bufdb.dataset.dump_ingest.TRANSACTION_BYTES", 1)
    stored(tmp_path / "other", block_bytes=4096)
    assert rows_on(tmp_path / "one") == rows_on(tmp_path / "other")


@pytest.mark.slow
def test_memory_profiles_are_kept_by_place(tmp_path, con):
    run = copied(tmp_path / "cpu_b8")
    (run / "mem.prof").write_bytes(packed([Sample(7, [("a.py", "f", 1)])]))
    other = tmp_path / "other.prof"
    other.write_bytes(packed([Sample(5)]))
    for path in (run, other, run, other):
        ingest(str(tmp_path / "set"), [path], run="cpu_b8")
    ingest_into(con, run, "cpu_b8")
    ingest_into(con, other, "cpu_b8")
    actual, expected = rows_on(tmp_path / "set"), all_rows(con, "memory")
    for table in LIVE_TABLES:
        assert actual[table] == expected[table], table
    assert len(actual["live_profiles"]) == 2
    (run / "mem.prof").unlink()
    ingest(str(tmp_path / "set"), [run], run="cpu_b8")
    assert len(rows_on(tmp_path / "set")["live_profiles"]) == 2
    ingest(str(tmp_path / "set"), [run], run="cpu_b8", prune=True)
    assert [row[1] for row in rows_on(tmp_path / "set")["live_profiles"]] == ["other.prof"]
