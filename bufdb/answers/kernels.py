"""Scratch memory of kernels next to its limit, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_apart, human_bytes, human_ratio

Row = dict[str, Any]
QUERY = "kernels"
HAS_ROWS = """
SELECT 1 FROM kernels
WHERE module_id IN (SELECT module_id FROM asked_modules)
LIMIT 1
"""
"""The query is asked only if there is something to say."""


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def rows(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[Row]:
    """Return the kernels of the modules that globs of run and so on select, in its order."""
    return execute.records(con, query(), filters, HAS_ROWS, ("kernels",))


def sentence(some: Sequence[Row]) -> str | None:
    """Return e.g. `kernel mm.1 uses 4.3 of 16 MiB of vmem (27.1%), mm.py:17; 2 more: …`."""
    own = [row for row in some if row["target"] is not None]
    if not own:
        return None
    row = own[0]
    space = escape_control(row["memory_space_name"])
    name = escape_control(row["instruction_name"])
    used, limit = row["used_bytes"], row["limit_bytes"]
    if used is None:
        text = f"kernel {name} uses {space} memory of unknown size"
    elif limit is None:
        text = f"kernel {name} uses {human_bytes(used)} of {space} memory"
    else:
        have, of = human_apart([used, limit])
        text = f"kernel {name} uses {have} of {of} of {space} memory"
        text += f" ({human_ratio(row['used_ratio'])})"
    if row["source"] is not None:
        text += f", {escape_control(row['source'])}"
    more = f"{len(own) - 1} more: " if len(own) > 1 else ""
    return f"{text}; {more}bufdb query kernels"


def edge(outcomes: Sequence[tuple[str, bool, Sequence[Row]]]) -> str | None:
    """Return the last value of a sweep that compiles, where all on one side of it do not.

    Args:
        outcomes: of each combination its values, such as `block=128`, whether it compiles, and its
            kernels.

    Returns:
        E.g. `block=512 is the largest that compiles, of those tried; …`; None for several labels,
        values that are no numbers, and where there is no such side.
    """
    sizes: dict[bool, list[float]] = {True: [], False: []}
    known: dict[float, tuple[str, Sequence[Row]]] = {}
    for values, is_compiled, some in outcomes:
        _, _, text = values.partition("=")
        try:
            size = float(text)
        except ValueError:
            return None
        sizes[is_compiled].append(size)
        known[size] = values, some
    good, bad = sizes[True], sizes[False]
    if not good or not bad:
        return None
    if max(good) < min(bad):
        last, word = max(good), "largest"
    elif min(good) > max(bad):
        last, word = min(good), "least"
    else:
        return None
    values, some = known[last]
    text = f"{values} is the {word} that compiles, of those tried"
    of_kernel = sentence(some)
    return text if of_kernel is None else f"{text}; {of_kernel}"
