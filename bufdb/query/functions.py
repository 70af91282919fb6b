"""Narrow the tables to the modules that an answer about a few functions needs.

A query with the parameter `top_functions` shows the functions with the highest peaks, with one
compilation each. DuckDB does not push that choice through the LEFT JOINs of views down to the
tables: for one function among 10,000 modules it read the values of all, into 1.5 GB.

Invariant: tables that determine the functions stay whole, so that the query's own choice is the
same as without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from bufdb.database import definitions, narrowing
from bufdb.query.header import SavedQuery

if TYPE_CHECKING:
    import duckdb

LEAST_MODULES = 1000
"""With fewer, narrowing takes longer than it saves."""
_PARAMETER = "top_functions"
_ADVISED = "advised_"
"""Views whose names begin so have the others below them many times over."""
_OF_MODULES = (
    "value_details",
    "copy_details",
    "gathered_values",
    "value_sources",
    "answered_idle_values",
    "answered_donations",
    "advised_groups",
)
"""Views that others name many times over, each after those that it names."""
_FUNCTIONS = "answered_functions"
_WITH_USES = "answered_functions_with_uses"
"""The view that gives the rank of a function in queries that do not use _FUNCTIONS."""


@contextmanager
def functions_alone(con: duckdb.DuckDBPyConnection, query: SavedQuery) -> Iterator[None]:
    """Within the block the large tables hold the modules alone that the answer is made of.

    Args:
        con: as `store.open_readable` opens it, with the variables of the query set.
        query: what will be asked; one without the parameter, or that is not bufdb's, sees all.
    """
    shown = query.param(_PARAMETER) if query.is_own else None
    # A query that ranks modules by something else shows other functions.
    is_narrowed = "asked_modules" not in query.sql and narrowing.module_count(con) >= LEAST_MODULES
    if shown is None or not (is_narrowed or _ADVISED in query.sql):
        yield
        return
    chosen = (
        f"SELECT DISTINCT module_id FROM {_places(query.sql)} WHERE module_id IS NOT NULL "
        f"AND place <= coalesce(getvariable('{_PARAMETER}')::BIGINT, {shown.default})"
    )
    with together(con, query.sql, chosen, is_narrowed=is_narrowed):
        yield


@contextmanager
def together(
    con: duckdb.DuckDBPyConnection, sql: str, chosen: str, *, is_narrowed: bool
) -> Iterator[None]:
    """Within the block views that long queries have below them many times are tables.

    DuckDB expands a view wherever it is named and keeps the hash table of each join, which takes
    half a megabyte at the least, to the end: advice took 437 joins, and takes 67 so.

    Args:
        con: as `store.open_readable` opens it, with the variables of the queries set.
        sql: what will be asked, of one query or of several.
        chosen: SQL that gives module_id of the modules that answers are made of.
        is_narrowed: whether the large tables hold these modules alone, too.
    """
    with ExitStack() as stack:
        if is_narrowed:
            telling = definitions.module_tables(_places(sql))
            tables = [name for name in definitions.module_tables(sql) if name not in telling]
            stack.enter_context(narrowing.to_modules(con, tables, chosen, is_asked_often=True))
        for view in (_FUNCTIONS, "asked_peak_values"):
            stack.enter_context(narrowing.computed(con, view, f"FROM {view}"))
        for view in _OF_MODULES:
            rows = f"FROM {view} SEMI JOIN ({chosen}) USING (module_id)"
            stack.enter_context(narrowing.computed(con, view, rows))
        yield


def _places(sql: str) -> str:
    """Return the view from which queries take the place of a function."""
    return _WITH_USES if _WITH_USES in sql else _FUNCTIONS
