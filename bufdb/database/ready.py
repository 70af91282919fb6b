"""The schema ready-made: a database without rows, from which new ones and readers are furnished.

To make the tables, views, macros and their comments takes DuckDB 0.35 s of CPU, most of it to bind
views that stand on views; to copy them from another database takes 3 ms, for what is bound stays
so. The file is made when it is first needed, in the user's cache folder, and named after all that
it is made of. Where nothing can be written it is made in memory, each time.
"""

import contextlib
import os
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
    cache = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(cache) if cache else Path.home() / ".cache") / "bufdb"
    path = folder / f"schema-{version}-{definitions.schema_hash()}.duckdb"
    if path.exists():
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = folder / f"{path.stem}-{os.urandom(8).hex()}.tmp"
    try:
        with duckdb.connect(config=_FILE_FORMAT) as con:
            con.execute(f"ATTACH {_quoted(made)} AS {CATALOG}")
            _furnish(con, version)
            con.execute(f"DETACH {CATALOG}")
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    others = sorted(folder.glob("schema-*.duckdb"), key=lambda file: file.stat().st_mtime)
    for other in others[:-_KEPT]:
        other.unlink(missing_ok=True)
    return path


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
