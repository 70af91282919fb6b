"""`bufdb fit` again: what an earlier call compiled is not compiled, and the answer is the same."""

import json
import os
import subprocess
import sys

import duckdb
import pytest
from places import ROOT

from bufdb import user_cache
from bufdb.ingest.rows import MODULE_TABLES

pytest.importorskip("jax", reason="this Python has no jax")

PROGRAM = """import jax
import jax.numpy as jnp


def layer(x, w):
    return x + jnp.tanh(x @ w) * jnp.sin(x), None


def loss(w, x):
    return (jax.lax.scan(layer, x, w)[0] ** 2).sum()


@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)


def args():
    return jnp.ones((6, 32, 32)), jnp.ones((512, 32))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def fit(place, call, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv(user_cache.VARIABLE, str(place / "cache"))

    def run(db, *words):
        code, out, err = call(
            "fit", "train.py:step", "--args", "args()", "--limit", "1MiB", "--format", "json",
            "--budget-compiles", "2",
            "--db", db, *words,
        )  # fmt: skip
        assert code == 0, err
        return json.loads(out)

    return run


def rows(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return {
            table: con.execute(f'SELECT * FROM "{table}" ORDER BY ALL').fetchall()
            for table in MODULE_TABLES
        }


def without_count(answer):
    return {name: field for name, field in answer.items() if name != "before_count"}


def test_the_answer_is_the_same_whatever_was_compiled(fit, place):
    first, second = fit("first.duckdb"), fit("second.duckdb")
    assert first["plans"][first["best"] - 1]["is_verified"] and first["before_count"] == 0
    # The patched files make the program of the plan, which is compiled once.
    assert second["before_count"] == second["compile_count"] == 2
    assert without_count(second) == without_count(first)
    assert rows(place / "first.duckdb") == rows(place / "second.duckdb")
    # What is damaged is compiled again.
    for number, path in enumerate(sorted((place / "cache" / "compiled").iterdir())):
        data = path.read_bytes()
        path.write_bytes(data[:-1] if number % 2 else b"x" + data[1:])
    third = fit("third.duckdb")
    assert (third["before_count"], without_count(third)) == (0, without_count(first))


def test_another_program_and_another_process(place, monkeypatch):
    """Of the same lines another program is compiled; the same one is found by Python, too."""
    script = """import sys
sys.path.insert(0, sys.argv[1])
import bufdb, train
for step in (train.step, train.step, train.other):
    answer = bufdb.fit(step, *train.args(), budget_compiles=1)
    print(answer.data["before_count"], answer.data["compile_count"])
    print(" ".join(str(answer).split()))
"""
    other = PROGRAM.replace("jnp.sin", "jnp.cos").replace("def step", "def other")
    (place / "train.py").write_text(PROGRAM)
    (place / "script.py").write_text(script)
    (place / "lib").mkdir()
    (place / "lib" / "train.py").write_text(f"{PROGRAM}\nfrom cosine import other\n")
    (place / "lib" / "cosine.py").write_text(other)
    variables = {**os.environ, "JAX_PLATFORMS": "cpu", user_cache.VARIABLE: str(place / "other")}
    variables["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "script.py", "lib"],
        cwd=place, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[::2] == ["0 2", "2 2", "0 2"]
    assert "2 compiled (2 before), " in lines[3] and "before" not in lines[1] + lines[5]
