"""The bytes of dump files in a database, as they are stored: a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator

from bufdb.database.engine import duckdb

_AT_ONCE = 32
"""Rows read together: of large files each has some hundred kilobytes."""


def stored_parts(
    con: duckdb.DuckDBPyConnection, catalog: str
) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield content_hash, part_ordinal, size_bytes and compressed of all parts, as they lie.

    The parts of a file lie together and in order. Of a dataset they are sorted first.
    """
    table = f"{catalog}.main.file_contents"
    is_table = con.execute(
        "SELECT 1 FROM system.main.duckdb_tables() WHERE database_name = ? "
        "AND schema_name = 'main' AND table_name = 'file_contents'",
        [catalog],
    ).fetchall()
    if not is_table:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE sorted_contents AS FROM {table} "
            "ORDER BY content_hash, part_ordinal"
        )
        table = "temp.main.sorted_contents"
    ((last,),) = con.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchall()
    for first in range(0, last + 1, _AT_ONCE):
        yield from con.execute(
            "SELECT content_hash, part_ordinal, size_bytes, compressed "
            f"FROM {table} WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
            [first, first + _AT_ONCE - 1],
        ).fetchall()
