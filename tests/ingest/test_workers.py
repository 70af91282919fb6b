"""Processes that read: the same rows as without them, and none is left, whatever goes wrong."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from kill import state_of
from places import DEMO

from bufdb.ingest import processes, reader, storing
from bufdb.ingest.ingest import ingest
from bufdb.ingest.pool import Pool
from bufdb.ingest.rows import MODULE_TABLES

RUNS = [DEMO / name for name in ("cpu_b8", "tpu_b8", "gpu_b8")]
COMMAND = "from bufdb.cli import main; main()"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def pools(monkeypatch):
    """Others read however little there is; the pools that were made."""
    made = []
    monkeypatch.setattr(processes, "FEW_BYTES", 0)
    real = Pool.__init__

    def note(self, *words, **named):
        real(self, *words, **named)
        made.append(self)

    monkeypatch.setattr(Pool, "__init__", note)
    return made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what one process stores of RUNS."""
    db = tmp_path_factory.mktemp("one") / "one.duckdb"
    ingest(str(db), RUNS)
    return state_of(db)


def started(patch, *arguments):
    """A command that has changed something in bufdb before it begins."""
    first = "from bufdb.ingest import pool, processes\nprocesses.FEW_BYTES = 0"
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join([first, patch, COMMAND]), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's, if a change imports it
    )  # fmt: skip


def done(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def children(pid):
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in pids if is_alive(child)]


def is_alive(pid):
    """Return whether a process exists and has not ended."""
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
    """Return the number of modules stored; fail if a table holds rows of any other."""
    for table in MODULE_TABLES:
        stray = f'FROM "{table}" WHERE module_id NOT IN (SELECT module_id FROM modules)'
        assert rows(db, f"SELECT count(*) {stray}") == [(0,)], table
    return len(rows(db, "SELECT * FROM modules"))


# -- the same rows ----------------------------------------------------------------------------

COPIES = {
    "copies": "",
    "no shared memory": "import os\ndef none(*given): raise OSError(38, 'none')\n"
    "os.memfd_create = none",
    "no room in it": "import os\ndef full(*given): raise OSError(28, 'full')\nos.pwrite = full",
    "no more processes": "import os\ndef none(): raise OSError(11, 'none')\nos.fork = none",
}


@pytest.mark.slow
@LINUX
@pytest.mark.sample(2)
@pytest.mark.parametrize("patch", COPIES.values(), ids=COPIES)
def test_copies_of_the_command_store_the_same(expected, tmp_path, patch):
    db = tmp_path / "t.duckdb"
    is_copy = (
        "real = pool.multiprocessing.get_context\n"
        "pool.multiprocessing.get_context = lambda way: {'fork': real('fork')}[way]"
    )
    code, out, err = done(started(f"{is_copy}\n{patch}", "ingest", *RUNS, "--db", db, "--jobs", 3))
    assert (code, out) == (0, ""), err
    assert state_of(db) == expected


@pytest.mark.slow
def test_new_interpreters_store_the_same(pools, expected, tmp_path):
    """A process with threads is not copied."""
    held = threading.Event()
    other = threading.Thread(target=held.wait)
    other.start()
    db = tmp_path / "t.duckdb"
    try:
        ingest(str(db), RUNS, jobs=2)
    finally:
        held.set()
        other.join()
    (pool,) = pools
    assert not pool.files
    assert state_of(db) == expected


@pytest.mark.slow
def test_the_next_ingest_finds_nothing_changed(pools, tmp_path):
    db = str(tmp_path / "t.duckdb")
    assert ingest(db, RUNS, jobs=2).module_count == 7
    before = state_of(Path(db))
    again = ingest(db, RUNS, jobs=2)
    assert (again.module_count, again.unchanged_count) == (0, 7)
    assert state_of(Path(db)) == before
    assert len(pools) == 2


@pytest.mark.slow
def test_large_modules_are_read_here_and_archives_by_others(
    con, fresh, pools, tmp_path, monkeypatch
):
    """Among others that are not."""
    folder = tmp_path / "run"
    shutil.copytree(DEMO / "cpu_b8", folder)
    shutil.make_archive(str(folder / "more"), "zip", DEMO / "gpu_b8")
    real, here = reader.Here.read, []
    monkeypatch.setattr(
        reader.Here,
        "read",
        lambda self, group, sink: (here.append(group), real(self, group, sink)),
    )
    ingest_into(con, folder, None, 150_000, jobs=2)
    keys = " ".join(job.files.key for group in here for job in group.jobs)
    assert "module_0002" in keys and "module_0000" not in keys
    with fresh() as other:
        ingest_into(other, folder)
        for table in MODULE_TABLES:
            query = f'SELECT * FROM "{table}" ORDER BY ALL'
            assert rows(con, query) == rows(other, query), table
    assert len(pools) == 1


