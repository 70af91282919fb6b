"""Runs: one per sub-directory, labels, and removal without a trace."""

import json
import shutil
from pathlib import Path

import duckdb
import pytest
from places import DEMO
from small_db import insert

from bufdb.database import runs, store
from bufdb.ingest.ingest import ingest
from bufdb.ingest.rows import MODULE_TABLES

pytestmark = pytest.mark.usefixtures("empty_folder")


def rows(sql, db="bufdb.duckdb"):
    with duckdb.connect(db, read_only=True) as con:
        return con.execute(sql).fetchall()


def content(db="bufdb.duckdb"):
    """All rows of all tables but the times of ingest."""
    with duckdb.connect(db, read_only=True) as con:
        tables = [t for (t,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {
            table: sorted(
                map(repr, con.execute(f'SELECT * EXCLUDE (ingested_at) FROM "{table}"').fetchall())
                if table == "runs"
                else map(repr, con.execute(f'SELECT * FROM "{table}"').fetchall())
            )
            for table in tables
        }


@pytest.fixture(scope="module")
def two_runs(empty_db, tmp_path_factory):
    path = Path(shutil.copy(empty_db, tmp_path_factory.mktemp("two") / "runs.duckdb"))
    for name in ("cpu_b8", "cpu_b16"):
        assert ingest(str(path), [DEMO / name]).exit_code == 0
    return path


@pytest.fixture
def ingested(two_runs, empty_folder):
    shutil.copy(two_runs, "bufdb.duckdb")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_labels_that_are_not_stored_to_the_end_are_as_before(con, monkeypatch, error):
    delete = runs._delete_labels

    def stopped(*words):
        delete(*words)
        raise error

    insert(con, "runs", run_name="a")
    insert(con, "run_labels", run_name="a", label="x", label_value="1")
    monkeypatch.setattr(runs, "_delete_labels", stopped)
    with pytest.raises(error):
        runs.set_labels(con, "a", {"x": "2", "y": "3"})
    with pytest.raises(error):
        runs.remove_labels(con, "a", ["x"])
    labels = con.execute("SELECT label, label_value FROM run_labels").fetchall()
    assert labels == [("x", "1")]


# -- one run per sub-directory ----------------------------------------------------------------


@pytest.mark.slow
def test_each_sub_directory_is_a_run(call, tmp_path):
    folder = tmp_path / "dumps"
    for name in ("cpu_b8", "cpu_b16", "gpu_b8"):
        shutil.copytree(DEMO / name, folder / name)
    (folder / "empty").mkdir()
    dump = next((folder / "cpu_b8").glob("*-buffer-assignment.txt"))
    shutil.copy(dump, folder / dump.name)
    arguments = ("ingest", folder, "--run-from-dir", "--labels-from", "cpu_b{batch}")
    code, out, err = call(*arguments, "--label", "who=me")
    assert (code, out) == (0, "")
    assert f"skipped: 1 dumps in {folder} outside its sub-directories\n" in err
    assert f"skipped: {folder}/empty has no buffer assignment\n" in err
    assert "no labels for run gpu_b8: cpu_b{batch} does not match its name\n" in err
    assert "ingested 8 modules (0 replaced), " in err
    assert rows("SELECT * FROM run_labels ORDER BY ALL") == [
        ("cpu_b16", "batch", "16", False),
        ("cpu_b16", "who", "me", False),
        ("cpu_b8", "batch", "8", False),
        ("cpu_b8", "who", "me", False),
        ("gpu_b8", "who", "me", False),
    ]
    before = content()
    code, _, err = call(*arguments, "--label", "who=me")
    assert (code, content()) == (0, before)
    assert "unchanged 8" in err


@pytest.mark.slow
def test_a_linked_directory_keeps_its_own_name(call, tmp_path):
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "mine").symlink_to(DEMO / "cpu_b8")
    assert call("ingest", "dumps", "--run-from-dir")[0] == 0
    assert rows("SELECT run_name FROM runs") == [("mine",)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run-from-dir", "--run", "a"), "--run names one run"),
        (("--labels-from", "b{b}"), "--labels-from needs --run-from-dir"),
        (
            ("--run-from-dir", "--labels-from", "b{b}", "--label", "b=1"),
            "label b is in --label and",
        ),
        (("--run-from-dir", "--labels-from", "b"), "expected a placeholder"),
    ],
)
def test_options_that_contradict(call, arguments, message):
    code, out, err = call("ingest", DEMO, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("bufdb.duckdb").exists()


def test_no_sub_directory_with_dumps(call, tmp_path):
    code, _, err = call("ingest", DEMO / "cpu_b8", "--run-from-dir")
    assert (code, "no directory in" in err) == (2, True)
    (tmp_path / "a" / "b").mkdir(parents=True)
    code, _, err = call("ingest", "a", "--run-from-dir")
    assert (code, "no buffer assignment in a sub-directory of a" in err) == (2, True)
    (tmp_path / "file").touch()
    code, _, err = call("ingest", "file", "--run-from-dir")
    assert (code, "wants a directory of directories" in err) == (2, True)


def test_two_sub_directories_of_one_name(call, tmp_path):
    for parent in ("a", "b"):
        shutil.copytree(DEMO / "cpu_b8", tmp_path / parent / "same")
    code, _, err = call("ingest", "a", "b", "--run-from-dir")
    assert (code, "would both be run same" in err) == (2, True)


# -- list and label ---------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_lists_what_the_dumps_say(call, ingested):
    call("runs", "label", "cpu_b8", "batch=8", "remat=none")
    for arguments in (("runs",), ("runs", "list")):
        code, out, err = call(*arguments, "--format", "jsonl")
        assert (code, err) == (0, "")
        run_rows = {row["run_name"]: row for row in map(json.loads, out.splitlines())}
        assert run_rows["cpu_b16"]["labels"] is None
        row = run_rows["cpu_b8"]
        assert row["labels"] == "batch=8 remat=none"
        assert (row["module_count"], row["platforms"], row["format_eras"]) == (3, "cpu", "C")
        assert (row["max_partition_count"], row["problem_count"]) == (1, 0)
        assert row["compiler_options"] == (
            "xla_backend_optimization_level=0 xla_cpu_enable_fast_min_max=false"
        )


@pytest.mark.slow
def test_many_compiler_options_are_counted(call):
    call("ingest", DEMO / "tpu_b8")
    _, out, _ = call("runs", "--format", "jsonl")
    assert json.loads(out)["compiler_options"] == "35 options"


@pytest.mark.slow
def test_labels_are_replaced_and_removed(call, ingested):
    assert call("runs", "label", "cpu_b8", "a=1", "b=2") == (0, "", "")
    assert call("runs", "label", "cpu_b8", "a=x=y") == (0, "", "")
    assert rows("SELECT * FROM run_labels ORDER BY ALL") == [
        ("cpu_b8", "a", "x=y", False),
        ("cpu_b8", "b", "2", False),
    ]
    assert call("runs", "unlabel", "cpu_b8", "a") == (0, "", "")
    assert rows("SELECT * FROM run_labels") == [("cpu_b8", "b", "2", False)]


@pytest.mark.slow
def test_labels_become_metadata_and_metadata_labels(call, ingested):
    call("runs", "label", "cpu_b8", "commit=1", "batch=8")
    assert call("runs", "label", "--metadata", "cpu_b8", "commit=2") == (0, "", "")
    assert call("ingest", DEMO / "cpu_b8", "--metadata", "batch=9", "--label", "x=1")[0] == 0
    assert rows("SELECT * FROM run_labels ORDER BY ALL") == [
        ("cpu_b8", "batch", "9", True),
        ("cpu_b8", "commit", "2", True),
        ("cpu_b8", "x", "1", False),
    ]
    shown = json.loads(call("runs", "--format", "jsonl")[1].splitlines()[-1])
    assert (shown["labels"], shown["metadata"]) == ("x=1", "batch=9 commit=2")
    assert call("runs", "label", "cpu_b8", "commit=2")[0] == 0
    assert ("cpu_b8", "commit", "2", False) in rows("SELECT * FROM run_labels")
    assert call("ingest", DEMO / "cpu_b8", "--metadata", "x")[2].endswith(
        "--metadata wants K=V, got 'x'\n"
    )
    assert call("check")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("label", "cpu_b9", "a=1"), "no run 'cpu_b9'; did you mean 'cpu_b8'?"),
        (("label", "cpu_b8", "a"), "label wants K=V, got 'a'"),
        (("unlabel", "cpu_b8", "a"), "run cpu_b8 has no label 'a'; it has none"),
        (("remove", "cpu_b16", "zzz"), "no run 'zzz'; there is cpu_b16, cpu_b8;"),
        (("remove",), "Missing argument 'RUN...'"),
        (("relabel", "cpu_b8"), "No such command 'relabel'"),
    ],
)
def test_wrong_usage_changes_nothing(call, ingested, arguments, message):
    before = content()
    code, out, err = call("runs", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert content() == before


def test_no_database(call):
    for arguments in ((), ("label", "a", "b=c"), ("unlabel", "a", "b"), ("remove", "a")):
        code, out, err = call("runs", *arguments)
        assert (code, out) == (3, "")
        assert "no database bufdb.duckdb" in err
    assert not Path("bufdb.duckdb").exists()


# -- remove -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_removal_leaves_what_a_database_without_the_run_has(call, ingested):
    call("runs", "label", "cpu_b16", "batch=16")
    code, out, err = call("runs", "remove", "cpu_b16")
    assert (code, out) == (0, "")
    assert err.startswith("bufdb: removed run cpu_b16: 3 modules, ")
    call("ingest", DEMO / "cpu_b8", "--db", "other.duckdb")
    assert content() == content("other.duckdb")


@pytest.mark.slow
def test_removal_of_all_leaves_an_empty_database(call, ingested):
    with store.open_writable("bufdb.duckdb") as con:
        con.execute("INSERT INTO diagnostics VALUES ('cpu_b8', NULL, 'error', 'x', 'p', 1, 'm')")
    assert call("runs", "remove", "cpu_b8", "cpu_b16", "cpu_b8")[0] == 0
    store.open_writable("empty.duckdb").close()
    assert content() == content("empty.duckdb")
    assert call("runs", "--format", "csv")[1].count("\n") == 1


def test_every_table_with_rows_of_a_module_is_found(con):
    assert set(runs._tables_with(con, "module_id")) == set(MODULE_TABLES)
    assert set(runs._tables_with(con, "run_name")) == {
        "runs",
        "run_labels",
        "modules",
        "diagnostics",
        *runs.LIVE_TABLES,
    }


def test_a_failed_removal_removes_nothing(con, monkeypatch):
    con.execute("INSERT INTO runs VALUES ('a', 'p', NULL, now(), '1')")
    con.execute("INSERT INTO run_labels VALUES ('a', 'b', 'c', FALSE)")
    real = runs._delete

    def fail(con, where, values):
        if where.startswith("shapes"):
            raise KeyboardInterrupt
        return real(con, where, values)

    monkeypatch.setattr(runs, "_delete", fail)
    with pytest.raises(KeyboardInterrupt):
        runs.remove_runs(con, ["a"])
    assert con.execute("SELECT count(*) FROM run_labels").fetchall() == [(1,)]
    assert runs.names(con) == ["a"]
