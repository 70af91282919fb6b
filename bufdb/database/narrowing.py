"""Views of some modules' rows in front of the tables of a file that is open for questions.

DuckDB does not push the few modules that a question wants down through the LEFT JOINs of a view to
its tables; these views make it read no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from weakref import WeakKeyDictionary, WeakSet

from bufdb.database import definitions, ready
from bufdb.database.definitions import CATALOG
from bufdb.database.engine import duckdb

_WHOLE = "whole_"
"""Prefix of the name of a view or a copy in memory while another is in front of it."""
FEW_ROWS = 1_000_000
"""Up to so many rows of some runs are copied: with a view in front of each table a long query takes
DuckDB longer to plan than to answer (advice over one of 36 runs: 2.7 s of CPU, 1.4 with copies)."""
ASKING: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
"""Connections that answer questions about a file or a dataset."""
_ROWS: WeakKeyDictionary[duckdb.DuckDBPyConnection, dict[str, int]] = WeakKeyDictionary()
"""Of connections to a file how many rows its tables have at the most: DuckDB lists them with what
is compared when it is opened, and asks 0.3 ms for each that is asked about again."""
_COLUMNS: dict[str, str] = {}
"""Columns of views whose empty tables are not ready-made: to list them takes DuckDB 20 ms."""


def to_runs(con: duckdb.DuckDBPyConnection, sql: str, runs: Sequence[str]) -> None:
    """Put the rows of some runs, or views of them, in front of the tables that a query needs.

    DuckDB does not push the few modules that a query wants down through the LEFT JOINs of a view to
    its tables, and so reads whole tables for one run: of 30 runs the peak by op cost 15 times what
    it costs where one run is alone, with these views 1.4 times.
    """
    con.execute(
        f"CREATE TEMP TABLE narrowed_modules AS SELECT module_id FROM {CATALOG}.main.modules "
        "WHERE run_name IN (SELECT run_name FROM ("
        f"SELECT run_name, run_name AS selector FROM {CATALOG}.main.runs UNION ALL "
        f"SELECT run_name, label || '=' || label_value FROM {CATALOG}.main.run_labels) "
        "JOIN (SELECT unnest(?::VARCHAR[]) AS asked) ON selector GLOB asked)",
        [list(runs)],
    )
    ((wanted, every),) = con.execute(
        "SELECT (SELECT count(*) FROM temp.main.narrowed_modules), "
        f"(SELECT count(*) FROM {CATALOG}.main.modules)"
    ).fetchall()
    if 2 * wanted > every:  # little to gain for what the views cost
        return
    tables = definitions.module_tables(sql)
    _put_before(con, tables, "narrowed_modules", _kind(con, tables, "narrowed_modules"))


def _kind(con: duckdb.DuckDBPyConnection, tables: Sequence[str], modules: str) -> str:
    """Return TABLE if the rows of the modules of a temporary table are few, else VIEW."""
    ((wanted, every),) = con.execute(
        f"SELECT (SELECT count(*) FROM temp.main.{modules}), "
        f"(SELECT count(*) FROM {CATALOG}.main.modules)"
    ).fetchall()
    ((rows,),) = con.execute(
        "SELECT coalesce(sum(estimated_size), 0) FROM system.main.duckdb_tables() "
        f"WHERE database_name = '{CATALOG}' AND list_contains(?, table_name)",
        [list(tables)],
    ).fetchall()
    return "TABLE" if rows * wanted <= FEW_ROWS * every else "VIEW"


def note_rows(con: duckdb.DuckDBPyConnection, counts: Mapping[str, int]) -> None:
    """Note how many rows tables of the attached file, which cannot change, have at the most."""
    _ROWS[con] = {**counts}


def forget_rows(con: duckdb.DuckDBPyConnection, table: str) -> None:
    """Forget what is known of a table, which one with more rows hides."""
    _ROWS.get(con, {}).pop(table, None)


def is_empty(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Return whether a table of the attached file is known to have no rows."""
    return _ROWS.get(con, {}).get(table) == 0


def module_count(con: duckdb.DuckDBPyConnection) -> int:
    """Return how many modules the attached file has at the most: some may have been removed.

    0 if it was not opened by `open_readable`.
    """
    if con in _ROWS and "modules" in _ROWS[con]:
        return _ROWS[con]["modules"]
    is_attached = con.execute(
        "SELECT 1 FROM system.main.duckdb_databases() "
        f"WHERE database_name = '{CATALOG}' AND readonly AND current_database() = 'memory'"
    ).fetchall()
    if not is_attached:
        return 0
    return int(con.execute(f"SELECT count(*) FROM {CATALOG}.main.modules").fetchall()[0][0])


