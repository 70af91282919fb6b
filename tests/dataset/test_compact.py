"""Compaction: few files, and the same rows at every moment, even with concurrent writers."""

import os
import time

import duckdb
import pytest
from datasets import RUN, TODAY, age, change, copied, objects, prepared, rows_on, stored

from bufdb.dataset import compact as compaction
from bufdb.dataset import layout, storage
from bufdb.dataset.compact import compact
from bufdb.dataset.snapshot import open_readable
from bufdb.errors import DatabaseError


@pytest.mark.slow
def test_a_day_becomes_one_file_per_table(tmp_path):
    prepared(tmp_path)
    rows, small = rows_on(tmp_path), objects(tmp_path)
    done = compact(str(tmp_path))
    assert (done.day_count, done.owner_count, done.removed_count) == (1, 4, 0)
    assert done.kept_count == len(small) and small < objects(tmp_path)
    assert rows_on(tmp_path) == rows
    age(tmp_path, 3000)
    assert compact(str(tmp_path)).removed_count == 0
    age(tmp_path, 700)
    done = compact(str(tmp_path))
    assert (done.day_count, done.removed_count) == (0, len(small))
    tables = [layout.parse(name).table for name in objects(tmp_path)]
    own = {"schema_info", "role_rules", "op_categories", "memory_spaces"}
    assert sorted(tables) == sorted(table for table in rows if rows[table] and table not in own)
    assert rows_on(tmp_path) == rows


@pytest.mark.slow
def test_many_owners_are_several_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "PART_OWNERS", 4)
    for run in ("a", "b", "c"):
        stored(tmp_path, run=run)
    rows = rows_on(tmp_path)
    done = compact(str(tmp_path), grace_s=0)
    names = [layout.parse(name) for name in objects(tmp_path)]
    assert done.owner_count == 12 and len({name.part_id for name in names}) == 3
    assert all(name.owner_id is None for name in names)
    assert rows_on(tmp_path) == rows
    assert compact(str(tmp_path), grace_s=0).day_count == 0
    assert [len(parts_of(tmp_path, run)) for run in ("a", "b", "c")] == [1, 1, 1]


def parts_of(root, run):
    """Parts of a dataset that have modules of a run."""
    sql = "SELECT DISTINCT part_id FROM read_parquet(?) WHERE run_name = ?"
    rows = duckdb.execute(sql, [f"{root}/modules/*/*.parquet", run]).fetchall()
    return [part for (part,) in rows]


@pytest.mark.slow
def test_only_closed_days_and_those_named_are_rewritten(tmp_path):
    for day in ("2026-01-01", "2026-01-02", "9999-12-31"):
        stored(tmp_path, run=day, labels={"dt": day})
    assert compact(str(tmp_path), ["2026-01-02"]).day_count == 1
    assert compact(str(tmp_path)).day_count == 1
    assert compact(str(tmp_path), ["9999-12-31"]).day_count == 1
    assert compact(str(tmp_path)).day_count == 0


@pytest.mark.slow
def test_at_every_moment_of_a_compaction_each_row_is_there_once(tmp_path, monkeypatch):
    prepared(tmp_path)
    rows, put, moments, count = rows_on(tmp_path), storage.Folder.put, [], []

    def watched(self, made, name):
        put(self, made, name)
        count.append(name)
        if len(count) % 4 == 1 or "modules" in name or "owners" in name:
            moments.append(rows_on(tmp_path) == rows)

    monkeypatch.setattr(storage.Folder, "put", watched)
    compact(str(tmp_path))
    assert len(moments) > 6 and all(moments)


@pytest.mark.slow
def test_at_every_moment_of_a_removal_each_row_is_there_once(tmp_path, monkeypatch):
    prepared(tmp_path)
    rows, remove, moments = rows_on(tmp_path), storage.Folder.remove, []
    compact(str(tmp_path))

    def watched(self, names):
        for number, name in enumerate(names):
            remove(self, [name])
            if number % 10 == 0:
                moments.append(rows_on(tmp_path) == rows)

    monkeypatch.setattr(storage.Folder, "remove", watched)
    compact(str(tmp_path), grace_s=0)
    assert len(moments) > 5 and all(moments)


@pytest.mark.slow
def test_a_module_that_is_ingested_meanwhile_counts(tmp_path, monkeypatch):
    run = copied(tmp_path / "cpu_b8")
    stored(tmp_path / "expected", run)
    stored(tmp_path / "set", run)
    change(run)
    stored(tmp_path / "expected", run)
    write, is_done = storage.Folder.put, []

    def meanwhile(self, made, name):
        if not is_done:
            is_done.append(True)
            stored(tmp_path / "set", run)
        write(self, made, name)

    monkeypatch.setattr(storage.Folder, "put", meanwhile)
    assert compact(str(tmp_path / "set")).day_count == 1
    expected = rows_on(tmp_path / "expected")
    assert rows_on(tmp_path / "set") == expected
    compact(str(tmp_path / "set"), grace_s=0)
    compact(str(tmp_path / "set"), grace_s=0)
    assert rows_on(tmp_path / "set") == expected
    assert not [name for name in objects(tmp_path / "set") if layout.parse(name).owner_id]


