"""Which modules an answer about a few functions is made of, so that no others are read for it.

A query with the parameter `top_functions` shows the functions with the highest peaks, of each one
compilation. DuckDB does not take that choice through the LEFT JOINs of views down to the tables:
about one function among 10,000 modules it read the values of all, into 1.5 GB.

Invariant: tables that tell which functions there are stay whole, so that the query itself chooses
as it would without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from bufdb.database import definitions, narrowing

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery

LEAST_MODULES = 1000
"""With fewer the choice takes longer than what it saves."""
_PARAMETER = "top_functions"
_ADVISED = "advised_"
"""Views whose names begin so have the others below them many times over."""
_FUNCTIONS = "answered_functions"
_WITH_USES = "answered_functions_with_uses"
"""Where a query takes the place of a function from, if not from _FUNCTIONS."""


@contextmanager
def alone(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, chosen: str | None = None
) -> Iterator[None]:
    """Within the block the large tables hold the modules alone that the answer is made of.

    Args:
        con: as `store.open_readable` opens it, with the variables of the query set.
        query: what will be asked; one without the parameter, or that is not bufdb's, sees all.
        chosen: SQL that gives module_id, if it is known which modules are shown.
    """
    shown = query.param(_PARAMETER) if query.is_own else None
    if shown is None and chosen is None:
        yield
        return
    most = 2**62 if shown is None else shown.default
    top = f"coalesce(getvariable('{_PARAMETER}')::BIGINT, {most})"
    if chosen is None and _is_many(con, query):
        places = _WITH_USES if _WITH_USES in query.sql else _FUNCTIONS
        chosen = (
            f"SELECT DISTINCT module_id FROM {places} "
            f"WHERE module_id IS NOT NULL AND place <= {top}"
        )
    with (
        nullcontext() if chosen is None else _of_these(con, query, chosen),
        _once(con, top) if _ADVISED in query.sql else nullcontext(),
    ):
        yield


def _is_many(con: duckdb.DuckDBPyConnection, query: SavedQuery) -> bool:
    # Who ranks modules by something else shows other functions.
    return "asked_modules" not in query.sql and narrowing.module_count(con) >= LEAST_MODULES


def _of_these(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, chosen: str
) -> AbstractContextManager[None]:
    """Within the block the large tables hold these modules alone."""
    places = _WITH_USES if _WITH_USES in query.sql else _FUNCTIONS
    telling = definitions.module_tables(places)
    tables = [name for name in definitions.module_tables(query.sql) if name not in telling]
    return narrowing.to_modules(con, tables, chosen)


@contextmanager
def _once(con: duckdb.DuckDBPyConnection, top: str) -> Iterator[None]:
    """Within the block views that a long query has below it many times are tables.

    DuckDB expands a view wherever it is named and keeps the hash table of each join to the end:
    advice over data/demo took 437 joins, 800 MB and 1.15 s, and takes 400 MB and 0.45 s so.
    """
    shown = f"SELECT module_id FROM {_FUNCTIONS} WHERE module_id IS NOT NULL AND place <= {top}"
    with (
        narrowing.computed(con, _FUNCTIONS, f"FROM {_FUNCTIONS}"),
        narrowing.computed(con, "asked_peak_values", "FROM asked_peak_values"),
        narrowing.computed(
            con, "value_details", f"FROM value_details SEMI JOIN ({shown}) USING (module_id)"
        ),
    ):
        yield
