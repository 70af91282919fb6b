"""Dumps into a database that is open already."""

from __future__ import annotations

from pathlib import Path

import duckdb

from bufdb.dumps.load import BLOCK_BYTES
from bufdb.ingest.ingest import Ingest
from bufdb.ingest.plan import plan
from bufdb.ingest.summary import Summary


def ingest_into(
    con: duckdb.DuckDBPyConnection, path: Path, run: str, block_bytes: int = BLOCK_BYTES
) -> Summary:
    """Read the dumps of one path into an open database; see `ingest`."""
    return Ingest(con, plan([path], run), block_bytes, None, 1).run({}, {})
