"""The page of each kind of advice exists, is short, and its code runs."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from bufdb import resources

FOLDER = resources.query_folder() / "advice"
PAGES = sorted(page.stem for page in FOLDER.glob("*.md"))
RUN = """
import pathlib, re, sys
for number, page in enumerate(sys.argv[1:]):
    text = pathlib.Path(page).read_text("utf-8")
    for code in re.findall(r"```python\\n(.*?)```", text, re.DOTALL):
        if "flax" not in code or HAS_FLAX:
            exec(compile(code, page, "exec"), {"__name__": "page"})
"""


def test_each_kind_of_advice_has_a_short_page():
    text = (resources.query_folder() / "advice.sql").read_text("utf-8")
    assert set(re.findall(r"^-- (\w+): ", text, re.MULTILINE)) - {
        "title",
        "group",
        "engines",
    } == set(PAGES)
    for kind in PAGES:
        page = resources.advice_page(kind)
        assert "```python" in page
        assert len(page.splitlines()) < 60


@pytest.mark.slow
def test_the_code_of_the_pages_runs():
    pytest.importorskip("jax", reason="this Python has no jax")
    has_flax = importlib.util.find_spec("flax") is not None
    variables = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    script = f"HAS_FLAX = {has_flax}\n{RUN}"
    done = subprocess.run(
        [sys.executable, "-c", script, *(str(FOLDER / f"{kind}.md") for kind in PAGES)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
