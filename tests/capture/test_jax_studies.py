"""Scripts of `data/studies` that need few packages: the call is that of the table."""

import json
import re
import runpy
import sys
from unittest.mock import create_autospec

import pytest
from patched import program
from places import ROOT

from bufdb.fitting.plans import Patch, Plan
from bufdb.fitting.session import Apart

pytest.importorskip("jax", reason="this Python has no jax")

STUDIES = ROOT / "data" / "studies"


@pytest.mark.parametrize("name", ["frontier", "monotone", "fit", "scripts"])
def test_a_study_begins(name, monkeypatch):
    """What they import of bufdb is there: they run for hours, by hand."""
    monkeypatch.syspath_prepend(str(STUDIES))
    assert runpy.run_path(str(STUDIES / f"{name}.py"))["main"]


def test_the_study_of_fit_compiles_patched_files(monkeypatch, tmp_path):
    made = runpy.run_path(str(STUDIES / "fit.py"))["Bench"]
    session = create_autospec(Apart, instance=True)
    monkeypatch.setattr(made, "_measured", lambda bench, dumped: dumped)
    bench = made(session, tmp_path, is_quick=True)
    dumped = bench.patched(program(), Plan(("scan_0",)), Patch("", {"a.py": ""}, ()))
    assert dumped is session.patched.return_value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["equinox_rnn", "at_import", "maxlike", "fsdp"])
def test_the_call_of_a_script_is_that_of_the_table(name, call, monkeypatch):
    script = runpy.run_path(str(STUDIES / "scripts.py"))["SCRIPTS_BY_NAME"][name]
    for package in ("optax", "equinox"):
        pytest.importorskip(package)
    monkeypatch.chdir(STUDIES / "programs" / "scripts")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    words = ["calls", *script.options, "--format", "json", "--", sys.executable, *script.words]
    code, out, err = call(*words)
    assert code == 0, err
    last = json.loads(out)[-1]
    assert last["has_gradient"]
    command = re.escape(" ".join(["python", *script.words]))
    table = (STUDIES / "scripts.md").read_text(encoding="utf-8")
    shown = re.search(rf"\| `{command}` \| `(.*?)` \|", table)
    assert f"{last['function']} at {last['called_at']}" == shown[1]
