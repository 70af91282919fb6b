"""Dumps into a database that is open already, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from bufdb.dumps.discover import Source
from bufdb.dumps.files import BLOCK_BYTES
from bufdb.ingest import ingest
from bufdb.ingest.plan import Summary


def ingest_into(
    con: duckdb.DuckDBPyConnection,
    paths: Source | Sequence[Source],
    run: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    **options: Any,
) -> Summary:
    """Read the dumps of one path or of several into an open database; see `ingest`."""
    several = list(paths) if isinstance(paths, Sequence) else [paths]
    return ingest.ingest_into(con, several, run=run, block_bytes=block_bytes, **options)


@contextmanager
def opened(db: duckdb.DuckDBPyConnection | Path | str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to read: that given, or one to a file."""
    if isinstance(db, duckdb.DuckDBPyConnection):
        yield db
    else:
        with duckdb.connect(str(db), read_only=True) as con:
            yield con


def rows(db: duckdb.DuckDBPyConnection | Path | str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with opened(db) as con:
        return con.execute(sql).fetchall()
