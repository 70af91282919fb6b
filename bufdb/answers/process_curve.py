"""Memory of a process over its snapshots, with the program that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from bufdb.answers import growth
from bufdb.answers.process import TABLES
from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_bytes

Row = dict[str, Any]
QUERY = "process-curve"
_ALL = 2**63 - 1


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def curves(
    con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value], process_n: int
) -> list[list[Row]]:
    """Return the rows of each process: of its device with the most alive, in order of time.

    Of many processes those that hold the most, and these first.
    """
    rows = _rows(con, {**filters, "process_n": process_n})
    devices = [
        list(some) for _, some in groupby(rows, key=lambda row: (*_process(row), row["device"]))
    ]
    processes = [
        max(some, key=most_alive) for _, some in groupby(devices, key=lambda one: _process(one[0]))
    ]
    return sorted(processes, key=most_alive, reverse=True)[:process_n]


def most_alive(rows: Sequence[Row]) -> int:
    """Return the bytes of the highest snapshot."""
    return max(int(row["alive_bytes"]) for row in rows)


def processes(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[str]:
    """Return the names of all processes with snapshots, each with its run."""
    every = _rows(con, {**filters, "process_n": _ALL, "top_n": 1})
    return [escape_control(", ".join(_process(row))) for row in every]


def _rows(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[Row]:
    return execute.records(con, query(), filters, growth.HAS_SNAPSHOTS, TABLES)


def _process(row: Row) -> tuple[str, str]:
    return row["run_name"], row["account_name"]


def heading(rows: Sequence[Row]) -> str:
    """Return the process and its device."""
    parts = (rows[0]["run_name"], rows[0]["account_name"], rows[0]["device"])
    return escape_control(", ".join(str(part) for part in parts if part is not None))


def program(rows: Sequence[Row]) -> str | None:
    """Return the name of the program that runs last; None if none is known."""
    names = [row["function_name"] for row in rows if row["low_running_bytes"] is not None]
    return None if not names else str(names[-1])


def limit(rows: Sequence[Row]) -> int | None:
    """Return the memory of the device, if it is known [bytes]."""
    known = [row["limit_bytes"] for row in rows if row["limit_bytes"] is not None]
    return None if not known else int(known[-1])


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return what a curve shows, in words."""
    first, last = rows[0], rows[-1]
    highest = max(row["alive_bytes"] for row in rows)
    texts = [
        f"arrays: {human_bytes(first['alive_bytes'])} at {at(first)}, "
        f"{human_bytes(last['alive_bytes'])} at {at(last)}, at most {human_bytes(highest)}"
    ]
    running = [row for row in rows if row["low_running_bytes"] is not None]
    if running:
        row = max(running, key=lambda one: one["low_running_bytes"])
        name, sizes = row["function_name"], (row["low_running_bytes"], row["running_bytes"])
        texts.append(
            f"while {name} runs: {human_bytes(sizes[0])} to {human_bytes(sizes[1])} at {at(row)}"
        )
    over = [place for place, row in enumerate(rows) if _is_over(row)]
    if over:
        row, later = rows[over[0]], rows[over[0] + 1 :]
        name = row["function_name"]
        stays = all(_is_over(other) and other["function_name"] == name for other in later)
        texts.append(
            f"{f'from {at(row)} on' if stays else f'at {at(row)}'} {name} has no room: at least "
            f"{human_bytes(row['low_running_bytes'])} of {human_bytes(row['limit_bytes'])}"
        )
    return [escape_control(text) for text in texts]


def _is_over(row: Row) -> bool:
    return (
        row["low_running_bytes"] is not None
        and row["limit_bytes"] is not None
        and row["low_running_bytes"] > row["limit_bytes"]
    )


def at(row: Row) -> str:
    """Return when a snapshot was taken, such as 61.9 s (step 7)."""
    mark = "" if row["mark"] is None else f" ({row['mark']})"
    return f"{row['elapsed_seconds']:.1f} s{mark}"
