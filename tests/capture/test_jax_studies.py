"""Scripts of `data/studies` that need few packages: the call is that of the table."""

import json
import re
import runpy
import sys

import pytest
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")

STUDIES = ROOT / "data" / "studies"


@pytest.mark.parametrize("name", ["frontier", "monotone", "fit", "scripts"])
def test_a_study_begins(name, monkeypatch):
    """What they import of bufdb is there: they run for hours, by hand."""
    monkeypatch.syspath_prepend(str(STUDIES))
    assert runpy.run_path(str(STUDIES / f"{name}.py"))["main"]


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
