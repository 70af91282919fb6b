"""The database file: open it, apply the schema, check its version.

The only module that runs the DDL of a file. A file of another schema version is refused with the
remedy: `bufdb upgrade` makes one of this version, and never changes tables in place.

A file may come from anybody, so nothing in it is obeyed. What answers questions runs in a locked
database in memory, to which the file is attached read-only: views and macros are made there from
`schema/`, a name means them first, then what DuckDB has built in, and only then what is in the
file. Files outside the database cannot be reached.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bufdb.database import definitions, narrowing, ready
from bufdb.database.definitions import CATALOG
from bufdb.database.engine import duckdb
from bufdb.database.faults import is_interrupt
from bufdb.database.memory import (
    PLANNED_SOON,
    SMALL,
    SMALL_FILE,
    bound_threads,
    memory_limit,
    settings_of_questions,
)
from bufdb.database.patience import PATIENCE, account_of, is_awaited, turn
from bufdb.database.quoting import sql_name, sql_text
from bufdb.database.spill import spill_folder
from bufdb.errors import DatabaseError

SCHEMA_VERSION = 9
BLOCK_SIZE = "131072"
"""Bytes per block of a new file. The file of 223 modules (28 MB of text) takes 7.4 MB in DuckDB's
own blocks of 256 KiB, 5.3 in 128, 3.7 in 64; that of 1,000 modules (991 MB) 121, 119 and 132 MB,
the last at 8 % more CPU."""
ROW_GROUP_ROWS = 40_960
"""Rows per row group of what is written: a full one is packed at once. Of 2,000 small modules, with
20,000 to 170,000 rows a table, most is then packed while others read, and not at the end, when none
does, as with DuckDB's own 122,880. Measured in turn with those, `--jobs 2` takes 0.93 of the time,
and one job 0.96, for 4 % more room."""
_FILE_FORMAT = {"default_block_size": BLOCK_SIZE, "storage_compatibility_version": "v1.4.0"}
"""A new file can be opened since DuckDB 1.4, the release with long-term support: of 727 modules it
takes 11.3 MB in this form and in that of 1.5, and 13.5 in that of 1.2."""
_NO_EXTENSIONS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
}
_MACROS = f"""
SELECT
  database_name <> '{CATALOG}' AS is_own,
  function_name,
  parameters::VARCHAR || replace(macro_definition, ' MATERIALIZED (', ' (')
FROM duckdb_functions()
WHERE schema_name = 'main' AND NOT internal
"""
_MISSING = f"""
SELECT table_name, column_name FROM (
  SELECT table_name, column_name, data_type FROM system.main.duckdb_columns()
  WHERE database_name = '{ready.READY}' AND schema_name = 'main'
  EXCEPT
  SELECT table_name, column_name, data_type FROM system.main.duckdb_columns()
  WHERE database_name = '{CATALOG}' AND schema_name = 'main'
)
WHERE table_name IN (SELECT unnest(?::VARCHAR[]))
ORDER BY ALL
LIMIT 1
"""
"""What the file lacks of bufdb's tables, or has with another type."""
_OBEYED_IN_WRITING = """
WITH functions AS MATERIALIZED (
  SELECT DISTINCT function_name, internal FROM system.main.duckdb_functions()
)
SELECT 'macro' AS kind, theirs.function_name AS name
FROM functions AS theirs
JOIN functions AS built_in
  ON built_in.function_name = theirs.function_name
WHERE built_in.internal AND NOT theirs.internal
UNION ALL
SELECT 'trigger' AS kind, trigger_name AS name
FROM system.main.duckdb_triggers()
UNION ALL
SELECT 'column' AS kind, column_name AS name
FROM system.main.duckdb_columns()
WHERE NOT internal AND (is_generated OR column_default IS NOT NULL)
UNION ALL
SELECT 'table' AS kind, table_name AS name
FROM system.main.duckdb_columns()
WHERE table_name = 'arrow_batches'
ORDER BY ALL
LIMIT 1
"""
"""What a file from elsewhere may hold that would act, or replace something, in an ingest.

Listing the functions takes DuckDB 14 ms: once. It calls none, since the file may have its own.
"""
_Opened = TypeVar("_Opened")
_Options = dict[str, str | bool | int | float | list[str]]
"""As DuckDB has it."""
_HOLDER = r"held in (\S*?)([^/\s]+) \(PID (\d+)\)"


