"""Checksums of what is written, by which `bufdb check` knows every row that was changed since.

The sum of DuckDB's hash() over rows does not depend on their order. Rows of modules are summed on
their way into the database, of runs where they lie. hash() may change from one DuckDB to another;
each checksum therefore has a probe beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import duckdb

MODULUS = 2**63
_PROBE = "hash('bufdb')"
_RUN_ROWS = {
    "runs": "TRUE",
    "run_labels": "TRUE",
    "diagnostics": "module_id IS NULL",
}
"""Which rows of a table belong to a run itself and to no module."""


def begin(con: duckdb.DuckDBPyConnection) -> None:
    """Make the place where the checksums of a transaction come together."""
    con.execute(
        "CREATE OR REPLACE TEMP TABLE checksum_parts "
        "(module_id BIGINT, table_name VARCHAR, row_count BIGINT, checksum HUGEINT)"
    )


def end(con: duckdb.DuckDBPyConnection) -> None:
    """Remove that place again; a connection that no longer works takes it along."""
    with contextlib.suppress(duckdb.Error):
        con.execute("DROP TABLE IF EXISTS temp.checksum_parts")


def of_rows(table: str, types: Mapping[str, str], source: str) -> str:
    """The statement that sums rows on their way into a table.

    Args:
        table: the table.
        types: type of each of its columns, in the table's order.
        source: what holds the rows; has all of these columns.
    """
    columns = ", ".join(f'"{name}"::{data_type} AS "{name}"' for name, data_type in types.items())
    return (
        f"INSERT INTO checksum_parts SELECT module_id, '{table}', count(*), sum(hash(stored)) "
        f"FROM (SELECT {columns} FROM {source}) AS stored "
        "WHERE module_id IS NOT NULL GROUP BY module_id"
    )


def store(con: duckdb.DuckDBPyConnection) -> None:
    """Store the checksums of the modules that this transaction has written."""
    con.execute(
        "INSERT INTO row_checksums SELECT module_id, table_name, sum(row_count), "
        f"(sum(checksum) % {MODULUS})::BIGINT, {_PROBE} "
        "FROM checksum_parts GROUP BY ALL ORDER BY ALL"
    )
    con.execute("DELETE FROM checksum_parts")


def store_run(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Store the checksums of a run's own rows; to be called when any of them has changed."""
    con.execute("DELETE FROM run_checksums WHERE run_name = ?", [run])
    for table, condition in _RUN_ROWS.items():
        con.execute(
            f"INSERT INTO run_checksums SELECT run_name, '{table}', count(*), "
            f"(sum(hash(stored)) % {MODULUS})::BIGINT, {_PROBE} FROM {table} AS stored "
            f"WHERE run_name = ? AND {condition} GROUP BY run_name",
            [run],
        )