@contextmanager
def to_modules(
    con: duckdb.DuckDBPyConnection,
    tables: Sequence[str],
    chosen: str,
    *,
    is_asked_often: bool = False,
) -> Iterator[None]:
    """Restrict these tables to the modules that a SELECT chooses, within the block.

    Args:
        con: as `open_readable` opens it.
        tables: names of tables with rows of modules, which the choice itself does not need.
        chosen: SQL that gives module_id.
        is_asked_often: whether it is worth a copy of their rows, if these are few.
    """
    viewed = _in_memory(con, "view", tables)
    copied = _in_memory(con, "table", tables)
    con.execute(f"CREATE OR REPLACE TEMP TABLE chosen_modules AS {chosen}")
    kind = _kind(con, tables, "chosen_modules") if is_asked_often else "VIEW"
    for name in viewed:
        con.execute(f'ALTER VIEW memory.main."{name}" RENAME TO "{_WHOLE}{name}"')
    for name in copied:
        con.execute(f'ALTER TABLE memory.main."{name}" RENAME TO "{_WHOLE}{name}"')
        _put_before(con, [name], "chosen_modules", kind, "memory.main.", prefix=_WHOLE)
    _put_before(con, [name for name in tables if name not in copied], "chosen_modules", kind)

    def put_back() -> None:
        for name in tables:
            con.execute(f'DROP {kind} memory.main."{name}"')
        for name in viewed:
            con.execute(f'ALTER VIEW memory.main."{_WHOLE}{name}" RENAME TO "{name}"')
        for name in copied:
            con.execute(f'ALTER TABLE memory.main."{_WHOLE}{name}" RENAME TO "{name}"')
        con.execute("DROP TABLE temp.main.chosen_modules")

    try:
        yield
    except Exception:  # not after an interrupt: the query is still at work, and the process ends
        put_back()
        raise
    put_back()


@contextmanager
def computed(
    con: duckdb.DuckDBPyConnection,
    views: Mapping[str, str],
    needs: Mapping[str, str | tuple[str, ...]] | None = None,
    macros: Mapping[str, str] | None = None,
    *,
    of: Sequence[str] = (),
    is_undone: bool = False,
    is_last: bool = False,
) -> Iterator[None]:
    """Hide some of bufdb's views by temporary tables with the rows of some SQL, within the block.

    DuckDB looks for each name among what is temporary first, also for those in a view.

    Args:
        con: opened for questions, of a file or a dataset; on others nothing happens.
        views: by name of the view what it is to hold, of the view's columns; each is computed where
            those before it are tables.
        needs: by name of a view SQL, or views before it, without which it has no rows there, '' if
            it has none anyway: where this has none, a view that never has any hides it, and DuckDB
            plans neither it nor most of what joins it.
        macros: by macro and its parameters the SQL that takes its place while some views are
            computed.
        of: these views, which follow each other.
        is_undone: whether whatever is made within the block goes at its end.
        is_last: whether the connection answers nothing after the block: what DuckDB takes to free
            it all is saved in a process that ends.
    """
    if not views or not _is_for_questions(con):
        yield
        return
    made = _empty_tables(con) if needs else None
    parts = {view: need for view, need in (needs or {}).items() if isinstance(need, tuple)}
    waiting = {
        view: need
        for view, need in (needs or {}).items()
        if isinstance(need, str) and view in views
    }
    of_whole = {part for view in parts if view in views for part in parts[view]}
    hidden: set[str] = set()
    drops: list[str] = []
    first, last = (of[0], of[-1]) if macros and of else (None, None)
    names = [signature.partition("(")[0] for signature in macros or ()]
    macro_drops = "".join(f"DROP MACRO temp.main.{name};" for name in names)

    def hide(some: Iterable[str]) -> None:
        for view in some:
            _hide(con, view, made)
            drops.append(f"DROP VIEW temp.main.{view};")

    if is_undone:
        con.execute("BEGIN")
    try:
        for place, (view, sql) in enumerate(views.items()):
            if view in waiting:
                hidden |= _without_rows(con, waiting, set([*views][place:]))
            if view in parts and hidden.issuperset(parts[view]):
                hidden.add(view)
            elif view in parts:
                hide(hidden.intersection(parts[view]))
            if macros and view == first:
                con.execute("".join(f"CREATE TEMP MACRO {m} AS {macros[m]};" for m in macros))
                drops.append(macro_drops)
            if view in hidden:
                hide({view} - of_whole)
            else:
                con.execute(f"CREATE TEMP TABLE {view} AS {sql}")
                drops.append(f"DROP TABLE temp.main.{view};")
            if view == last:
                con.execute(drops.pop(drops.index(macro_drops)))
        yield
    except Exception:  # as in to_modules
        _put_back(con, drops, is_undone=is_undone)
        raise
    if not is_last:
        _put_back(con, drops, is_undone=is_undone)


