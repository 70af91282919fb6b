"""The examples in bufdb/API.md run as printed."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys

import pytest
from places import ROOT

BLOCK = re.compile(r"^```python ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGE = (ROOT / "bufdb" / "API.md").read_text(encoding="utf-8")


def code(word):
    """The blocks with a word, or without any."""
    return [text for words, text in BLOCK.findall(PAGE) if word in (words.split() or [""])]


@pytest.mark.slow
def test_blocks_without_jax_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        for text in code(""):
            exec(compile(text, "API.md", "exec"), {})
    assert "highest peak: 15.7 MiB" in output.getvalue()
    assert "8905504" in output.getvalue()


def test_blocks_with_jax_run():
    pytest.importorskip("jax", reason="this Python has no jax")
    is_there = importlib.util.find_spec("libtpu") is not None
    blocks = [text for text in code("jax") if is_there or "tpu:" not in text]
    variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "TPU_SKIP_MDS_QUERY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        env=os.environ | variables, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "highest peak: " in done.stdout
    assert "memory, loss of run compiled" in done.stdout


def test_every_block_is_run_or_is_for_pytest():
    every = [words for words, _ in BLOCK.findall(PAGE)]
    assert every.count("pytest") == 1
    assert len(every) == len(code("")) + len(code("jax")) + 1 > 3
