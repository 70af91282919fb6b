"""The schema ready-made: a database without rows, from which new ones and readers are furnished.

Making the tables, views, macros and their comments takes DuckDB 0.35 s of CPU, most of it to bind
views upon views; copying them from another database takes 3 ms, since what is bound stays so. The
file is made when it is first needed and named after everything that it is made of. It decides
every answer, so it lies where Python keeps compiled code: only those who may change bufdb may
change it. Where nothing can be written it is made in memory, each time.

There are two: the whole schema, and what bufdb's own questions need of it, which takes half the
time to attach and to copy: views and macros without tables and comments, a table TEXTS, and empty
tables with the columns of some views.
"""

import contextlib
import importlib.util
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from bufdb.database.definitions import schema_hash, tables, views, views_hash
from bufdb.database.engine import duckdb
from bufdb.database.quoting import sql_text

READY = "bufdb_ready_made"
"""Name under which it is attached."""
TEXTS = "own_texts"
"""Table of the bare one: name and SQL, as DuckDB prints it, of the tables and views of a file."""
EMPTY = "empty_"
"""Prefix of the name of a table of the bare one that has the columns of a view, and no rows."""
_ADVISED = ("advised_", "answered_", "asked_instants")
"""Prefixes of the names of views that have such a table."""
_FILE_FORMAT: dict[str, str | bool | int | float | list[str]] = {
    "default_block_size": "16384",
    "storage_compatibility_version": "latest",
}
"""Small, and with all parts of macros, some of which older forms leave out."""
_FOLDER = Path(importlib.util.cache_from_source(__file__)).parent
_KEPT = 16
"""Files that stay, two of a version: a machine may have several installs."""


@contextlib.contextmanager
def attached_schema(
    con: duckdb.DuckDBPyConnection, version: int, *, is_bare: bool = False
) -> Iterator[None]:
    """Attach the ready-made database to `con` as READY within the block.

    Args:
        con: any connection that may still reach files.
        version: what its table schema_info says.
        is_bare: whether it is the one with views and macros, and TEXTS, alone.
    """
    # A damaged one is made again.
    if not any(_attach_file(con, version, is_bare=is_bare) for _ in range(2)):
        con.execute(f"ATTACH ':memory:' AS {READY}")
        _furnish(con, version, is_bare=is_bare)
    try:
        yield
    finally:
        con.execute(f"DETACH {READY}")


def _attach_file(con: duckdb.DuckDBPyConnection, version: int, *, is_bare: bool) -> bool:
    """Return whether the file is there or could be made, and is attached; remove it if damaged."""
    try:
        path = _file(version, is_bare=is_bare)
    except (OSError, duckdb.Error):  # nothing can be written; ^C is a RuntimeError
        return False
    try:
        con.execute(f"ATTACH {sql_text(path.absolute())} AS {READY} (READ_ONLY, TYPE duckdb)")
    except duckdb.Error:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    return True


def _file(version: int, *, is_bare: bool) -> Path:
    """Return the file, made if it is not there.

    Raises:
        OSError, duckdb.Error: it cannot be made.
        RuntimeError: DuckDB was interrupted.
    """
    path = _FOLDER / f"schema-{version}-{schema_hash()}{'-bare' if is_bare else ''}.duckdb"
    if _is_ours(path):
        return path
    _FOLDER.mkdir(parents=True, exist_ok=True)
    made = _FOLDER / f"{path.stem}-{os.urandom(8).hex()}.tmp"
    try:
        with duckdb.connect(config=_FILE_FORMAT) as con:
            con.execute(f"ATTACH {sql_text(made.absolute())} AS {READY}")
            _furnish(con, version, is_bare=is_bare)
            con.execute(f"DETACH {READY}")
        made.chmod(0o644)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    others = sorted(_FOLDER.glob("schema-*.duckdb"), key=lambda file: file.stat().st_mtime)
    for other in others[:-_KEPT]:
        other.unlink(missing_ok=True)
    return path


def _is_ours(path: Path) -> bool:
    """Return whether the file is there, made by the user or bufdb's installer, and theirs alone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    owners = {os.geteuid(), Path(__file__).stat().st_uid}
    is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and status.st_uid in owners and not is_open


def _furnish(con: duckdb.DuckDBPyConnection, version: int, *, is_bare: bool) -> None:
    ((before,),) = con.execute("SELECT current_setting('search_path')").fetchall()
    con.execute(f"USE {READY}")
    con.execute("BEGIN")
    for sql in [*tables().values(), *views(comments=not is_bare).values()]:
        con.execute(sql)
    if is_bare:
        con.execute(f"CREATE TABLE {TEXTS} AS {texts_of(READY)}")
        for view in views(comments=False):
            if view.startswith(_ADVISED):
                con.execute(f"CREATE TABLE {EMPTY}{view} AS FROM {view} LIMIT 0")
        con.execute("".join(f'DROP TABLE "{table}";' for table in tables()))
    else:
        con.execute("INSERT INTO schema_info VALUES (?, ?)", [version, views_hash()])
    con.execute("COMMIT")
    con.execute(f"SET search_path = '{before}'")


def texts_of(database: str) -> str:
    """Return SQL that gives kind, name and SQL of the tables and views of an attached database.

    The storage of a file does not keep AS MATERIALIZED; it changes no answer.
    """
    return f"""
        SELECT 'table' AS kind, table_name AS name, sql FROM system.main.duckdb_tables()
        WHERE database_name = '{database}' AND schema_name = 'main'
        UNION ALL
        SELECT 'view', view_name, replace(sql, ' MATERIALIZED (', ' (')
        FROM system.main.duckdb_views()
        WHERE database_name = '{database}' AND schema_name = 'main' AND NOT internal
    """
