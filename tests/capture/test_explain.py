"""`bufdb explain` and its child process, with a fake JAX: exits, messages and their order."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pytest
from places import DEMO, ROOT
from running import is_running

STAND_IN = ROOT / "tests" / "support" / "stand_in"
E1000 = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
    "required for HLO temporaries (33.52G) exceeds available HBM (15.75G). HLO module: jit_step.\n"
    "See https://openxla.org/xla/errors/error_1000 for more details."
)
MODEL = """
import os
open("pid", "w").write(str(os.getpid()))
print("of the user")

def args(batch):
    import jax
    return tuple(jax.ShapeDtypeStruct((size,), "float32") for size in (8, batch))

def step(params, batch, *, train=False):
    assert batch.shape == (4,), batch.shape

def fails(x):
    raise ValueError("no such layer\\nit has two")

def dies(x):
    os.write(2, b"F0000 Check failed: x\\n" + 40 * b"    @  0x7f frame\\n")
    os.abort()
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with lm.py in which commands are run, and an empty one for temporary files."""
    (tmp_path / "lm.py").write_text(MODEL)
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(ROOT)]))
    monkeypatch.setenv("STAND_IN_DUMP", str(DEMO / "tpu_b8"))
    for name in ("STAND_IN_SECONDS", "STAND_IN_REFUSAL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-m", "bufdb", "explain", *arguments, "--db", "t.duckdb"]


@pytest.fixture
def explain(model, call, monkeypatch):
    """Run the command in this process, which takes half of the time; the child is its own."""
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.setattr(tempfile, "tempdir", str(model / "tmp"))

    def run(*arguments):
        done = subprocess.CompletedProcess(
            arguments, *call("explain", *arguments, "--db", "t.duckdb")
        )
        assert list(Path("tmp").iterdir()) == []
        return done

    return run


@pytest.mark.slow
def test_only_what_the_user_prints_is_shown(explain):
    line = command("lm.py:step", "--args", "f32[8], batch=f32[4]")
    done = subprocess.run(line, capture_output=True, text=True)
    assert list(Path("tmp").iterdir()) == []
    assert (done.returncode, done.stderr) == (0, "of the user\n")
    assert "of run step" in done.stdout
    done = explain("lm.py:step", "--args", "*args(4)", "--verbose")
    assert "cudart_stub" in done.stderr


@pytest.mark.slow
def test_other_arguments_than_it_takes_are_one_line(explain):
    done = explain("lm.py:step")
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        "bufdb: error: step takes (params, batch, *, train=False); --args gives none"
    ]


@pytest.mark.slow
def test_an_exception_of_the_user_is_their_frame_and_one_line(explain):
    done = explain("lm.py:fails", "--args", "f32[1]")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[1].startswith('  File "') and 'lm.py", line ' in lines[1]
    assert not any("stages.py" in line or "child.py" in line for line in lines)
    assert lines[-2] == "it has two"
    assert lines[-1].startswith(
        "bufdb: error: tracing lm.py:fails failed: ValueError: no such layer (lm.py:"
    )


@pytest.mark.slow
def test_a_process_that_dies_has_its_last_lines_shown(explain):
    done = explain("lm.py:dies", "--args", "f32[1]")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [lines[1], lines[-1]] == [
        "F0000 Check failed: x",
        "bufdb: error: lm.py:dies could not be compiled: its process was ended by SIGABRT",
    ]
    assert len(lines) == 6


@pytest.mark.slow
def test_a_program_that_is_too_large_is_answered(explain, monkeypatch):
    monkeypatch.setenv("STAND_IN_REFUSAL", E1000)
    done = explain("lm.py:step", "--args", "args(4)", "--target", "tpu:v5e:2x2")
    assert done.returncode == 1
    assert "lines that hold most of it" in done.stdout
    (note,) = done.stderr.splitlines()[1:]
    assert note == f"bufdb: XLA gave up: {E1000.splitlines()[0]}"


@pytest.mark.slow
def test_a_plan_is_answered_though_the_compiler_dies(explain, monkeypatch):
    monkeypatch.setenv("STAND_IN_REFUSAL", "abort")
    done = explain("lm.py:step", "--args", "args(4)", "--target", "tpu:v5e:2x2")
    assert done.returncode == 1
    assert "lines that hold most of it" in done.stdout and "TPU v5e" in done.stdout
    assert done.stderr.splitlines()[1:] == [
        "bufdb: XLA gave up: its process was ended by SIGABRT: F0000 x.cc:1] Check failed: ptxas"
    ]


@pytest.mark.slow
def test_without_a_plan_what_xla_says_is_one_line(explain, monkeypatch):
    monkeypatch.setenv("STAND_IN_REFUSAL", "INTERNAL: no such kernel")
    monkeypatch.setenv("STAND_IN_DUMP", "")
    done = explain("lm.py:step", "--args", "args(4)", "--target", "v5e")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "bufdb: error: compiling lm.py:step for v5e failed: RuntimeError: INTERNAL: no such kernel"
    )
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.slow
def test_a_limit_that_is_exceeded_is_an_exit_code(explain):
    arguments = ["lm.py:step", "--args", "args(4)", "--limit"]
    assert explain(*arguments, "1KiB").returncode == 1
    assert explain(*arguments, "1TiB").returncode == 0


def test_a_database_that_cannot_take_it_is_found_out_first(model, explain):
    (model / "t.duckdb").write_text("no database")
    done = explain("lm.py:step", "--args", "args(4)")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1  # the file is not imported


@pytest.mark.slow
def test_it_ends_when_the_time_is_over(explain, monkeypatch):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    began = time.monotonic()
    done = explain("lm.py:step", "--args", "args(4)", "--target", "v5e", "--timeout", "1")
    assert time.monotonic() - began < 30
    assert done.returncode == 124
    assert done.stderr.splitlines()[-1].startswith("bufdb: error: stopped after 1 s (--timeout), ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_the_child_and_leaves_no_folder(model, monkeypatch, name):
    monkeypatch.setenv("STAND_IN_SECONDS", "60")
    number = getattr(signal, name)
    command_line = command("lm.py:step", "--args", "args(4)")
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as parent:
        wait_for((model / "compiling").exists)
        child = (model / "pid").read_text()
        parent.send_signal(number)
        assert parent.wait() == -number
        shown = parent.stderr.read()
        # What it had not passed on is lost with it.
        assert shown == "of the user\n" or (name == "SIGKILL" and not shown)
    wait_for(lambda: not is_running(child))
    wait_for(lambda: not any(model.glob("tmp/*")))


def wait_for(condition):
    """Return a condition's value as soon as it is true, within half a minute."""
    for _ in range(300):
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("it did not come about")


