"""Savings of removing a line from a scanned layer, in programs changed and compiled again.

Each change is made as its row says it: jax.checkpoint around the expression, or one name less in
the policy. What comes lies in the range that was promised, and the low end is no guess: softmax
alone saves next to nothing, for its result is read on and its operand kept.
"""

import os
import subprocess
import sys

import duckdb
import pytest

from bufdb.ingest.ingest import ingest

PROGRAM = """
import functools, sys
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

L, B, T, D, H = 8, 4, 128, 64, 4
NAMES = ("score", "prob", "mixed", "wide", "act")
here = lambda f, wrapped: jax.checkpoint(f, prevent_cse=False) if wrapped else f

def layer(wrap, x, w):
    name = checkpoint_name if wrap is None else lambda value, _: value
    heads = lambda y: y.reshape(B, T, H, D // H)
    q, k, v = (heads(x @ w[n]) for n in "qkv")
    score = name(jnp.einsum("bqhd,bkhd->bhqk", q, k), "score")
    soft = here(jax.nn.softmax, wrap == "prob")
    prob = name(soft(score), "prob")  # line prob
    mixed = name(jnp.einsum("bhqk,bkhd->bqhd", prob, v), "mixed")
    x = x + mixed.reshape(B, T, D) @ w["o"]
    wide = name(x @ w["up"], "wide")
    gelu = here(jax.nn.gelu, wrap == "act")
    act = name(gelu(wide), "act")  # line act
    return x + act @ w["down"], None

def step(layer, w, x):
    loss = lambda w: jnp.square(jax.lax.scan(layer, x, w)[0]).sum()
    return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w))

shape = lambda *sizes: jax.ShapeDtypeStruct((L, *sizes), jnp.float32)
W = {n: shape(D, D) for n in "qkvo"} | {"up": shape(D, 4 * D), "down": shape(4 * D, D)}

def compiled(name, layer):
    f = functools.partial(step, layer)
    f.__name__ = name
    lowered = jax.jit(f, donate_argnums=0).lower(W, jax.ShapeDtypeStruct((B, T, D), jnp.float32))
    lowered.compile()

for one in ("plain", "prob", "act"):
    compiled(f"wrap_{one}", functools.partial(layer, one))
for one in ("plain", "prob", "act"):
    policy = jax.checkpoint_policies.save_only_these_names(*(n for n in NAMES if n != one))
    compiled(f"policy_{one}", jax.checkpoint(functools.partial(layer, None), policy=policy))
"""


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    """A database of the programs, as they are and changed."""
    pytest.importorskip("jax", reason="this Python has no jax")
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "ranges.py").write_text(PROGRAM)
    variables = {
        "XLA_FLAGS": f"--xla_dump_to={folder / 'dumps'}",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    done = subprocess.run(
        [sys.executable, "ranges.py"],
        cwd=folder, env=os.environ | variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ingest(str(folder / "t.duckdb"), [folder / "dumps"])
    with duckdb.connect(str(folder / "t.duckdb"), read_only=True) as opened:
        yield opened


def peak(con, function):
    rows = con.execute("SELECT max(peak_bytes) FROM memory_figures WHERE function_name = ?",
                        [function]).fetchall()  # fmt: skip
    return rows[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prob", "act"])
@pytest.mark.parametrize("form", ["wrap", "policy"])
def test_what_comes_is_in_the_range(con, form, name):
    line = next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if f"# line {name}" in text)
    rows = con.execute(
        "SELECT low_saving_bytes, saving_bytes, saving_form, kept_name FROM peak_savings "
        "JOIN modules USING (module_id) WHERE function_name = ? AND what = 'source_line' "
        "AND name LIKE ?",
        [f"{form}_plain", f"saved %ranges.py:{line}"],
    ).fetchall()
    ((low, high, range_form, kept),) = rows
    before, after = peak(con, f"{form}_plain"), peak(con, f"{form}_{name}")
    assert range_form == form
    assert low - 0.02 * before <= before - after <= high + 0.02 * before
    if (form, name) == ("wrap", "prob"):
        assert kept.endswith(f"ranges.py:{line - 2}")
        assert low <= 0 < high
        assert before - after < 0.02 * before
