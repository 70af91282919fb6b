"""`bufdb blame --jax`: two versions of jax in environments of their own, where they can be had."""

import json
import platform
import subprocess
import sys

import pytest

pytest.importorskip("jax", reason="this Python has no jax")
pytestmark = pytest.mark.by_hand

# The shape of openxla/xla#45912, by which jaxlib 0.7.2 needs twice the memory of 0.7.1.
PROGRAM = """from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, donate_argnums=0)
def f(x):
    n = x.shape[0]
    y = jnp.exp(x)
    s = lax.fori_loop(0, 8, lambda i, s: s + y[i * (n // 8)], jnp.float32(0))
    return y * 2 + s


# The kind of marin-community/marin#5394: from jax 0.9 on a ragged product is dense on a GPU.
def ragged(x, w, g):
    return jax.grad(lambda x, w: lax.ragged_dot(x, w, g).sum(), argnums=(0, 1))(x, w)


# The shape of jax-ml/jax#27748: blocks of a scan, each checkpointed, in a loop.
@jax.checkpoint
def inner(carry, _):
    x, p = carry
    a = jnp.sin(p * x)
    return (x + a + jnp.cos(p * a), p), None


def blocks(p, x):
    def run(p, x):
        carry = (x, p)
        for _ in range(8):
            scan = jax.checkpoint(lambda carry: lax.scan(inner, carry, length=32))
            carry, _ = scan(carry)
        return jnp.sum(carry[0])

    return jax.value_and_grad(run)(p, x)


# jax 0.5.0 makes random bits otherwise (jax_threefry_partitionable).
def noisy(x):
    return x + jax.random.normal(jax.random.PRNGKey(0), x.shape)


def plain(x):
    return jnp.sort(x)
"""
SIZE = 1 << 16


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    if sys.version_info >= (3, 14) or platform.system() != "Linux":
        pytest.skip("jax 0.7.1 has no wheel for this Python")
    folder = tmp_path_factory.mktemp("cache")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--timeout", "10"]
    done = subprocess.run([*command, "-d", str(folder), "jax==0.7.1"], capture_output=True)
    if done.returncode:
        pytest.skip("the package index is not reached from here")
    return folder


@pytest.fixture
def blame(tmp_path, call, monkeypatch, cache):
    (tmp_path / "mwe.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    options = ("--db", "d.duckdb", "--args")
    return lambda spec, *more, args=f"f32[{SIZE}]": call(
        "blame", spec, *options, args, "--jax", *more
    )


def test_the_version_and_the_line_are_named(blame):
    code, out, err = blame("mwe.py:f", "0.7.1,0.7.2,0.0.99", "--format", "json")
    assert code == 1, err
    assert err.count("made an environment with") == 2
    assert "jax[cpu]==0.0.99 flatbuffers absl-py failed: " in err
    (series,) = json.loads(out)["series"]
    (jump,) = series["jumps"]
    assert (jump["base"], jump["new"]) == ("jax 0.7.1", "jax 0.7.2")
    assert abs(jump["delta_bytes"] - 4 * SIZE) < 1024
    (part,) = jump["parts"]
    assert (part["name"], part["source"], part["kind"]) == ("exp", "mwe.py:11", "temp")
    assert part["before"] == "written over the donated argument"
    assert jump["verdict"] == "compiler"
    assert "first differ after cpu-parallel-task-assigner" in jump["passes"][-1]
    assert "not yet the cause" in jump["passes"][-1]


def test_checkpointed_blocks_are_all_kept_by_the_compiler(blame):
    more = ("0.5.0,0.5.1", "--format", "json")
    code, out, err = blame("mwe.py:blocks", *more, args="f32[()], f32[64,32]")
    assert code == 1, err
    (jump,) = json.loads(out)["series"][0]["jumps"]
    (part, *_) = jump["parts"]
    line = 1 + PROGRAM.splitlines().index("    return (x + a + jnp.cos(p * a), p), None")
    assert (part["name"], part["source"]) == ("saved add", f"mwe.py:{line}")
    assert part["shape"] == "f32[32,64,32]" and part["delta_bytes"] >= 6 * (32 * 64 * 32 * 4)
    assert jump["verdict"] == "compiler"


def test_random_bits_are_jaxs_own_doing(blame):
    more = ("0.4.38,0.5.0", "--format", "json")
    code, out, err = blame("mwe.py:noisy", *more, args="f32[256,256]")
    assert code == 1, err
    (jump,) = json.loads(out)["series"][0]["jumps"]
    line = 1 + next(at for at, text in enumerate(PROGRAM.splitlines()) if "random.normal" in text)
    assert {part["source"] for part in jump["parts"]} == {f"mwe.py:{line}"}
    assert (jump["verdict"], jump["culprit"][:13]) == ("tracing", "jax's tracing")


def test_without_a_jump_environments_are_kept(blame):
    code, out, err = blame("mwe.py:plain", "0.7.1,0.7.2")
    assert code == 0, err
    assert out.startswith("plain: no jump: ") and out.endswith(" from jax 0.7.1 to jax 0.7.2\n")
    assert "made an environment" not in err


def test_a_target_names_a_version_without_its_hardware(blame):
    args = "f32[512,64], f32[8,64,64], s32[8]"
    more = ("0.8.0,0.9.0", "--target", "gpu:h100", "--format", "json")
    code, out, err = blame("mwe.py:ragged", *more, args=args)
    assert code == 1, err
    (jump,) = json.loads(out)["series"][0]["jumps"]
    assert jump["new"] == "jax 0.9.0" and abs(jump["delta_bytes"] - (1 << 20)) < 1024
    (part,) = jump["parts"]
    assert (part["name"], part["shape"]) == ("ragged_dot_general", "f32[8,512,64]")
    assert part["source"].startswith("mwe.py:")
    assert jump["verdict"] == "compiler"


def test_clean_removes_them(blame, call, cache):
    code, out, _ = call("blame", "--clean")
    assert code == 0 and "removed " in out
    assert not (cache / "bufdb" / "blame").exists()
