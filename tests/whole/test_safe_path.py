"""No command runs a types.py, json.py or multiprocessing.py of the working directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import DEMO, ROOT

STAND_IN = ROOT / "tests" / "support" / "stand_in"
NAMES = ("types", "json", "multiprocessing", "runpy", "ast", "importlib", "venv", "pip", "bufdb")
HOSTILE = """
import os
open(os.path.join({folder!r}, "run"), "a").write(__name__ + "\\n")
raise SystemExit("hostile " + __name__)
"""
PROGRAM = """
def step(x):
    return x
"""
SCRIPT = """
import sys
from bufdb.cli import main
{first}
if __name__ == "__main__":
    sys.exit(main())
"""
SPAWNED = """
from bufdb.ingest import pool, processes
processes.FEW_BYTES = 0
pool._has_one_thread = lambda: False
"""
SPEC = ("--args", "f32[8]", "--db", "t.duckdb")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A working directory with modules that must not be run, and what ran of them."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(HOSTILE.format(folder=str(tmp_path)))
    (tmp_path / "sub").mkdir()
    for place in ("train.py", "sub/train.py"):
        (tmp_path / place).write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(ROOT)]))
    monkeypatch.setenv("STAND_IN_DUMP", str(DEMO / "tpu_b8"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return tmp_path


def bufdb(*arguments, first=""):
    """Run a command as its script does, which has its own folder on the path."""
    script = Path("bin") / "bufdb"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT.format(first=first))
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    ran = Path("run").read_text().split() if Path("run").exists() else []
    assert ran == [], f"{ran}: {done.stderr}"
    return done


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", ["sub/train.py", "train.py", "sub.train"])
def test_explain_runs_the_file_alone(hostile, place):
    done = bufdb("explain", f"{place}:step", *SPEC)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_fit_runs_the_file_alone(hostile):
    done = bufdb("fit", "sub/train.py:step", *SPEC)
    # The fake JAX has nothing that could be traced.
    assert "bufdb: error: tracing sub/train.py:step failed: " in done.stderr


@pytest.mark.slow
def test_blame_runs_the_file_alone(hostile, monkeypatch):
    done = bufdb("blame", "sub/train.py:step", *SPEC, "--python", sys.executable)
    assert "sub/train.py:step" in done.stderr or done.returncode == 0, done.stderr
    for installer in ("PIP", "UV"):  # nothing is fetched: the attempt is what is seen
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
    done = bufdb("blame", "sub/train.py:step", *SPEC, "--jax", "0.7.1,0.7.2")
    assert "making an environment with" in done.stderr, done.stderr


@pytest.mark.slow
def test_the_version_of_a_python_is_read_without_the_folder(hostile):
    first = "from contextlib import suppress\nfrom bufdb.blame.runs import version_of\n"
    first += "from bufdb.errors import BufdbError\n"
    first += "with suppress(BufdbError):  # where there is no jax\n    version_of(sys.executable)"
    assert bufdb("--version", first=first).returncode == 0


@pytest.mark.slow
def test_capture_runs_the_command_alone(hostile):
    done = bufdb("capture", "--db", "t.duckdb", "--", "/bin/true")
    assert "hostile" not in done.stderr


@pytest.mark.slow
def test_reading_processes_run_nothing_there(hostile):
    runs = [DEMO / name for name in ("cpu_b8", "tpu_b8", "gpu_b8")]
    done = bufdb("ingest", *runs, "--run", "r", "--jobs", 2, "--db", "t.duckdb", first=SPAWNED)
    assert done.returncode == 0, done.stderr
    assert "ingested" in done.stderr + done.stdout


def test_python_m_leaves_the_folder_out(hostile):
    """Before bufdb begins, Python itself imports from there: types, not json."""
    for name in NAMES:
        if name not in ("json", "multiprocessing"):
            Path(f"{name}.py").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "bufdb", "runs", "--db", "none.duckdb", "--format", "json"],
        capture_output=True,
        text=True,
    )
    assert not Path("run").exists(), done.stderr
    assert done.returncode == 3


@pytest.mark.slow
def test_a_child_that_dies_at_its_start_says_why(hostile, tmp_path, monkeypatch):
    (tmp_path / "early").mkdir()
    text = "if '-P' in sys.orig_argv:\n    os.write(2, b'no such disk')\n    os._exit(3)\n"
    (tmp_path / "early" / "sitecustomize.py").write_text(f"import os, sys\n{text}")
    path = os.pathsep.join([str(tmp_path / "early"), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    done = bufdb("explain", "train.py:step", *SPEC)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[-2] == "no such disk", done.stderr
    assert lines[-1] == (
        "bufdb: error: train.py:step could not be compiled: its process ended with code 3"
    )
