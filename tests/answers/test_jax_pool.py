"""A pool that is too small: a real program of JAX in a bounded address space."""

import json
import os
import subprocess
import sys

import pytest
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")
MIB = 1 << 20
ROOM, ALIVE = 192, 40
"""MiB that the process may still take, and that bystanders hold."""
STEP = f"""
import jax, jax.numpy as jnp, resource
cache = [jnp.full((1024, 1024), float(i)) for i in range({ALIVE // 4})]
@jax.jit
def step(x):
    scores = jnp.dot(x, x.T)  # 256 MiB
    return jnp.dot(jnp.tanh(scores), x)
x = jnp.ones((8192, 2)); jax.block_until_ready((x, cache))
step = step.lower(x).compile()
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + {ROOM} * 2**20,) * 2)
jax.block_until_ready(step(x))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm is Linux's")
def test_the_arena_of_a_real_failure_is_named(tmp_path):
    def bufdb(*words, after=()):
        variables = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bufdb", *words, "--db", "x.duckdb", "--run", "r", *after]
        return subprocess.run(command, env=variables, capture_output=True, text=True, cwd=tmp_path)

    (tmp_path / "train.py").write_text(STEP)
    limit = ("--limit", f"{ROOM + ALIVE}MiB")
    done = bufdb("capture", "--watch", *limit, after=("--", sys.executable, "train.py"))
    assert done.returncode == 1 and "RESOURCE_EXHAUSTED" in done.stderr, done.stderr
    screen = " ".join(done.stderr.split())
    assert "step wants 256.0 MiB in one piece, at most 191.9 MiB are free after 40.1 MiB" in screen
    assert "that stay: it does not fit" in screen
    rows = json.loads(bufdb("query", "pool", "--format", "json").stdout)
    first = rows[0]
    assert (first["function_name"], first["is_failed"], first["fit"]) == ("step", True, "no")
    assert first["arena_bytes"] == 256 * MIB
    assert first["block_bytes"] == ROOM * MIB - 8192 * 2 * 4
    # What the process leaves is a limit: its arrays are known, arguments by identity.
    left = bufdb("summary", "--live", "r")
    assert "192 MiB are left of 232 MiB" in left.stderr and "40.0 MiB stay" in left.stderr
    host = json.loads(bufdb("query", "unplanned", "--format", "json").stdout)
    (held,) = (row["held_bytes"] for row in host if row["kind"] == "host")
    assert held is None or held > 64 * MIB
