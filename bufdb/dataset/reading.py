"""A dataset opened for questions, as `bufdb.database.store` opens a database file.

Nothing outside the dataset can be reached, and nothing in it is obeyed: Parquet holds rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from bufdb.database import definitions, ready, store
from bufdb.database.definitions import CATALOG
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout, views
from bufdb.dataset.places import place_of
from bufdb.dataset.snapshot import Owners, Snapshot, require_rows, unreadable

COPIED_BYTES = 16 << 20
"""Parquet that is read into memory once, when a dataset is opened. A query may name a table thirty
times, by views that stand on views, and opens its files anew each time."""
_OWNERS = f"{CATALOG}.stored.owners"
_ALWAYS = ("runs", "run_labels", "modules", "memory_sums", "diagnostics")
"""Tables from which it is told why an answer is empty, whatever was asked."""


def open_readable(
    url: str,
    sql: str | None = None,
    *,
    allow_files: bool = False,
    runs: Sequence[str] | None = None,
    before: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a dataset for questions: one snapshot of it, locked, with bufdb's own views.

    Args and views are those of `store.open_readable`; tables that `sql` does not need are left out.

    Raises:
        UsageError: what the URL needs is not installed.
        DatabaseError: there is no dataset, or it cannot be read.
    """
    place = place_of(url)
    con = store.open_memory()
    try:
        place.attach(con)
        with ready.attached(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.CATALOG)
            store.copy_own_views(con)
            con.execute(f"ATTACH ':memory:' AS {CATALOG}")
            for table in sorted(layout.CONSTANT):
                con.execute(f"CREATE TABLE {CATALOG}.main.{table} AS FROM {ready.CATALOG}.{table}")
        con.execute(f"SET search_path = 'memory.main,system.main,{CATALOG}.main'")
        con.execute("SET parquet_metadata_cache = true")
        con.execute(f"CREATE SCHEMA {CATALOG}.stored")
        snapshot = Snapshot(con, place, _OWNERS)
        require_rows(snapshot)
        # What is narrowed stands in front of these, who are asked then only why an answer is empty.
        few = [] if sql is None or runs is None else definitions.module_tables(sql)
        tables = [table for table in _needed(sql) if table not in few or table in _ALWAYS]
        every = snapshot.owners_of()
        _make(snapshot, columns, tables, f"{CATALOG}.main", every, _OWNERS, as_views=few)
        if few:
            _narrow(con, snapshot, columns, few, runs or ())
        if not allow_files:
            place.allow(con, snapshot.paths)
        store.close_up(con, before, allow_files=allow_files)
    except duckdb.Error as error:
        con.close()
        raise unreadable(place, error) from error
    except BaseException:
        con.close()
        raise
    return con


def _needed(sql: str | None) -> list[str]:
    """The tables that SQL names, by itself or by views; all if it is not known."""
    if sql is None:
        return layout.tables()
    named = layout.named(sql).union(_ALWAYS)
    return [table for table in layout.tables() if table in named]


def _make(
    snapshot: Snapshot,
    columns: layout.Columns,
    tables: Sequence[str],
    schema: str,
    of: Owners,
    owners: str,
    as_views: Sequence[str] = (),
) -> None:
    """Make tables of the rows of some owners: the smallest as copies, the others as views."""
    left = COPIED_BYTES
    for table in sorted(tables, key=lambda table: snapshot.size(table, of)):
        if table not in as_views:
            snapshot.require_sound(table, of)
        select = views.table(table, columns[table], snapshot.relation(table, of), owners)
        is_copied = table not in as_views and snapshot.size(table, of) <= left
        left -= snapshot.size(table, of) if is_copied else 0
        kind = "TABLE" if is_copied else "VIEW"
        snapshot.con.execute(f'CREATE {kind} {schema}."{table}" AS {select}')


def _narrow(
    con: duckdb.DuckDBPyConnection,
    snapshot: Snapshot,
    columns: layout.Columns,
    tables: Sequence[str],
    runs: Sequence[str],
) -> None:
    """Put views of the modules of some runs in front of tables, of fewer objects."""
    con.execute(
        f"CREATE TEMP TABLE narrowed_runs AS {views.asked_runs(f'{CATALOG}.main')}",
        [list(runs)],
    )
    some = "SELECT run_name FROM temp.main.narrowed_runs"
    narrowed = f"{CATALOG}.stored.narrowed_owners"
    con.execute(f"CREATE TABLE {narrowed} AS FROM {_OWNERS} WHERE run_name IN ({some})")
    _make(snapshot, columns, tables, "memory.main", snapshot.owners_of(some), narrowed)
