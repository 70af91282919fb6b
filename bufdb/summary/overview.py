"""What was compiled, and what holds the highest peak: answers of saved queries, put together.

Invariant: a figure is a cell of a view or of a saved query; only shares are computed here, and
counts of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bufdb.query import execute
from bufdb.query.asked import about
from bufdb.query.asked.spaces import ALL
from bufdb.query.asked.texts import glob as glob
from bufdb.query.catalogue import Catalogue
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result
from bufdb.summary.devices import Device, device

Row = dict[str, Any]

QUERIES = {
    "categories": ("peak-by-category", 50),
    "lines": ("peak-by-source-line", 5),
    "advice": ("advice", 2),
    "savings": ("savings", 1),
}
"""Parts of the summary: the query that has them, its top_n; savings where there is no advice."""
LIMITED = (0, None)
"""Memory spaces that a limit is of: the device's large memory, whatever a module holds there."""
DEVICE_LABEL = "device"
"""Label or metadata of a run that says on which device its programs run."""

_FUNCTIONS = """
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.memory_space_name, functions.module_id, modules.module_key, functions.peak_bytes,
  functions.is_device_memory, functions.need_bytes, functions.max_need_bytes,
  functions.module_count, functions.unknown_count, functions.unknown_reason
FROM asked_functions AS functions
JOIN modules ON modules.module_id = functions.module_id
ORDER BY
  functions.peak_bytes IS NULL, functions.need_bytes DESC NULLS LAST,
  functions.peak_bytes DESC NULLS LAST, functions.run_name, functions.function_name,
  functions.platform NULLS LAST, functions.color NULLS LAST
"""
_DEVICES = """
SELECT DISTINCT label_value FROM run_labels WHERE label = ? AND run_name = ?
"""
_MESSAGES = """
SELECT diagnostics.module_id, diagnostics.code, diagnostics.message
FROM diagnostics
JOIN asked_modules ON asked_modules.module_id = diagnostics.module_id
WHERE diagnostics.code IN ('memory_limit', 'out_of_memory', 'peak_at_least')
ORDER BY asked_modules.module_key, diagnostics.code
"""


@dataclass
class Overview:
    """What a summary says; bytes are exact."""

    counts: Row
    """run_count, module_count, function_count, platforms of the modules asked about."""
    peak: Row | None = None
    """The function with the largest need of those whose peak is known; None if none is known."""
    largest: Row | None = None
    """The one with the largest need of all in the memory that a limit is of, whose peak may be
    unknown; None if no need is known."""
    others: list[Row] = field(default_factory=list)
    """The same function in other memory spaces; capacity_bytes, also of `peak`, is what each has
    room for, NULL where that is not known."""
    unknown: list[Row] = field(default_factory=list)
    """Functions of which a peak is unknown, so that a higher one may be among them."""
    limit_bytes: int | None = None
    limit_name: str | None = None
    """The device that the limit is of; None if it is a size."""
    parts: dict[str, list[Row]] = field(default_factory=dict)
    """Rows of the queries of QUERIES."""
    findings: list[Row] = field(default_factory=list)
    """severity, code, finding_count of diagnostics, worst first."""

    out_of_memory: dict[str, str] = field(default_factory=dict)
    """What an out-of-memory message says of its figures (`memory_limit`), whether the peak is a
    lower bound (`peak_at_least`), and what to do (`out_of_memory`); empty without a message."""

    @property
    def limit_ratio(self) -> float | None:
        """What a device must hold, as share of the limit."""
        if self.largest is None or not self.limit_bytes:
            return None
        return float((need(self.largest) or 0) / self.limit_bytes)


def need(row: Row) -> int | None:
    """What a device must hold for a function: for all its compilations, or at least for one.

    An out-of-memory message may say the peak alone, which is needed at least.
    """
    known: list[int | None] = [row["max_need_bytes"], row["need_bytes"], row["peak_bytes"]]
    return next((size for size in known if size is not None), None)


def queries(catalogue: Catalogue, parts: tuple[str, ...]) -> dict[str, SavedQuery]:
    """The saved queries of some parts."""
    return {part: catalogue.find(QUERIES[part][0]) for part in parts}


