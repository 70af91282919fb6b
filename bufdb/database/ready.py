"""The schema ready-made: a database without rows, from which new ones and readers are furnished.

Making the tables, views, macros and their comments takes DuckDB 0.35 s of CPU, most of it to bind
views upon views; copying them from another database takes 3 ms, since what is bound stays so. The
file is made when it is first needed and named after everything that it is made of. It decides
every answer, so it lies where Python keeps compiled code: only those who may change bufdb may
change it. Where nothing can be written it is made in memory, each time.
"""

import contextlib
import importlib.util
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb

from bufdb.database.definitions import schema_hash, tables, views, views_hash
from bufdb.database.quoting import sql_text

READY = "bufdb_ready_made"
"""Name under which it is attached."""
_FILE_FORMAT: dict[str, str | bool | int | float | list[str]] = {
    "default_block_size": "16384",
    "storage_compatibility_version": "latest",
}
"""Small, and with all parts of macros, some of which older forms leave out."""
_FOLDER = Path(importlib.util.cache_from_source(__file__)).parent
_KEPT = 8
"""Files of other versions that stay: a machine may have several installs."""


@contextlib.contextmanager
def attached_schema(con: duckdb.DuckDBPyConnection, version: int) -> Iterator[None]:
    """Attach the ready-made database to `con` as READY within the block.

    Args:
        con: any connection that may still reach files.
        version: what its table schema_info says.
    """
    if not any(_attach_file(con, version) for _ in range(2)):  # a damaged one is made again
        con.execute(f"ATTACH ':memory:' AS {READY}")
        _furnish(con, version)
    try:
        yield
    finally:
        con.execute(f"DETACH {READY}")


def _attach_file(con: duckdb.DuckDBPyConnection, version: int) -> bool:
    """Return whether the file is there or could be made, and is attached; remove it if damaged."""
    try:
        path = _file(version)
    except (OSError, duckdb.Error):  # nothing can be written; ^C is a RuntimeError
        return False
    try:
        con.execute(f"ATTACH {sql_text(path.absolute())} AS {READY} (READ_ONLY, TYPE duckdb)")
    except duckdb.Error:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    return True


def _file(version: int) -> Path:
    """Return the file, made if it is not there.

    Raises:
        OSError, duckdb.Error: it cannot be made.
        RuntimeError: DuckDB was interrupted.
    """
    path = _FOLDER / f"schema-{version}-{schema_hash()}.duckdb"
    if _is_ours(path):
        return path
    _FOLDER.mkdir(parents=True, exist_ok=True)
    made = _FOLDER / f"{path.stem}-{os.urandom(8).hex()}.tmp"
    try:
        with duckdb.connect(config=_FILE_FORMAT) as con:
            con.execute(f"ATTACH {sql_text(made.absolute())} AS {READY}")
            _furnish(con, version)
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


def _furnish(con: duckdb.DuckDBPyConnection, version: int) -> None:
    ((before,),) = con.execute("SELECT current_setting('search_path')").fetchall()
    con.execute(f"USE {READY}")
    con.execute("BEGIN")
    for sql in [*tables().values(), *views().values()]:
        con.execute(sql)
    con.execute("INSERT INTO schema_info VALUES (?, ?)", [version, views_hash()])
    con.execute("COMMIT")
    con.execute(f"SET search_path = '{before}'")
