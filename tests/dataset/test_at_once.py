"""Several processes write one dataset while others read it: each reads whole modules, once each."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from datasets import RUN, TODAY, ask, change, copied, rows_on, stored
from places import ROOT

from bufdb.dataset.snapshot import open_readable

WRITE = """
import itertools, sys
from pathlib import Path
from bufdb.dataset.dump_ingest import ingest

root, dt, *runs = sys.argv[1:]
print("begun", flush=True)
for path in itertools.cycle(map(Path, runs)):
    ingest(root, [path], run="job", metadata={"dt": dt})
    print("done", flush=True)
"""
COMPACT = """
import sys, time
from bufdb.dataset.compact import compact

print("begun", flush=True)
while True:
    print(compact(sys.argv[1]).line(), flush=True)
    time.sleep(0.2)  # else the writers, whom the test waits for, share the processors with it
"""
COUNTS = """
SELECT
  modules.module_id,
  (SELECT count(*) FROM "values" AS stored WHERE stored.module_id = modules.module_id),
  (SELECT count(*) FROM files AS stored WHERE stored.module_id = modules.module_id),
  (SELECT count(*) FROM live_ranges AS stored WHERE stored.module_id = modules.module_id)
FROM modules
ORDER BY ALL
"""
"""Each module, with how many rows of some tables it has."""
SUMS = 'SELECT module_id, sum(size_bytes), count(*) FROM "values" GROUP BY ALL ORDER BY ALL'
VERSION = "SELECT max(owner_version >> 40) FROM bufdb.stored.owners"


def read(root):
    """Open a dataset once: what stays the same in it, and how often its run was written."""
    with open_readable(str(root)) as con:
        sums, counts, version = (con.execute(sql).fetchall() for sql in (SUMS, COUNTS, VERSION))
    return [sums, counts], version[0][0]


@pytest.fixture
def started():
    """Start Python with a script and arguments; it is stopped after the test."""
    processes = []

    def start(text, *words):
        command = [sys.executable, "-c", textwrap.dedent(text), *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        processes.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_reads_are_identical_during_ingests(tmp_path, started):
    root = tmp_path / "set"
    ways = [copied(tmp_path / "one"), copied(tmp_path / "other")]
    change(ways[1])
    stored(root, ways[0], run="job")
    stable, version = read(root)
    assert [len(rows) for rows in stable] == [3, 3]
    writers = [started(WRITE, root, TODAY, *ways[:: 1 - 2 * n]) for n in range(2)]
    compactor = started(COMPACT, root)
    end = time.monotonic() + 60
    count = 0
    while count < 5 or version < 2:  # until they have written
        rows, version = read(root)
        assert rows == stable
        count += 1
        assert time.monotonic() < end
    for process in (*writers, compactor):
        assert process.poll() is None


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_whole_modules(tmp_path, started):
    root = tmp_path / "set"
    stored(tmp_path / "other", RUN, run="job")
    counts = ask(tmp_path / "other", COUNTS)
    for delay in (0.0, 0.1, 0.2, 0.3, 0.5):
        run = copied(tmp_path / f"dumps{delay}")
        change(run, str(delay))
        process = started(WRITE, root, TODAY, run)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (root / "modules").exists():
            assert set(ask(root, COUNTS)) <= set(counts)
    stored(root, RUN, run="job")
    expected = rows_on(root)
    other = rows_on(tmp_path / "other")
    assert expected["values"] == other["values"] and expected["files"] == other["files"]
