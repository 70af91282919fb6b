"""`bufdb upgrade`: databases of each version answer as a fresh ingest does, and nothing is lost."""

import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import duckdb
import pytest
import zstandard
from kept_database import RULE, RUN
from places import DEMO, ROOT

import bufdb
from bufdb import cli, resources
from bufdb.database import store
from bufdb.dataset import layout
from bufdb.errors import DatabaseError
from bufdb.ingest.upgrade import upgrade
from bufdb.query.catalogue import load
from bufdb.query.execute import execute_query

DATA = ROOT / "data"
VERSIONS = DATA / "versions"
PROFILES = DATA / "profiles"
LABELS = ["--run", RUN, "--label", "batch=8", "--metadata", "commit=1f3a"]
KILLS = int(os.environ.get("BUFDB_KILLS", "3"))
OF_READING = {"diagnostics", "file_contents", "role_rules", "row_counts", "runs"}
"""Tables of how and when dumps were read, and by which rules."""
VARYING = {"ingested_at", "dumped_at"}
"""Of an answer: when the run was ingested, and its files written, as the checkout has them."""


def run(*arguments):
    assert cli.run([*arguments, "-q"]) in (0, 4)


def unpacked(version, folder):
    path = folder / f"schema_{version}.duckdb"
    data = (VERSIONS / f"{path.name}.zst").read_bytes()
    path.write_bytes(zstandard.ZstdDecompressor().decompress(data))
    return str(path)


def fresh(folder, version):
    """What this version makes of what a kept database was made of."""
    db = str(folder / f"fresh_{version}.duckdb")
    run("ingest", str(DEMO / "cpu_b8"), *LABELS, "--db", db)
    if version >= 7:
        run("profile", str(PROFILES / "cpu_b8.xplane.pb.gz"), "--run", RUN, "--db", db)
        run("ingest", str(PROFILES / "cpu_b8.prof"), "--run", RUN, "--db", db)
    return db


def answers(db, unlike):
    """The answers of saved queries that read one of some tables, and of two about the reading."""
    rows_by_query = {}
    con = store.open_readable(db)
    for file in sorted(resources.query_folder().glob("*.sql")):
        query = load(file)
        if not unlike & layout.named(query.sql) and query.name not in ("diagnostics", "runs"):
            continue
        result = execute_query(con, query, {})
        names = [name for name, _ in result.columns]
        rows_by_query[query.name] = [
            {
                name: value
                for name, value in zip(names, row, strict=True)
                if name not in VARYING and name != "source_path"
            }
            for row in result.rows
        ]
    con.close()
    return rows_by_query


def tables(db):
    """All rows of all tables, except times of ingests."""
    with duckdb.connect(db, read_only=True) as con:
        names = [
            name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        ]
        star = {"runs": "* EXCLUDE (ingested_at)"}
        return {
            name: sorted(
                map(repr, con.execute(f'SELECT {star.get(name, "*")} FROM "{name}"').fetchall())
            )
            for name in names
        }


def rows(db, sql):
    with duckdb.connect(db, read_only=True) as con:
        return con.execute(sql).fetchall()


def test_this_version_is_among_the_kept_ones():
    assert (VERSIONS / f"schema_{store.SCHEMA_VERSION}.duckdb.zst").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "unlike"),
    [
        (6, {"instruction_costs", "instruction_executions", "recompute_instructions"}),
        (7, {"instruction_executions", "live_arrays", "live_frames", "live_profiles"}),
    ],
)
def test_each_version_answers_as_a_fresh_ingest(tmp_path, version, unlike):
    """Row by row, except what a version did not store; queries that read this answer alike."""
    db = unpacked(version, tmp_path)
    done = upgrade(db)
    assert (done.version_before, done.module_count, done.read_count) == (version, 3, 0)
    fresh_db = fresh(tmp_path, version)
    stored, wanted = tables(db), tables(fresh_db)
    differing = {name for name in wanted if stored[name] != wanted[name]}
    assert differing - OF_READING == unlike
    old, new = answers(db, unlike), answers(fresh_db, unlike)
    findings = old.pop("diagnostics")
    assert [row["code"] for row in findings] == ["not_read_again"] * 3
    assert new.pop("diagnostics") == []
    for row in new["runs"]:  # what is not kept takes no room
        row["file_content_bytes"] = 0
    # Costs of instructions, and when a profile was taken, are not in the tables of then.
    others = {"time-by", "process", "process-curve"}
    assert {name for name in old if old[name] != new[name]} <= others
    assert cli.run(["check", "--skip", "lookups", "--db", db]) == 0  # a rule is edited


@pytest.mark.slow
def test_what_is_kept_is_stored_as_a_fresh_ingest(tmp_path):
    """Row by row, so that every query answers the same."""
    db = unpacked(9, tmp_path)
    done = upgrade(db)
    assert (done.version_before, done.module_count, done.read_count) == (9, 3, 3)
    old, new = tables(db), tables(fresh(tmp_path, 9))
    assert len(old.pop("runs")) == len(new.pop("runs")) == 1  # when and where its files were
    assert old.pop("role_rules") == sorted([repr(RULE), *new.pop("role_rules")])
    assert old == new
    assert cli.run(["check", "--skip", "lookups", "--db", db]) == 0  # a rule is edited


