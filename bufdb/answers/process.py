"""What processes hold on their devices next to what programs need, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bufdb.database.engine import duckdb
from bufdb.query import execute
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.render.text import escape_control, human_bytes, human_ratio, shorten

Row = dict[str, Any]
WIDTH = 80
QUERY = "process"
HAS_PROFILES = "SELECT 1 FROM live_profiles WHERE run_name IN (FROM asked_runs) LIMIT 1"
"""The query is asked only if there is something to say."""
TABLES = ("live_profiles",)
"""The query has no rows where these have none."""
_OF_PLAN = {"argument": "arguments", "output": "outputs", "temp": "temporaries"}


def query() -> SavedQuery:
    """Return the saved query."""
    return own_queries().find(QUERY)


def accounts(
    con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value], top_n: int
) -> list[list[Row]]:
    """Return the rows of each profile and device that globs of run, function and so on select."""
    return grouped(execute.records(con, query(), {**filters, "top_n": top_n}, HAS_PROFILES, TABLES))


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of each profile and device of an answer."""

    def place(row: Row) -> tuple[Any, ...]:
        return row["run_name"], row["profile_name"], row["device"]

    return [list(some) for _, some in groupby(rows, key=place)]


def sentence(rows: Sequence[Row]) -> str:
    """Return what a plan needs, what is alive, and how much of it the program does not take."""
    row = rows[0]
    is_known = row["arguments_unknown_reason"] is None
    alive = "alive when it failed" if is_known else "alive"
    if row["moment"] == "snapshot":
        mark = "" if row["mark"] is None else f" ({escape_control(row['mark'])})"
        alive = f"alive in the last snapshot, {row['elapsed_seconds']:.1f} s after it began{mark}"
    parts = []
    if row["plan_bytes"] is not None:
        parts.append(f"the plan needs {human_bytes(row['plan_bytes'])}")
    text = f"{alive}: {human_bytes(row['alive_bytes'])}"
    if row["alive_bytes"]:
        part = _range(row["low_bystander_bytes"], row["bystander_bytes"])
        is_all = part == human_bytes(row["alive_bytes"])
        text += f", {'all' if is_all else part} of it bystanders"
    lines = [one for one in rows if one["part"] == "bystander" and one["held_bytes"]]
    if lines:
        text += f", largest {line_of(lines[0])}"
    return "; ".join([*parts, text])


def _range(low: int | None, high: int) -> str:
    least, most = "an unknown part" if low is None else human_bytes(low), human_bytes(high)
    return most if least == most else f"{least} to {most}"


def line_of(row: Row) -> str:
    """Return the line of bystanders, such as cache_metrics eval.py:41."""
    name = row["python_function_name"]
    function = "" if name is None or name == "<module>" else f"{name} "
    return escape_control(function + str(row["source"]).rpartition("/")[2])


def lines(rows: Sequence[Row], width: int = WIDTH) -> list[str]:
    """Return the whole account of a profile and device as lines."""

    def wrapped(text: str) -> list[str]:
        return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)

    row = rows[0]
    of = f"{row['function_name']}: " if row["function_name"] is not None else ""
    text_lines = wrapped(escape_control(of) + sentence(rows))
    text_lines += [_barred(one) for one in rows if one["part"] == "bystander" and one["held_bytes"]]
    plan = [one for one in rows if one["part"] in _OF_PLAN and one["held_bytes"]]
    if plan and row["plan_bytes"] is not None:
        parts = (f"{_OF_PLAN[one['part']]} {human_bytes(one['held_bytes'])}" for one in plan)
        text_lines += wrapped(f"the plan: {', '.join(parts)}")
    if row["process_ratio"] is not None:
        size = human_bytes(row["process_bytes"])
        most = "" if row["low_bystander_bytes"] == row["bystander_bytes"] else "at the most "
        times = f"{row['process_ratio']:.3g} times the plan"
        limit = row["limit_bytes"]
        of = (
            f", {human_ratio(row['process_bytes'] / limit)} of {human_bytes(limit)}"
            if limit
            else ""
        )
        text_lines += wrapped(f"while it runs the process holds {most}{size}, {times}{of}")
    text_lines += wrapped(_allocator(rows)) if _allocator(rows) else []
    if row["arguments_unknown_reason"] is not None and row["alive_bytes"]:
        why = row["arguments_unknown_reason"]
        text_lines += wrapped(f"which arrays are arguments is not known: {why}")
    return text_lines


def _allocator(rows: Sequence[Row]) -> str:
    """Return what the allocator of the device holds beyond arrays; '' if it does not say."""
    held = {row["part"]: row["held_bytes"] for row in rows}
    is_with_code = any(row["part"] == "rest" and row["low_bytes"] == 0 for row in rows)
    amounts = []
    if "code" in held:
        amounts.append(f"code {human_bytes(held['code'])}")
    if "rest" in held:
        of = " with code, whose size is not known" if is_with_code else ""
        amounts.append(f"in use beyond {human_bytes(held['rest'])}{of}")
    if "free" in held:
        amounts.append(f"free {human_bytes(held['free'])}")
    if "split" in held:
        amounts.append(f"{human_bytes(held['split'])} of it not in the largest free block")
    return f"the allocator: {', '.join(amounts)}" if amounts else ""


def _barred(row: Row) -> str:
    count = f" ({row['array_count']} arrays)" if row["array_count"] > 1 else ""
    return shorten(f"{human_bytes(row['held_bytes']):>10}  {line_of(row)}{count}", WIDTH)


def text(rows_of_accounts: Sequence[Sequence[Row]]) -> list[str]:
    """Return accounts as lines, with the device before each if there are several."""
    shown = []
    for rows in rows_of_accounts:
        shown += [f"{escape_control(str(rows[0]['device']))}:"] if len(rows_of_accounts) > 1 else []
        shown += lines(rows)
    return shown
