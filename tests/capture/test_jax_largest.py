"""`--call largest` and `capture --sweep --call`: programs with several steps, with JAX."""

import csv
import io
import sys

import pytest

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import sys
import jax, jax.numpy as jnp

def layer(x, w):
    return x + jnp.tanh(x @ w), None

def main():
    rows = int(sys.argv[1])

    def loss(w, x):
        return jax.lax.scan(layer, x, w)[0].sum()

    @jax.jit
    def critic(w, x):
        return w - jax.grad(loss)(w, x)

    @jax.jit
    def actor(w, x):
        return w - jax.grad(loss)(w, x)

    @jax.jit
    def evaluate(w, x):
        return loss(w, x)

    a, c, x = jnp.ones((4, 32, 32)), jnp.ones((2, 32, 32)), jnp.ones((rows, 32))
    if "--aot" in sys.argv:
        actor = actor.lower(a, x).compile()
        critic = critic.lower(c, x).compile()
    for number in range(5):
        c = critic(c, x)
        print("critic", number, flush=True)
        if "--fail" in sys.argv and number == 0:
            raise MemoryError
        a = actor(a, x)
        print("actor", number, flush=True)
    open("after", "w").close()
    evaluate(a, x)

main()
"""


@pytest.fixture
def train(empty_folder, call, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (empty_folder / "train.py").write_text(TRAIN)
    return call


def test_the_largest_of_a_round_of_steps_is_explained(train, empty_folder):
    command = ["--", sys.executable, "train.py", "64"]
    code, out, err = train("explain", "--call", "largest", *command)
    assert code == 0, err
    assert "actor of run actor" in out
    # One round, and again up to the call.
    printed = [line for line in err.splitlines() if line.startswith(("actor", "critic"))]
    assert printed == ["critic 0", "actor 0", "critic 0"]
    assert "call 2 of 2 so far, the largest that takes a gradient in one round of steps, " in err
    assert "executed until one was made again: main.<locals>.actor at train.py:34" in err
    code, _, err = train("explain", *command)
    assert code == 0, err
    assert "call 1 of 1 so far, the first that takes a gradient: main.<locals>.critic" in err
    hint = "later calls are not known: --call largest runs one round of steps and takes the largest"
    assert f"main.<locals>.evaluate (train.py:21); {hint}, --call NAME another" in err
    assert not (empty_folder / "after").exists()


@pytest.mark.slow
def test_a_round_of_programs_compiled_ahead_of_time(train):
    command = ["--", sys.executable, "train.py", "64", "--aot"]
    code, out, err = train("explain", "--call", "largest", *command)
    assert code == 0, err
    assert "actor of run actor" in out and "executed until one was made again" in err
    assert "actor 0" in err and "critic 1" not in err


@pytest.mark.slow
def test_a_round_that_fails_counts_up_to_there(train):
    command = ["--", sys.executable, "train.py", "64", "--fail"]
    code, out, err = train("explain", "--call", "largest", *command)
    assert code == 0, err
    assert "critic of run critic" in out and "executed until the command failed" in err


@pytest.mark.by_hand
def test_runs_of_a_sweep_are_stopped_at_the_call(train, empty_folder):
    sweep = ["capture", "--run", "s", "--sweep", "rows=64,128,x", "--call", "actor"]
    command = ["--", sys.executable, "train.py", "{rows}"]
    code, _, err = train(*sweep, "--format", "csv", "-o", "t.csv", *command)
    assert code == 1  # that of x
    assert err.count("main.<locals>.actor at train.py:34; the command was stopped there") == 2
    assert "ValueError: invalid literal for int()" in err
    rows = [*csv.DictReader(io.StringIO((empty_folder / "t.csv").read_text()))]
    known = [(row["run_name"], row["outcome"], row["function_name"]) for row in rows]
    stored = [("s-64", "stored", "actor"), ("s-128", "stored", "actor")]
    assert known == [*stored, ("s-x", "nothing dumped", "")]
    assert int(rows[0]["peak_bytes"]) < int(rows[1]["peak_bytes"])
    code, _, err = train("summary", "--run", "sweep=s")
    assert code == 0 and not (empty_folder / "after").exists(), err
    for words, expected in (
        (["--call", "f"], "for one run: bufdb explain --call f -- python train.py"),
        (["--call", "f", "--sweep", "b=1", "--watch"], "--watch: nothing is run after the call"),
    ):
        code, _, err = train("capture", *words, "--", "python", "train.py", "{b}")
        assert code == 2 and expected in err