def open_writable(path: str, config: dict[str, str] | None = None) -> duckdb.DuckDBPyConnection:
    """Open or create a database; in one transaction tables are made, and views if they changed.

    Raises:
        DatabaseError: the file is in use, no database of bufdb's, or of another schema version.
    """
    # Access to other files stays on, since without it DuckDB takes no rows from Arrow either.
    options: _Options = {**_FILE_FORMAT, **_NO_EXTENSIONS, "memory_limit": f"{memory_limit()}B"}
    options.update(config or {})
    is_new = path == ":memory:" or not Path(path).exists()
    con = open_waiting(path, lambda: _connected(path, options), is_writer=True)
    try:
        version, views = _versions(con, path)
        if not is_new:
            _refuse_actors(con, path)
        if version is None:
            _copy_schema(con)
        elif views != definitions.views_hash():
            _require_columns(con, path)
            _renew_views(con)
    except BaseException:
        con.close()
        raise
    return con


def require_storable(db: str) -> None:
    """Check before a long command, not after it, that its results can be stored.

    Raises:
        DatabaseError: they cannot.
    """
    path = Path(os.path.realpath(db))
    if os.path.lexists(path):
        open_writable(db).close()
        return
    try:
        path.touch(exist_ok=False)
        path.unlink()
    except OSError as error:
        folder = Path(db).parent
        reason = error.strerror if folder.is_dir() else f"no directory {folder}"
        raise DatabaseError(f"cannot make {db}: {reason}; name another file with --db") from error


def _connected(path: str, options: _Options) -> duckdb.DuckDBPyConnection:
    """Connect to a database in memory, or to one with the file attached as CATALOG and in use."""
    if path == ":memory:":
        return duckdb.connect(config=options)
    place = _place(path)
    # Only for what is attached can a row group size be given; by default what does not fit into
    # memory would go to the working directory.
    con = duckdb.connect(config={"temp_directory": f"{place}.tmp", **options})
    try:
        # Without READ_WRITE a file that cannot be written would be read.
        how = f"READ_WRITE, TYPE duckdb, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
        con.execute(f"ATTACH {sql_text(place)} AS {CATALOG} ({how})")
        con.execute(f"USE {CATALOG}")
    except BaseException:
        con.close()
        raise
    return con


def _refuse_actors(con: duckdb.DuckDBPyConnection, path: str) -> None:
    """Check that the file holds nothing that would act, or replace something, in an ingest.

    Raises:
        DatabaseError: it does.
    """
    rows = con.execute("SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal")
    _require_tables(path, definitions.tables(), (name for (name,) in rows.fetchall()))
    actor = con.execute(_OBEYED_IN_WRITING).fetchone()
    if actor is not None:
        raise DatabaseError(
            f"{path} has a {actor[0]} {actor[1]} that is not bufdb's and would run when "
            "bufdb writes; drop it, or name another file with --db"
        )


def _copy_schema(con: duckdb.DuckDBPyConnection) -> None:
    ((own,),) = con.execute("SELECT current_database()").fetchall()
    with ready.attached_schema(con, SCHEMA_VERSION):
        con.execute(f"COPY FROM DATABASE {ready.READY} TO {sql_name(own)}")


