"""The rows of a run itself: `runs` and `run_labels`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import duckdb

from bufdb import __version__
from bufdb.dumps.discover import Source
from bufdb.dumps.files import as_text


def add(
    con: duckdb.DuckDBPyConnection,
    run: str,
    path: Source,
    labels: Mapping[str, str],
    metadata: Mapping[str, str],
) -> None:
    """A row of the run, if it has none; its labels; what was found of its files is forgotten.

    Of a name in both, the label is the user's.
    """
    con.execute(
        "INSERT INTO runs VALUES (?, ?, NULL, ?, ?) ON CONFLICT DO NOTHING",
        [run, as_text(str(path)), _now(), __version__],
    )
    con.execute("DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NULL", [run])
    for label, value in {**metadata, **labels}.items():
        con.execute(
            "DELETE FROM run_labels WHERE run_name = ? AND label = ?", [run, as_text(label)]
        )
        con.execute(
            "INSERT INTO run_labels VALUES (?, ?, ?, ?)",
            [run, as_text(label), as_text(value), label not in labels],
        )


def update(con: duckdb.DuckDBPyConnection, run: str, path: Source, dumped_at: float) -> None:
    """Say that the run was changed now, by dumps of a time [s since 1970, inf if unknown]."""
    dumped = None
    if dumped_at < math.inf:
        dumped = datetime.fromtimestamp(dumped_at, UTC).replace(tzinfo=None)
    con.execute(
        "UPDATE runs SET source_path = ?, dumped_at = least(dumped_at, ?), ingested_at = ?, "
        "bufdb_version = ? WHERE run_name = ?",
        [as_text(str(path)), dumped, _now(), __version__, run],
    )


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
