"""All that a page shows, from a few queries about all modules and some about a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb

from bufdb.export.page import modules, tables, values
from bufdb.export.page.comparison import Compared
from bufdb.export.page.modules import Asked, Module
from bufdb.export.page.picture import Picture, picture
from bufdb.export.page.tables import Table
from bufdb.query.asked import about
from bufdb.query.catalogue import Catalogue

AT_ONCE = 100_000
"""Values that are read at once, or those of one module if it has more."""


@dataclass(frozen=True)
class Contents:
    """What a page shows, but for the pictures."""

    counts: dict[str, int | str | None]
    """Of the runs that are shown; with two sides of the new one."""
    findings: list[tuple[str, str, int]]
    """Severity, code and number of what was found about their dumps."""
    modules: list[Module]
    """In the order of `modules.modules`."""
    asked: dict[tuple[int, int | None], Asked]
    """What each was asked for with."""
    tables: dict[tuple[int, int | None], list[Table]]
    compared: Compared | None


def sql(catalogue: Catalogue) -> str:
    """All that is executed, from which `open_readable` sees which views are needed."""
    asked = [query.sql for query in tables.queries(catalogue)]
    return "\n".join([modules.SQL, about.COUNTS, about.FINDINGS, values.SQL, *asked])


def contents(
    con: duckdb.DuckDBPyConnection,
    catalogue: Catalogue,
    sides: Sequence[Asked],
    compared: Compared | None = None,
) -> Contents:
    """What is asked for, of each side in turn; the last is the one that the page is about."""
    found: dict[tuple[int, int | None], Module] = {}
    asked: dict[tuple[int, int | None], Asked] = {}
    answers: dict[tuple[int, int | None], list[Table]] = {}
    queries = tables.queries(catalogue)
    for side in sides:
        of_side = modules.modules(con, side)
        found |= {module.place: module for module in of_side}
        asked |= {module.place: side for module in of_side}
        answers |= tables.tables(con, queries, side, of_side)
    order = sorted(
        found.values(),
        key=lambda module: (
            module.peak_bytes is None,
            not module.is_device_memory,
            -(module.need_bytes or 0),
        ),
    )
    return Contents(
        modules.counts(con, sides[-1]),
        modules.findings(con, sides[-1]),
        order,
        asked,
        answers,
        compared,
    )


def pictures(
    con: duckdb.DuckDBPyConnection,
    shown: Sequence[Module],
    is_wanted: Callable[[Module], bool] = lambda module: True,
) -> Iterator[Picture]:
    """Pictures of modules, in their order.

    Args:
        con: the database.
        shown: the modules.
        is_wanted: asked before a module's values are read, whether they are to be.
    """
    left = list(shown)
    while left:
        batch: list[Module] = []
        count = 0
        while left and (not batch or count + left[0].value_count <= AT_ONCE):
            module = left.pop(0)
            if is_wanted(module):
                batch.append(module)
                count += module.value_count
        facts = values.facts(con, sorted({module.module_id for module in batch}))
        for module in batch:
            yield picture(facts, module)
