"""Profiles of JAX itself: what is timed, and advice by milliseconds that were measured (needs JAX).

A step of two lines that save as much and cost unlike: of each a plan that computes it again is
compiled and timed, and advice must have them in the order of what was measured.
"""

import json
import os
import subprocess
import sys

import pytest
from ingesting import rows
from small_db import rows as answers

from bufdb.database import store
from bufdb.dumps import profiles
from bufdb.ingest.ingest import ingest
from bufdb.proto import xplane

PROGRAM = """
import functools, json, sys, time
import jax, jax.numpy as jnp
import numpy as np

L, T, D, RUNS = 8, 256, 512, 5

def layer(wrap, x, w):
    here = lambda f, name: jax.checkpoint(f, prevent_cse=False) if wrap == name else f
    y = here(lambda x: jnp.tanh(x @ w), "costly")(x)  # line costly
    z = here(lambda x: jnp.sqrt(1 + x * x), "cheap")(x)  # line cheap
    return 0.3 * (x + y + z), None

def step(wrap, w, x):
    loss = lambda w: jnp.square(jax.lax.scan(functools.partial(layer, wrap), x, w)[0]).sum()
    return w - 1e-3 * jax.grad(loss)(w)

w = np.random.default_rng(0).standard_normal((L, D, D), np.float32) / 30
x = np.ones((T, D), np.float32)
compiled = {}
for wrap in ("nothing", "costly", "cheap"):
    f = functools.partial(step, wrap)
    f.__name__ = f"step_{wrap}"
    compiled[wrap] = jax.jit(f).lower(w, x).compile()
    jax.block_until_ready(compiled[wrap](w, x))
with jax.profiler.trace(sys.argv[1]):
    for _ in range(RUNS):
        jax.block_until_ready(compiled["nothing"](w, x))
# In turn, so that what else the machine does meets all alike; the least is what each takes alone.
least = dict.fromkeys(compiled, float("inf"))
for _ in range(20):
    for wrap, run in compiled.items():
        begin = time.perf_counter()
        jax.block_until_ready(run(w, x))
        least[wrap] = min(least[wrap], time.perf_counter() - begin)
print(json.dumps(least))
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A database with three plans, one of them profiled; seconds of each; the profile's folder."""
    pytest.importorskip("jax", reason="this Python has no jax")
    folder = tmp_path_factory.mktemp("profile")
    (folder / "step.py").write_text(PROGRAM)
    variables = {
        "XLA_FLAGS": f"--xla_dump_to={folder / 'dumps'}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    done = subprocess.run(
        [sys.executable, folder / "step.py", folder / "trace"],
        env=os.environ | variables, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    profile = profiles.load(folder / "trace", print)
    ingest(str(folder / "p.duckdb"), [folder / "dumps"], run="r", profile=profile)
    con = store.open_readable(str(folder / "p.duckdb"))
    yield con, json.loads(done.stdout.splitlines()[-1]), folder
    con.close()


def test_the_reader_has_what_jax_reads(profiled):
    from jax.profiler import ProfileData

    _, _, folder = profiled
    (file,) = folder.rglob("*.xplane.pb")
    expected: dict[str, list[float]] = {}
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    expected.setdefault(stats["hlo_op"], []).append(event.duration_ns)
    profile_times = xplane.read(file.read_bytes()).times
    times = {
        key.instruction_name: (one.execution_count, one.total_ps)
        for key, one in profile_times.items()
    }
    assert times.keys() == expected.keys()
    for name, (count, total) in times.items():
        assert count == len(expected[name])
        assert total / 1000 == pytest.approx(sum(expected[name]), abs=count)


def test_nearly_all_instructions_are_timed_in_as_many_runs(profiled):
    con, _, _ = profiled
    assert rows(con, "SELECT DISTINCT run_count, device FROM instruction_times") == [(5, "CPU:0")]
    assert rows(con, "SELECT code FROM diagnostics WHERE code <> 'unmatched_profile'") == []
    ((timed, work),) = rows(
        con,
        """
        SELECT count(times.instruction_name), count(*)
        FROM instructions
        JOIN modules ON modules.module_id = instructions.module_id
        LEFT JOIN run_times AS times
          ON times.module_id = instructions.module_id
          AND times.instruction_name = instructions.instruction_name
        WHERE modules.function_name = 'step_nothing'
          AND instructions.program_order IS NOT NULL
          AND instructions.opcode IN ('fusion', 'dot', 'copy', 'custom-call')
    """,
    )
    assert work > 5 and timed >= 0.9 * work


def test_work_is_counted_through_loops(profiled):
    con, _, _ = profiled
    # A product of the forward pass, two of the backward pass, in each of 8 layers.
    ((work,),) = rows(
        con,
        """
        SELECT sum(operation_count)
        FROM instruction_costs
        JOIN modules USING (module_id)
        WHERE function_name = 'step_nothing'
    """,
    )
    assert work == 3 * 8 * 2 * 256 * 512 * 512


def line_of(name):
    lines = PROGRAM.splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith(f"# line {name}"))


def test_the_slowest_and_the_largest_line_are_in_one_table(profiled):
    con, _, _ = profiled
    parts = answers(con, "time-by", function="step_nothing")
    assert {row["ranked_by"] for row in parts} == {"time"}
    # On a busy machine a line that waits may be the slowest; of these two the order holds.
    times = {row["part"].rpartition("/")[2]: row["run_ns"] or 0 for row in parts}
    assert list(times.values()) == sorted(times.values(), reverse=True)
    assert times[f"step.py:{line_of('costly')}"] > times[f"step.py:{line_of('cheap')}"]
    assert sum(row["run_ns"] or 0 for row in parts) <= parts[0]["module_ns"]
    largest = {row["part"].rpartition("/")[2]: row["held_bytes"] or 0 for row in parts}
    for name in ("costly", "cheap"):
        assert largest[f"step.py:{line_of(name)}"] >= 8 * 256 * 512 * 4


def test_advice_has_two_plans_in_the_order_of_what_they_take(profiled):
    con, seconds, _ = profiled
    plans = {
        name: next(
            (at, row)
            for at, row in enumerate(answers(con, "advice", function="step_nothing"))
            if row["name"].endswith(f"step.py:{line_of(name)}")
        )
        for name in ("costly", "cheap")
    }
    added = {name: seconds[name] - seconds["nothing"] for name in plans}
    # Three times as much alone, less next to other processes.
    assert added["costly"] > added["cheap"], "the plans do not differ here"
    peaks = dict(rows(con, "SELECT function_name, peak_bytes FROM memory_figures"))
    for name, (_, row) in plans.items():
        saved = peaks["step_nothing"] - peaks[f"step_{name}"]
        assert 0.9 * row["low_saving_bytes"] <= saved <= 1.1 * row["saving_bytes"]
    (first, cheap), (second, costly) = plans["cheap"], plans["costly"]
    assert first < second
    assert cheap["saving_bytes_per_ms"] > costly["saving_bytes_per_ms"]
    assert costly["recompute_ns"] > cheap["recompute_ns"] > 0


def test_what_if_takes_the_cheap_one_first(profiled):
    con, _, _ = profiled
    savings = answers(con, "savings", function="step_nothing", what="source_line", rank_by="cost")
    names = [row["name"].rpartition(":")[2] for row in savings]
    assert names.index(str(line_of("cheap"))) < names.index(str(line_of("costly")))
    assert {row["ranked_by"] for row in savings} == {"time"}
