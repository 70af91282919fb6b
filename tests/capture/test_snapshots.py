"""Snapshots of a process while it runs: how many are kept, and which."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingesting import rows
from places import ROOT

import bufdb
from bufdb.capture.snapshots import Kept
from bufdb.capture.words import seconds_of
from bufdb.errors import UsageError

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=400)


@given(sizes, st.integers(1, 9))
@settings(deadline=None)
def test_the_first_last_and_highest_are_kept_thinned_between(taken, most):
    kept = Kept(most)
    there = set()
    for number, size in enumerate(taken):
        dropped = kept.add(number, size)
        there.add(number)
        assert there >= set(dropped)
        there -= set(dropped)
        assert there == set(kept.size_bytes)
        highest = taken.index(max(taken[: number + 1]))
        assert {0, number, highest} <= there
        grid = set(range(0, number + 1, kept.spacing))
        assert there <= grid | {number, highest} and grid <= there
        assert len(grid) <= most and len(there) <= most + 2
        # No more than needed are dropped.
        assert kept.spacing == 1 or 2 * len(grid) >= most


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("5m", 300), ("500ms", 0.5), ("1.5h", 5400), (7, 7)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "1ms", "-3s", "ten", "5 d", "nan", "inf"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(UsageError, match="a time between snapshots is such as 60s"):
        seconds_of(text)


# -- with JAX ----------------------------------------------------------------------------------

BLOCK = """
import json, os, signal, jax, jax.numpy as jnp, bufdb
history, lines = [], []
step = jax.jit(lambda x: x * 2)
with bufdb.watch("t.duckdb", run="r", write=lines.append, folder="kept") as seen:
    for number in range(5):
        history.append(step(jnp.ones((256, 512))))
        seen.mark(f"step {number}")
        if number == 3 and IS_KILLED: os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps(lines))
"""


def run(code, folder, *before):
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, cwd=folder
    )


def test_a_mark_is_a_snapshot(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    done = run(BLOCK.replace("IS_KILLED", "False"), tmp_path)
    assert done.returncode == 0, done.stderr
    db = tmp_path / "t.duckdb"
    sql = "SELECT moment, mark, snapshot_ordinal, is_account FROM live_moments ORDER BY ALL"
    marks = [("snapshot", f"step {number}", number, False) for number in range(5)]
    assert rows(db, sql) == [("end", None, None, True), *marks]
    sql = """
      SELECT snapshot_ordinal, sum(array_count), sum(total_bytes)
      FROM live_arrays JOIN live_profiles USING (run_name, profile_name)
      WHERE shape = 'f32[256,512]' AND moment = 'snapshot' GROUP BY ALL ORDER BY 1
    """
    assert rows(db, sql) == [(n, n + 1, (n + 1) << 19) for n in range(5)]
    assert rows(db, "SELECT DISTINCT shapes_unknown_reason FROM live_profiles") == [(None,)]
    assert "alive: 2.50 MiB" in " ".join(json.loads(done.stdout))


def test_a_folder_has_snapshots_of_one_process(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    (tmp_path / "memory-000000.prof").write_text("")
    with (
        pytest.raises(UsageError, match="is there and not empty: name a new one"),
        bufdb.watch(folder=tmp_path),
    ):
        pass


def test_snapshots_of_a_block_survive_a_kill(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    assert run(BLOCK.replace("IS_KILLED", "True"), tmp_path).returncode == -9
    command = [sys.executable, "-m", "bufdb", "ingest", "kept", "--db", "t.duckdb", "--run", "r"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    sql = "SELECT mark FROM live_moments WHERE is_account"
    assert rows(tmp_path / "t.duckdb", sql) == [("step 3",)]


KILLED = """
import os, signal, time, jax, jax.numpy as jnp
step = jax.jit(lambda x: x * 2)
kept = []
began = time.monotonic()
while time.monotonic() - began < 4: kept.append(step(jnp.ones((256, 512)))), time.sleep(0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_killed_process_the_last_snapshot_is_its_account(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    capture = [sys.executable, "-m", "bufdb", "capture", "--watch-every", "200ms", "--run", "r"]
    done = run(KILLED, tmp_path, *capture, "--db", "t.duckdb", "--")
    assert done.returncode == 128 + 9
    db = tmp_path / "t.duckdb"
    sql = "SELECT moment, count(*) > 1, count(*) FILTER (is_account) FROM live_moments GROUP BY 1"
    assert rows(db, sql) == [("snapshot", True, 1)]
    ((seconds,),) = rows(db, "SELECT elapsed_seconds FROM live_moments WHERE is_account")
    assert (
        f"ended by signal 9: no memory profile of its end; the last snapshot is of {seconds:.1f} s"
        in done.stderr
    )
    shown = " ".join(done.stderr.split())
    assert f"alive in the last snapshot, {seconds:.1f} s after it began" in shown
    # One account, not one of each snapshot.
    assert "other profiles" not in shown
    temporary = [path for path in tmp_path.rglob(".memory*")]
    assert temporary == []


SHARDED = """
import jax, jax.numpy as jnp, numpy as np, bufdb
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
with bufdb.watch("t.duckdb", run="r", write=lambda line: None) as seen:
    kept = [jax.device_put(np.ones((8, 128), np.float32), NamedSharding(mesh, P("x")))]
    kept.append(jax.device_put(jnp.ones((16, 16), jnp.bfloat16), NamedSharding(mesh, P())))
    jax.block_until_ready(kept)
    seen.mark("before")
    kept[0].addressable_shards[0].data
    seen.mark("views")
"""


@pytest.mark.slow
def test_a_shape_is_that_of_a_shard_or_not_known(tmp_path):
    pytest.importorskip("jax", reason="this Python has no jax")
    flags = "XLA_FLAGS=--xla_force_host_platform_device_count=4"
    done = run(SHARDED, tmp_path, "env", flags)
    assert done.returncode == 0, done.stderr
    sql = """
      SELECT mark, shape, total_bytes, count(*) FROM live_arrays JOIN live_profiles
        USING (run_name, profile_name)
      WHERE mark <> '' AND total_bytes > 100 GROUP BY ALL ORDER BY ALL
    """
    # Views of shards, which the program asked for, are arrays of their own with the same memory.
    assert rows(tmp_path / "t.duckdb", sql) == [
        ("before", "bf16[16,16]", 512, 4), ("before", "f32[2,128]", 1024, 4),
        ("views", "bf16[16,16]", 512, 4), ("views", None, 1024, 4),
    ]  # fmt: skip