@pytest.mark.slow
def test_two_compactions_at_once_leave_each_row_once(tmp_path, monkeypatch):
    prepared(tmp_path)
    rows, put, is_done = rows_on(tmp_path), storage.Folder.put, []

    def meanwhile(self, made, name):
        if not is_done:
            is_done.append(True)
            compact(str(tmp_path))
        put(self, made, name)

    monkeypatch.setattr(storage.Folder, "put", meanwhile)
    compact(str(tmp_path))
    assert rows_on(tmp_path) == rows
    compact(str(tmp_path), grace_s=0)
    assert rows_on(tmp_path) == rows
    parts = {layout.parse(name).part_id for name in objects(tmp_path)}
    assert len(parts) == 1


@pytest.mark.slow
def test_what_no_marker_commits_is_not_seen_and_not_removed(tmp_path):
    prepared(tmp_path)
    rows = rows_on(tmp_path)
    (first, *_) = sorted(objects(tmp_path, "modules"))
    (tmp_path / first).unlink()
    key = layout.parse(first).owner_id
    left = {name for name in objects(tmp_path) if layout.parse(name).owner_id == key}
    assert not [row for row in rows_on(tmp_path)["values"] if row[0] == key]
    compact(str(tmp_path), grace_s=0)
    assert left <= objects(tmp_path)
    stored(tmp_path)
    assert rows_on(tmp_path) == rows


@pytest.mark.slow
def test_only_files_of_a_killed_writer_go(tmp_path):
    prepared(tmp_path)
    rows, outside = rows_on(tmp_path), tmp_path / "outside"
    made = {name: tmp_path / storage.STAGING / name for name in ("left", "begun", "slow")}
    for folder in (outside, *made.values()):
        (folder / "values").mkdir(parents=True)
        (folder / "values" / "data_0.parquet").write_bytes(b"PAR1")
    (made["left"] / "link").symlink_to(outside)
    (tmp_path / storage.STAGING / "link").symlink_to(outside)
    for name, age_s in (("left", 4000), ("begun", 3000), ("slow", 4000)):
        for path in (*made[name].rglob("*"), made[name]):
            times = (time.time() - age_s,) * 2
            os.utime(path, times, follow_symlinks=False)
    (made["slow"] / "values" / "data_0.parquet").write_bytes(b"PAR1PAR1")
    assert compact(str(tmp_path), grace_s=5000).stopped_count == 0
    done = compact(str(tmp_path), grace_s=0)
    assert done.stopped_count == 1 and "those of 1 stopped writers" in done.line()
    assert [name for name in made if made[name].exists()] == ["begun", "slow"]
    assert (outside / "values" / "data_0.parquet").exists()
    assert rows_on(tmp_path) == rows


@pytest.mark.slow
def test_no_link_leads_out_of_a_dataset(tmp_path):
    """Neither for what is removed nor for what is written; the root itself may be one."""
    outside = tmp_path / "outside"
    (outside / "precious").mkdir(parents=True)
    (outside / "precious" / "file.txt").write_text("mine")
    os.utime(outside / "precious" / "file.txt", (0, 0))
    os.utime(outside / "precious", (0, 0))
    root = tmp_path / "data"
    prepared(root)
    (tmp_path / "link").symlink_to(root)
    staging = root / storage.STAGING
    staging.rmdir()
    staging.symlink_to(outside)
    table = root / "modules"
    for link in (staging, table):
        if link is table:
            staging.unlink()
            table.rename(outside / "modules")
            table.symlink_to(outside / "modules")
        before = sorted(outside.rglob("*"))
        for folder in (root, tmp_path / "link"):
            with pytest.raises(DatabaseError, match="is a symbolic link"):
                compact(str(folder), grace_s=0)
        assert sorted(outside.rglob("*")) == before
    table.unlink()
    (outside / "modules").rename(table)
    assert compact(str(tmp_path / "link"), grace_s=0).owner_count == 4


@pytest.mark.slow
def test_reading_what_was_removed_is_an_error(tmp_path, monkeypatch):
    from bufdb.dataset import snapshot

    prepared(tmp_path)
    monkeypatch.setattr(snapshot, "COPIED_BYTES", 0)
    with open_readable(str(tmp_path)) as con:
        compact(str(tmp_path), grace_s=0)
        with pytest.raises(Exception, match="No files found"):
            con.execute('SELECT sum(size_bytes) FROM "values"').fetchall()


@pytest.mark.slow
def test_the_command(call, tmp_path):
    prepared(tmp_path)
    code, out, err = call("compact", tmp_path, "--dt", TODAY, "--grace", "0")
    assert (code, out) == (0, "") and "4 modules and runs of 1 days" in err
    assert call("compact", tmp_path, "-q")[1:] == ("", "")
    for odd in ("today", "2026-99-99"):
        assert call("compact", tmp_path, "--dt", odd)[0] == 2
        assert call("ingest", RUN, "--out", tmp_path, "--label", f"dt={odd}")[0] == 2
    assert call("compact", tmp_path / "none")[0] == 3
    with pytest.raises(DatabaseError):
        compact(str(RUN))


@pytest.mark.slow
def test_what_is_stored_under_no_date_is_compacted_too(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(layout, "is_day", lambda text: True)
        stored(tmp_path, labels={"dt": "2026-99-99"})
    assert compact(str(tmp_path)).day_count == 1
