"""Whether a program's arena fits into one piece of a device's pool, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_apart, human_bytes

Row = dict[str, Any]
QUERY = "pool"
HAS_LIMITS = """
SELECT 1 FROM pools
WHERE run_name IN (FROM asked_runs) AND (limit_bytes IS NOT NULL OR requested_bytes IS NOT NULL)
LIMIT 1
"""
"""The query is asked only if there is something to say."""
_TABLES = ("live_arrays", "allocator_statistics")
"""pools has no rows where these have none."""


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def accounts(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[list[Row]]:
    """Return the programs of each profile or log and device that globs of run and so on select."""
    rows = execute.records(con, query(), filters, HAS_LIMITS, _TABLES)
    return [list(some) for _, some in groupby(rows, key=place)]


def place(row: Row) -> tuple[Any, ...]:
    """Return the profile or log, and device."""
    return row["run_name"], row["profile_name"], row["device"]


def decisive(rows: Sequence[Row]) -> Row:
    """Return the program that decides for one device: what failed, else what is largest."""
    return next((one for one in rows if one["function_name"] is not None), rows[0])


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return what is known of the program that decides for one device."""
    row = decisive(rows)
    if row["arena_bytes"] is None or row["block_bytes"] is None:
        return []
    shown = [sentence(row)]
    if row["fit"] == "no" and row["planned_bytes"] is not None:
        shown += _planned(row)
    if row["outside_bytes"] is not None and row["outside_bytes"] > 0:
        shown.append(
            f"outside of the pool {_size(row['outside_bytes'])} of the device are in use: "
            "CUDA's context, NCCL and other libraries, other processes"
        )
    return shown


def sentence(row: Row) -> str:
    """Return e.g. `step wants 125.7 GiB in one piece, at most 120.2 GiB are free after …`."""
    name = "the request that failed" if row["function_name"] is None else row["function_name"]
    arena, output, stay = row["arena_bytes"], row["output_bytes"] or 0, row["low_stay_bytes"]
    parts, size, free = [(arena, "in one piece")], arena, row["block_bytes"]
    is_exact = row["low_block_bytes"] == free
    if row["limit_bytes"] is not None and stay is not None and output > 0 and arena <= free:
        whole = row["limit_bytes"] - stay
        if arena == 0 or whole < arena + output:
            # Outputs decide, and may be in several pieces.
            parts = [*parts[arena == 0 :], (output, "for its outputs")]
            size, free, is_exact = arena + output, whole, False
    wants, room = [_size(part) for part, _ in parts], _size(free)
    if [room] == wants:
        wants[0], room = human_apart([size, free])
    text = " and ".join(f"{wanted} {kind}" for wanted, (_, kind) in zip(wants, parts, strict=True))
    text = f"{name} wants {text}, {'' if is_exact else 'at most '}{room} are free"
    if stay is not None:
        held = human_bytes(stay)
        is_known = row["stay_bytes"] is not None and human_bytes(row["stay_bytes"]) == held
        text += f" after {'' if is_known else 'at least '}{held} that stay"
    fits = {"yes": ": it fits", "no": ": it does not fit"}
    return escape_control(text + fits.get(row["fit"], ": whether it fits is not known"))


def _planned(row: Row) -> list[str]:
    """Return what XLA planned the arena for, and what another slop factor would make of it."""
    planned, factor = _size(row["planned_bytes"]), row["slop_factor"]
    if row["planned_source"] == "warning":
        return [f"XLA planned {planned} for it and warned that it cannot reach that"]
    fitting = row["fitting_slop_factor"]
    if fitting is None:
        return []
    arena = _size(row["fitting_arena_bytes"])
    return [
        f"XLA planned {planned} for it: --xla_gpu_memory_limit_slop_factor={fitting} makes that "
        f"{arena} (it is {factor})"
    ]


def _size(size_bytes: int) -> str:
    """Format bytes: a tenth of a GiB decides whether an arena fits."""
    return human_bytes(size_bytes, 4)
