"""Database files of other versions, to be read and not to be obeyed."""

from __future__ import annotations

from pathlib import Path

from bufdb.database import store
from bufdb.database.engine import duckdb
from bufdb.database.quoting import sql_text
from bufdb.errors import DatabaseError


def require_upgradable(path: str, db: str) -> None:
    """Check that there is such a file, and put what is in its log into it.

    Raises:
        DatabaseError: there is none, or it cannot be opened.
    """
    store.require_file(db)
    if not Path(path).exists():
        raise DatabaseError(f"no database {db}; make one with 'bufdb ingest DUMPS --db {db}'")
    if Path(f"{path}.wal").exists():
        # A log that stayed next to the new file would be taken for that one's.
        store.open_plain(path).close()


def attach(con: duckdb.DuckDBPyConnection, path: str, name: str) -> None:
    """Attach a file of any version to read it; others may read it meanwhile, and none may write.

    Raises:
        DatabaseError: it cannot be opened, or another process has begun to write it.
    """
    sql = f"ATTACH {sql_text(path)} AS {name} (READ_ONLY, TYPE duckdb)"
    store.open_waiting(path, lambda: con.execute(sql), is_writer=False)
    if Path(f"{path}.wal").exists():
        raise DatabaseError(f"{path} has just been written by another process; try again")


def is_held(path: str) -> bool:
    """Return whether another process has a file open."""
    if not Path(path).is_file() or Path(path).stat().st_size == 0:
        return False
    try:
        duckdb.connect(path).close()
    except duckdb.Error as error:
        return "Could not set lock" in str(error)
    return False


def schema_version(con: duckdb.DuckDBPyConnection, name: str, db: str) -> int:
    """Return the schema version of an attached file, this one's or an earlier one.

    Raises:
        DatabaseError: it is of a later version, or no database of bufdb's.
    """
    if "schema_version" not in columns(con, name, db).get("schema_info", ()):
        raise DatabaseError(f"{db} is not a bufdb database; name another file")
    rows = con.execute(f"SELECT schema_version FROM {name}.main.schema_info").fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise DatabaseError(f"{db} does not say its schema version; name another file")
    version: int = rows[0][0]
    if version > store.SCHEMA_VERSION:
        raise store.of_later_version(db, version)
    return version


def columns(con: duckdb.DuckDBPyConnection, name: str, db: str) -> dict[str, list[str]]:
    """Return the columns of the tables of an attached file; views are none.

    Raises:
        DatabaseError: a column is computed, by code in the file.
    """
    rows = con.execute(
        "SELECT columns.table_name, columns.column_name, columns.is_generated "
        "FROM system.main.duckdb_columns() AS columns "
        "JOIN system.main.duckdb_tables() AS tables "
        "ON tables.database_name = columns.database_name AND tables.table_oid = columns.table_oid "
        "WHERE columns.database_name = ? AND columns.schema_name = 'main' "
        "ORDER BY columns.table_name, columns.column_index",
        [name],
    ).fetchall()
    columns_of: dict[str, list[str]] = {}
    for table, column, is_generated in rows:
        if is_generated:
            raise DatabaseError(f"{db} computes {table}.{column}, which is not bufdb's")
        columns_of.setdefault(table, []).append(column)
    return columns_of
