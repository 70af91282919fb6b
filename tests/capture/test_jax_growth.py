"""What grows in a process: real programs of JAX that leak, each in its own way."""

import json
import os
import subprocess
import sys

import pytest
from ingesting import rows
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")
LEAKS = ROOT / "tests" / "support" / "jax_leaks.py"
STEPS = 6
LINES = LEAKS.read_text().splitlines()


def line(text):
    """Return the only line of the program that has a text, as its number."""
    (number,) = [number for number, one in enumerate(LINES, 1) if text in one]
    return number


def run(folder, *arguments):
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | settings, capture_output=True, text=True, cwd=folder,
    )  # fmt: skip


@pytest.fixture
def answer(call, tmp_path, monkeypatch):
    """Run a command in the folder of the test, in this process; return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run_here(*words):
        code, out, err = call(*words, "--db", "t.duckdb")
        assert code == 0, err
        return out

    return run_here


@pytest.fixture
def growth(answer):
    return lambda *more: json.loads(answer("query", "process-growth", "--format", "json", *more))


WAYS = {
    "metrics": ("params, loss = train(", "f32[256,512]", "HISTORY", "HISTORY, COPIES"),
    "closure": ("cache[number] =", "f32[256,256]", "cache", "cache = {}"),
    "copy": ("COPIES.append", "f32[512,256]", "COPIES", "HISTORY, COPIES"),
    "optimizer": ("STATES.append", "f32[512,256]", "STATES", "HISTORY, COPIES"),
    "prefetch": ("self.ready.put", "f32[256,512]", "prefetch", "prefetch, retrace ="),
    "retraced": ("table = jnp.full", "f32[256,512]", "steps", "steps = {}"),
}
"""Text of the line that makes the arrays, their shape, what holds them and the text of its line."""


@pytest.mark.sample(0, 3)  # six programs
@pytest.mark.parametrize("way", WAYS)
def test_a_leak_is_named_with_line_shape_bytes_and_holder(tmp_path, growth, way):
    made, shape, holder, assigned = WAYS[way]
    done = run(tmp_path, LEAKS, way, STEPS)
    assert done.returncode == 0, done.stderr
    leaks = [row for row in growth() if row["sureness"] and row["kind"] == "arrays"]
    (leak,) = leaks
    assert leak["source"] == f"{LEAKS}:{line(made)}"
    size = 4 * eval(shape.removeprefix("f32")[1:-1].replace(",", "*"))
    grown = STEPS - 1
    assert (leak["shape"], leak["growth_bytes"]) == (shape, grown * size)
    assert (leak["last_count"] - leak["first_count"], leak["grown_count"]) == (grown, grown)
    assert (leak["sureness"], leak["since_mark"]) == ("likely", "step 0")
    assert leak["holder_name"] == holder
    assert leak["holder_source"] == f"{LEAKS}:{line(assigned)}"
    text = " ".join(done.stdout.split())
    assert f"{grown} × {shape} made at" in text and f"held by {holder} (jax_leaks.py" in text


@pytest.mark.slow
def test_programs_that_are_loaded_many_times_are_counted(tmp_path, answer, growth):
    assert run(tmp_path, LEAKS, "retraced", 10).returncode == 0
    (row,) = [row for row in growth() if row["kind"] == "programs" and row["sureness"]]
    assert (row["python_function_name"], row["first_count"], row["last_count"]) == (
        "_lambda",
        1,
        10,
    )
    text = answer("summary", "--run", "r")
    assert "10 programs named jit__lambda are loaded, all with the same needs" in text


@pytest.mark.slow
def test_a_process_that_is_killed_has_the_growth_until_then(tmp_path, answer, growth):
    assert run(tmp_path, LEAKS, "metrics", STEPS, "kill").returncode == -9
    answer("ingest", "kept")
    (leak,) = [row for row in growth() if row["sureness"] and row["kind"] == "arrays"]
    assert (leak["holder_name"], leak["growth_bytes"]) == ("HISTORY", (STEPS - 1) << 19)


ODD = """
import gc, weakref, jax, jax.numpy as jnp, bufdb
class Step:
    def __init__(self): self.seen = {}
def train():
    step, last = Step(), None
    with bufdb.watch("t.duckdb", run="r", holders=True, write=lambda line: None) as seen:
        for number in range(5):
            last = jnp.full((64, 64), number)
            step.seen[number % 2] = last
            seen.mark(f"step {number}")
            last_number = number
        gc.disable()
        died = weakref.ref(last)
        seen.mark("again")
        assert (number, last_number) == (4, 4), "locals are as before"
        step.seen.clear()
        del last
        assert died() is None, gc.get_referrers(died())
train()
"""


def test_a_search_for_holders_keeps_no_array_and_no_local(tmp_path, growth):
    done = run(tmp_path, "-c", ODD)
    assert done.returncode == 0, done.stderr
    # Two slots of a dictionary are filled; a buffer of two is no leak that only ever grows.
    assert [row for row in growth() if row["sureness"] == "likely"] == []
    sql = "SELECT DISTINCT holder_name FROM live_arrays JOIN live_profiles USING (profile_name)"
    sql += " WHERE mark = 'step 4' AND shape = 's32[64,64]'"
    assert rows(tmp_path / "t.duckdb", sql) == [("step",)]


HELD = """
import collections
import jax, jax.numpy as jnp, numpy as np, bufdb

def train():
    params, steps, ready = {"w": jnp.ones((256, 256))}, [], collections.deque(maxlen=3)
    with bufdb.watch("t.duckdb", run="r", holders=True, write=print) as seen:
        for number in range(6):
            ready.append(jax.device_put(np.ones((64, 256), np.float32)))
            if number == 1:
                second = jax.tree.map(jnp.zeros_like, params)
            if number == 2:
                evaluated = jax.tree.map(jnp.copy, params)
            for _ in range(4):
                steps.append(jax.jit(lambda w: w * 2.0))
                steps[-1](params["w"]).block_until_ready()
            seen.mark(f"step {number}")
        assert second and evaluated
        print(steps[0].lower(params["w"]).compile()(params["w"]).shape)

train()
"""


@pytest.mark.slow
def test_what_is_held_once_is_a_line_and_no_leak(tmp_path, answer, growth):
    (tmp_path / "held.py").write_text(HELD)
    done = run(tmp_path, "held.py")
    assert done.returncode == 0, done.stderr
    every = growth("-p", "every_line", "true")
    lines = {
        HELD.splitlines()[int(row["source"].rpartition(":")[2]) - 1].split("(")[0].strip(): row
        for row in every
        if row["kind"] == "arrays" and "held.py" in row["source"]
    }
    figures = {
        text: (row["shape"], row["last_count"], row["last_bytes"], row["since_mark"])
        for text, row in lines.items()
        if row["growth_bytes"]
    }
    assert figures == {
        "ready.append": ("f32[64,256]", 3, 3 << 16, "step 0"),
        "second = jax.tree.map": ("f32[256,256]", 1, 1 << 18, "step 0"),
        "evaluated = jax.tree.map": ("f32[256,256]", 1, 1 << 18, "step 1"),
    }
    assert {row["holder_name"] for row in lines.values()} >= {"ready", "second", "evaluated"}
    # A queue of three that was filled has grown twice; the others once.
    assert [row["sureness"] for row in lines.values() if row["sureness"]] == ["possible"]
    text = answer("summary", "--run", "r")
    assert "programs named jit__lambda are loaded, all with the same needs" in text
    text = answer("query", "process", "-p", "profile", "memory-000005.prof")
    assert all(name in text for name in ("held.py:9", "held.py:11", "held.py:13"))
