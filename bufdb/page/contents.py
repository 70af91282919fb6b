"""All that a page shows, from a few queries about all modules and some about a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb

from bufdb.database import narrowing
from bufdb.page import comparison, tables, values
from bufdb.page.comparison import Asked, Compared, Module
from bufdb.page.picture import Picture, picture
from bufdb.page.tables import Table
from bufdb.query.asked import COUNTS, FINDINGS
from bufdb.query.catalogue import Catalogue
from bufdb.query.header import SavedQuery

AT_ONCE = 100_000
"""Values that are read at once, or those of one module if it has more."""
MODULES_AT_ONCE = 100
"""The same of modules, each of which has some hundred rows of answers."""
_OF_RUNS = "literal_programs"


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
    queries: list[SavedQuery]
    """Whose answers about a module are shown with its picture."""
    compared: Compared | None


class Shown(NamedTuple):
    """What a page has of a module besides its figures."""

    module: Module
    picture: Picture | None
    """None if its peak, or the instant of that, is unknown."""
    tables: list[Table]
    """Answers about it, without empty ones."""


def sql(catalogue: Catalogue) -> str:
    """All that is executed, from which `open_readable` sees which views are needed."""
    asked = [query.sql for query in tables.queries(catalogue)]
    return "\n".join([comparison.MODULES_SQL, COUNTS, FINDINGS, values.SQL, *asked])


def contents(
    con: duckdb.DuckDBPyConnection,
    catalogue: Catalogue,
    sides: Sequence[Asked],
    compared: Compared | None = None,
) -> Contents:
    """What is asked for, of each side in turn; the last is the one that the page is about."""
    found: dict[tuple[int, int | None], Module] = {}
    asked: dict[tuple[int, int | None], Asked] = {}
    for side in sides:
        of_side = comparison.modules(con, side)
        found |= {module.place: module for module in of_side}
        asked |= {module.place: side for module in of_side}
    order = sorted(
        found.values(),
        key=lambda module: (
            module.peak_bytes is None,
            not module.is_device_memory,
            -(module.need_bytes or 0),
        ),
    )
    return Contents(
        comparison.counts(con, sides[-1]),
        comparison.findings(con, sides[-1]),
        order,
        asked,
        tables.queries(catalogue),
        compared,
    )


def pictures(
    con: duckdb.DuckDBPyConnection,
    contents: Contents,
    modules: Sequence[Module],
    is_wanted: Callable[[Module], bool] = lambda module: True,
) -> Iterator[Shown]:
    """Pictures of modules and answers about them, in their order, from some modules at a time.

    Args:
        con: the database.
        contents: what is shown.
        modules: of these.
        is_wanted: asked before a module's values are read, whether they are to be.
    """
    # Where other modules' rows cannot be left out there is one question about all.
    answers = None
    if narrowing.module_count(con) == 0:
        answers = _answers(con, contents, contents.modules, are_all=True)
    left = deque(modules)
    # What counts programs of a whole run is counted before other modules' rows are out of sight.
    with narrowing.computed(con, _OF_RUNS, f"FROM {_OF_RUNS}"):
        while left:
            batch: list[Module] = []
            count = 0
            while left and (
                not batch
                or (count + left[0].value_count <= AT_ONCE and len(batch) < MODULES_AT_ONCE)
            ):
                module = left.popleft()
                if is_wanted(module):
                    batch.append(module)
                    count += module.value_count
            if not batch:
                return
            are_all = len(batch) == len(contents.modules)
            found = answers or _answers(con, contents, batch, are_all=are_all)
            facts = values.facts(
                con, sorted({module.module_id for module in batch if module.peak_time is not None})
            )
            for module in batch:
                drawn = None if module.peak_time is None else picture(facts, module)
                yield Shown(module, drawn, found.get(module.place, []))


def _answers(
    con: duckdb.DuckDBPyConnection, contents: Contents, batch: Sequence[Module], *, are_all: bool
) -> dict[tuple[int, int | None], list[Table]]:
    """Tables by module and memory space, each of the side that it was asked for with."""
    found: dict[tuple[int, int | None], list[Table]] = {}
    sides = {id(side): side for module in batch for side in [contents.asked[module.place]]}
    for side in sides.values():
        of_side = [module for module in batch if contents.asked[module.place] is side]
        found |= tables.tables(con, contents.queries, side, of_side, are_all=are_all)
    return found
