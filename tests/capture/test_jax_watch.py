"""What a process holds when memory runs out, and at the end: real programs of JAX on this CPU."""

import json
import os
import subprocess
import sys

import pytest
from ingesting import ingest_into, rows
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")
LEAK = ROOT / "tests" / "support" / "jax_leak.py"
MIB = 1 << 20
LARGE = "1GiB"
"""A limit with which programs of 4 MiB and more count as large."""


SETTINGS = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}


def printed(code, folder):
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | SETTINGS, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SUMS = """
import json, jax, jax.numpy as jnp, numpy as np
kept = [jnp.ones((3, 5)), jnp.arange(7, dtype=jnp.int8), jnp.zeros(())]
step = jax.jit(lambda x: (x * 2, x.sum()))
kept += [*step(kept[0]), jax.device_put(np.ones((2, 2)))]
jax.block_until_ready(kept)
jax.profiler.save_device_memory_profile("mem.prof")
print(json.dumps([sum(a.nbytes for a in jax.live_arrays()), len(jax.live_arrays())]))
"""


def test_sums_are_those_of_live_arrays_to_the_byte(tmp_path, con):
    size, count = printed(SUMS, tmp_path)
    ingest_into(con, tmp_path / "mem.prof", "r")
    assert size == 60 + 7 + 4 + 60 + 4 + 16
    assert rows(con, "SELECT sum(total_bytes), sum(array_count) FROM live_arrays") == [
        (size, count)
    ]


WATCHED = """
import json, sys, jax, jax.numpy as jnp, bufdb
leaked, lines = [], []
@jax.jit
def huge(params, batch, unused): return jnp.zeros((1 << 46,)) + params.sum() + batch.sum()
def cache_metrics(): leaked.append(jnp.ones((512, 512)))
params, alias = jnp.ones((256, 512)), None
batch, unused = jnp.ones((256, 512)), jnp.ones((256, 512))
for _ in range(3): cache_metrics()
before = jax.jit.__module__
try:
    with bufdb.watch("t.duckdb", run="r", limit="1GiB", write=lines.append):
        jax.block_until_ready(huge(params, batch, unused))
except Exception as error:
    kind, text = type(error).__name__, str(error)
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
print(json.dumps([kind, text, lines, [one for one in frames if "watched" in one]]))
"""


