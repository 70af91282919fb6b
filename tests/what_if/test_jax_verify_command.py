"""`bufdb what-if -- COMMAND`: about the call of a command, and compared with a changed program."""

import sys

import pytest

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import sys
import jax, jax.numpy as jnp

def layer(x, w):
    h = jnp.tanh(x @ w)
    return x + jnp.sin(h), None

def main():
    body = jax.checkpoint(layer) if "--remat" in sys.argv else layer

    @jax.jit
    def init(key):
        return jax.random.normal(key, (8, 64, 64))

    @jax.jit
    def train_step(w, x):
        return w - jax.grad(lambda w: jax.lax.scan(body, x, w)[0].sum())(w)

    w = init(jax.random.key(0))
    w = train_step(w, jnp.ones((256, 64)))
    open("after", "w").close()

main()
"""
WRONG = (
    (["--verify"], "--verify wants a command: --verify -- python train.py"),
    (["--call", "f"], "--call is about a command"),
    (["--", "python", "train.py"], "'train_step' and a command: --verify compares them"),
    (["--verify", "--"], "expected a command after --"),
    (["--verify", "python a.py", "--", "python", "a.py"], "give one of them"),
    (["--verify", "--", "python", "-S", "a.py"], "leave -S out"),
)


@pytest.fixture
def ask(empty_folder, call, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (empty_folder / "train.py").write_text(TRAIN)
    return lambda *words: call("what-if", "--without", "line:train.py:5", *words)


def test_a_call_is_asked_about_and_its_change_is_verified(ask, empty_folder, call):
    command = ["--", sys.executable, "train.py"]
    code, out, err = ask("--run", "base", *command)
    assert code == 0, err
    assert out.startswith("train_step (base, host): peak ") and "call 2 of 2 so far" in err
    code, out, err = ask("train_step", "--run", "base", "--verify", *command, "--remat")
    assert code == 0, err
    assert out.startswith("train_step (base → base:verify, host): saved ")
    assert "main.<locals>.train_step at train.py:20" in err
    options = ["--call", "init", "--verify", f"{sys.executable} train.py"]
    code, _, err = ask("train_step", "--run", "base", *options)
    assert code == 1 and "run base:verify has no function train_step" in err
    assert not (empty_folder / "after").exists()
    for words, expected in WRONG:
        code, out, err = ask("train_step", "--run", "base", *words)
        assert (code, out) == (2, "") and expected in err
    assert call("what-if", *command)[0] == 2  # what should be removed?
    code, _, err = ask("--verify", *command)
    assert code == 2 and "name MODULE" in err