def _put_back(con: duckdb.DuckDBPyConnection, drops: Sequence[str], *, is_undone: bool) -> None:
    """Remove what was made, by the statements that do, or by the end of its transaction."""
    if is_undone:
        con.execute("ROLLBACK")
    elif drops:
        con.execute(" ".join(reversed(drops)))


def _is_for_questions(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether a connection was opened for questions, which stays so."""
    # To list what is there takes DuckDB longer than many of these statements.
    if con not in ASKING:
        if con.execute("SELECT current_database()").fetchall() != [("memory",)]:
            return False
        ASKING.add(con)
    return True


def _without_rows(
    con: duckdb.DuckDBPyConnection, waiting: dict[str, str], later: Set[str]
) -> set[str]:
    """Return the views whose needs have no rows, of those that name none that is computed later.

    They are asked in one statement, and wait no more.
    """
    needs = {
        view: need for view, need in waiting.items() if not later & set(re.findall(r"\w+", need))
    }
    for view in needs:
        del waiting[view]
    selects = [f"(SELECT '{view}' FROM ({need}) LIMIT 1)" for view, need in needs.items() if need]
    rows = con.execute(" UNION ALL ".join(selects)).fetchall() if selects else []
    return needs.keys() - {view for (view,) in rows}


def _hide(con: duckdb.DuckDBPyConnection, view: str, made: Set[str] | None) -> None:
    """Put a view without rows in front of another one; `made` is as of `_empty_tables`."""
    place = ready.VIEWS
    if made is not None or not view.startswith(ready.HIDDEN):
        place = "memory"
        if made is None or view not in made:
            if view not in _COLUMNS:
                for database in ("memory", ready.VIEWS):
                    _COLUMNS.update(ready.columns_of_views(con, database))
            table = f"memory.main.{ready.EMPTY}{view}"
            con.execute(f"CREATE OR REPLACE TABLE {table} ({_COLUMNS[view]})")
    con.execute(f"CREATE TEMP VIEW {view} AS FROM {place}.main.{ready.EMPTY}{view} WHERE FALSE")


def _empty_tables(con: duckdb.DuckDBPyConnection) -> frozenset[str] | None:
    """Return the views in memory that have an empty table; None if a ready-made database has them.

    To list what there is takes DuckDB 2 ms.
    """
    if con in ready.ATTACHED:
        return None
    try:
        con.execute(f"SELECT 1 FROM {ready.VIEWS}.{ready.OWN}.{ready.TEXTS} LIMIT 0")
    except duckdb.CatalogException:
        rows = con.execute(
            f"SELECT substr(table_name, {len(ready.EMPTY) + 1}) FROM system.main.duckdb_tables() "
            f"WHERE database_name = 'memory' AND starts_with(table_name, '{ready.EMPTY}')"
        ).fetchall()
        return frozenset(name for (name,) in rows)
    return None


def _in_memory(con: duckdb.DuckDBPyConnection, kind: str, names: Sequence[str]) -> list[str]:
    """Return which of these names a view or a table in memory has."""
    rows = con.execute(
        f"SELECT {kind}_name FROM system.main.duckdb_{kind}s() "
        f"WHERE database_name = 'memory' AND list_contains(?, {kind}_name)",
        [list(names)],
    ).fetchall()
    return [name for (name,) in rows]


def _put_before(
    con: duckdb.DuckDBPyConnection,
    tables: Iterable[str],
    modules: str,
    kind: str = "VIEW",
    place: str = f"{CATALOG}.main.",
    prefix: str = "",
) -> None:
    """Put views, or copies, of the modules of a temporary table in front of tables in `place`."""
    for name in tables:
        con.execute(
            f'CREATE OR REPLACE {kind} memory.main."{name}" AS FROM {place}"{prefix}{name}" '
            f"SEMI JOIN temp.main.{modules} USING (module_id)"
        )
