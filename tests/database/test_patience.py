"""Two processes and one database: who waits, for how long, and what is said."""

import shutil
import subprocess
import sys
import time

import duckdb
import pytest

from bufdb import cli
from bufdb.database import store
from bufdb.database.patience import PATIENCE, Patience
from bufdb.errors import DatabaseError

HOLD = """
import sys, time, duckdb
with duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read"):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.fixture
def path(empty_db, tmp_path):
    return str(shutil.copy(empty_db, tmp_path / "t.duckdb"))


@pytest.fixture
def hold(path):
    """Another process that holds the database for some seconds, to write or to read."""
    started = []

    def start(how, seconds):
        command = [sys.executable, "-c", HOLD, path, how, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_query_waits_for_an_ingest_and_says_so(path, hold, capfd):
    other = hold("write", 1)
    assert cli.run(["runs", "--db", path]) == 0
    assert other.wait() == 0
    out, err = capfd.readouterr()
    assert out.startswith("run_name")
    assert err.startswith(f"bufdb: {path} is in use by python")
    waiting, empty = err.splitlines()
    assert waiting.endswith(f" (PID {other.pid}); waiting up to 10 s")
    assert empty == "bufdb: no rows: no run is stored"


@pytest.mark.parametrize("how", ["write", "read"])
def test_one_that_writes_says_who_is_in_its_way(path, hold, how, capfd):
    other = hold(how, 60)
    begin = time.monotonic()
    assert cli.run(["runs", "label", "r", "a=b", "--db", path, "--wait", "0.2"]) == 3
    assert time.monotonic() - begin < 30
    waiting, error = capfd.readouterr().err.splitlines()
    assert waiting.endswith(f" (PID {other.pid}); waiting up to 0.2 s")
    assert error.startswith(f"bufdb: error: {path} is in use by python")
    assert error.endswith("; try again later, or wait with --wait SECONDS")


def test_no_wait_says_nothing_but_who(path, hold):
    hold("write", 60)
    told = []
    token = PATIENCE.set(Patience(0, told.append))
    try:
        with pytest.raises(DatabaseError, match="in use by python"):
            store.open_readable(path)
    finally:
        PATIENCE.reset(token)
    assert told == []


def test_readers_do_not_wait_for_each_other(path, hold, capfd):
    hold("read", 60)
    assert cli.run(["runs", "--db", path, "--wait", "0"]) == 0
    assert capfd.readouterr().err == "bufdb: no rows: no run is stored\n"


def test_a_command_leaves_the_patience_of_the_next_as_it_was(path):
    before = PATIENCE.get()
    assert cli.run(["runs", "--db", path, "--wait", "1"]) == 0
    assert PATIENCE.get() is before


def test_a_writer_in_this_process_is_told(path):
    with (
        duckdb.connect(path),
        pytest.raises(DatabaseError, match="is open in this process already"),
    ):
        store.open_readable(path)
