"""Which modules an answer about a few functions is made of, so that no others are read for it.

A query with the parameter `top_functions` shows the functions with the highest peaks, of each one
compilation. DuckDB does not take that choice through the LEFT JOINs of views down to the tables:
about one function among 10,000 modules it read the values of all, into 1.5 GB.

Invariant: tables that tell which functions there are stay whole, so that the query itself chooses
as it would without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bufdb.database import definitions, narrowing

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery

LEAST_MODULES = 1000
"""With fewer the choice takes longer than what it saves."""
_PARAMETER = "top_functions"
_FUNCTIONS = "answered_functions"
_WITH_USES = "answered_functions_with_uses"
"""Where a query takes the place of a function from, if not from _FUNCTIONS."""


@contextmanager
def alone(con: duckdb.DuckDBPyConnection, query: SavedQuery) -> Iterator[None]:
    """Within the block the large tables hold the modules alone that the answer is made of.

    Args:
        con: as `store.open_readable` opens it, with the variables of the query set.
        query: what will be asked; one without the parameter, or that is not bufdb's, sees all.
    """
    shown = query.param(_PARAMETER) if query.is_own else None
    # Who ranks modules by something else shows other functions.
    if shown is None or "asked_modules" in query.sql or narrowing.module_count(con) < LEAST_MODULES:
        yield
        return
    places = _WITH_USES if _WITH_USES in query.sql else _FUNCTIONS
    telling = definitions.module_tables(places)
    tables = [name for name in definitions.module_tables(query.sql) if name not in telling]
    chosen = (
        f"SELECT DISTINCT module_id FROM {places} WHERE module_id IS NOT NULL "
        f"AND place <= coalesce(getvariable('{_PARAMETER}')::BIGINT, {shown.default})"
    )
    with narrowing.to_modules(con, tables, chosen):
        yield
