"""Lines of saved arrays where one process compiles many loops, by the JAX that is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from marked_lines import MADE_IN, UNMARKED, judge, marks, rows
from places import ROOT
from shared_dumps import LOOPS as SHARED
from shared_dumps import needs_loops

from bufdb.ingest.ingest import ingest

MODEL = ROOT / "data" / "model"
TOGETHER = """
import sys, jax
sys.path.insert(0, sys.argv[1])
import models
for name, make in [*models.PROGRAMS.items()][:: int(sys.argv[2])]:
    function, arguments, options = make()
    def program(*arguments):
        return function(*arguments)
    program.__name__ = program.__qualname__ = name
    jax.jit(program, **options).lower(*arguments).compile()
"""


def compiled(folder: Path, *command: str) -> list[dict]:
    """Run a script in a process of its own; return the origins in its dumps."""
    pytest.importorskip("jax", reason="this Python has no jax")
    flags = f"--xla_dump_to={folder / 'dumps'} --xla_backend_optimization_level=0"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    subprocess.run([sys.executable, *command], env=environment, check=True, cwd=MODEL)
    ingest(str(folder / "a.duckdb"), [folder / "dumps"])
    return rows(folder / "a.duckdb")


@pytest.mark.parametrize(("script", "made_in"), [
    ("two_scans.py", lambda name: [name]),
    ("loops.py", MADE_IN.__getitem__),
])  # fmt: skip
def test_each_saved_array_has_its_line(script, made_in, tmp_path):
    right, wrong = judge(compiled(tmp_path, script), marks(MODEL / script), made_in)
    assert wrong == set()
    assert right > 40


@needs_loops
@pytest.mark.parametrize(
    ("step", "least"),
    [pytest.param(3, 200, marks=pytest.mark.slow), pytest.param(1, 800, marks=pytest.mark.by_hand)],
)
def test_each_one_of_many_programs_of_a_process_has(tmp_path, step, least):
    """Every third of fifteen programs, or all: later scans have stacks of an earlier shape."""
    generate = SHARED / "generate"
    origins = compiled(tmp_path, "-c", TOGETHER, str(generate), str(step))
    assert len({row["function_name"] for row in origins}) >= 15 // step
    made_in = lambda name: [name, f"_{name.partition('_')[0]}"]  # noqa: E731
    right, wrong = judge(origins, marks(generate / "models.py"), made_in)
    assert wrong <= UNMARKED
    assert right > least
