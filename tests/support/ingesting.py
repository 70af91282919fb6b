"""Dumps into a database that is open already: to open a file takes longer than a small ingest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from bufdb.dumps.discover import Source
from bufdb.dumps.files import BLOCK_BYTES
from bufdb.ingest.plan import Request, Summary, plan
from bufdb.ingest.processes import readers
from bufdb.ingest.storing import Ingest


def ingest_into(
    con: duckdb.DuckDBPyConnection,
    paths: Source | Sequence[Source],
    run: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    **options: Any,
) -> Summary:
    """Read the dumps of one path or of several into an open database; see `ingest`."""
    request = Request(run=run, block_bytes=block_bytes, **options)
    planned = plan(list(paths) if isinstance(paths, Sequence) else [paths], run)
    with readers(request.jobs) as reader:
        reading = reader([job for one in planned.values() for job in one.jobs])
        return Ingest(con, planned, request, reading).run()


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