def test_arguments_are_known_by_identity_not_by_size(tmp_path):
    kind, text, lines, frames = printed(WATCHED, tmp_path)
    assert (kind, "RESOURCE_EXHAUSTED" in text, frames) == ("JaxRuntimeError", True, [])
    db = tmp_path / "t.duckdb"
    # Three arrays of one size: two are taken, the unused one is a bystander.
    sql = "SELECT sum(total_bytes), sum(argument_bytes), sum(argument_count) FROM live_arrays"
    (row,) = rows(db, sql)
    assert row == (3 * MIB // 2 + 3 * MIB, MIB, 2)
    sql = "SELECT failed_program_name, moment, limit_bytes, requested_bytes FROM live_profiles"
    assert rows(db, sql) == [("jit_huge", "failure", 1 << 30, 1 << 48)]
    assert rows(db, "SELECT program_name, argument_bytes FROM live_programs WHERE is_failed") == [
        ("jit_huge", MIB)
    ]
    shown = " ".join(" ".join(lines).split())
    assert "alive when it failed: 4.50 MiB, 3.50 MiB of it bystanders" in shown
    assert "largest cache_metrics <string>:6" in shown


SEVERAL = """
import json, jax, jax.numpy as jnp, bufdb
from jax._src.interpreters import pxla
def lines(p, x): return jax.tree.map(lambda v: v + x, p), x.sum()
step = jax.jit(lines, donate_argnums=0)
make = jax.jit(lambda x: {"w": x + 1, "v": x + 2})
def fail(p, x): return lines(p, x)[0], jnp.zeros((1 << 46,)) + x.sum()
huge = jax.jit(fail, donate_argnums=0)
batch = jnp.ones((256, 512))
def donate(is_made):
    params = jax.block_until_ready({"w": jnp.ones((256, 512)), "v": jnp.ones((256, 512))})
    try:
        with bufdb.watch("t.duckdb", run=str(is_made), limit="256MiB", write=lambda line: None):
            if is_made: params = make(batch)
            else: params, loss = step(params, batch)
            jax.block_until_ready(huge(params, batch))
    except Exception: pass
donate(False)
donate(True)
try:
    with bufdb.watch("t.duckdb", run="own", write=lambda line: None): raise ValueError("mine")
except ValueError as error: own = str(error)

step = jax.jit(lambda x: x + 1)
x = jnp.ones((1 << 20,))
small = jnp.ones((8,))
step(x), step(small)
kind, fast = pxla.ExecuteReplicated.__call__, pxla.MeshExecutableFastpathData
seen = []
import bufdb.capture.watched as watched
references = watched._references
watched._references = lambda *args: seen.append(1) or references(*args)
with bufdb.watch(limit="1GiB", write=lambda line: None):
    for _ in range(5): step(x)
    counts = [len(seen)]
    for _ in range(5): step(small)
    counts.append(len(seen))
for _ in range(5): step(x)
counts.append(len(seen))
restored = [pxla.ExecuteReplicated.__call__ is kind, pxla.MeshExecutableFastpathData is fast]
print(json.dumps([own, counts, restored]))
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """What the blocks of one process give: what it prints, and their database."""
    folder = tmp_path_factory.mktemp("several")
    return printed(SEVERAL, folder), folder / "t.duckdb"


FAILED = "SELECT failed_program_name, arguments_unknown_reason FROM live_profiles WHERE run_name = "


def test_donated_arrays_do_not_select_the_failed_call(several):
    _, db = several
    assert rows(db, f"{FAILED} 'False'") == [("jit_fail", None)]
    sql = "SELECT sum(total_bytes), sum(argument_bytes) FROM live_arrays"
    assert rows(db, f"{sql} WHERE run_name = 'False'") == [(MIB // 2 + 4, MIB // 2)]


def test_a_call_with_lost_arguments_is_not_certain(several):
    _, db = several
    ((program, why),) = rows(db, f"{FAILED} 'True'")
    assert program is None and "an earlier call may have failed" in why


def test_small_programs_keep_the_fast_path(several):
    (_, counts, restored), _ = several
    assert counts == [5, 5, 5]
    assert restored == [True, True]


def test_another_failure_leaves_nothing_watched(several):
    (own, *_), db = several
    assert own == "mine"
    sql = "SELECT moment, failure_message, arguments_unknown_reason FROM live_profiles "
    assert rows(db, f"{sql} WHERE run_name = 'own'") == [("end", None, "nothing failed")]


@pytest.fixture
def capture(call, tmp_path, monkeypatch):
    """Watch a command in the folder of the test; return exit code, output and notes."""
    monkeypatch.chdir(tmp_path)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    options = ("capture", "--watch", "--run", "r", "--db", "t.duckdb")
    return lambda *words: call(*options, *words)


def test_a_leak_is_found_by_line_with_one_command(capture, call):
    code, _, err = capture("--limit", "256MiB", "--", sys.executable, LEAK, "fail")
    assert code == 1
    assert "JaxRuntimeError: RESOURCE_EXHAUSTED" in err
    shown = " ".join(err.split())
    assert "what the process holds (memory.prof, cpu:0)" in shown
    assert (
        "the plan needs 256 TiB; alive when it failed: 4.54 MiB, 3.04 MiB of it bystanders" in shown
    )
    assert "largest cache_metrics jax_leak.py:22" in shown
    query = ("query", "process", "--run", "r", "--function", "step", "--db", "t.duckdb")
    parts = json.loads(call(*query, "--format", "json")[1])
    first = next(row for row in parts if row["part"] == "bystander")
    assert (first["python_function_name"], first["held_bytes"]) == ("cache_metrics", 3 * MIB)
    # The dumps' plan of the step, and what the process holds while it runs.
    assert first["function_name"] == "step"
    assert first["process_bytes"] >= 1.3 * first["plan_bytes"]


def test_a_program_that_ends_well_has_a_profile_of_its_end(capture, tmp_path):
    code, _, err = capture("--", sys.executable, LEAK, "end")
    assert code == 0, err
    assert rows(tmp_path / "t.duckdb", "SELECT moment FROM live_profiles") == [("end",)]
    sql = "SELECT sum(total_bytes) FROM live_lines WHERE python_function_name = 'cache_metrics'"
    assert rows(tmp_path / "t.duckdb", sql) == [(3 * MIB,)]
    # The error is quoted in no log: it made no module.
    assert rows(tmp_path / "t.duckdb", "SELECT count(*) FROM modules WHERE format_era = 'M'") == [
        (0,)
    ]


def test_what_fails_without_a_program_is_said_so(capture, tmp_path):
    assert capture("--", sys.executable, LEAK, "put")[0] == 1
    sql = "SELECT moment, failed_program_name, requested_bytes FROM live_profiles"
    assert rows(tmp_path / "t.duckdb", sql) == [("failure", None, 77)]
    ((why,),) = rows(tmp_path / "t.duckdb", "SELECT arguments_unknown_reason FROM live_profiles")
    assert "was not seen" in why


def test_each_run_of_a_sweep_is_watched(capture, tmp_path):
    options = ("--sweep", "what=end,fail", "--limit", "256MiB")
    code, _, err = capture(*options, "--", sys.executable, LEAK, "{what}")
    assert code == 1
    assert "bufdb query process --db t.duckdb --run sweep=r has what each process held" in err
    assert rows(
        tmp_path / "t.duckdb",
        "SELECT run_name, moment, limit_bytes FROM live_profiles ORDER BY ALL",
    ) == [("r-end", "end", 1 << 28), ("r-fail", "failure", 1 << 28)]


def test_a_command_that_is_no_python_is_noted(capture):
    assert "no process was watched" in capture("--", "true")[2]


def test_the_sitecustomize_of_the_program_is_imported(capture, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('theirs')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path / "site")]))
    assert "theirs" in capture("--", sys.executable, "-c", "pass")[1]