def _renew_views(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("BEGIN")
    for sql in definitions.views().values():
        con.execute(sql)
    con.execute("UPDATE schema_info SET views_hash = ?", [definitions.views_hash()])
    con.execute("COMMIT")


def open_empty() -> duckdb.DuckDBPyConnection:
    """Return a database in memory with the schema and no rows, locked as `open_readable`'s is."""
    con = open_writable(":memory:")
    _lock(con)
    return con


def open_readable(
    path: str,
    sql: str | None = None,
    *,
    allow_files: bool = False,
    runs: Sequence[str] | None = None,
    before: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open an existing database for questions: read-only, locked, with bufdb's own views.

    Args:
        path: the database file.
        sql: the saved query that will be asked, if it is one of bufdb's.
        allow_files: let SQL read other files.
        runs: globs over run_selectors.selector, if `sql` asks about those runs alone: modules of
            others are as if they were not in the file, and cost nothing.
        before: rows in tables of the schema, in addition to those of the file, by table.

    Raises:
        DatabaseError: the file is missing, in use, no database of bufdb's, or of another schema
            version.
    """
    if not Path(path).exists():
        raise DatabaseError(f"no database {path}; make one with 'bufdb ingest DUMPS --db {path}'")
    is_small = not allow_files and Path(path).stat().st_size <= SMALL_FILE
    con = open_memory(is_small=is_small, is_own=sql is not None)
    try:
        attach = f"ATTACH {sql_text(_place(path))} AS {CATALOG} (READ_ONLY, TYPE duckdb)"
        search = f"SET search_path = '{search_path()}'"
        open_waiting(path, lambda: con.execute(f"{attach}; {search}"), is_writer=False)
        version, views = _versions(con, path)
        if version is None:
            raise DatabaseError(f"{path} is not a bufdb database; name another file with --db")
        _take_views(con, path, sql, views)
        if sql is not None and runs is not None:
            narrowing.to_runs(con, sql, runs)
        close_up(con, before, allow_files=allow_files)
    except BaseException:
        con.close()
        raise
    return con


def open_memory(*, is_small: bool = False, is_own: bool = False) -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory that loads no extension, to be furnished and closed up.

    It has the limits of a question from the start: what furnishes it may be large too.

    Args:
        is_small: whether it is for questions about a small file.
        is_own: whether these are bufdb's own.
    """
    # Settings that DuckDB starts with take no statement.
    options: _Options = {
        **_NO_EXTENSIONS,
        **settings_of_questions(is_small=is_small),
        "python_enable_replacements": "false",
        "temp_directory": spill_folder(),
    }
    try:
        con = duckdb.connect(config={**options, **(PLANNED_SOON if is_small and is_own else {})})
    except duckdb.ProgrammingError:  # a DuckDB that has other rules
        con = duckdb.connect(config=options)
    if is_small:
        SMALL.add(con)
    else:
        bound_threads(con)
    return con


def close_up(
    con: duckdb.DuckDBPyConnection,
    before: Mapping[str, Sequence[tuple[Any, ...]]] | None,
    *,
    allow_files: bool,
) -> None:
    """Make a furnished database in memory ready for questions; arguments as of `open_readable`."""
    for table, rows in (before or {}).items():
        con.execute(definitions.tables()[table])
        _replace_rows(con, table, rows)
        narrowing.forget_rows(con, table)
    narrowing.ASKING.add(con)
    _lock(con, allow_files=allow_files)


def _replace_rows(
    con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Fill a table in memory that hides one of the file: with the file's rows, then these."""
    con.execute(f'DELETE FROM memory.main."{table}"')
    con.execute(f'INSERT INTO memory.main."{table}" FROM {CATALOG}.main."{table}"')
    for row in rows:
        marks = ", ".join("?" for _ in row)
        con.execute(f'INSERT INTO memory.main."{table}" VALUES ({marks})', list(row))


def _lock(con: duckdb.DuckDBPyConnection, *, allow_files: bool = False) -> None:
    access = "" if allow_files else "SET enable_external_access = false;"
    con.execute(f"SET python_enable_replacements = false; {access} SET lock_configuration = true")


def _place(path: str) -> str:
    """Return the file's whole path: DuckDB takes a relative one such as `md:x` for a service."""
    return path if path == ":memory:" else str(Path(path).absolute())


def open_plain(path: str) -> duckdb.DuckDBPyConnection:
    """Open a file of any version to write, as it is."""
    options: _Options = {**_NO_EXTENSIONS}
    return open_waiting(path, lambda: duckdb.connect(path, config=options), is_writer=True)


def require_file(path: str) -> None:
    """Check that a path is that of a file, if it is there.

    Raises:
        DatabaseError: it is something else, or its name is not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise DatabaseError(f"{path!a} is not UTF-8, which DuckDB needs; rename it") from error
    if Path(path).is_dir():
        raise DatabaseError(f"{path} is a directory; --db names a database file")
    if Path(path).exists() and not Path(path).is_file():  # DuckDB would wait for a FIFO's writer
        raise DatabaseError(f"{path} is a FIFO, a socket or a device; --db names a database file")


def open_waiting(path: str, attempt: Callable[[], _Opened], *, is_writer: bool) -> _Opened:
    """Return what `attempt` gives, tried again while another process holds the file.

    DuckDB lets one process write or several read. A short ingest or query is worth waiting for. A
    reader also waits while a writer does (`bufdb.database.patience`).

    Raises:
        DatabaseError: it is still held when the patience ends, or it cannot be opened at all.
    """
    require_file(path)
    patience = PATIENCE.get()
    began = time.monotonic()
    pause = 0.02
    is_noted = False
    with turn(path) as own_turn:
        while True:
            cause: duckdb.Error | None = None
            if not is_writer and is_awaited(path):
                why = "awaited by another process that will write"
            else:
                try:
                    return attempt()
                except duckdb.Error as error:
                    why, cause = f"in use by {_holder(path, error)}", error
            ingest = account_of(path)
            if ingest is not None:
                why = f"being written: {ingest}"
            seconds = patience.of(is_writer=is_writer, is_ingest=ingest is not None)
            left = began + seconds - time.monotonic()
            if left <= 0:
                raise DatabaseError(
                    f"{path} is {why}; try again later, or wait with --wait SECONDS"
                ) from cause
            if not is_noted:
                limit = f"up to {seconds:g} s" if seconds < math.inf else "until it is free"
                patience.note(f"{path} is {why}; waiting {limit}")
                is_noted = True
            if is_writer:
                own_turn.take()
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, 0.5)


def _holder(path: str, error: duckdb.Error) -> str:
    """Return the process that holds the file.

    Raises:
        DatabaseError: it is some other error.
    """
    if "Could not set lock" not in str(error):
        raise _failure(path, error) from error
    match = re.search(_HOLDER, str(error))
    return f"{match[2]} (PID {match[3]})" if match else "another process"


def _failure(path: str, error: duckdb.Error) -> DatabaseError:
    """Return what prevents opening the file, and what to do; raise an interrupt as it is."""
    if is_interrupt(error):
        raise error
    reason = str(error).splitlines()[0]
    other = "name another file with --db"
    if not Path(path).absolute().parent.exists():
        parent = Path(path).parent
        return DatabaseError(
            f"cannot make {path}: there is no directory {parent}; make it, or {other}"
        )
    if Path(path).exists():
        other += ", or remove it and run 'bufdb ingest' on the dumps again"
    if "file handle conflict" in reason or "different configuration" in reason:
        return DatabaseError(f"{path} is open in this process already; close that connection first")
    # DuckDB wants an extension for a file of SQLite.
    if "not a valid DuckDB database" in reason or "xtension" in reason:
        kind = "an empty file" if Path(path).stat().st_size == 0 else "no DuckDB database"
        return DatabaseError(f"{path} is {kind}; {other}")
    if "version number" in reason or "newer version of DuckDB" in reason:
        return DatabaseError(
            f"{path} was written by another version of DuckDB than {duckdb.__version__}; "
            f"upgrade with 'pip install -U duckdb', or {other}"
        )
    if "Permission denied" in reason:
        return DatabaseError(f"cannot open {path}: permission denied")
    if "Corrupt" in reason or "enough bytes" in reason or "Serialization" in reason:
        return DatabaseError(f"{path} is damaged ({reason}); {other}")
    return DatabaseError(f"cannot open {path}: {reason}; {other}")


def _take_views(
    con: duckdb.DuckDBPyConnection, path: str, question: str | None, views: str | None
) -> None:
    """Put bufdb's views and macros where they mean the tables of the attached file.

    A note is given if the file has others, as one has that was written before bufdb's were changed.

    Args:
        con: the database in memory.
        path: the attached file.
        question: SQL of bufdb's own, if only what it needs is wanted. Other views of a current file
            are known by their comments then, and its macros are not compared.
        views: hash of the views that the file says it has.

    Raises:
        DatabaseError: the file does not have those tables.
    """
    is_quick = False
    if question is not None:
        # DuckDB lists all databases to list one: bufdb's views are attached after that.
        marks = con.execute(ready.marks_of(CATALOG)).fetchall()
        narrowing.note_rows(con, {name: count for kind, name, _, count in marks if kind == "table"})
        in_file = _texts(marks)
        attach_views(con, question)
        own = _texts(con.execute(f"FROM {ready.VIEWS}.{ready.OWN}.{ready.TEXTS}").fetchall())
        is_current = is_quick = views == own["hash"]["views"]
    if not is_quick:
        in_file = _texts(con.execute(ready.texts_of(CATALOG)).fetchall())
        is_current = views == definitions.views_hash()
        with ready.attached_schema(con, SCHEMA_VERSION):
            own = _texts(con.execute(ready.texts_of(ready.READY)).fetchall())
            if question is None:
                copy_own_views(con)
    _require_tables(path, own["table"], in_file["view"])
    # Columns are listed only where a table is not word for word bufdb's: 1 ms instead of 20.
    if any(in_file["table"].get(name) != text for name, text in own["table"].items()):
        _require_columns(con, path)
    own_texts, texts = own["view"], in_file["view"]
    # Listing DuckDB's functions takes longer than many a query.
    if not is_quick:
        for is_own, name, text in con.execute(_MACROS).fetchall():
            (own_texts if is_own else texts)[name] = text
    others = [name for name, text in texts.items() if not _is_same(own_texts.get(name, text), text)]
    if others:
        names = ", ".join(sorted(others))
        text = f"has another {names} than bufdb; bufdb's own is used"
        if not is_current:
            text = f"has {names} of another version of bufdb until the next ingest; not used"
        PATIENCE.get().note(f"{path} {text}")


def _texts(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, str]]:
    """Return by kind and name the texts of rows of `ready.texts_of` or `marks_of`; '' for NULL."""
    texts: dict[str, dict[str, str]] = {"table": {}, "view": {}, "hash": {}}
    for kind, name, text, *_ in rows:
        texts[kind][name] = text or ""
    return texts


def _require_columns(con: duckdb.DuckDBPyConnection, path: str) -> None:
    """Check that the attached file has all columns of bufdb's tables.

    Raises:
        DatabaseError: it lacks one.
    """
    with ready.attached_schema(con, SCHEMA_VERSION):
        missing = con.execute(_MISSING, [list(definitions.tables())]).fetchone()
    if missing is not None:
        raise DatabaseError(
            f"{path} does not hold bufdb's tables (no {missing[0]}.{missing[1]}); "
            f"'bufdb upgrade {path}' makes them of what it stored"
        )


def copy_own_views(con: duckdb.DuckDBPyConnection) -> None:
    """Copy bufdb's views and macros into memory, where the whole ready-made database is attached.

    Its tables are not.
    """
    con.execute(f"COPY FROM DATABASE {ready.READY} TO memory (SCHEMA)")
    con.execute("BEGIN")
    # One call: each takes longer than what DuckDB does in it.
    con.execute("".join(f'DROP TABLE memory.main."{table}";' for table in definitions.tables()))
    con.execute("COMMIT")


def attach_views(con: duckdb.DuckDBPyConnection, question: str) -> None:
    """Attach the views and macros that a question of bufdb's own needs, to be found by name."""
    ready.attach(con, SCHEMA_VERSION, question)
    ready.ATTACHED.add(con)
    con.execute(f"SET search_path = '{search_path(ready.VIEWS)}'")


def search_path(*views: str) -> str:
    """Return where names are looked for: in memory, in databases of views, then in the file.

    Built-ins come before the file, which may hold a macro named sum.
    """
    return ",".join(f"{name}.main" for name in ("memory", *views, "system", CATALOG))


def _is_same(one: str, other: str) -> bool:
    """Return whether SQL as DuckDB prints it says the same; `* REPLACE` comes in any order."""
    return one == other or _words(one) == _words(other)


def _words(sql: str) -> list[str]:
    return sorted(re.findall(r"\w+|\S", sql))


def _versions(con: duckdb.DuckDBPyConnection, path: str) -> tuple[int | None, str | None]:
    """Return schema version and hash of the views of the file; None and None if it is empty.

    Calls no function that the file may have replaced.

    Raises:
        DatabaseError: it is of another version, or no database of bufdb's.
    """
    try:
        con.execute("SELECT * FROM schema_info LIMIT 2")
    except duckdb.CatalogException:
        others = con.execute(
            "SELECT table_name FROM system.main.duckdb_tables() WHERE NOT internal LIMIT 1"
        ).fetchall()
        if not others:
            return None, None
        raise DatabaseError(
            f"{path} has other tables and no schema_info; name another file with --db"
        ) from None
    except duckdb.Error as error:
        raise _failure(path, error) from error
    names = [column[0] for column in con.description or []]
    rows = con.fetchall()
    info = dict(zip(names, rows[0], strict=True)) if len(rows) == 1 else {}
    version = info.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise of_later_version(path, version)
    if version != SCHEMA_VERSION:
        raise DatabaseError(
            f"{path} has schema version {version}, this bufdb needs {SCHEMA_VERSION}; "
            f"run 'bufdb upgrade {path}'"
        )
    return version, info.get("views_hash")


LATER = "pip install -U bufdb"
"""What helps against a file that a later bufdb has written."""


def of_later_version(path: str, version: int) -> DatabaseError:
    """Return the error about a file that a later bufdb has written."""
    return DatabaseError(
        f"{path} has schema version {version}, this bufdb knows {SCHEMA_VERSION} at the most; "
        f"a later bufdb wrote it: {LATER}"
    )


def _require_tables(path: str, tables: Iterable[str], views: Iterable[str]) -> None:
    """Check that no view of the file is in place of a table of bufdb's.

    Raises:
        DatabaseError: one does.
    """
    instead = {*tables} & {*views}
    if instead:
        raise DatabaseError(
            f"{path} has a view in place of the table {min(instead)}; "
            "remove the file and run 'bufdb ingest' on the dumps again"
        )
