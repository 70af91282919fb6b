"""What was compiled, and what holds the highest peak: answers of saved queries, put together.

Invariant: a figure is a cell of a view or of a saved query; only shares are computed here, and
counts of rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bufdb.query import execute
from bufdb.query.asked import about
from bufdb.query.catalogue import Catalogue
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result
from bufdb.summary.devices import device

Row = dict[str, Any]

QUERIES = {
    "categories": ("peak-by-category", 50),
    "lines": ("peak-by-source-line", 5),
    "advice": ("advice", 2),
}
"""Parts of the summary: the query that has them, and its top_n."""
DEFAULT_COLOR = 0
"""The device's own memory on every platform; the others are on the chip or on the host."""
DEVICE_LABEL = "device"
"""Label or metadata of a run that says on which device its programs run."""

_FUNCTIONS = """
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  memory_spaces.memory_space_name, functions.module_id, modules.module_key, functions.peak_bytes,
  functions.module_count, functions.unknown_count, functions.unknown_reason
FROM asked_functions AS functions
JOIN modules ON modules.module_id = functions.module_id
LEFT JOIN memory_spaces
  ON memory_spaces.platform = functions.platform AND memory_spaces.color = functions.color
ORDER BY
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
    """The function with the highest known peak; None if none is known."""
    others: list[Row] = field(default_factory=list)
    """The same function's peaks in other memory spaces."""
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
        """The peak as share of the limit."""
        if self.peak is not None and self.peak["color"] not in (DEFAULT_COLOR, None):
            return None  # the limit is of the device's own memory
        if self.peak is None or not self.limit_bytes:
            return None
        return float(self.peak["peak_bytes"] / self.limit_bytes)


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
) -> Overview:
    """The summary of the modules that `asked` (run, function, module: globs) leaves.

    Without a limit the device's that the run is labelled with counts, if it is a known one.
    """

    def rows(sql: str) -> list[Row]:
        return _rows(con, sql, asked)

    found = Overview(rows(about.COUNTS)[0], limit_bytes=limit_bytes, limit_name=limit_name)
    functions = rows(_FUNCTIONS)
    here = [row for row in functions if row["color"] in (DEFAULT_COLOR, None)] or functions
    found.unknown = [row for row in here if row["unknown_reason"] is not None]
    found.findings = rows(about.FINDINGS)
    found.peak = next((row for row in here if row["peak_bytes"] is not None), None)
    found.out_of_memory = _of_a_message(rows(_MESSAGES), found.peak)
    if found.peak is None:
        return found
    same = ("run_name", "function_name", "platform")
    found.others = [
        row
        for row in functions
        if row is not found.peak and all(row[name] == found.peak[name] for name in same)
    ]
    if limit_bytes is None:
        names = con.execute(_DEVICES, [DEVICE_LABEL, found.peak["run_name"]]).fetchall()
        known = device(names[0][0]) if names else None
        if known is not None:
            found.limit_bytes, found.limit_name = known.memory_bytes, known.name
    one = {name: glob(found.peak[name]) for name in ("run_name", "function_name")}
    values: dict[str, Value] = {
        **asked,
        "run": one["run_name"],
        "function": one["function_name"],
        "color": found.peak["color"] or DEFAULT_COLOR,
    }
    if found.peak["platform"] is not None:
        values["platform"] = found.peak["platform"]
    for part, query in parts.items():
        values["top_n"] = QUERIES[part][1]
        found.parts[part] = [
            row
            for row in _as_rows(execute.execute_query(con, query, values))
            # Of a known peak a reason says why nothing can be advised.
            if row["unknown_reason"] is None or row.get("peak_bytes") is not None
        ]
    return found


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


def glob(name: str) -> str:
    """A glob that a name alone matches: in brackets each character stands for itself."""
    return re.sub(r"[*?[]", lambda found: f"[{found[0]}]", name)