@pytest.mark.parametrize("version", [6, 7, 9])
def test_what_a_user_wrote_comes_along(tmp_path, version):
    db = unpacked(version, tmp_path)
    written = {}
    for table in ("run_labels", "live_arrays", "live_programs", "instruction_times"):
        if table == "run_labels" or version >= 7:
            names = rows(
                db, f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{table}'"
            )
            sql = f"SELECT {', '.join(name for (name,) in names)} FROM {table} ORDER BY ALL"
            written[table, sql] = rows(db, sql)
    upgrade(db)
    (labels, *_) = written.values()
    assert labels == [(RUN, "batch", "8", False), (RUN, "commit", "1f3a", True)]
    for (_, sql), before in written.items():
        assert before and rows(db, sql) == before
    assert rows(db, "SELECT total_bytes, profile_name FROM live_totals ORDER BY ALL") == rows(
        db, "SELECT sum(total_bytes), profile_name FROM live_arrays GROUP BY ALL ORDER BY ALL"
    )
    assert rows(db, "SELECT * FROM role_rules WHERE rule_order < 0") == [RULE]
    assert rows(db, "SELECT count(*) FROM op_categories WHERE category = 'rematerialised'") == [
        (0,)
    ]


@pytest.mark.parametrize("is_kept", [True, False])
def test_columns_of_shapes_are_made_for_an_earlier_build(tmp_path, is_kept):
    """Read again, or of the allocations that are copied."""
    db = unpacked(9, tmp_path)
    sql = "SELECT module_id, entry_hash, shapes_name FROM modules ORDER BY ALL"
    expected = rows(db, sql)
    assert len(expected) == 3 and all(entry_hash for _, entry_hash, _ in expected)
    with duckdb.connect(db) as con:
        con.execute("ALTER TABLE modules DROP entry_hash; ALTER TABLE modules DROP shapes_name")
        if not is_kept:
            con.execute("DELETE FROM file_contents")
    with pytest.raises(DatabaseError, match=r"no modules[.]entry_hash.*'bufdb upgrade"):
        store.open_readable(db)
    assert upgrade(db).read_count == (3 if is_kept else 0)
    assert rows(db, sql) == expected


@pytest.mark.slow
def test_what_is_read_again_is_what_an_ingest_stores(tmp_path):
    """Directories, an archive, a log, several --own and a run without any module."""
    db = str(tmp_path / "t.duckdb")
    archive = tmp_path / "dumps.zip"
    with zipfile.ZipFile(archive, "w") as members:
        for file in (DEMO / "gpu_b8").iterdir():
            members.write(file, file.name)
    run("ingest", str(DEMO), "--run-from-dir", "--db", db)
    run("ingest", str(archive), "--db", db)
    run("ingest", str(DATA / "oom"), "--run", "logs", "--own", "jax", "--db", db)
    run("ingest", str(PROFILES / "cpu_b8.prof"), "--run", "process", "--db", db)
    run("ingest", str(DEMO / "cpu_b8"), "--run", "mixed", "--own", "flax", "--db", db)
    before = tables(db)
    done = upgrade(db, jobs=2)
    assert done.read_count == done.module_count > 20 and not done.notes
    assert tables(db) == before
    assert not list(tmp_path.glob("*.upgrading*")) and not list(tmp_path.glob("*.wal"))


def test_copied_modules_are_read_when_ingested_again(tmp_path, capfd):
    db = unpacked(6, tmp_path)
    upgrade(db)
    assert cli.run(["ingest", str(DEMO / "cpu_b8"), "--run", RUN, "--db", db]) == 0
    assert "ingested 3 modules (3 replaced)" in capfd.readouterr().err
    assert rows(db, "SELECT count(*) FROM diagnostics") == [(0,)]
    assert cli.run(["ingest", str(DEMO / "cpu_b8"), "--run", RUN, "--db", db]) == 0
    assert "unchanged 3" in capfd.readouterr().err


def test_a_second_upgrade_keeps_the_notices_of_the_first(tmp_path):
    db = unpacked(6, tmp_path)
    upgrade(db)
    before = tables(db)
    assert len(before["diagnostics"]) == 3
    upgrade(db)
    assert tables(db) == before


def test_an_unknown_count_of_executions_is_not_one(tmp_path):
    db = unpacked(7, tmp_path)
    upgrade(db)
    ((known, unknown),) = rows(
        db,
        "SELECT count(accessed_bytes), count(*) FILTER (WHERE unknown_reason LIKE '%schema 7') "
        "FROM instruction_traffic",
    )
    assert known == 0 and unknown > 0


