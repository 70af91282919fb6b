"""An ensemble whose members are trained by vmap: found, and compiled in batches."""

import json

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

PROGRAM = """
import jax, jax.numpy as jnp

def loss(w, x):
    return (jnp.tanh(jnp.tanh(x @ w) @ w) ** 2).mean()

def step(ws, x):
    def one(w):
        return w - 0.1 * jax.grad(loss)(w, x)
    return jax.vmap(one)(ws)

def args(members, rows):
    return jax.ShapeDtypeStruct((members, 16, 16), jnp.float32), jax.ShapeDtypeStruct(
        (rows, 16), jnp.float32)
"""


def test_members_are_computed_some_at_a_time(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "ensemble.py").write_text(PROGRAM)
    code, out, err = call(
        "fit", "ensemble.py:step", "--args", "*args(8, 4096)", "--limit", "2MiB",
        "--also", "vmap", "--format", "json", "--db", "d.duckdb",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(out)
    best = next(one for one in answer["plans"] if one["rank"] == answer["best"])
    assert best["is_verified"]
    assert best["need_bytes"] <= 2 << 20 < answer["as_written"]["need_bytes"]
    assert best["extra_work_ratio"] == 0
    assert best["changes"] == [
        "vmap at ensemble.py:10 for 2 of 8 at a time; each of the 8 is computed as before"
    ]
    assert "+    return jax.lax.map(one, ws, batch_size=2)" in best["patch"]
