"""Checksums of what is written, by which `bufdb check` knows every row that was changed since.

The sum of DuckDB's hash() over rows does not depend on their order. Rows of modules are summed on
their way into the database, of runs where they lie. hash() may change from one DuckDB to another;
each checksum therefore has a probe beside it.
"""

from __future__ import annotations

import duckdb

MODULUS = 2**63
_PROBE = "hash('bufdb')"
_SUM = f"(sum(hash(stored)) % {MODULUS})::BIGINT"
_RUN_ROWS = {
    "runs": "TRUE",
    "run_labels": "TRUE",
    "diagnostics": "module_id IS NULL",
}
"""Which rows of a table belong to a run itself and to no module."""


def of_rows(source: str) -> str:
    """The query for row_hash of each row on its way into a table, in order.

    Args:
        source: what holds the rows: the table's columns in its order, as it has them in memory.
    """
    return f"SELECT hash(stored) AS row_hash FROM {source} AS stored"


def of_sums(source: str) -> str:
    """The statement that stores what rows of modules come to.

    Args:
        source: what holds module_id, table_name, row_count and the sum of row_hash, row_sum, of
            some rows; a module and table may be there several times.
    """
    return (
        "INSERT INTO row_checksums SELECT module_id, table_name, sum(row_count), "
        f"(sum(row_sum) % {MODULUS})::BIGINT, {_PROBE} FROM {source} GROUP BY ALL ORDER BY ALL"
    )


def store_modules(con: duckdb.DuckDBPyConnection, table: str, source: str) -> None:
    """Store the checksums of all rows that modules have in a table.

    Args:
        con: the database, which has none of them yet.
        table: the table.
        source: what holds the rows: the table's columns in its order.
    """
    con.execute(
        f"INSERT INTO row_checksums SELECT module_id, '{table}', count(*), {_SUM}, {_PROBE} "
        f"FROM {source} AS stored WHERE module_id IS NOT NULL GROUP BY module_id ORDER BY module_id"
    )


def store_run(con: duckdb.DuckDBPyConnection, run: str) -> None:
    """Store the checksums of a run's own rows; to be called when any of them has changed."""
    con.execute("DELETE FROM run_checksums WHERE run_name = ?", [run])
    for table, condition in _RUN_ROWS.items():
        con.execute(
            f"INSERT INTO run_checksums SELECT run_name, '{table}', count(*), "
            f"{_SUM}, {_PROBE} FROM {table} AS stored "
            f"WHERE run_name = ? AND {condition} GROUP BY run_name",
            [run],
        )
