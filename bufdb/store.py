"""The database file: open it, apply the schema, check its version.

The only module that runs DDL. The database is derived from dumps: a file of another schema
version is refused with the remedy (ingest again), never migrated.
"""

import hashlib
from pathlib import Path

import duckdb

from bufdb import resources
from bufdb.errors import DatabaseError

SCHEMA_VERSION = 2
BLOCK_SIZE = "131072"
"""Bytes per block of a new file. The file of 223 modules (28 MB of text) takes 7.4 MB in DuckDB's
own blocks of 256 KiB, 5.3 in 128, 3.7 in 64; that of 1,000 modules (991 MB) 121, 119 and 132 MB,
the last at 8 % more CPU."""
_FILE_FORMAT = {"default_block_size": BLOCK_SIZE, "storage_compatibility_version": "v1.5.0"}
"""A new file can be opened by shells since DuckDB 1.5, at the same size and speed."""
FIRST_VIEW = "500"
"""Schema files from this number on hold macros and views, made anew when the file has others."""


def connect(
    path: str, *, read_only: bool, config: dict[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Open a database with DuckDB's own errors turned into one line that says what to do.

    Raises:
        DatabaseError: the file is missing (when reading), in use, or no database.
    """
    if read_only and not Path(path).exists():
        raise DatabaseError(f"no database {path}; make one with 'bufdb ingest DUMPS --db {path}'")
    try:
        return duckdb.connect(path, read_only=read_only, config={**_FILE_FORMAT, **(config or {})})
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise DatabaseError(f"cannot open {path}: {reason}") from error


def open_writable(path: str, config: dict[str, str] | None = None) -> duckdb.DuckDBPyConnection:
    """Open or create a database; in one transaction tables are made, and views if they changed.

    Raises:
        DatabaseError: as `connect`, or the file has another schema version.
    """
    con = connect(path, read_only=False, config=config)
    try:
        version, views = _versions(con)
        _check(path, version)
        current = _views_hash()
        if views != current:
            con.execute("BEGIN")
            for file in resources.schema_files():
                if version is None or file.name >= FIRST_VIEW:
                    con.execute(file.read_text(encoding="utf-8"))
            con.execute("DELETE FROM schema_info")
            con.execute("INSERT INTO schema_info VALUES (?, ?)", [SCHEMA_VERSION, current])
            con.execute("COMMIT")
    except BaseException:
        con.close()
        raise
    return con


def open_readable(path: str) -> duckdb.DuckDBPyConnection:
    """Open an existing database read-only; views of another bufdb are renewed first.

    Raises:
        DatabaseError: as `connect`, or the file has another schema version or none.
    """
    con = connect(path, read_only=True)
    try:
        version, views = _versions(con)
        if version is None:
            raise DatabaseError(f"{path} is no bufdb database; make one with 'bufdb ingest'")
        _check(path, version)
    except BaseException:
        con.close()
        raise
    if views == _views_hash():
        return con
    con.close()
    open_writable(path).close()
    return connect(path, read_only=True)


def _views_hash() -> str:
    """A hash of the SQL of all views and macros."""
    digest = hashlib.blake2b(digest_size=16)
    for file in resources.schema_files():
        if file.name >= FIRST_VIEW:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _versions(con: duckdb.DuckDBPyConnection) -> tuple[int | None, str | None]:
    """Schema version and hash of the views of an open database; None and None if it is empty."""
    columns = con.execute("SELECT table_name, column_name FROM duckdb_columns()").fetchall()
    if ("schema_info", "schema_version") not in columns:
        if con.execute("SELECT 1 FROM duckdb_tables() LIMIT 1").fetchone():
            raise DatabaseError(
                "the database holds other tables and no schema_info; name another file with --db"
            )
        return None, None
    views = "max(views_hash)" if ("schema_info", "views_hash") in columns else "NULL"
    row = con.execute(f"SELECT max(schema_version), {views} FROM schema_info").fetchone()
    return (None, None) if row is None else (row[0], row[1])


def _check(path: str, found: int | None) -> None:
    if found not in (None, SCHEMA_VERSION):
        raise DatabaseError(
            f"{path} has schema version {found}, this bufdb needs {SCHEMA_VERSION}; "
            "remove the file and run 'bufdb ingest' on the dumps again"
        )
