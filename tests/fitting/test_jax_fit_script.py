"""`bufdb fit -- COMMAND`: the step is a closure in main(), the patch is proved by the command."""

import json
import subprocess
import sys

import duckdb
import pytest

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import argparse
import atexit
import jax
import jax.numpy as jnp
from part import layer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=512)
    rows = parser.parse_args().rows
    print("rows", rows)
    atexit.register(lambda: open("after", "w").close())

    def loss(params, x):
        out, _ = jax.lax.scan(layer, x, params)
        return (out**2).sum()

    @jax.jit
    def step(params, x):
        grads = jax.grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    params = {name: jnp.ones((6, 32, 32)) for name in "wv"}
    try:
        for _ in range(2):
            params = step(params, jnp.ones((rows, 32)))
    finally:
        open("after", "w").close()


if __name__ == "__main__":
    main()
"""
PART = """import jax.numpy as jnp


def layer(x, p):
    h = x @ p["w"]
    g = jnp.tanh(h) * jnp.sin(h)
    return x + g @ p["v"], None
"""


@pytest.fixture
def fit(empty_folder, call, monkeypatch):
    (empty_folder / "train.py").write_text(TRAIN)
    (empty_folder / "part.py").write_text(PART)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return lambda *words: call("fit", "--db", "d.duckdb", "--format", "json", *words)


def test_a_closure_of_main_gets_a_patch_that_the_command_proves(fit, empty_folder):
    command = [sys.executable, "train.py", "--rows", "768"]
    code, out, err = fit("--limit", "1600KiB", "--budget-compiles", "4", "--", *command)
    assert code == 0, err
    assert err.count("rows 768") == 1
    answer = json.loads(out)
    best = answer["plans"][answer["best"] - 1]
    assert answer["function"] == "step"
    assert answer["as_written"]["need_bytes"] > 1600 * 1024 >= best["need_bytes"]
    assert best["is_verified"] and best["donated"] == ["params"]
    assert (
        "the first that takes a gradient: main.<locals>.step at train.py:27" in answer["notes"][0]
    )
    assert not (empty_folder / "after").exists()
    assert (empty_folder / "train.py").read_text() == TRAIN
    (empty_folder / "p.diff").write_text(answer["patch"])
    subprocess.run(["git", "apply", "p.diff"], check=True)
    subprocess.run([*command], check=True)  # what is donated is not read later
    assert "checkpoint" in (empty_folder / "train.py").read_text()


@pytest.mark.slow
def test_what_a_command_may_read_later_is_not_donated(fit, empty_folder):
    text = TRAIN.replace("params = step(params,", "new = step(params,")
    (empty_folder / "train.py").write_text(text)
    code, out, err = fit("--budget-compiles", "2", "--", sys.executable, "train.py")
    assert code == 0, err
    answer = json.loads(out)
    assert all(not plan["donated"] for plan in answer["plans"])
    note = "not donated: params, as train.py:27 does not assign the result to it"
    assert note in answer["notes"]


@pytest.mark.by_hand  # test_jax_fit_command.py varies an argument
def test_a_value_in_the_words_of_a_command_is_varied(fit):
    options = ["--limit", "1600KiB", "--budget-compiles", "2", "--vary", "n=5", "--"]
    code, out, err = fit(*options, sys.executable, "train.py", "--rows", "{n}00")
    assert code == 0, err
    largest = json.loads(out)["vary"]["largest"]
    assert largest[0]["value"] < largest[-1]["value"]
    code, _, err = fit(*options, sys.executable, "train.py")
    assert code == 2 and "wants {n} in the command" in err


def test_a_command_without_a_gradient_is_refused(fit, empty_folder):
    text = "import jax\njax.jit(lambda x: x + 1)(1.0)\n"
    (empty_folder / "train.py").write_text(text)
    code, out, err = fit("--", sys.executable, "train.py")
    assert (code, out) == (2, "")
    assert "without a call that takes a gradient; jitted functions that it called: <lambda>" in err
    code, out, _ = fit("--call", "1", "--", sys.executable, "train.py")
    assert code == 0 and "takes no gradient" in out


TRAINER = """import jax
from trainer.part import layer


