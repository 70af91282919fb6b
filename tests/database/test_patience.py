"""Two processes and one database: which one waits, for how long, and the messages."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from places import DEMO

from bufdb import cli
from bufdb.database import patience, store
from bufdb.database.patience import PATIENCE, Patience, is_awaited
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write", "read"])
def test_one_that_writes_says_who_is_in_its_way(path, hold, how, capfd):
    other = hold(how, 60)
    begin = time.monotonic()
    assert cli.run(["runs", "label", "r", "a=b", "--db", path, "--wait", "1"]) == 3
    assert time.monotonic() - begin < 30
    waiting, error = capfd.readouterr().err.splitlines()
    assert waiting.endswith(f" (PID {other.pid}); waiting up to 1 s")
    assert error.startswith(f"bufdb: error: {path} is in use by python")
    assert error.endswith("; try again later, or wait with --wait SECONDS")


@pytest.mark.slow
def test_no_wait_says_nothing_but_who(path, hold):
    hold("write", 60)
    notes = []
    token = PATIENCE.set(Patience(0, notes.append))
    try:
        with pytest.raises(DatabaseError, match="in use by python"):
            store.open_readable(path)
    finally:
        PATIENCE.reset(token)
    assert notes == []


INGEST = """
import sys, time, duckdb
from bufdb.database.patience import account
with account(sys.argv[1]) as file, duckdb.connect(sys.argv[1]):
    file.say("ingest of run a, 3 of 15 modules so far")
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def ingesting(path):
    """Another process that ingests for some seconds."""
    started = []

    def start(seconds):
        command = [sys.executable, "-c", INGEST, path, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_a_query_waits_longer_for_an_ingest(path, ingesting, monkeypatch, capfd):
    monkeypatch.setattr(patience, "DEFAULT_WAIT_S", 0.2)
    other = ingesting(1.5)
    assert cli.run(["runs", "--db", path]) == 0
    assert other.wait() == 0
    text = "being written: ingest of run a, 3 of 15 modules so far; waiting up to 60 s"
    assert capfd.readouterr().err.startswith(f"bufdb: {path} is {text}\n")
    assert not Path(f"{path}.ingest").exists()


@pytest.mark.slow
def test_who_gives_up_names_the_ingest(path, ingesting, capfd):
    other = ingesting(60)
    assert cli.run(["runs", "--db", path, "--wait", "0"]) == 3
    assert capfd.readouterr().err == (
        f"bufdb: error: {path} is being written: ingest of run a, 3 of 15 modules so far; "
        "try again later, or wait with --wait SECONDS\n"
    )
    other.kill()
    other.wait()
    # What a killed ingest has said counts no more.
    assert patience.account_of(path) is None and Path(f"{path}.ingest").exists()


def test_an_ingest_says_how_far_it_is(path, monkeypatch):
    texts = []
    monkeypatch.setattr(patience.Account, "say", lambda _, text: texts.append(text))
    assert cli.run(["ingest", str(DEMO / "gpu_b8"), "--db", path, "-q"]) == 0
    assert texts[0] == "ingest of run gpu_b8, 0 of 2 modules so far"
    assert texts[-1] == "ingest of run gpu_b8, 2 of 2 modules so far"


@pytest.mark.slow
def test_readers_do_not_wait_for_each_other(path, hold, capfd):
    hold("read", 60)
    assert cli.run(["runs", "--db", path, "--wait", "0"]) == 0
    assert capfd.readouterr().err == "bufdb: no rows: no run is stored\n"


def test_a_command_leaves_the_patience_of_the_next_as_it_was(path):
    before = PATIENCE.get()
    assert cli.run(["runs", "--db", path, "--wait", "1"]) == 0
    assert PATIENCE.get() is before


def test_a_writer_in_this_process_is_reported(path):
    with (
        duckdb.connect(path),
        pytest.raises(DatabaseError, match="is open in this process already"),
    ):
        store.open_readable(path)


@pytest.mark.slow
def test_a_writer_waits_as_long_as_it_takes_and_says_so(path, hold, capfd):
    other = hold("read", 1)
    assert Patience().of(is_writer=True) == float("inf")
    notes = []
    token = PATIENCE.set(Patience(note=notes.append))
    try:
        store.open_writable(path).close()
    finally:
        PATIENCE.reset(token)
    assert other.wait() == 0
    assert len(notes) == 1 and notes[0].endswith(f" (PID {other.pid}); waiting until it is free")


KEEP_ASKING = """
import sys, time
from bufdb.database import store
from bufdb.database.patience import PATIENCE, Patience
PATIENCE.set(Patience(60))
time.sleep(0.2 * int(sys.argv[2]))
is_first = True
while True:
    con = store.open_readable(sys.argv[1])
    if is_first:
        print("asking", flush=True)
    is_first = False
    time.sleep(0.4)  # a question
    con.close()
"""


@pytest.mark.slow
def test_readers_that_keep_asking_let_a_writer_in(path):
    """One of two readers always has the file: without a queue it is never free for the writer."""
    readers = [subprocess.Popen([sys.executable, "-c", KEEP_ASKING, path, str(n)], text=True,
                                stdout=subprocess.PIPE) for n in range(2)]  # fmt: skip
    try:
        for reader in readers:
            assert reader.stdout.readline() == "asking\n"
        waits = []
        token = PATIENCE.set(Patience(60, waits.append))
        try:
            store.open_writable(path).close()
        finally:
            PATIENCE.reset(token)
        assert len(waits) == 1 and "waiting up to 60 s" in waits[0]
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
            reader.stdout.close()
    assert not is_awaited(path)


@pytest.mark.slow
def test_a_reader_waits_for_a_waiting_writer(path, hold):
    hold("read", 60)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "bufdb", "runs", "label", "r", "a=b", "--db", path],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert waiting.stderr.readline().endswith("; waiting until it is free\n")
        while not is_awaited(path):
            time.sleep(0.01)
        token = PATIENCE.set(Patience(0.1))
        try:
            with pytest.raises(DatabaseError, match="awaited by another process that will write"):
                store.open_readable(path)
        finally:
            PATIENCE.reset(token)
    finally:
        waiting.kill()
        waiting.wait()
        waiting.stderr.close()
    # The file of a killed writer blocks no reader.
    store.open_readable(path).close()


@pytest.mark.slow
def test_a_link_in_place_of_the_place_in_front_is_not_followed(path, hold, tmp_path):
    target = tmp_path / "other"
    (tmp_path / "t.duckdb.waiting").symlink_to(target)
    hold("read", 0.3)
    store.open_writable(path).close()
    assert not target.exists()