def test_damaged_bytes_leave_the_rows_as_they_were(tmp_path):
    db = unpacked(9, tmp_path)
    with duckdb.connect(db) as con:
        con.execute(
            "UPDATE file_contents SET compressed = 'x' WHERE content_hash = (SELECT "
            "content_hash FROM files WHERE path LIKE '%jit_init%buffer-assignment.txt')"
        )
    before = rows(db, 'SELECT * FROM "values" ORDER BY ALL')
    done = upgrade(db)
    assert done.read_count == 2 and len(done.notes) == 2
    assert rows(db, 'SELECT * FROM "values" ORDER BY ALL') == before
    ((message,),) = rows(db, "SELECT message FROM diagnostics")
    assert "its kept dump files are damaged" in message


def test_an_older_file_is_refused_with_the_command(tmp_path, capfd):
    db = unpacked(6, tmp_path)
    before = Path(db).read_bytes()
    for command in (["summary"], ["ingest", str(DEMO / "cpu_b8")], ["runs", "unlabel", RUN, "a"]):
        assert cli.run([*command, "--db", db]) == 3
        err = capfd.readouterr().err
        assert err.endswith(f"has schema version 6, this bufdb needs 9; run 'bufdb upgrade {db}'\n")
    assert Path(db).read_bytes() == before


def test_a_file_of_a_later_version_is_left_alone(tmp_path, capfd):
    db = unpacked(9, tmp_path)
    with duckdb.connect(db) as con:
        con.execute("UPDATE schema_info SET schema_version = 99")
    before = Path(db).read_bytes()
    for command in (
        ["summary", "--db", db],
        ["upgrade", db],
        ["runs", "unlabel", RUN, "a", "--db", db],
    ):
        assert cli.run(command) == 3
        (line,) = capfd.readouterr().err.splitlines()
        assert "a later bufdb wrote it: pip install -U bufdb" in line
    assert Path(db).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [Path(db).name]


def test_what_is_in_the_log_comes_along(tmp_path):
    db = unpacked(9, tmp_path)
    code = (
        "import duckdb, os, sys; con = duckdb.connect(sys.argv[1]); "
        "con.execute(\"UPDATE run_labels SET label_value = '9' WHERE label = 'batch'\"); "
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, db], check=True)
    assert Path(f"{db}.wal").exists()
    upgrade(db)
    assert not Path(f"{db}.wal").exists()
    assert rows(db, "SELECT label_value FROM run_labels WHERE label = 'batch'") == [("9",)]


def test_a_link_and_permissions_stay(tmp_path):
    db = Path(unpacked(9, tmp_path))
    db.chmod(0o640)
    link = tmp_path / "link.duckdb"
    link.symlink_to(db)
    upgrade(str(link))
    assert link.is_symlink() and db.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE modules RENAME TO m; CREATE VIEW modules AS FROM m",
        "DROP TABLE files",
        "DROP TABLE schema_info",
        "CREATE TABLE g (a INT, b INT AS (a + 1))",
    ],
    ids=["view", "no files", "no version", "computed"],
)
def test_a_file_of_something_else_is_refused(tmp_path, sql, capfd):
    db = unpacked(9, tmp_path)
    with duckdb.connect(db) as con:
        con.execute(f"{sql}; CHECKPOINT")
    before = Path(db).read_bytes()
    assert cli.run(["upgrade", db]) == 3
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert Path(db).read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_upgrade_left_is_removed(tmp_path):
    db = unpacked(9, tmp_path)
    Path(f"{db}.upgrading").write_bytes(b"half a database")
    assert bufdb.connect(db).upgrade().read_count == 3
    assert [path.name for path in tmp_path.iterdir()] == [Path(db).name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "version", [None, *(pytest.param(one, marks=pytest.mark.by_hand) for one in (6, 7, 9))]
)
def test_a_killed_upgrade_loses_nothing(tmp_path, version):
    if version is None:
        first = str(tmp_path / "t.duckdb")
        for name in ("cpu_b8", "gpu_b8"):
            run("ingest", str(DEMO / name), "--run", name, "--db", first)
    else:
        first = unpacked(version, tmp_path)
    before, data = tables(first), Path(first).read_bytes()
    command = [sys.executable, "-m", "bufdb", "upgrade", "-q", "--jobs", "2"]
    began = time.monotonic()
    subprocess.run([*command, first], check=True, cwd=ROOT)
    seconds = time.monotonic() - began
    whole = tables(first)
    assert version is not None or whole == before
    rng, killed = random.Random(0), 0
    for number in range(4 * KILLS):
        db = str(tmp_path / f"{number}.duckdb")
        Path(db).write_bytes(data)
        with subprocess.Popen([*command, db], cwd=ROOT) as process:
            began = time.monotonic()
            try:
                process.wait(rng.uniform(0.2, 1.0) * seconds)
                # The first one may have begun slower, as on a busy machine.
                seconds = min(seconds, time.monotonic() - began)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        assert Path(db).read_bytes() == data or tables(db) == whole
        upgrade(db)
        assert tables(db) == whole
        assert not list(tmp_path.glob(f"{number}.duckdb?*"))
        Path(db).unlink()
        if killed == KILLS:
            break
    assert killed == KILLS
