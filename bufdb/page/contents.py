"""The contents of a page, from a few queries about all modules and some about batches of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bufdb.answers import growth, process, process_curve, summary
from bufdb.answers.summary import Overview
from bufdb.database import narrowing
from bufdb.database.engine import duckdb
from bufdb.page import comparison, tables, values
from bufdb.page.comparison import Compared, Filters, Module
from bufdb.page.picture import Picture, picture
from bufdb.page.tables import Table
from bufdb.query.catalogue import Catalogue
from bufdb.query.header import SavedQuery
from bufdb.query.parameters import COUNTS, FINDINGS

AT_ONCE = 100_000
"""Values that are read at once, or those of one module if it has more."""
BYSTANDERS = 10
"""Lines of the account of a process."""
COURSES = 8
"""Processes whose memory over time is drawn."""
_UNWRAPPED = 10_000
MODULES_AT_ONCE = 100
"""The same of modules, each of which has some hundred rows of answers."""
_OF_RUNS = "literal_programs"


@dataclass(frozen=True)
class Contents:
    """The contents of a page, except the pictures."""

    counts: dict[str, int | str | None]
    """Counts of the runs shown; in a comparison, of the new side."""
    findings: list[tuple[str, str, int]]
    """Severity, code and number of findings about their dumps."""
    processes: list[list[str]]
    """Of each memory profile and device of their runs a heading, then the account line by line."""
    courses: list[dict[str, object]]
    """What each process with snapshots holds over time: those that hold the most."""
    other_course_count: int
    """Processes with snapshots that are left out."""
    modules: list[Module]
    """In the order of `modules.modules`."""
    filters: dict[tuple[int, int | None], Filters]
    """By module, the query parameters that selected it."""
    summaries: dict[tuple[int, int | None], Overview]
    """By module, what `bufdb summary` reports of it; `pictures` adds the parts."""
    steps: dict[tuple[int, int | None], summary.Row]
    """The training steps, by module, where another program of the run is higher."""
    queries: list[SavedQuery]
    """The queries whose answers about a module are shown with its picture."""
    compared: Compared | None


class Shown(NamedTuple):
    """What a page shows of a module in addition to its figures."""

    module: Module
    picture: Picture | None
    """None if its peak, or the instant of the peak, is unknown."""
    tables: list[Table]
    """Non-empty answers about it."""


def sql(catalogue: Catalogue) -> str:
    """Return all SQL that is executed; `open_readable` derives the views it needs."""
    statements = [query.sql for query in tables.queries(catalogue)]
    statements.append(summary.sql_of(tables.summary_parts()))
    process_sql = (
        *(process.HAS_PROFILES, process.query().sql),
        *(growth.HAS_SNAPSHOTS, process_curve.query().sql),
    )
    own_sql = (comparison.MODULES_SQL, COUNTS, FINDINGS, values.SQL, f"FROM {_OF_RUNS}")
    return "\n".join([*own_sql, *process_sql, *statements])


def _processes(con: duckdb.DuckDBPyConnection, filters: Filters) -> list[list[str]]:
    accounts = process.accounts(
        con, {"run": filters["run"]} if "run" in filters else {}, BYSTANDERS
    )
    return [[_heading(rows[0]), *process.lines(rows, width=_UNWRAPPED)] for rows in accounts]


def _courses(
    con: duckdb.DuckDBPyConnection, filters: Filters
) -> tuple[list[dict[str, object]], int]:
    """Return what the processes that hold the most hold over time, and how many there are more."""
    runs = {"run": filters["run"]} if "run" in filters else {}
    curves = process_curve.curves(con, runs, COURSES)
    other_count = 0
    if len(curves) == COURSES:
        other_count = len(process_curve.processes(con, runs)) - COURSES
    courses: list[dict[str, object]] = [
        {
            "heading": process_curve.heading(rows),
            "seconds": [row["elapsed_seconds"] for row in rows],
            "alive": [row["alive_bytes"] for row in rows],
            "running": [row["low_running_bytes"] for row in rows],
            "limit": process_curve.limit(rows),
            "program": process_curve.program(rows),
            "sentences": process_curve.sentences(rows),
        }
        for rows in curves
    ]
    return courses, other_count


def _heading(row: process.Row) -> str:
    parts = (row["run_name"], row["profile_name"], row["device"])
    return ", ".join(str(part) for part in parts if part is not None)


def contents(
    con: duckdb.DuckDBPyConnection,
    catalogue: Catalogue,
    sides: Sequence[Filters],
    compared: Compared | None = None,
) -> Contents:
    """Return the contents for each side in turn; the page is about the last side."""
    by_place: dict[tuple[int, int | None], Module] = {}
    filters: dict[tuple[int, int | None], Filters] = {}
    summaries: dict[tuple[int, int | None], Overview] = {}
    steps: dict[tuple[int, int | None], summary.Row] = {}
    for side in sides:
        summaries |= summary.each(con, side)
        steps |= {(row["module_id"], row["color"]): row for row in summary.steps(con, side)}
        of_side = comparison.modules(con, side)
        by_place |= {module.place: module for module in of_side}
        filters |= {module.place: side for module in of_side}
    order = sorted(
        by_place.values(),
        key=lambda module: (
            module.peak_bytes is None,
            not module.is_device_memory,
            -(module.need_bytes or 0),
        ),
    )
    return Contents(
        comparison.counts(con, sides[-1]),
        comparison.findings(con, sides[-1]),
        _processes(con, sides[-1]),
        *_courses(con, sides[-1]),
        order,
        filters,
        summaries,
        steps,
        tables.queries(catalogue),
        compared,
    )


def pictures(
    con: duckdb.DuckDBPyConnection,
    contents: Contents,
    modules: Sequence[Module],
    is_wanted: Callable[[Module], bool] = lambda module: True,
) -> Iterator[Shown]:
    """Yield pictures of modules and answers about them, in order, read in batches.

    Args:
        con: the database.
        contents: the contents of the page.
        modules: the modules to yield.
        is_wanted: whether to read a module's values, called before they are read.
    """
    # If other modules' rows cannot be left out, query all of them once.
    answers = None
    if narrowing.module_count(con) == 0:
        answers = _answers(con, contents, contents.modules, are_all=True)
    left = deque(modules)
    # Counts over all programs of a run are computed before other modules' rows are hidden.
    with narrowing.computed(con, {_OF_RUNS: f"FROM {_OF_RUNS}"}):
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
            tables_by_place = answers or _answers(con, contents, batch, are_all=are_all)
            facts = values.facts(
                con, sorted({module.module_id for module in batch if module.peak_time is not None})
            )
            for module in batch:
                drawn = None if module.peak_time is None else picture(facts, module)
                yield Shown(module, drawn, tables_by_place.get(module.place, []))


def _answers(
    con: duckdb.DuckDBPyConnection, contents: Contents, batch: Sequence[Module], *, are_all: bool
) -> dict[tuple[int, int | None], list[Table]]:
    """Return tables by module and memory space, each for the side that selected it."""
    tables_by_place: dict[tuple[int, int | None], list[Table]] = {}
    sides = {id(side): side for module in batch for side in [contents.filters[module.place]]}
    for side in sides.values():
        of_side = [module for module in batch if contents.filters[module.place] is side]
        tables_by_place |= tables.tables(
            con, contents.queries, side, of_side, contents.summaries, are_all=are_all
        )
    return tables_by_place
