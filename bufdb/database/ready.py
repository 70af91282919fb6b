"""The schema ready-made: a database without rows, from which new ones and readers are furnished.

Making the tables, views, macros and their comments takes DuckDB 0.35 s of CPU, most of it to bind
views upon views; copying them from another database takes 3 ms, since what is bound stays so. The
file is made when it is first needed, and named after size and time of everything that it is made
of, as Python knows what compiled code is made of. It decides every answer, so it lies where Python
keeps that: only those who may change bufdb may change it. Where nothing can be written it is made
in memory, each time.

Besides the whole schema there is a small one for each question of bufdb's own: the views and macros
that it needs, without comments, empty tables with the columns of some views, and the tables WITHIN
in a schema of their own. It stays attached and is searched for names where it is: what views name
is looked for next to them first, and then as anywhere, so that they mean the tables of a database.
Reading, copying and freeing all 117 views took a question 25 ms of CPU.
"""

import contextlib
import importlib.util
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

from bufdb.database.definitions import CONSTANT, schema_mark, tables, views, views_hash
from bufdb.database.digest import blake2b
from bufdb.database.engine import duckdb
from bufdb.database.quoting import sql_text

READY = "bufdb_ready_made"
"""Name under which it is attached."""
VIEWS = "bufdb_views"
"""Name under which one for a question is attached."""
OWN = "own"
"""Schema of one for a question that has the tables WITHIN, which no view names there."""
TEXTS = "own_texts"
"""Table of one for a question: kind, name and mark of bufdb's tables and views as `marks_of` gives
them; their hash."""
COLUMNS = "own_columns"
"""Table of one for a question: table_name, column_name, data_type of bufdb's tables, in order."""
EMPTY = "empty_"
"""Prefix of the name of a table there that has the columns of a view, and no rows."""
WITHIN = (TEXTS, COLUMNS, *sorted(CONSTANT))
"""Tables of one for a question that have rows, in the schema OWN."""
HIDDEN = (
    "advised_", "answered_", "asked_instants", "named_uses", "value_origin_details", "copy_details",
    "gathered_values", "op_name_roles",
)  # fmt: skip
"""Prefixes of the names of views that have such a table."""
ATTACHED: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
"""Connections with one for a question."""
_FILE_FORMAT: dict[str, str | bool | int | float | list[str]] = {
    "default_block_size": "16384",
    "storage_compatibility_version": "latest",
}
"""Small, and with all parts of macros, some of which older forms leave out."""
_FOLDER = Path(importlib.util.cache_from_source(__file__)).parent
_KEPT = 128
"""Files that stay, some 70 of a version with 0.15 MB each: a machine may have several installs."""
_VIEW_COMMENT = r"(?m)^COMMENT ON VIEW (\w+) IS\s+('(?:[^']|'')*');"


@contextlib.contextmanager
def attached_schema(
    con: duckdb.DuckDBPyConnection, version: int, question: str | None = None
) -> Iterator[None]:
    """Attach the ready-made database to `con` within the block; arguments as of `attach`."""
    attach(con, version, question)
    try:
        yield
    finally:
        con.execute(f"DETACH {_name(question)}")


def attach(con: duckdb.DuckDBPyConnection, version: int, question: str | None) -> None:
    """Attach the ready-made database to `con` as READY, or that for a question as VIEWS.

    Args:
        con: any connection that may still reach files.
        version: what its table schema_info says.
        question: SQL of bufdb's own, if it is to be the one with what that needs; '' for one with
            what any needs.
    """
    # A damaged one is made again.
    if not any(_attach_file(con, version, question) for _ in range(2)):
        con.execute(f"ATTACH ':memory:' AS {_name(question)}")
        _furnish(con, version, question)


def _name(question: str | None) -> str:
    return READY if question is None else VIEWS


def _attach_file(con: duckdb.DuckDBPyConnection, version: int, question: str | None) -> bool:
    """Return whether the file is there or could be made, and is attached; remove it if damaged."""
    try:
        path = _file(version, question)
    except (OSError, duckdb.Error):  # nothing can be written; ^C is a RuntimeError
        return False
    try:
        name = _name(question)
        con.execute(f"ATTACH {sql_text(path.absolute())} AS {name} (READ_ONLY, TYPE duckdb)")
    except duckdb.Error:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    return True


def _file(version: int, question: str | None) -> Path:
    """Return the file, made if it is not there.

    Raises:
        OSError, duckdb.Error: it cannot be made.
        RuntimeError: DuckDB was interrupted.
    """
    of = "" if question is None else f"-{blake2b(question.encode(), digest_size=8).hexdigest()}"
    path = _FOLDER / f"schema-{version}-{schema_mark()}{of}.duckdb"
    if _is_ours(path):
        return path
    _FOLDER.mkdir(parents=True, exist_ok=True)
    made = _FOLDER / f"{path.stem}-{os.urandom(8).hex()}.tmp"
    try:
        with duckdb.connect(config=_FILE_FORMAT) as con:
            if question:
                _take(con, version, question, made)
            else:
                con.execute(f"ATTACH {sql_text(made.absolute())} AS {_name(question)}")
                _furnish(con, version, question)
                con.execute(f"DETACH {_name(question)}")
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


