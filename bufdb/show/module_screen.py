"""One module on a screen: memory over the program, and what holds an instant of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from bufdb.database.engine import duckdb
from bufdb.errors import one_line
from bufdb.query.header import SavedQuery, Value
from bufdb.query.subject import Subject
from bufdb.show import picture
from bufdb.show.picture import Picture
from bufdb.show.screen import TOP, Screen


def draw(
    con: duckdb.DuckDBPyConnection,
    queries: Mapping[str, SavedQuery],
    chosen: Subject,
    screen: Screen,
    instant: Mapping[str, Value],
    by: str | None,
    tree: str | None,
) -> None:
    """Draw a module; without a known peak, what is known.

    Args:
        con: a connection for the text of the queries.
        queries: those of `picture.queries`.
        chosen: the module.
        screen: drawn on.
        instant: step or peak, see the query peak; empty for the highest.
        by: what groups buffers; None for lines, or ops if no line is known.
        tree: the tree of the bytes at the instant; None for the largest values.
    """
    if chosen.peak_time is None:
        _sizes(con, queries, chosen, screen)
        return
    drawn = picture.picture(con, chosen, screen.column_count, dict(instant), by)
    screen.draw(drawn)
    _held(con, queries, drawn, dict(instant), tree, screen)


def _held(
    con: duckdb.DuckDBPyConnection,
    queries: Mapping[str, SavedQuery],
    drawn: Picture,
    instant: dict[str, Value],
    tree: str | None,
    screen: Screen,
) -> None:
    """Show what holds the instant: a tree or the largest values."""
    if tree is not None:
        query = queries[picture.TREES[tree]]
        screen.tree(drawn, tree, picture.labels(con, query, drawn.subject, instant))
        return
    query = queries[picture.VALUES]
    rows = picture.values(con, query, drawn.subject, instant, TOP)
    screen.values(drawn, rows, _more(query, drawn.subject, instant))


def _sizes(
    con: duckdb.DuckDBPyConnection,
    queries: Mapping[str, SavedQuery],
    chosen: Subject,
    screen: Screen,
) -> None:
    """Show what is known without a peak, or without its instant."""
    screen.sizes(chosen)
    query = queries[picture.SIZES if chosen.peak_bytes is None else picture.VALUES]
    rows = picture.values(con, query, chosen, {}, TOP)
    if rows.rows:
        screen.sized(chosen, rows, _more(query, chosen, {}))


def _more(query: SavedQuery, chosen: Subject, instant: dict[str, Value]) -> str:
    """Return the command that shows the rest."""
    words = ["bufdb", "query", query.name]
    for key, value in chosen.filters.items():
        words += [f"--{key}", str(value)]
    for key, value in instant.items():
        words += ["-p", key, str(value)]
    return one_line(shlex.join(words))
