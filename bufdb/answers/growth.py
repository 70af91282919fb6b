"""What grows in a process from snapshot to snapshot, and programs it has loaded often, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bufdb.answers.process import TABLES, WIDTH, line_of
from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_bytes

Row = dict[str, Any]
QUERY = "process-growth"
HAS_SNAPSHOTS = """
SELECT 1 FROM live_profiles
WHERE moment = 'snapshot' AND run_name IN (FROM asked_runs) LIMIT 1
"""
MANY = 8
"""Programs of one name that are worth a line: a jitted function is compiled for a few shapes."""
COPIES = f"""
SELECT
  live_programs.program_name, count(*) AS program_count,
  count(DISTINCT (
    live_programs.argument_bytes, live_programs.output_bytes, live_programs.temp_bytes
  )) AS need_count,
  CASE
    WHEN count(live_programs.code_bytes) = count(*) THEN sum(live_programs.code_bytes)::BIGINT
  END AS code_bytes
FROM live_programs
JOIN live_moments
  ON live_moments.run_name = live_programs.run_name
  AND live_moments.profile_name = live_programs.profile_name
WHERE live_moments.is_account
  AND live_programs.run_name IN (FROM asked_runs)
GROUP BY live_programs.run_name, live_programs.profile_name, live_programs.program_name
HAVING count(*) >= {MANY}
ORDER BY program_count DESC, live_programs.program_name
LIMIT 3
"""

CURVE = """
SELECT
  live_moments.run_name, live_moments.account_name, live_moments.elapsed_seconds,
  live_moments.total_bytes
FROM live_moments
WHERE live_moments.moment IN ('snapshot', 'failure')
  AND live_moments.elapsed_seconds IS NOT NULL
  AND live_moments.run_name IN (FROM asked_runs)
ORDER BY live_moments.run_name, live_moments.account_name, live_moments.elapsed_seconds
"""
"""Bytes of a process over time, of all devices."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def rows(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value], top_n: int) -> list[Row]:
    """Return what is likely or possibly a leak in the runs that are asked for."""
    every = execute.records(con, query(), {**filters, "top_n": top_n}, HAS_SNAPSHOTS, TABLES)
    # Each shape of an operation outside of jit is a program: a few of one name are no leak.
    return [
        row
        for row in every
        if row["sureness"] == "likely" or (row["sureness"] and row["kind"] == "arrays")
    ]


def copies(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[Row]:
    """Return names that many programs of a process have."""
    known = {name: filters[name] for name in ("run",) if name in filters}
    result = execute.execute_with(con, COPIES, known, QUERY)
    return [dict(zip([n for n, _ in result.columns], row, strict=True)) for row in result.rows]


def moments(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[Row]:
    """Return the bytes of each process at its snapshots, in order of time."""
    known = {name: filters[name] for name in ("run",) if name in filters}
    result = execute.execute_with(con, CURVE, known, QUERY)
    return [dict(zip([n for n, _ in result.columns], row, strict=True)) for row in result.rows]


def curve(snapshots: Sequence[Row]) -> str:
    """Return the bytes of one process over time as a line; a column has its highest snapshot."""
    first, last = (snapshots[place]["elapsed_seconds"] for place in (0, -1))
    highest = max(row["total_bytes"] for row in snapshots)
    width = min(_CURVE_WIDTH, len(snapshots))
    columns: list[int | None] = [None] * width
    for row in snapshots:
        share = (row["elapsed_seconds"] - first) / ((last - first) or 1.0)
        place = min(int(share * width), width - 1)
        columns[place] = max(columns[place] or 0, row["total_bytes"])
    blocks = "".join(
        " " if size is None else _BLOCKS[(len(_BLOCKS) - 1) * size // (highest or 1)]
        for size in columns
    )
    sizes = [human_bytes(snapshots[place]["total_bytes"]) for place in (0, -1)]
    return (
        f"alive from {first:.1f} s to {last:.1f} s: {sizes[0]} {blocks} {sizes[1]}, "
        f"at most {human_bytes(highest)}"
    )


def sentence(row: Row) -> str:
    """Return a row as text.

    Such as "+10.0 MiB in 20 snapshots, 20 × f32[256,512] made at main train.py:32, held by history
    (train.py:22), since step 4: likely a leak".
    """
    count = row["last_count"] - row["first_count"]
    what = row["shape"] or ("programs" if row["kind"] == "programs" else "arrays")
    size = "" if not row["growth_bytes"] else f"+{human_bytes(row['growth_bytes'])} "
    text = f"{size}in {row['snapshot_count']} snapshots, {count} × {what} "
    if row["kind"] == "programs":
        text += f"named {row['python_function_name']}"
    else:
        text += f"made at {line_of(row)}"
    if row["holder_name"] is not None:
        at = row["holder_source"]
        text += f", held by {row['holder_name']}"
        text += "" if at is None else f" ({at.rpartition('/')[2]})"
    if row["since_mark"] is not None:
        text += f", since {row['since_mark']}"
    elif row["since_seconds"] is not None:
        text += f", since {row['since_seconds']:.1f} s"
    sureness = {"possible": "possibly"}.get(row["sureness"], row["sureness"])
    return f"{escape_control(text)}: {sureness} a leak"


def lines(growth: Sequence[Row], many: Sequence[Row]) -> list[str]:
    """Return all as lines."""
    texts = [f"grows: {sentence(row)}" for row in growth]
    for row in many:
        code = "" if not row["code_bytes"] else f", code {human_bytes(row['code_bytes'])}"
        alike = "all with the same needs" if row["need_count"] == 1 else "with several needs"
        name = escape_control(row["program_name"])
        texts.append(
            f"{row['program_count']} programs named {name} are loaded, {alike}{code}: "
            "'bufdb query retraces' says why"
        )
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
    ]
