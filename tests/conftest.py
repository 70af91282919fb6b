"""Options and databases that several tests share."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from places import DEMO

from bufdb.database import store

FIRST_DUMP_TIME = 1_750_000_000
"""Time given to the files of the first demo run [s since 1970]; each next run is an hour later."""

LABELS = {
    "cpu_b8": {"batch": "8"},
    "cpu_b16": {"batch": "16"},
    "cpu_b8_remat": {"batch": "8", "remat": "full"},
    "cpu_b8_old": {"batch": "8", "jaxlib": "0.4.30"},
    "gpu_b8": {"batch": "8"},
    "tpu_b8": {"batch": "8"},
}
"""Labels of the demo runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the answers of the saved queries over data/ into tests/golden/",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test marked `sample(n)` every n-th runs always; the others are slow."""
    seen: Counter[str] = Counter()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is not None:
            name = item.nodeid.partition("[")[0]
            if seen[name] % sample.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory with the schema."""
    with store.open_writable(":memory:") as connection:
        yield connection


@pytest.fixture(scope="session")
def demo_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one run for each directory of data/demo, the same on every machine."""
    if importlib.util.find_spec("bufdb.ingest.ingest") is None:
        pytest.skip("bufdb.ingest.ingest is not there")
    if not DEMO.is_dir():
        pytest.skip("data/demo is not there")
    from bufdb.ingest.ingest import ingest

    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(DEMO, folder / "demo")
    runs = sorted(path for path in (folder / "demo").iterdir() if path.is_dir())
    with contextlib.chdir(folder):  # for a runs.source_path that does not depend on the machine
        for number, run in enumerate(runs):
            time = FIRST_DUMP_TIME + 3600 * number
            for path in run.rglob("*"):
                os.utime(path, (time, time))
            ingest("demo.duckdb", [run.relative_to(folder)], labels=LABELS[run.name])
    return folder / "demo.duckdb"
