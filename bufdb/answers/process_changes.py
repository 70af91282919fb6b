"""What processes hold in one run and did not hold in another, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bufdb.answers.process import line_of
from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_bytes

Row = dict[str, Any]
Open = Callable[..., duckdb.DuckDBPyConnection]
QUERY = "diff-process"
MOST = 5
"""Lines and shapes that are named."""


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def lines(opened: Open, base: str, new: str, values: Mapping[str, Value]) -> list[str]:
    """Return the largest changes of what processes hold; no line without accounts of both sides.

    Args:
        opened: opens the database.
        base: a run, or LABEL=VALUE.
        new: the same of the other side.
        values: further parameters of the query.
    """
    changes = query()
    sides: dict[str, Value] = {"base": base, "new": new}
    con = opened(changes.sql, runs=execute.runs_asked(sides))
    result = execute.execute_query(con, changes, {**sides, **values, "every_line": True})
    names = [name for name, _ in result.columns]
    rows = [dict(zip(names, row, strict=True)) for row in result.rows]
    return text(rows) if rows else []


def text(rows: Sequence[Row]) -> list[str]:
    """Return rows as a heading and lines."""
    sums = [sum(row[name] for row in rows) for name in ("base_bytes", "new_bytes")]
    change = human_bytes(abs(sums[1] - sums[0]))
    signed = "no change" if sums[0] == sums[1] else f"{'+' if sums[1] > sums[0] else '-'}{change}"
    changed = [row for row in rows if row["delta_bytes"] or row["new_count"] != row["base_count"]]
    shown = [
        f"what processes hold: {human_bytes(sums[0])} → {human_bytes(sums[1])} ({signed})",
        *(f"  {sentence(row)}" for row in changed[:MOST]),
    ]
    if len(changed) > MOST:
        shown.append(f"  and {len(changed) - MOST} more: bufdb query {QUERY}")
    return [escape_control(line) for line in shown]


def sentence(row: Row) -> str:
    """Return a row, such as "+10.0 MiB, 20 × f32[256,512] made at main train.py:32, held by h"."""
    delta, count = row["delta_bytes"], row["new_count"] - row["base_count"]
    size = f"{'-' if delta < 0 else '+'}{human_bytes(abs(delta))}"
    arrays = f"{abs(count)} × {row['shape'] or 'arrays'}" if count else row["shape"] or "arrays"
    words = f"{size}, {arrays} made at {line_of(row)}"
    if row["holder_name"] is not None:
        words += f", held by {row['holder_name']}"
        if row["holder_source"] is not None:
            words += f" ({row['holder_source'].rpartition('/')[2]})"
    if row["account_name"] is not None:
        words += f" in {row['account_name']}"
    return words
