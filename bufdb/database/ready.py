"""The schema ready-made: a database without rows, from which new ones and readers are furnished.

To make the tables, views, macros and their comments takes DuckDB 0.35 s of CPU, most of it to bind
views that stand on views; to copy them from another database takes 3 ms, for what is bound stays
so. The file is made when it is first needed and named after all that it is made of. It decides
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

from bufdb.database import definitions

CATALOG = "bufdb_ready_made"
"""Name under which it is attached."""
_FILE_FORMAT: dict[str, str | bool | int | float | list[str]] = {
    "default_block_size": "16384",
    "storage_compatibility_version": "latest",
}
"""Small, and with all parts of macros, of which older forms leave some out."""
_FOLDER = Path(importlib.util.cache_from_source(__file__)).parent
_KEPT = 8
"""Files of other versions that stay: a machine may have several installs."""


@contextlib.contextmanager
def attached(con: duckdb.DuckDBPyConnection, version: int) -> Iterator[None]:
    """Within the block the ready-made database is attached to `con` as CATALOG.

    Args:
        con: any connection that may still reach files.
        version: what its table schema_info says.
    """
    if not any(_attach_file(con, version) for _ in range(2)):  # a damaged one is made again
        con.execute(f"ATTACH ':memory:' AS {CATALOG}")
        _furnish(con, version)
    try:
        yield
    finally:
        con.execute(f"DETACH {CATALOG}")


def _attach_file(con: duckdb.DuckDBPyConnection, version: int) -> bool:
    """Whether the file is there, or could be made, and is attached; a damaged one is removed."""
    try:
        path = _file(version)
    except (OSError, RuntimeError, duckdb.Error):  # no home, or nothing can be written
        return False
    try:
        con.execute(f"ATTACH {_quoted(path)} AS {CATALOG} (READ_ONLY, TYPE duckdb)")
    except duckdb.Error:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    return True


def _file(version: int) -> Path:
    """The file, made if it is not there.

    Raises:
        OSError, RuntimeError, duckdb.Error: it cannot be made.
    """
    path = _FOLDER / f"schema-{version}-{definitions.schema_hash()}.duckdb"
    if _is_ours(path):
        return path
    _FOLDER.mkdir(parents=True, exist_ok=True)
    made = _FOLDER / f"{path.stem}-{os.urandom(8).hex()}.tmp"
    try:
        with duckdb.connect(config=_FILE_FORMAT) as con:
            con.execute(f"ATTACH {_quoted(made)} AS {CATALOG}")
            _furnish(con, version)
            con.execute(f"DETACH {CATALOG}")
        made.chmod(0o644)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    others = sorted(_FOLDER.glob("schema-*.duckdb"), key=lambda file: file.stat().st_mtime)
    for other in others[:-_KEPT]:
        other.unlink(missing_ok=True)
    return path


def _is_ours(path: Path) -> bool:
    """Whether the file is there, made by the user or by who installed bufdb, and theirs alone."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    owners = {os.geteuid(), Path(__file__).stat().st_uid}
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and found.st_uid in owners and not is_open


def _furnish(con: duckdb.DuckDBPyConnection, version: int) -> None:
    ((before,),) = con.execute("SELECT current_setting('search_path')").fetchall()
    con.execute(f"USE {CATALOG}")
    con.execute("BEGIN")
    for sql in [*definitions.tables().values(), *definitions.views().values()]:
        con.execute(sql)
    con.execute("INSERT INTO schema_info VALUES (?, ?)", [version, definitions.views_hash()])
    con.execute("COMMIT")
    con.execute(f"SET search_path = '{before}'")


def _quoted(path: Path) -> str:
    return "'" + str(path.absolute()).replace("'", "''") + "'"
