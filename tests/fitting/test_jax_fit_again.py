"""`bufdb.fit` within main() of a script: the patch is proved by running the command again."""

import json
import os
import subprocess
import sys

import pytest
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import json, sys
import jax, jax.numpy as jnp
import bufdb

def main():
    rows = int(sys.argv[1])
    with open("before", "a") as file:
        file.write("x")

    def layer(x, w):
        h = x @ w
        g = jnp.tanh(h) * jnp.sin(h)
        return x + g, None

    def loss(w, x):
        return (jax.lax.scan(layer, x, w)[0] ** 2).sum()

    @jax.jit
    def step(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    w, x = jnp.ones((6, 32, 32)), jnp.ones((rows, 32))
    # The call has two: the first one is no answer to the second.
    bufdb.fit(step, w, jnp.ones((4, 32)), budget_compiles=1)
    answer = bufdb.fit(step, w, x, limit="700KiB", budget_compiles=3)
    with open("after", "a") as file:
        file.write("x")
    best = answer.best
    print(json.dumps([best and best.is_verified, best and best.need_bytes, answer.text]))

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def run(empty_folder):
    (empty_folder / "train.py").write_text(TRAIN)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}

    def run(*words):
        command = [sys.executable, *words]
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_closure_in_main_has_a_patch_that_is_proved(run, empty_folder):
    is_verified, need, text = run("train.py", "256")
    assert is_verified and need <= 700 * 1024, text
    assert "compiled, patch too; fits" in text
    # Once, and once for each patch that was compiled: nothing after the call ran again.
    assert len((empty_folder / "before").read_text()) > 1
    assert (empty_folder / "after").read_text() == "x"
    assert (empty_folder / "train.py").read_text() == TRAIN


@pytest.mark.by_hand
def test_an_interactive_process_says_why_nothing_is_proved(run, empty_folder):
    is_verified, need, text = run("-i", "train.py", "256")
    reason = "this process is interactive, so that its command cannot run again"
    assert reason in " ".join(text.split())
    assert is_verified is False and need <= 700 * 1024
    assert (empty_folder / "before").read_text() == "x"