def _furnish(con: duckdb.DuckDBPyConnection, version: int, question: str | None) -> None:
    is_bare = question is not None
    needed = views(question or None, comments=not is_bare)
    ((before,),) = con.execute("SELECT current_setting('search_path')").fetchall()
    con.execute(f"USE {_name(question)}")
    con.execute("BEGIN")
    whole = tables()
    rows = {table: whole[table] for table in CONSTANT}
    for sql in [*(tables(comments=not is_bare) | rows).values(), *needed.values()]:
        con.execute(sql)
    con.execute("INSERT INTO schema_info VALUES (?, ?)", [version, views_hash()])
    if is_bare:
        con.execute(f"CREATE SCHEMA {OWN}")
        con.execute(
            f"CREATE TABLE {OWN}.{TEXTS} AS SELECT kind, name, mark FROM ({marks_of(VIEWS)}) "
            "WHERE kind = 'table'"
        )
        con.execute(f"CREATE TABLE {OWN}.{COLUMNS} AS {own_columns(VIEWS)}")
        names = ", ".join(f"'{table}'" for table in whole)
        con.execute(f"DELETE FROM {OWN}.{COLUMNS} WHERE table_name NOT IN ({names})")
        comments = re.findall(_VIEW_COMMENT, "\n".join(views().values()))
        marks = ", ".join(f"('view', '{view}', {comment})" for view, comment in comments)
        con.execute(
            f"INSERT INTO {OWN}.{TEXTS} VALUES {marks}, ('hash', 'views', ?)", [views_hash()]
        )
        for view, columns in columns_of_views(con, VIEWS).items():
            if view.startswith(HIDDEN):
                con.execute(f"CREATE TABLE {EMPTY}{view} ({columns})")
        for table in CONSTANT:
            con.execute(f"CREATE TABLE {OWN}.{table} AS FROM main.{table}")
        con.execute("".join(f'DROP TABLE main."{table}";' for table in whole))
    con.execute("COMMIT")
    con.execute(f"SET search_path = '{before}'")


def _take(con: duckdb.DuckDBPyConnection, version: int, question: str, path: Path) -> None:
    """Make a database with what a question needs of the one with what any needs."""
    needed = views(question, comments=False)
    others = {name: sql for name, sql in views(comments=False).items() if name not in needed}
    drops = (
        f"DROP {_kind(sql)} {name}; DROP TABLE IF EXISTS {EMPTY}{name};"
        for name, sql in others.items()
    )
    with attached_schema(con, version, ""):
        con.execute(f"ATTACH {sql_text(path.absolute())} AS part")
        con.execute(f"COPY FROM DATABASE {VIEWS} TO part (SCHEMA)")
        for table in WITHIN:
            con.execute(f"INSERT INTO part.{OWN}.{table} FROM {VIEWS}.{OWN}.{table}")
    con.execute(f"USE part; BEGIN; {''.join(drops)} COMMIT; USE memory; DETACH part")


def _kind(sql: str) -> str:
    """Return what the SQL of a view or macro makes, as DROP names it."""
    if "CREATE OR REPLACE VIEW " in sql:
        return "VIEW"
    return "MACRO TABLE" if ") AS TABLE\n" in sql else "MACRO"


def columns_of_views(con: duckdb.DuckDBPyConnection, database: str) -> dict[str, str]:
    """Return the columns of the views of a database, as CREATE TABLE has them, by view."""
    columns = "string_agg('\"' || column_name || '\" ' || data_type, ', ' ORDER BY column_index)"
    return dict(
        con.execute(
            f"SELECT table_name, {columns} FROM system.main.duckdb_columns() "
            f"WHERE database_name = '{database}' AND schema_name = 'main' GROUP BY table_name"
        ).fetchall()
    )


def own_columns(database: str) -> str:
    """Return SQL that gives table_name, column_name and data_type of an attached database."""
    return (
        "SELECT table_name, column_name, data_type FROM system.main.duckdb_columns() "
        f"WHERE database_name = '{database}' AND schema_name = 'main' "
        "ORDER BY table_name, column_index"
    )


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


def marks_of(database: str) -> str:
    """Return SQL that gives kind, name, mark and row_count of the tables and views of a database.

    The mark of a table is its SQL, that of a view its comment, which a view that is made in its
    place does not have: to print the SQL of all views takes DuckDB 5 ms. A table has so many rows
    at the most: some may be deleted.
    """
    return f"""
        SELECT 'table' AS kind, table_name AS name, sql AS mark, estimated_size AS row_count
        FROM system.main.duckdb_tables()
        WHERE database_name = '{database}' AND schema_name = 'main'
        UNION ALL
        SELECT 'view', view_name, comment, NULL
        FROM system.main.duckdb_views()
        WHERE database_name = '{database}' AND schema_name = 'main' AND NOT internal
    """
