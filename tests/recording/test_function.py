"""A function of a file for several targets, without a command line, with a fake JAX."""

import os
from functools import partial

import pytest
from places import DEMO, ROOT

from bufdb.capture.runner import NotCompiledError
from bufdb.database import store
from bufdb.errors import UsageError
from bufdb.recording.function import Function, compared, explained

STAND_IN = ROOT / "tests" / "support" / "stand_in"
MODEL = """
print("of the user")

def step(x):
    pass

def fails(x):
    raise ValueError("no such layer")
"""


@pytest.fixture
def function(tmp_path, monkeypatch):
    """Return a function of lm.py, and what it printed."""
    (tmp_path / "lm.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(ROOT)]))
    monkeypatch.setenv("STAND_IN_DUMP", str(DEMO / "tpu_b8"))
    for name in ("STAND_IN_SECONDS", "STAND_IN_REFUSAL"):
        monkeypatch.delenv(name, raising=False)

    def named(name, **fields):
        printed = []
        opened = partial(store.open_readable, "t.duckdb")
        made = Function(
            f"lm.py:{name}", "f32[8]", "t.duckdb", opened, relay=printed.append, **fields
        )
        return made, printed

    return named


@pytest.mark.parametrize(
    ("run", "target", "is_one", "name"),
    [
        (None, None, True, "step"),
        (None, "v5e", True, "step@v5e"),
        ("r", "v5e", True, "r"),
        ("r", "v5e", False, "r@v5e"),
    ],
)
def test_a_run_is_named_for_the_function_and_its_target(function, run, target, is_one, name):
    made, _ = function("step", run=run)
    assert made.run_name(target, is_one=is_one) == name


@pytest.mark.slow
def test_a_function_is_stored_and_its_need_known(function):
    made, printed = function("step", limit="1TiB")
    outcome = explained(made, "v5e")
    assert (outcome.run_name, outcome.device, outcome.word) == (
        "step@v5e",
        "TPU v5 lite",
        "compiled",
    )
    assert outcome.need_bytes > 0 and outcome.overview.limit_bytes == 1 << 40
    assert b"".join(printed) == b"of the user\n"


def test_what_cannot_be_compiled_is_an_outcome_with_its_error(function):
    made, _ = function("fails")
    ((outcome, error),) = compared(made, ["v5e"])
    assert isinstance(error, NotCompiledError) and outcome.overview is None
    assert outcome.failure == str(error)
    assert "tracing lm.py:fails for v5e failed: ValueError: no such layer" in str(error)
    with pytest.raises(UsageError, match="has no 'stop'"):
        next(compared(function("stop")[0], ["v5e"]))
