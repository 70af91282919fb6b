"""`bufdb verify` of changes that are made in the text of a program of JAX, compiled for the CPU."""

import os
import subprocess
import sys

import pytest
from ingesting import ingest_into

from bufdb.answers.opening import Opener
from bufdb.database import store
from bufdb.database.patience import Patience
from bufdb.what_if.verify import verify

pytest.importorskip("jax", reason="this Python has no jax")

BASE = """
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name

N, D, T = 6, 64, 1024


def layer(x, p):
    a = name(x @ p, "a")
    b = name(jnp.sin(a), "b")
    c = name(b @ p, "c")
    return x + jnp.tanh(c), None


def loss(params, x):
    kept = jax.checkpoint_policies.save_only_these_names("a", "b", "c")
    body = jax.checkpoint(layer, policy=kept, prevent_cse=False)
    return (jax.lax.scan(body, x, params)[0] ** 2).sum()


@jax.jit
def step(params, x):
    return params - 0.1 * jax.grad(loss)(params, x)


shapes = jax.ShapeDtypeStruct((N, D, D), "float32"), jax.ShapeDtypeStruct((T, D), "float32")
lowered = step.lower(*shapes)
"""
# A checkpointed layer in the body of a scan: what surrounds it is saved.
INNER = """
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name

N, D, T = 12, 64, 128


def layer(x, w):
    h = name(jnp.tanh(x @ w["a"]), "h")
    return x + jax.nn.gelu(h) @ w["b"]


def body(x, w):
    y = jax.checkpoint(layer)(x, w)
    return jnp.sin(y) * jax.nn.sigmoid(y) + x, None


def loss(params, x):
    return (jax.lax.scan(body, x, params)[0] ** 2).mean()


def step(params, x):
    got = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, got)


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, "float32")


params = {"a": shape(N, D, 2 * D), "b": shape(N, 2 * D, D)}
lowered = jax.jit(step).lower(params, shape(T, D))
"""
# The opposite: the inside is saved, and what surrounds it is computed again.
OUTER = INNER.replace("jax.checkpoint(layer)(x, w)", "layer(x, w)").replace(
    "scan(body", 'scan(jax.checkpoint(body, policy=kept("h"))'
)
OUTER = OUTER.replace(
    "def layer", "kept = jax.checkpoint_policies.save_only_these_names\n\n\ndef layer"
)
# Layers in a row: what the buffers of the results hold before has room elsewhere in part.
ROW = """
import jax
import jax.numpy as jnp

N, D, T = 6, 64, 512


def layer(h, w):
    return h + jax.nn.silu(jnp.tanh(h @ w["u"])) @ w["v"]


def loss(params, x):
    for number in range(N):
        x = layer(x, jax.tree.map(lambda leaf: leaf[number], params))
    return (x**2).mean()


@jax.jit
def step(params, x):
    got = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, got)


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, "float32")


lowered = step.lower({"u": shape(N, D, 4 * D), "v": shape(N, 4 * D, D)}, shape(T, D))
"""
CHANGES = {
    "row": ROW,
    "row_donated": ROW.replace(
        "@jax.jit", "@__import__('functools').partial(jax.jit, donate_argnums=0)"
    ),
    "inner": INNER,
    "outer": OUTER,
    "base": BASE,
    # Lines shift, too.
    "policy": "# one\n# two\n" + BASE.replace('"a", "b", "c")\n    body', '"a", "c")\n    body'),
    "nothing": BASE.replace('only_these_names("a", "b", "c")', "only_these_names()"),
    "donated": BASE.replace(
        "@jax.jit", "@__import__('functools').partial(jax.jit, donate_argnums=0)"
    ),
}
# One process for all: to import JAX takes longer than to compile each.
ALL = """
import pathlib, runpy, sys

for run in sys.argv[1:]:
    lowered = runpy.run_path(str(pathlib.Path(run, "train.py").resolve()))["lowered"]
    lowered.compile(compiler_options={"xla_dump_to": f"{run}/dumps"})
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    for run, text in CHANGES.items():
        (folder / run).mkdir()
        (folder / run / "train.py").write_text(text)
    variables = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", ALL, *CHANGES]
    subprocess.run(command, cwd=folder, env=os.environ | variables, check=True, capture_output=True)
    with store.open_writable(str(folder / "a.duckdb")) as con:
        for run in CHANGES:
            ingest_into(con, folder / run / "dumps", run=run)
    return str(folder / "a.duckdb")


def verified(database, new, base="base"):
    with Opener(database, None, Patience()).several() as opened:
        (verification,) = verify(opened, base, new, function="step").functions
    return verification


def test_a_name_less_in_a_policy_is_found_though_lines_shifted(database):
    verification = verified(database, "policy")
    gone = [row for row in verification.rows if row.what == "source_line"]
    assert [row.name.rpartition("/")[2] for row in gone] == ["train.py:11"]
    assert gone[0].kind == "residual"
    assert verification.peak.got > 0
    assert verification.peak.is_in_range, verification.peak


def test_a_policy_that_saves_nothing_is_all_of_it(database):
    verification = verified(database, "nothing")
    assert verification.peak.got > 2 * verified(database, "policy").peak.got
    assert verification.is_kept, verification.peak


def test_a_donation_is_a_promise_too(database):
    verification = verified(database, "donated")
    (row,) = [row for row in verification.rows if row.what == "donation"]
    assert (row.name, row.kind, row.base_bytes) == ("params", "donate", 6 * 64 * 64 * 4)
    # The buffer of the result holds a stack at the peak, which then needs one of its own.
    assert (verification.peak.low, verification.peak.high, verification.peak.got) == (
        0,
        row.base_bytes,
        0,
    )


def test_a_donation_without_a_loop_saves_up_to_its_size(database):
    peak = verified(database, "row_donated", "row").peak
    assert peak.low == 0 < peak.got <= peak.high == 2 * 6 * 64 * 256 * 4


def test_what_is_saved_instead_comes_off_the_least(database):
    verification = verified(database, "outer", "inner")
    gone = sum(row.base_bytes for row in verification.rows if row.what == "source_line")
    instead = sum(row.new_bytes for row in verification.rows if row.what == "instead")
    assert instead > gone / 3
    assert verification.peak.low <= verification.peak.high - min(gone, instead), verification.peak
    assert verification.peak.is_in_range, verification.peak
