"""Processes that read: the same rows as without them, and none is left, whatever goes wrong."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from kill import state_of
from places import DEMO

from bufdb.errors import BufdbError
from bufdb.ingest import storing
from bufdb.ingest.ingest import ingest
from bufdb.ingest.rows import writer
from bufdb.ingest.rows.writer import TableWriter
from bufdb.ingest.tables import MODULE_TABLES
from bufdb.ingest.workers import choice, start
from bufdb.ingest.workers.pool import Pool

RUNS = [DEMO / name for name in ("cpu_b8", "tpu_b8", "gpu_b8")]
COMMAND = "from bufdb.cli import main; main()"
COPIED = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")


@pytest.fixture
def pools(monkeypatch):
    """Others read however little there is; the pools that were made."""
    made = []
    monkeypatch.setattr(choice, "FEW_BYTES", 0)
    real = Pool.__init__

    def note(self, *given, **named):
        made.append(self)
        real(self, *given, **named)

    monkeypatch.setattr(Pool, "__init__", note)
    return made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one process stores of RUNS."""
    db = tmp_path_factory.mktemp("one") / "one.duckdb"
    ingest(str(db), RUNS)
    return state_of(db)


PARTS = "choice, messages, pool, start, worker"


def started(patch, *arguments, script=COMMAND, parts=PARTS):
    """A process that has changed something in these parts of bufdb before it begins."""
    few = f"from bufdb.ingest.workers import {parts}\nchoice.FEW_BYTES = 0"
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join([few, patch, script]), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def done(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def children(pid):
    """Those that have not ended: the forerunner is there until its copies are waited for."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if is_alive(child)]


def is_alive(pid):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "too long"
        time.sleep(0.01)


def whole_modules(db):
    """Number of modules stored; fails if a table holds rows of any other."""
    for table in MODULE_TABLES:
        stray = f'FROM "{table}" WHERE module_id NOT IN (SELECT module_id FROM modules)'
        assert rows(db, f"SELECT count(*) {stray}") == [(0,)], table
    return len(rows(db, "SELECT * FROM modules"))


# -- the same rows ----------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(("jobs", "block_bytes"), [(2, 10 << 20), (3, 2000)])
def test_new_interpreters_store_the_same(pools, expected, tmp_path, jobs, block_bytes):
    db = tmp_path / "t.duckdb"
    ingest(str(db), RUNS, jobs=jobs, block_bytes=block_bytes)
    assert state_of(db) == expected
    assert len(pools) == 1


COPIES = {
    "copies": "",
    "late": "choice._seem_many = lambda paths: False",
    "ends of children ignored": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "many messages": "worker.MESSAGE_BYTES = 1000",
    "one segment": "start.SEGMENTS = 1; worker.MESSAGE_BYTES = 1000",
    "memory of a huge module": "worker.HUGE_BYTES = 0; worker.MESSAGE_BYTES = 1000",
    "no shared memory": "messages.segments = lambda count: []",
    "no room in it": "import os\ndef full(*given): raise OSError(28, 'full')\nos.pwrite = full",
    "no more processes": "import os\ndef none(): raise OSError(11, 'none')\nos.fork = none",
}


@pytest.mark.sample(3)
@COPIED
@pytest.mark.parametrize("patch", COPIES.values(), ids=COPIES)
def test_copies_store_the_same(expected, tmp_path, patch):
    """The command line copies itself."""
    is_copy = "start.fresh = None" if "fork" not in patch else ""
    db = tmp_path / "t.duckdb"
    code, out, err = done(started(f"{patch}\n{is_copy}", "ingest", *RUNS, "--db", db, "--jobs", 3))
    assert (code, out) == (0, ""), err
    assert state_of(db) == expected


@pytest.mark.slow
def test_what_is_inserted_while_others_read_is_the_same(pools, expected, tmp_path, monkeypatch):
    real, waiting = TableWriter.idle, []

    def idle(self):
        waiting.append(self.new_rows)
        real(self)
        assert not self.new_rows

    monkeypatch.setattr(writer, "IDLE_INSERT_ROWS", 1)
    monkeypatch.setattr(writer, "MANY_ROWS", 1)
    monkeypatch.setattr(TableWriter, "idle", idle)
    db = tmp_path / "t.duckdb"
    assert ingest(str(db), RUNS, jobs=2, block_bytes=2000).module_count == 7
    assert waiting
    assert state_of(db) == expected


def test_the_next_ingest_finds_nothing_changed(pools, tmp_path):
    db = str(tmp_path / "t.duckdb")
    assert ingest(db, RUNS, jobs=2).module_count == 7
    before = state_of(Path(db))
    again = ingest(db, RUNS, jobs=2)
    assert (again.module_count, again.unchanged_count) == (0, 7)
    assert state_of(Path(db)) == before


@pytest.mark.slow
def test_what_is_in_archives_is_read_here(con, fresh, pools, tmp_path):
    """Among others that are not; an archive is open in one process."""
    folder = tmp_path / "run"
    shutil.copytree(DEMO / "cpu_b8", folder)
    shutil.make_archive(str(folder / "more"), "zip", DEMO / "gpu_b8")
    ingest_into(con, folder, jobs=2)
    with fresh() as other:
        ingest_into(other, folder)
        for table in MODULE_TABLES:
            query = f'SELECT * FROM "{table}" ORDER BY ALL'
            assert rows(con, query) == rows(other, query), table
    assert len(pools) == 1


@pytest.mark.slow
def test_files_that_are_gone_are_told_alike(fresh, pools, tmp_path, monkeypatch):
    """What is gone between the plan and the reading."""
    found = []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs) / "run"
        shutil.copytree(DEMO / "cpu_b8", folder)
        (gone,) = folder.glob("module_0004.*-live-range.txt")
        for reader in (choice.Here, Pool):
            vanish = lambda *given, real=reader.begin, gone=gone: (  # noqa: E731
                gone.unlink(missing_ok=True), real(*given))  # fmt: skip
            monkeypatch.setattr(reader, "begin", vanish)
        with fresh() as other:
            summary = ingest_into(other, folder, None, 2000, jobs=jobs)
            assert (summary.module_count, summary.skipped_count) == (2, 1)
            found.append(rows(other, "SELECT * FROM diagnostics"))
    assert found[0] == found[1]
    assert [row[2:4] for row in found[0]] == [("error", "unreadable_file")]


# -- who reads --------------------------------------------------------------------------------


def test_little_is_read_here(con, monkeypatch):
    monkeypatch.setattr(Pool, "__init__", None)
    ingest_into(con, DEMO / "cpu_b8", jobs=2)


def test_a_process_with_threads_is_not_copied():
    held = threading.Event()
    other = threading.Thread(target=held.wait)
    other.start()
    try:
        assert not start.may_copy()
    finally:
        held.set()
        other.join()


@pytest.mark.slow
def test_a_script_of_the_caller_is_not_run_again(tmp_path):
    """As new processes of `multiprocessing` do where the script does not guard itself."""
    script = (
        "print('once')\n"
        "from bufdb.ingest.ingest import ingest\n"
        f"ingest({str(tmp_path / 't.duckdb')!r}, [__import__('pathlib').Path({str(RUNS[0])!r})], "
        "jobs=2, block_bytes=2000)\nprint(start.may_copy.__name__)"
    )
    assert done(started("", script=script)) == (0, "once\nmay_copy\n", "")


# -- when they begin and end ------------------------------------------------------------------


@COPIED
def test_others_get_ready_first_and_read_before_numpy_and_duckdb_are_imported(tmp_path):
    patch = """
import sys
from bufdb.ingest import plan as planning

def noted(owner, name):
    real = getattr(owner, name)

    def note(*given, **named):
        print(name, *(module for module in ("numpy", "duckdb") if module in sys.modules))
        return real(*given, **named)

    setattr(owner, name, note)

noted(start, "Forerunner")
noted(planning, "plan")
noted(pool.Pool, "begin")
"""
    command = ("ingest", *RUNS, "--db", tmp_path / "t.duckdb", "--jobs", 2)
    for asked in ("begin", "begin numpy duckdb"):  # the database, too, once it is there
        found = done(started(patch, *command, parts="choice, pool, start"))
        assert found[:2] == (0, f"Forerunner\nplan\n{asked}\n")


@COPIED
def test_who_stores_does_not_import_what_reading_takes(tmp_path):
    script = (
        "import sys\nfrom bufdb import cli\nfrom bufdb.ingest.workers import choice\n"
        "choice.FEW_BYTES = 0\ncode = cli.run(sys.argv[1:])\n"
        "print(code, 'duckdb' in sys.modules, 'bufdb.ingest.group' in sys.modules)"
    )
    for jobs, is_imported in ((2, False), (1, True)):
        command = [
            sys.executable,
            "-c",
            script,
            "ingest",
            *RUNS,
            "--db",
            tmp_path / f"{jobs}.duckdb",
        ]
        found = subprocess.run(
            [*map(str, command), "--jobs", str(jobs)], capture_output=True, text=True, timeout=120
        )
        assert found.stdout == f"0 True {is_imported}\n", found.stderr


@pytest.mark.parametrize(
    ("sizes", "is_much"),
    [
        (
            {"a.after_optimizations-buffer-assignment.txt": 9, "b/c.after_optimizations.txt": 1},
            True,
        ),
        ({"a.after_optimizations-buffer-assignment.txt": 9}, False),
        ({"a.after_optimizations-buffer-assignment.txt": 9, "ir.ll": 99, "log.txt": 99}, False),
    ],
)
def test_much_is_seen_by_names_and_sizes(tmp_path, monkeypatch, sizes, is_much):
    monkeypatch.setattr(choice, "FEW_BYTES", 10)
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    assert choice._seem_many([tmp_path / "none", tmp_path]) == is_much
    monkeypatch.setattr(choice, "_LOOKED_NAMES", 1)
    assert not choice._seem_many([tmp_path])


@pytest.mark.slow
def test_many_runs_are_begun_one_after_the_other(pools, tmp_path):
    """The first are stored, and forgotten, before the last are begun."""
    runs = [tmp_path / f"run_{number}" for number in range(20)]
    for path in runs:
        shutil.copytree(DEMO / "tpu_b8", path)
    module_count = len(runs) * ingest(str(tmp_path / "one.duckdb"), runs[:1]).module_count
    assert ingest(str(tmp_path / "all.duckdb"), runs, jobs=2).module_count == module_count


@pytest.mark.slow
def test_a_database_that_comes_to_be_meanwhile_is_asked(pools, expected, tmp_path, monkeypatch):
    """Others read for a new database already when another ingest makes it."""
    db = tmp_path / "t.duckdb"
    real = storing.opened

    def after_another(*given):
        monkeypatch.setattr(storing, "opened", real)
        assert ingest(str(db), RUNS[:2]).module_count == 5
        return real(*given)

    monkeypatch.setattr(storing, "opened", after_another)
    summary = ingest(str(db), RUNS, jobs=2)
    assert (summary.module_count, summary.unchanged_count, summary.replaced_count) == (2, 5, 0)
    assert state_of(db) == expected


def test_nobody_reads_any_longer_when_the_last_rows_are_committed(pools, tmp_path, monkeypatch):
    real, found = TableWriter.commit, []

    def commit(self, **named):
        (pool,) = pools
        alive = [is_alive(worker.process.pid) for worker in pool.workers]
        found.append((alive, [len(worker.files) for worker in pool.workers]))
        if len(found) == len(RUNS):
            wait_until(lambda: not any(is_alive(worker.process.pid) for worker in pool.workers))
        real(self, **named)

    monkeypatch.setattr(TableWriter, "commit", commit)
    assert ingest(str(tmp_path / "t.duckdb"), RUNS, jobs=2).module_count == 7
    assert found[0][0] == [True, True]
    assert found[-1][1] == [0, 0]


# -- what goes wrong --------------------------------------------------------------------------


def test_a_worker_that_is_killed_ends_the_ingest(con, pools):
    seen = []

    def kill(done, total):
        (pool,) = pools
        seen.extend(worker.process.pid for worker in pool.workers)
        for worker in pool.workers:
            worker.process.kill()
            worker.process.wait()

    with pytest.raises(BufdbError, match=r"a process that reads dumps was ended by signal 9 while"):
        ingest_into(con, RUNS, None, 2000, jobs=2, progress=kill)
    assert not any(map(is_alive, seen))
    whole_modules(con)
    assert ingest_into(con, RUNS).exit_code == 0
    assert whole_modules(con) == 7


def test_an_error_here_ends_the_others(con, pools):
    seen = []

    def fail(done, total):
        seen.extend(worker.process.pid for worker in pools[0].workers)
        raise duckdb.Error("no space left")

    with pytest.raises(duckdb.Error, match="no space left"):
        ingest_into(con, RUNS, None, 2000, jobs=2, progress=fail)
    assert seen and not any(map(is_alive, seen))


@pytest.mark.sample(2)
@COPIED
@pytest.mark.parametrize(
    ("fault", "message"),
    [("MemoryError()", "not enough memory"), ("ValueError('odd')", "ValueError: odd")],
)
def test_an_error_there_is_raised_here(tmp_path, fault, message):
    patch = f"def fail(*given): raise {fault}\nworker.read = fail"
    db = tmp_path / "t.duckdb"
    code, out, err = done(started(patch, "ingest", *RUNS, "--db", db, "--jobs", 2))
    assert (code, out) == (1, "")
    assert message in err
    assert rows(db, "SELECT * FROM modules") == []


@COPIED
@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("import os, signal\nworker.serve = lambda *given: os.kill(os.getpid(), 9)", "by signal 9"),
        (
            "import os\nreal, parent = os.fork, os.getpid()\n"
            "def fork():\n    if os.getpid() == parent: return real()\n"
            "    raise OSError(11, 'none')\nos.fork = fork",
            "with exit code 1",
        ),
    ],
    ids=["killed", "no more processes"],
)
def test_copies_that_are_gone_at_once_end_the_ingest(tmp_path, patch, reason):
    db = tmp_path / "t.duckdb"
    code, out, err = done(started(patch, "ingest", *RUNS, "--db", db, "--jobs", 2))
    assert (code, out) == (1, "")
    assert err.startswith("bufdb: error: a process that reads dumps "), err
    assert f"ended {reason} while it read" in err.replace("was ended", "ended"), err
    assert not db.exists() or whole_modules(db) == 0


@COPIED
@pytest.mark.parametrize("count", [0, 2])
def test_a_forerunner_leaves_no_process(count):
    """Whether or not it was asked for copies."""
    script = f"""
import os

forerunner = start.Forerunner(3)
copies = [process for process, _ in forerunner.started({count})] if {count} else []
assert all(process.pid for process in copies)
for process in copies:
    process.kill()
    assert process.wait() == -9
forerunner.close()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none is left")
"""
    assert done(started("", script=script)) == (0, "none is left\n", "")


SLOW = (
    "import time\nreal = worker.read\n"
    "def read(group, sink):\n    time.sleep(2)\n    real(group, sink)\nworker.read = read"
)


@pytest.mark.sample(2)
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of processes")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_interrupt_and_a_kill_leave_no_process(tmp_path, number, code):
    """Ctrl-C goes to all of them, a kill to the one that stores."""
    db = tmp_path / "t.duckdb"
    process = started(SLOW, "ingest", *RUNS, "--db", db, "--jobs", 2)
    wait_until(lambda: len(children(process.pid)) == 2 and db.exists())
    workers = children(process.pid)
    time.sleep(0.2)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.kill()
    found, _, err = done(process)
    assert found == code, err
    wait_until(lambda: not any(map(is_alive, workers)))
    assert done(started("", "ingest", *RUNS, "--db", db))[0] == 0
    assert whole_modules(db) == 7


@pytest.mark.slow
@COPIED
def test_long_messages_both_ways_do_not_wait_for_each_other(expected, tmp_path):
    """More than a pipe holds, to and fro: groups of long names, rows that go through the pipe."""
    patch = (
        "messages.segments = lambda count: []\n"
        "import pickle, types\n"
        "longer = lambda *given, **named: pickle.dumps(*given, **named) + bytes(1 << 20)\n"
        "messages.pickle = types.SimpleNamespace(**{**vars(pickle), 'dumps': longer})\n"
        "give = pool.Pool._send\n"
        "class Padded:\n"
        "    def __init__(self, group): self.group, self.padding = group, bytes(1 << 20)\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('__'): raise AttributeError(name)\n"
        "        return getattr(self.group, name)\n"
        "pool.Pool._send = lambda self, who, what: give(self, who, Padded(what))\n"
        "start.fresh = None"
    )
    db = tmp_path / "t.duckdb"
    code, _, err = done(started(patch, "ingest", *RUNS, "--db", db, "--jobs", 2))
    assert code == 0, err
    assert state_of(db) == expected
