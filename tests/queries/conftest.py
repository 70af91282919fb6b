"""Of the tests of a saved query over a few rows by hand, which run always."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
OF_ALL_QUERIES = ("test_every_query.py", "test_narrowed.py")
"""Files that choose among their own cases."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In each file the first test with rows runs always, and what is marked `always`.

    The others are slow: DuckDB takes 0.03 to 0.3 s for each answer, however few the rows, and that
    each query has its columns and its answer over data/demo is tried always too.
    """
    chosen: dict[Path, str] = {}
    for item in items:
        if item.path.parent != HERE or item.path.name in OF_ALL_QUERIES:
            continue
        name = item.nodeid.partition("[")[0]
        if not item.originalname.startswith("test_nothing_"):
            chosen.setdefault(item.path, name)
        if chosen.get(item.path) != name and not item.get_closest_marker("always"):
            item.add_marker(pytest.mark.slow)
