"""Some modules as a database of their own, small enough for a bug report.

The file is one that any command of bufdb opens, with the same answers for these modules. It is
written beside its place and moved there when it is whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from bufdb.database import store
from bufdb.errors import BufdbError, UsageError
from bufdb.export.tables import Selection

_NAME = "bufdb_bundle"
_CONFIG = {"default_block_size": "16384"}
"""The smallest blocks that DuckDB has: each column of each table takes one at least."""


def write(selection: Selection, path: Path, source: str) -> None:
    """Write the rows of a selection as a database; a file that is there is replaced.

    Args:
        selection: which rows, on a connection that may reach files.
        path: the new file.
        source: the database that they are from, which is not to be replaced.

    Raises:
        UsageError: the file is that database, or cannot be written.
        BufdbError: DuckDB could not write it.
    """
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise UsageError(f"{path} is the database itself; -o wants another file")
    target = Path(os.path.realpath(path))
    # /dev/stdout may be a file that somebody has open, in whose place nobody would read another.
    is_stream = path.is_symlink() and str(path.absolute()).startswith(("/dev/", "/proc/"))
    is_other = is_stream or (target.exists() and not target.is_file())
    if is_other or not target.parent.is_dir():
        raise UsageError(f"cannot write {path}: no such folder, or it is no file")
    made = target.with_name(f".{target.name}-{os.urandom(8).hex()}.tmp")
    try:
        store.open_writable(str(made), _CONFIG).close()
        _fill(selection, made)
        made.replace(target)
    except (OSError, duckdb.Error) as error:
        raise BufdbError(f"cannot write {path}: {str(error).splitlines()[0]}") from error
    finally:
        made.unlink(missing_ok=True)


def _fill(selection: Selection, made: Path) -> None:
    con = selection.con
    place = str(made.absolute()).replace("'", "''")
    con.execute(f"ATTACH '{place}' AS {_NAME}")
    try:
        con.execute("BEGIN")
        for table in selection.types:
            if table != "schema_info":
                con.execute(f'DELETE FROM {_NAME}.main."{table}"')
                rows = selection.rows(table)
                con.execute(f'INSERT INTO {_NAME}.main."{table}" BY NAME {rows}')
        con.execute("COMMIT")
    except duckdb.Error:
        con.execute("ROLLBACK")
        raise
    finally:
        con.execute(f"DETACH {_NAME}")
