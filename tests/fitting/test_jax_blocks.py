"""Equal checkpointed blocks of a Python loop, as one scan that computes the same."""

import json
from types import SimpleNamespace

import pytest
from patched import loaded

jax = pytest.importorskip("jax", reason="this Python has no jax")

PROGRAM = """
import jax, jax.numpy as jnp

@jax.checkpoint
def layer(carry, t):
    a, k = carry
    return (a + jnp.cos(k * jnp.sin(k * a + t)), k), None

def total(k, start, blocks=6, length=50):
    carry = (start, k)
    for i in range(blocks):
        ticks = jnp.arange(i * length, (i + 1) * length)
        carry, _ = jax.checkpoint(lambda c: jax.lax.scan(layer, c, ticks))(carry)
    return jnp.sum(carry[0])

def step(k, start):
    return jax.value_and_grad(total)(k, start)

def args(size):
    return jnp.float32(0.5), jnp.linspace(0.0, 1.0, size)
"""


def test_blocks_become_one_scan(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "blocks.py").write_text(PROGRAM)
    code, out, err = call(
        "fit", "blocks.py:step", "--args", "*args(4096)", "--also", "blocks", "--format", "json",
        "--db", "d.duckdb",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(out)
    (plan,) = [one for one in answer["plans"] if one["changes"]]
    assert plan["changes"] == [
        "6 blocks at blocks.py:13 in one scan; each is computed as before, by its equations"
    ]
    assert plan["is_verified"] is True
    assert plan["extra_work_ratio"] == 0
    assert plan["need_bytes"] < answer["as_written"]["need_bytes"]
    assert "+    def fit_block(carry, ticks):" in plan["patch"]


# -- What is compared ------------------------------------------------------------------------------

HEAD = """
import jax, jax.numpy as jnp

@jax.checkpoint
def block(p, x, i=1):
    return jnp.tanh(x @ p["w"] * i)

def loss(params, x):
"""
SAME = [
    "    for p in params:\n        x = block(p, x)\n",
    "    for i, p in enumerate(params):\n        x = block(p, x, i + 1)\n",
    "    for i in range(3):\n        x = block(params[i], x, i)\n",
    "    held = {f'l{i}': p for i, p in enumerate(params)}\n"
    "    for i in range(3):\n        x = block(held[f'l{i}'], x)\n",
    "    stack = jax.tree.map(lambda *a: jnp.stack(a), *params)\n"
    "    for i in range(3):\n        x = block(jax.tree.map(lambda a: a[i], stack), x)\n",
    "    total = 0.0\n    for p in params:\n        x = block(p, x)\n        total += x.sum()\n"
    "    x = x * total\n",
    "    key = jax.random.key(0)\n    for p in params:\n"
    "        key, one = jax.random.split(key)\n"
    "        x = block(p, x) + jax.random.normal(one, x.shape)\n",
]
OTHER = [
    "    names = iter(params)\n    for _ in range(3):\n        x = block(next(names), x)\n",
    "    count = []\n    for p in params:\n"
    "        x = block(p, x, len(count) + 1); h = count.append(1)\n",
]


@pytest.fixture(scope="module")
def drawn():
    """Random arguments: after each trace JAX would compile again how it draws them."""
    keys = jax.random.split(jax.random.key(0), 4)
    own = [{"w": jax.random.normal(key, (4, 4))} for key in keys[:3]]
    return own, jax.random.normal(keys[3], (2, 4))


@pytest.fixture
def compared(tmp_path, drawn):
    """Whether a loop and the scan in its place compute the same: by digests, and by numbers."""
    from bufdb.fitting.function import Function
    from bufdb.fitting.patch import patch
    from bufdb.fitting.plans import Plan
    from bufdb.fitting.rewrites import jit_for_check

    def compare(loop):
        text = f"{HEAD}{loop}    return (x ** 2).sum()\n"
        written = loaded(text, tmp_path)
        function = Function(jax.grad(written.loss), drawn, {}, "loss")
        (change,) = function.changes(("blocks",)).tried
        made = patch(
            SimpleNamespace(changes_of=lambda plan: [change], regions=(), switches=()),
            Plan(extra=(change.key,)), {written.__file__: text}, str(tmp_path),
        )  # fmt: skip
        assert made.steps == ()
        other = loaded(made.texts[written.__file__], tmp_path)
        is_same = function.digests() == Function(jax.grad(other.loss), drawn, {}, "x").digests()
        both = (jit_for_check(jax.grad(one.loss)) for one in (written, other))
        grads = [jax.tree.leaves(grad(*drawn)) for grad in both]
        return is_same, all(
            jax.numpy.allclose(*pair, 1e-4, 1e-4) for pair in zip(*grads, strict=True)
        )

    return compare


@pytest.mark.parametrize("loop", SAME)
def test_a_scan_of_the_same_values_is_known(compared, loop):
    assert compared(loop) == (True, True)


@pytest.mark.parametrize("loop", OTHER)
def test_a_scan_of_other_values_is_seen(compared, loop):
    assert compared(loop) == (False, False)
