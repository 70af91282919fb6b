"""An in-memory database that tests share: emptied after each one instead of created again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from once import made_once
from small_db import open_copy

from bufdb.database import ready
from bufdb.query import computed_views

_CATALOG = """
SELECT table_name, table_oid, column_count FROM duckdb_tables()
UNION ALL SELECT view_name, view_oid, NULL FROM duckdb_views() WHERE NOT internal
UNION ALL SELECT database_name, database_oid, NULL FROM duckdb_databases()
ORDER BY ALL
"""
"""Objects that a test may create; a session's (variables, temporary tables) end with its cursor."""
_WHOLE = """
SELECT name, value FROM duckdb_settings()
UNION ALL SELECT function_name, macro_definition FROM duckdb_functions() WHERE NOT internal
ORDER BY ALL
"""
"""Other objects that it may create, which take 20 ms to list."""
_LOOKUPS = ("memory_spaces", "op_categories", "role_rules", "schema_info")
"""Tables with rows that come with the schema."""


class Kept:
    """An empty database with the schema.

    To copy one takes 40 ms, more than most tests that use it; to empty it takes 4.
    """

    def __init__(self, fresh: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._fresh = fresh
        self._open()

    def _open(self) -> None:
        self._con = self._fresh()
        self._whole = self._rows(_WHOLE)
        self._catalog = self._rows(_CATALOG)
        rows = self._rows("SELECT table_name FROM duckdb_tables() ORDER BY ALL")
        names = [f'"{name}"' for (name,) in rows if name not in _LOOKUPS]
        self._filled = " UNION ALL ".join(
            f"(SELECT '{name}' FROM {name} LIMIT 1)" for name in names
        )
        self._lookups = self._lookup_rows()

    @contextmanager
    def lent(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to it with variables and temporary tables of its own."""
        with self._con.cursor() as cursor:
            yield cursor
        if self._rows(_CATALOG) == self._catalog:
            for (name,) in self._rows(self._filled):
                self._con.execute(f"DELETE FROM {name}")
            if self._lookup_rows() == self._lookups:
                return
        self.close()
        self._open()

    def close(self) -> None:
        """Fails if a test has changed what is not looked at after each: it wants `fresh`."""
        assert self._rows(_WHOLE) == self._whole
        self._con.close()

    def _lookup_rows(self) -> list[list[tuple[Any, ...]]]:
        return [self._rows(f"FROM {name}") for name in _LOOKUPS]  # in order of insertion

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._con.execute(sql).fetchall()


@pytest.fixture(scope="session", name="_kept")
def kept_for_advice(
    fresh: Callable[[], duckdb.DuckDBPyConnection], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kept]:
    """That of `con` with the empty tables that a database has which bufdb opens for questions.

    With them advice takes three quarters of the time. A test module or `conftest.py` imports it.
    """

    def make(folder: Path) -> None:
        with fresh() as con:
            for view, need in computed_views.OF_MODULES.items():
                if need is not None:
                    con.execute(f"CREATE TABLE {ready.EMPTY}{view} AS FROM {view} LIMIT 0")
            con.execute(f"ATTACH '{folder / 'kept.duckdb'}' AS kept (STORAGE_VERSION 'latest')")
            con.execute("COPY FROM DATABASE memory TO kept")

    path = made_once(tmp_path_factory, "kept", make) / "kept.duckdb"
    kept = Kept(lambda: open_copy(path))
    yield kept
    kept.close()