def loss(params, x):
    out, _ = jax.lax.scan(layer, x, params)
    return (out**2).sum()


@jax.jit
def step(params, x):
    grads = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
"""
CALLER = """import jax.numpy as jnp
import trainer


def fit():
    params = {name: jnp.ones((6, 32, 32)) for name in "wv"}
    for _ in range(2):
        params = trainer.step(params, jnp.ones((768, 32)))


fit()
"""


@pytest.mark.parametrize(
    "program", ["command", pytest.param("function", marks=pytest.mark.by_hand)]
)
def test_an_installed_file_is_changed_only_with_own(fit, empty_folder, monkeypatch, program):
    package = empty_folder / "lib" / "site-packages" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TRAINER)
    (package / "part.py").write_text(PART)
    (empty_folder / "caller.py").write_text(CALLER)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    words = ["--", sys.executable, "caller.py"]
    if program == "function":
        shapes = '{"w": f32[6,32,32], "v": f32[6,32,32]}, f32[768,32]'
        words = ["trainer:step", "--args", shapes]
    options = ["--limit", "1600KiB", "--budget-compiles", "2"]
    code, out, err = fit(*options, *words)
    answer = json.loads(out)
    assert code == 1, err
    assert all(not row["patch"] for row in answer["plans"])
    assert any("--own trainer counts it as yours" in note for note in answer["notes"])
    code, out, err = fit(*options, "--own", "trainer", *words)
    answer = json.loads(out)
    assert code == 0, err
    assert "site-packages/trainer/" in answer["patch"]
    assert not any("--own" in note for note in answer["notes"])
    assert own_of_runs(empty_folder) == {"trainer"}


def own_of_runs(folder):
    """What the stored runs count as the user's, by their metadata."""
    with duckdb.connect(str(folder / "d.duckdb"), read_only=True) as con:
        select = "SELECT DISTINCT label_value FROM run_labels WHERE label = 'own'"
        return {value for (value,) in con.execute(select).fetchall()}


EQUINOX = """import equinox as eqx
import jax
import jax.numpy as jnp


def main():
    @eqx.filter_jit
    def step(net, x):
        grads = eqx.filter_grad(lambda net: (jax.vmap(net)(x) ** 2).sum())(net)
        return eqx.apply_updates(net, grads)

    net = eqx.nn.MLP(8, 8, 16, 2, key=jax.random.key(0))
    net = step(net, jnp.ones((4, 8)))


main()
"""


NNX = """import jax.numpy as jnp
import optax
from flax import nnx


def main():
    @nnx.jit
    def step(net, state, x):
        state.update(net, nnx.grad(lambda net: (net(x) ** 2).sum())(net))

    net = nnx.Linear(64, 256, kernel_init=nnx.initializers.ones_init(), rngs=nnx.Rngs(0))
    state, x = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param), jnp.ones((4, 64))
    for _ in range(2):
        step(net, state, x)


main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "package", "line", "donated", "after"),
    [
        (EQUINOX, "equinox", 13, ["net", "x"], '@eqx.filter_jit(donate="all")'),
        (NNX, "flax.nnx", 14, ["net", "state"], "@partial(nnx.jit, donate_argnums=(0, 1))"),
    ],
)
def test_what_a_library_jits_is_the_users(fit, empty_folder, text, package, line, donated, after):
    pytest.importorskip(package, reason=f"this Python has no {package}")
    (empty_folder / "train.py").write_text(text)
    code, out, err = fit("--budget-compiles", "2", "--", sys.executable, "train.py")
    assert code == 0, err
    answer = json.loads(out)
    notes = answer["notes"]
    assert f"main.<locals>.step at train.py:{line}" in notes[0]
    assert not any("where no line is changed" in note for note in notes)
    (plan,) = answer["plans"]
    assert plan["donated"] == donated and plan["is_verified"]
    assert f"+    {after}\n" in plan["patch"]
    (empty_folder / "p.diff").write_text(plan["patch"])
    subprocess.run(["git", "apply", "p.diff"], check=True)
    subprocess.run([sys.executable, "train.py"], check=True)  # what is donated is not read later
