"""Answers of saved queries about each of many functions, from one execution of each query.

Invariant: rows are as the query returned them; cut tables are marked, with the full command.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bufdb.answers import summary
from bufdb.answers.summary import Overview
from bufdb.database import narrowing
from bufdb.database.engine import duckdb
from bufdb.page.comparison import Filters, Module
from bufdb.query import execute
from bufdb.query.catalogue import Catalogue
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.query.parameters import ALL, glob

NAMES = (
    "peak",
    "top-values",
    "peak-by-category",
    "peak-by-source-line",
    "peak-by-op",
    "peak-by-shape",
    "peak-by-dtype",
    "loop-residuals",
    "padding",
    "donation-missed",
    "copies",
    "constants",
    "advice",
    "peaks",
    "time-by",
)
OF_TIMES = "time-by"
"""It is shown where a profile was read."""
TOP = 50
"""Rows of a table."""
_ALL = 2**62
_CHOSEN = """
SELECT modules.module_id
FROM modules
JOIN (
  SELECT DISTINCT run_name, coalesce(function_name, module_key) AS known_name
  FROM modules
  WHERE module_id IN ({})
) AS functions
  ON functions.run_name = modules.run_name
  AND functions.known_name = coalesce(modules.function_name, modules.module_key)"""
"""All compilations of some modules' functions: top-values shows values of each."""
_FUNCTION = ["run_name", "function_name", "platform", "color"]
"""The first columns of each of these queries."""


@dataclass
class Table:
    """The answer of a saved query about one function."""

    name: str
    title: str
    command: str
    """The command that gives these rows."""
    columns: list[tuple[str, str]]
    """Name and DuckDB type."""
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    is_cut: bool = False
    """Whether there are more rows."""
    note: str | None = None
    """Why the answer is unknown, for some or all compilations."""


Function = tuple[Any, ...]


def queries(catalogue: Catalogue) -> list[SavedQuery]:
    """Return the saved queries whose answers are shown."""
    return [catalogue.find(name) for name in NAMES]


def tables(
    con: duckdb.DuckDBPyConnection,
    queries: Sequence[SavedQuery],
    filters: Filters,
    modules: Sequence[Module],
    summaries: Mapping[tuple[int, int | None], Overview],
    *,
    are_all: bool,
) -> dict[tuple[int, int | None], list[Table]]:
    """Return non-empty tables by module and memory space, of modules that queries answer for.

    The summaries of all `modules` get their parts.

    Args:
        con: the database.
        queries: the result of `queries`.
        filters: the query parameters that selected `modules`.
        modules: the modules; only those with `is_largest` have tables.
        summaries: the summary of each module.
        are_all: whether there are no other modules whose rows should be skipped.
    """
    if not con.execute("SELECT 1 FROM instruction_times LIMIT 1").fetchall():
        queries = [query for query in queries if query.name != OF_TIMES]
    by_place: dict[tuple[int, int | None], list[Table]] = {
        module.place: [] for module in modules if module.is_largest
    }
    chosen = None
    if not are_all:
        ids = ", ".join(str(module.module_id) for module in modules if module.is_largest)
        chosen = _CHOSEN.format(ids or "NULL")
    functions = {module.function for module in modules}
    values: dict[str, Value] = {"color": ALL, **filters, "top_functions": _ALL}
    parts = summary_parts()
    largest = [summaries[module.place] for module in modules if module.is_largest]
    with execute.together(con, [*queries, *parts.values()], values, chosen):
        summary.add_parts(con, parts, largest)
        for query in queries:
            by_function, columns = _answers(con, query, functions)
            for module in modules:
                if module.is_largest and module.function in by_function:
                    rows = by_function[module.function]
                    by_place[module.place].append(_table(query, module, filters, columns, rows))
    others = [module for module in modules if not module.is_largest]
    if others:
        ids = ", ".join(str(module.module_id) for module in others)
        alone_sql = f"{summary.COMPILATIONS} WHERE module_id IN ({ids})"
        chosen = None
        if narrowing.module_count(con):
            chosen = f"SELECT module_id FROM modules WHERE module_id IN ({ids})"
        with execute.together(con, list(parts.values()), values, chosen, alone_sql):
            alone = [summaries[module.place] for module in others]
            summary.add_parts(con, parts, alone, are_alone=True)
    return by_place


def summary_parts() -> dict[str, SavedQuery]:
    """Return the queries of a summary, by part."""
    return summary.queries(own_queries(), tuple(summary.QUERIES))


def _table(
    query: SavedQuery,
    module: Module,
    filters: Filters,
    columns: list[tuple[str, str]],
    rows: Sequence[tuple[Any, ...]],
) -> Table:
    known = [row for row in rows if row[-1] is None]
    reasons = [row[-1] for row in rows if row[-1] is not None]
    return Table(
        query.name,
        query.title,
        command(query.name, module, filters, "--top", str(TOP)),
        columns,
        known[:TOP],
        len(known) > TOP,
        reasons[0] if reasons else None,
    )


def _answers(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, functions: Container[Function]
) -> tuple[dict[Function, list[tuple[Any, ...]]], list[tuple[str, str]]]:
    """Rows by function, in the query's order."""
    # Where there are top_functions it counts rows of each of them, else rows of all.
    top: dict[str, Value] = {"top_n": _ALL if query.param("top_functions") is None else TOP + 1}
    keys = ", ".join([*_FUNCTION, "unknown_reason IS NULL"])
    result = execute.execute_each(con, query, top, keys, TOP + 1)
    names = [name for name, _ in result.columns]
    if names[:4] != _FUNCTION or names[-1] != "unknown_reason":
        raise ValueError(f"{query.name} does not answer by function")
    by_function: dict[Function, list[tuple[Any, ...]]] = defaultdict(list)
    for row in result.rows:
        if row[:4] in functions:
            by_function[row[:4]].append(row)
    return by_function, result.columns


def command(name: str, module: Module, filters: Filters, *options: str) -> str:
    """Return the command that gives a saved query's answer about a module."""
    return shlex.join(["bufdb", "query", name, *function_options(module, filters), *options])


def function_options(module: Module, filters: Mapping[str, Value]) -> list[str]:
    """Return the options of a command about one module in one memory space."""
    options = ["--run", glob(module.run_name), "--function", glob(module.function_name)]
    if not module.is_largest:  # answers are about the largest
        options += ["--module", glob(module.module_key)]
    elif filters.get("module") is not None:
        options += ["--module", str(filters["module"])]
    if module.platform is not None:
        options += ["--platform", module.platform]
    if module.color is not None:
        options += ["--color", str(module.color)]
    return options