def sql_of(parts: Mapping[str, SavedQuery]) -> str:
    """All SQL that `overview` executes, from which `open_readable` sees which views it needs."""
    return "\n".join(
        [
            about.COUNTS,
            _FUNCTIONS,
            about.FINDINGS,
            _DEVICES,
            _MESSAGES,
            *(q.sql for q in parts.values()),
        ]
    )


def overview(
    con: duckdb.DuckDBPyConnection,
    parts: Mapping[str, SavedQuery],
    asked: Mapping[str, Value],
    limit_bytes: int | None = None,
    limit_name: str | None = None,
    *,
    top_n: int | None = None,
) -> Overview:
    """The summary of the modules that `asked` (run, function, module: globs) leaves.

    `top_n` is the number of rows of each part, else that of QUERIES.
    Without a limit the device's that the run is labelled with counts, if it is a known one.
    """

    def rows(sql: str) -> list[Row]:
        return _rows(con, sql, asked)

    found = Overview(rows(about.COUNTS)[0], limit_bytes=limit_bytes, limit_name=limit_name)
    here = rows(_FUNCTIONS)
    found.unknown = [row for row in here if row["unknown_reason"] is not None]
    found.findings = rows(about.FINDINGS)
    found.peak = next((row for row in here if row["peak_bytes"] is not None), None)
    found.out_of_memory = _of_a_message(rows(_MESSAGES), found.peak)
    limited = [row for row in here if row["color"] in LIMITED and need(row) is not None]
    found.largest = max(limited, key=lambda row: need(row) or 0, default=None)
    known = None if limit_name is None else device(limit_name)
    of = found.largest or found.peak
    if known is None and of is not None:
        names = con.execute(_DEVICES, [DEVICE_LABEL, of["run_name"]]).fetchall()
        known = device(names[0][0]) if names else None
        if known is not None and limit_bytes is None:
            found.limit_bytes, found.limit_name = known.memory_bytes, known.name
    if found.peak is None:
        return found
    one = {name: glob(found.peak[name]) for name in ("run_name", "function_name")}
    values: dict[str, Value] = {**asked, "run": one["run_name"], "function": one["function_name"]}
    if found.peak["platform"] is not None:
        values["platform"] = found.peak["platform"]
    spaces = _rows(con, _FUNCTIONS, {**values, "color": ALL})
    found.others = [
        row
        for row in spaces
        if row["color"] != found.peak["color"] and row["platform"] == found.peak["platform"]
    ]
    for row in (found.peak, *found.others):
        row["capacity_bytes"] = _capacity(row, found.limit_bytes, known)
    values["color"] = str(found.peak["color"])
    for part, query in parts.items():
        if part == "savings" and found.parts.get("advice"):
            continue
        values["top_n"] = QUERIES[part][1] if top_n is None else top_n
        found.parts[part] = [
            row
            for row in _as_rows(execute.execute_query(con, query, values))
            # Of a known peak a reason says why nothing can be advised.
            if row["unknown_reason"] is None or row.get("peak_bytes") is not None
        ]
    return found


def _capacity(row: Row, limit_bytes: int | None, known: Device | None) -> int | None:
    """What a memory space has room for [bytes]; None if that is not known."""
    if row["color"] in LIMITED:
        return limit_bytes
    if known is None or known.filled is None or row["platform"] != "tpu":
        return None
    color, _, size = known.filled
    return size if row["color"] == color else None


def _of_a_message(said: list[Row], peak: Row | None) -> dict[str, str]:
    """What the message says whose peak it is, else the first: by code."""
    ids = [row["module_id"] for row in said]
    chosen = next((number for number in ids if peak and number == peak["module_id"]), None)
    found = {
        row["code"]: row["message"]
        for row in said
        if row["module_id"] == (ids[0] if chosen is None else chosen)
    }
    if chosen is None:
        found.pop("peak_at_least", None)  # of another peak
    return found


def _rows(con: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Value]) -> list[Row]:
    return _as_rows(execute.execute_with(con, sql, values, "summary"))


def _as_rows(result: Result) -> list[Row]:
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]