@pytest.mark.slow
def test_several_targets_are_one_table(explain):
    arguments = ["lm.py:step", "--args", "args(4)", "--target", "v5e-4", "--target", "v6e"]
    done = explain(*arguments, "--limit", "1TiB", "--format", "json")
    assert done.returncode == 0
    rows = json.loads(done.stdout)
    assert [(row["target"], row["device"], row["run_name"]) for row in rows] == [
        ("v5e-4", "TPU v5 lite", "step@v5e-4"),
        ("v6e", "TPU v6 lite", "step@v6e"),
    ]
    assert {row["outcome"] for row in rows} == {"compiled"}
    assert all(row["need_bytes"] >= row["peak_bytes"] > row["held_bytes"] > 0 for row in rows)
    assert all(row["limit_ratio"] == row["need_bytes"] / row["limit_bytes"] for row in rows)
    with duckdb.connect("t.duckdb", read_only=True) as con:
        runs = con.execute("SELECT DISTINCT run_name FROM modules ORDER BY ALL").fetchall()
    assert runs == [("step@v5e-4",), ("step@v6e",)]


@pytest.mark.slow
def test_each_value_of_a_sweep_is_a_row_and_a_run(explain, monkeypatch):
    words = ["lm.py:step", "--args", "args(4 + 0 * {batch})", "--target", "v5e", "--sweep"]
    done = explain(*words, "batch=4,8", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["target"], row["run_name"], row["outcome"]) for row in rows] == [
        ("batch=4", "step-4@v5e", "compiled"),
        ("batch=8", "step-8@v5e", "compiled"),
    ]
    with duckdb.connect("t.duckdb", read_only=True) as con:
        sql = "SELECT run_name, label_value FROM run_labels WHERE label = 'batch' ORDER BY ALL"
        assert con.execute(sql).fetchall() == [("step-4@v5e", "4"), ("step-8@v5e", "8")]
    words[2] = "args({batch})"  # of another shape than 4 the function fails
    done = explain(*words, "batch=4,8", "--limit", "1B", "--format", "json")
    assert [row["outcome"] for row in json.loads(done.stdout)] == ["too large", "not compiled"]
    assert "batch=4 is the largest that compiles, of those tried" in done.stderr
    monkeypatch.setenv("STAND_IN_REFUSAL", E1000)
    monkeypatch.setenv("STAND_IN_DUMP", "")
    assert explain(*words, "batch=4,8").returncode == 1


@pytest.mark.slow
def test_a_sweep_is_of_one_function_and_one_target(explain):
    for words, message in (
        (["lm.py:step", "--sweep", "batch=4,8"], "the command has no {batch}"),
        (["lm.py:step", "--args", "args({n})", "--sweep", "batch=4"], "no --sweep for {n}"),
        (["lm.py:step", "--args", "args({n})", "--sweep", "n=4", "--target", "v5e", "--target",
          "v6e"], "one --target"),
    ):  # fmt: skip
        done = explain(*words)
        assert done.returncode == 2 and message in done.stderr


@pytest.mark.slow
def test_a_failed_target_is_a_row_with_the_reason(explain, monkeypatch):
    arguments = ["lm.py:step", "--args", "args(4)", "--target", "tpu:v9:2x2", "--target", "v5e"]
    done = explain(*arguments)
    assert done.returncode == 2 and done.stdout == ""  # libtpu knows no v9
    monkeypatch.setenv("STAND_IN_REFUSAL", E1000)
    done = explain("lm.py:step", "--args", "args(4)", "--target", "v5e", "--target", "v6e")
    assert done.returncode == 1
    assert "outcome too large" in done.stdout
    monkeypatch.setenv("STAND_IN_REFUSAL", "UNIMPLEMENTED: ptxas too old")
    done = explain("lm.py:step", "--args", "args(4)", "--target", "v5e", "--format", "json")
    assert done.returncode == 1 and "XLA gave up: UNIMPLEMENTED" in done.stderr
    monkeypatch.setenv("STAND_IN_REFUSAL", E1000)
    monkeypatch.setenv("STAND_IN_DUMP", "")
    done = explain("lm.py:step", "--args", "args(4)", "--target", "v5e", "--target", "v6e")
    assert done.returncode == 1
    assert "outcome not compiled" in done.stdout and "exceeds available HBM" in done.stdout