@pytest.mark.slow
def test_files_that_are_gone_are_reported_alike(fresh, pools, tmp_path, monkeypatch):
    """Files removed between planning and reading."""
    diagnostics = []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs) / "run"
        shutil.copytree(DEMO / "cpu_b8", folder)
        (gone,) = folder.glob("module_0004.*-live-range.txt")
        for kind in (reader.Here, Pool):
            vanish = lambda *words, real=kind.begin, gone=gone: (  # noqa: E731
                gone.unlink(missing_ok=True), real(*words))  # fmt: skip
            monkeypatch.setattr(kind, "begin", vanish)
        with fresh() as other:
            summary = ingest_into(other, folder, jobs=jobs)
            assert (summary.module_count, summary.skipped_count) == (2, 1)
            diagnostics.append(rows(other, "SELECT * FROM diagnostics"))
    assert diagnostics[0] == diagnostics[1]
    assert [row[2:4] for row in diagnostics[0]] == [("error", "unreadable_file")]


def test_little_is_read_here(con, monkeypatch):
    monkeypatch.setattr(Pool, "__init__", None)
    ingest_into(con, DEMO / "cpu_b8", jobs=2)


@pytest.mark.slow
def test_groups_are_read_ahead_and_no_more_of_them_than_wait(pools, tmp_path, monkeypatch):
    """With many runs, the first are stored and released before the last are started."""
    runs = [tmp_path / f"run_{number}" for number in range(12)]
    for path in runs:
        shutil.copytree(DEMO / "tpu_b8", path)
    real, waiting = Pool.read, []

    def read(self, *words):
        real(self, *words)
        waiting.append(len(self.pending))

    monkeypatch.setattr(Pool, "read", read)
    assert ingest(str(tmp_path / "all.duckdb"), runs, jobs=2).module_count == 24
    assert max(waiting) == 4


@pytest.mark.slow
def test_a_database_that_comes_to_be_meanwhile_is_asked(pools, expected, tmp_path, monkeypatch):
    """Workers already read for a new database when another ingest creates it."""
    db = tmp_path / "t.duckdb"
    real = storing.opened

    def after_another(*words):
        monkeypatch.setattr(storing, "opened", real)
        assert ingest(str(db), RUNS[:2]).module_count == 5
        return real(*words)

    monkeypatch.setattr(storing, "opened", after_another)
    summary = ingest(str(db), RUNS, jobs=2)
    assert (summary.module_count, summary.unchanged_count, summary.replaced_count) == (2, 5, 0)
    assert state_of(db) == expected


# -- what goes wrong --------------------------------------------------------------------------


@pytest.mark.slow
@LINUX
def test_a_worker_that_is_killed_ends_the_ingest(tmp_path):
    patch = (
        "import os\nfrom bufdb.ingest import group\n"
        "group.read = lambda *words: os.kill(os.getpid(), 9)"
    )
    db = tmp_path / "t.duckdb"
    code, out, err = done(started(patch, "ingest", *RUNS, "--db", db, "--jobs", 2))
    assert (code, out) == (1, "")
    assert err.startswith("bufdb: error: a reading process ended unexpectedly, near ")
    assert "--jobs 1" in err
    assert not db.exists() or whole_modules(db) == 0
    assert done(started("", "ingest", *RUNS, "--db", db, "--jobs", 2))[0] == 0
    assert whole_modules(db) == 7


@pytest.mark.slow
@LINUX
def test_an_error_here_ends_the_others(con, pools):
    resource_tracker.ensure_running()  # Python starts it once, with the first of other processes
    before = set(children(os.getpid()))

    def fail(done, total):
        raise duckdb.Error("no space left")

    with pytest.raises(duckdb.Error, match="no space left"):
        ingest_into(con, RUNS, jobs=2, progress=fail)
    assert len(pools) == 1
    assert set(children(os.getpid())) <= before


@LINUX
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("fault", "message"),
    [("MemoryError()", "not enough memory"), ("ValueError('odd')", "ValueError: odd")],
)
def test_an_error_there_is_raised_here(tmp_path, fault, message):
    patch = f"from bufdb.ingest import group\ndef fail(*given): raise {fault}\ngroup.read = fail"
    db = tmp_path / "t.duckdb"
    code, out, err = done(started(patch, "ingest", *RUNS, "--db", db, "--jobs", 2))
    assert (code, out) == (1, "")
    assert message in err
    assert rows(db, "SELECT * FROM modules") == []


SLOW = (
    "import time\nfrom bufdb.ingest import group\nreal = group.read\n"
    "def read(*words):\n    time.sleep(1)\n    real(*words)\ngroup.read = read"
)


@pytest.mark.slow
@LINUX
@pytest.mark.sample(2)
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
    exit_code, _, err = done(process)
    assert exit_code == code, err
    wait_until(lambda: not any(map(is_alive, workers)))
    assert done(started("", "ingest", *RUNS, "--db", db))[0] == 0
    assert whole_modules(db) == 7
