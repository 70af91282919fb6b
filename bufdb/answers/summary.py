"""`bufdb summary` and `explain`: the highest peak, what holds it, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from bufdb.answers import growth, kernels, pool, process
from bufdb.answers.devices import Device, device, limit_of, with_share
from bufdb.answers.opening import Open
from bufdb.database import narrowing
from bufdb.database.definitions import CATALOG
from bufdb.database.engine import duckdb
from bufdb.errors import UsageError
from bufdb.query import execute
from bufdb.query.catalogue import Catalogue
from bufdb.query.catalogue import own as own_queries
from bufdb.query.header import SavedQuery, Value
from bufdb.query.parameters import ALL, COUNTS, FINDINGS, NOTED, Known, glob, numbered, why_nothing
from bufdb.query.result import Result

# -- What was compiled, and what holds the highest peak: answers of saved queries, put together ----
#
# Invariant: a figure is a cell of a view or of a saved query; only shares are computed here, and
# counts of rows.

Row = dict[str, Any]

QUERIES = {
    "categories": ("peak-by-category", 50),
    "lines": ("peak-by-source-line", 5),
    "library_lines": ("library-lines", 5),
    "advice": ("advice", 2),
    "savings": ("savings", 1),
}
"""By part of the summary: its query and top_n; savings only where there is no advice, library_lines
only where one line holds more than half of the peak."""
MOST_OF_STEP = 3
"""Lines of the training step, where it is not the highest program."""
MOST_BYSTANDERS = 3
"""Lines of each account of a process."""
LIMITED = (0, None)
"""Colors of memory spaces that a limit applies to: the device's main memory."""
FUNCTION = ("run_name", "function_name", "platform", "color")
"""Columns of all parts that name the function and memory space."""
_RELATION = "^(?:saved|slice of|copy of|for) "
"""What comes before a line that data is only attributed to."""
DEVICE_LABEL = "device"
"""Label or metadata of a run that names the device its programs run on."""
FRACTION_LABEL = "memory_fraction"
"""Label or metadata of a run with the share of a GPU's memory that JAX takes."""

_FUNCTIONS = """
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.memory_space_name, functions.module_id, functions.module_key, functions.peak_bytes,
  functions.is_device_memory, functions.need_bytes, functions.max_need_bytes,
  functions.module_count, functions.unknown_count, functions.unknown_reason
FROM asked_functions AS functions
ORDER BY
  functions.peak_bytes IS NULL, functions.need_bytes DESC NULLS LAST,
  functions.peak_bytes DESC NULLS LAST, functions.run_name, functions.function_name,
  functions.platform NULLS LAST, functions.color NULLS LAST
"""
COMPILATIONS = """
SELECT
  asked.run_name, asked.module_key AS function_name, asked.platform, asked.color,
  asked.memory_space_name, asked.is_device_memory, asked.module_id, asked.module_key,
  1 AS module_count, CASE WHEN asked.peak_unknown_reason IS NULL THEN 0 ELSE 1 END AS unknown_count,
  asked.peak_unknown_reason AS unknown_reason, asked.argument_bytes, asked.output_bytes,
  asked.alias_bytes, asked.temp_bytes, asked.constant_bytes, asked.thread_local_bytes,
  asked.total_bytes, asked.need_bytes, asked.need_bytes AS max_need_bytes, asked.peak_bytes,
  asked.peak_time, asked.fragmentation_bytes,
  coalesce(asked.function_name, asked.module_key) AS known_name
FROM asked_modules AS asked
"""
"""The columns of asked_functions for each compilation, named by its module's key."""
_BY_NEED = """
ORDER BY
  asked.peak_bytes IS NULL, asked.need_bytes DESC NULLS LAST, asked.peak_bytes DESC NULLS LAST,
  asked.color NULLS LAST
"""
_DEVICES = """
SELECT
  min(CASE WHEN label = ? THEN label_value END) AS device_name,
  min(CASE WHEN label = ? THEN label_value END) AS memory_fraction
FROM run_labels
WHERE run_name = ?
"""
_GRADIENTS = """
SELECT DISTINCT module_id FROM instructions
WHERE module_id IN ({modules}) AND is_backward(op_name)
"""
"""Modules as numbers: to plan a list of them as a join takes 3 ms."""
_RUNS = """
SELECT module_id, max(run_count) FROM instruction_times
WHERE module_id IN (SELECT unnest($modules))
GROUP BY module_id
"""
_MESSAGES = """
SELECT diagnostics.module_id, diagnostics.code, diagnostics.message
FROM diagnostics
JOIN asked_modules ON asked_modules.module_id = diagnostics.module_id
WHERE diagnostics.code IN ('memory_limit', 'out_of_memory', 'compiled', 'peak_at_least',
  'memory_not_reduced', 'arguments_exceed_limit', 'involuntary_rematerialization', 'autotuned')
ORDER BY asked_modules.module_key, diagnostics.code, diagnostics.message
"""


@dataclass(eq=False, repr=False)
class Overview:
    """The content of a summary; bytes are exact."""

    counts: Row
    """run_count, module_count, function_count and platforms of the selected modules."""
    peak: Row | None = None
    """The function with the largest need among those with a known peak; None if there is none."""
    largest: Row | None = None
    """The one with the largest need of all in the memory that a limit applies to; its peak may be
    unknown. None if no need is known."""
    others: list[Row] = field(default_factory=list)
    """The same function in other memory spaces; capacity_bytes, also in `peak`, is the size of the
    space, None where not known."""
    steps: list[Row] = field(default_factory=list)
    """Functions of the run that take a gradient, with run_count (None without a profile), largest
    first; empty if the highest one takes one, or without parts."""
    unknown: list[Row] = field(default_factory=list)
    """Functions with an unknown peak, which may be higher than the known ones."""
    labeled: Device | None = None
    """The device that the run is labeled with, if it is known."""
    memory_fraction: str | None = None
    """The share of a GPU's memory that the run is labeled with: text of JAX's variable."""
    device: Device | None = None
    """The device that the limit is the memory of."""
    limit_bytes: int | None = None
    limit_name: str | None = None
    """The device that the limit is the memory of; None if the limit is a size."""
    parts: dict[str, list[Row]] = field(default_factory=dict)
    """Rows of the queries of QUERIES."""
    findings: list[Row] = field(default_factory=list)
    """severity, code, finding_count of diagnostics, worst first."""
    accounts: list[list[Row]] = field(default_factory=list)
    """Of each memory profile and device the rows of the query process."""
    pools: list[list[Row]] = field(default_factory=list)
    """Of each memory profile or log and device the rows of the query pool."""
    kernels: list[Row] = field(default_factory=list)
    """Rows of the query kernels, of the shown run; those of the program are first."""
    growth: list[Row] = field(default_factory=list)
    """Rows of the query process-growth that may be leaks."""
    copies: list[Row] = field(default_factory=list)
    """Programs that a process has loaded many times."""
    moments: list[Row] = field(default_factory=list)
    """Bytes of processes at their snapshots."""

    out_of_memory: dict[str, str] = field(default_factory=dict)
    """From a message in a log: its figures (`memory_limit`), a note if the peak is a lower bound
    (`peak_at_least`), and what to do (`out_of_memory`, or `compiled` where nothing failed)."""

    @property
    def limit_ratio(self) -> float | None:
        """The need as a share of the limit."""
        if self.largest is None or not self.limit_bytes:
            return None
        return float((need(self.largest) or 0) / self.limit_bytes)


def need(row: Row) -> int | None:
    """Return the bytes that a device must hold for a function: the maximum of its compilations.

    Else that of one compilation, or the peak: an out-of-memory message may give only that.
    """
    known: list[int | None] = [row["max_need_bytes"], row["need_bytes"], row["peak_bytes"]]
    return next((size for size in known if size is not None), None)


def queries(catalogue: Catalogue, parts: tuple[str, ...]) -> dict[str, SavedQuery]:
    """Return the saved queries of some parts."""
    return {part: catalogue.find(QUERIES[part][0]) for part in parts}


def sql_of(parts: Mapping[str, SavedQuery]) -> str:
    """Return all SQL that `overview` executes; `open_readable` derives the views it needs."""
    return "\n".join(
        [
            COUNTS,
            _FUNCTIONS,
            FINDINGS,
            _DEVICES,
            _MESSAGES,
            *([_GRADIENTS, _RUNS] if parts else []),
            process.HAS_PROFILES,
            process.query().sql,
            pool.HAS_LIMITS,
            pool.query().sql,
            kernels.HAS_ROWS,
            kernels.query().sql,
            growth.HAS_SNAPSHOTS,
            growth.query().sql,
            growth.COPIES,
            growth.CURVE,
            *(q.sql for q in parts.values()),
        ]
    )


def overview(  # long: a line for each part of the screen
    con: duckdb.DuckDBPyConnection,
    parts: Mapping[str, SavedQuery],
    filters: Mapping[str, Value],
    limit_bytes: int | None = None,
    limit_name: str | None = None,
    *,
    top_n: int | None = None,
    is_last: bool = False,
) -> Overview:
    """Return the summary of the modules that `filters` (run, function, module: globs) selects.

    `top_n` is the number of rows of each part, by default that of QUERIES. `is_last` says that the
    connection answers nothing after it (`narrowing.computed`).
    Without a limit, that of the device that the run is labeled with applies, if it is known.
    """

    def rows(sql: str) -> list[Row]:
        return _rows(con, sql, filters)

    with execute.of_asked(con, filters) as in_all_spaces:
        result = Overview(rows(COUNTS)[0])
        is_noted = execute.have_rows(con, NOTED)
        result.findings = rows(FINDINGS) if is_noted else []
        messages = rows(_MESSAGES) if is_noted else []
        with in_all_spaces():
            spaces = _rows(con, _FUNCTIONS, {**filters, "color": ALL})
    here = [row for row in spaces if _is_asked(row, filters.get("color"))]
    result.unknown = [row for row in here if row["unknown_reason"] is not None]
    result.accounts = process.accounts(con, filters, top_n or MOST_BYSTANDERS)
    result.pools = pool.accounts(con, filters)
    result.growth = growth.rows(con, filters, top_n or MOST_BYSTANDERS)
    if result.accounts:
        result.copies = growth.copies(con, filters)
        result.moments = growth.moments(con, filters)
    result.kernels = kernels.rows(con, filters)
    result.peak = next((row for row in here if row["peak_bytes"] is not None), None)
    result.out_of_memory = _of_a_message(messages, result.peak)
    limited = [row for row in here if row["color"] in LIMITED and need(row) is not None]
    result.largest = max(limited, key=lambda row: need(row) or 0, default=None)
    of = result.largest or result.peak
    if of is not None:
        result.labeled, result.memory_fraction = _labeled(con, of["run_name"])
    if result.peak is None:
        set_limit(result, limit_bytes, limit_name)
        return result
    one = {name: glob(result.peak[name]) for name in ("run_name", "function_name")}
    values: dict[str, Value] = {**filters, "run": one["run_name"], "function": one["function_name"]}
    if result.peak["platform"] is not None:
        values["platform"] = result.peak["platform"]
    result.others = [
        row
        for row in spaces
        if row["color"] != result.peak["color"]
        and all(row[name] == result.peak[name] for name in FUNCTION[:3])
    ]
    set_limit(result, limit_bytes, limit_name)
    values["color"] = str(result.peak["color"])
    if parts:
        result.steps = _steps(con, here).get(_space(result.peak), [])
    is_last = is_last and not result.steps
    place = result.peak["module_id"], result.peak["color"]
    with execute.of_function(con, list(parts.values()), values, *place, is_last=is_last):
        for part, query in parts.items():
            if part == "savings" and result.parts.get("advice"):
                continue
            if part == "library_lines" and not is_of_one_line(result):
                continue
            top = QUERIES[part][1] if top_n is None else top_n
            settings: dict[str, Value] = {"top_n": top}
            if top_n is None and query.param("rank_by") is not None:
                # A summary says what lowers the peak most, whatever that costs.
                settings["rank_by"] = "saving"
            answer = execute.execute_prepared(con, query, settings)
            result.parts[part] = [row for row in _as_rows(answer) if _is_known(row)]
    _keep_of_one_line(result)
    if result.steps and "lines" in parts:
        step = result.steps[0]
        settings = {**values, "top_n": MOST_OF_STEP, "function": glob(step["function_name"])}
        rows_of_step = _as_rows(execute.execute_query(con, parts["lines"], settings))
        result.parts["step_lines"] = [row for row in rows_of_step if _is_known(row)]
    return result


def steps(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> list[Row]:
    """Return the highest function that takes a gradient of each run, platform and memory space.

    As in `Overview.steps`; none where the highest function takes one.
    """
    rows = _rows(con, _FUNCTIONS, {**filters, "color": ALL})
    return [of_space[0] for of_space in _steps(con, rows).values()]


def _steps(con: duckdb.DuckDBPyConnection, here: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the functions that take a gradient by space, unless the highest one does.

    Args:
        con: the database.
        here: rows of _FUNCTIONS, in their order.
    """
    spaces: dict[tuple[Any, ...], list[Row]] = {}
    for row in here:
        if row["peak_bytes"]:
            spaces.setdefault(_space(row), []).append(row)
    taking = _taking(con, [rows[0] for rows in spaces.values() if len(rows) > 1])
    others = [rows for rows in spaces.values() if rows[0]["module_id"] not in taking]
    known = [row for rows in others if len(rows) > 1 for row in rows[1:]]
    taking = _taking(con, known)
    counts = dict(con.execute(_RUNS, {"modules": sorted(taking)}).fetchall()) if taking else {}
    by_space: dict[tuple[Any, ...], list[Row]] = {}
    for row in known:
        if row["module_id"] in taking:
            step = {**row, "run_count": counts.get(row["module_id"])}
            by_space.setdefault(_space(row), []).append(step)
    return by_space


def _is_asked(row: Row, color: Value) -> bool:
    """Return whether a row of _FUNCTIONS is of a memory space that is asked for (asked_spaces)."""
    if row["color"] is None or color == ALL:
        return True
    return bool(row["is_device_memory"]) if color is None else str(row["color"]) == str(color)


def _space(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("run_name", "platform", "color"))


def _taking(con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> set[int]:
    """Return the modules of some rows that take a gradient."""
    modules = sorted({row["module_id"] for row in rows})
    if not modules:
        return set()
    sql = _GRADIENTS.format(modules=", ".join(map(str, modules)))
    return {number for (number,) in con.execute(sql).fetchall()}


def is_of_one_line(one: Overview) -> bool:
    """Return whether more than half of the highest peak is attributed to one line of the user's."""
    held: dict[str, int] = {}
    for row in one.parts.get("lines", []):
        place = re.sub(_RELATION, "", row["source"])
        if not place.startswith(("library ", "(")):
            held[place] = held.get(place, 0) + row["held_bytes"]
    peak = 0 if one.peak is None else one.peak["peak_bytes"]
    return max(held.values(), default=0) * 2 > peak


def _keep_of_one_line(one: Overview) -> None:
    """Remove library lines, except several of a line that holds more than half of the peak."""
    rows = one.parts.get("library_lines", [])
    rows = [row for row in rows if row["source_bytes"] * 2 > row["peak_bytes"]]
    if len(rows) > 1:
        one.parts["library_lines"] = rows
    else:
        one.parts.pop("library_lines", None)


def set_limit(one: Overview, limit_bytes: int | None, limit_name: str | None) -> None:
    """Compare a summary with a limit, or else with the device that the run is labeled with."""
    known = None if limit_name is None else device(limit_name)
    known = known or one.labeled
    if known is not None and one.memory_fraction is not None:
        known = with_share(known, one.memory_fraction)
    if known is not None and (limit_bytes is None or limit_name is not None):
        limit_bytes, limit_name = known.memory_bytes, known.name
    one.limit_bytes, one.limit_name = limit_bytes, limit_name
    one.device = None if limit_name is None else known
    for row in [] if one.peak is None else [one.peak, *one.others]:
        row["capacity_bytes"] = _capacity(row, limit_bytes, known)


def _labeled(con: duckdb.DuckDBPyConnection, run: str) -> tuple[Device | None, str | None]:
    """Return the device that a run is labeled with, and the share of its memory."""
    if narrowing.is_empty(con, "run_labels"):
        return None, None
    values = [DEVICE_LABEL, FRACTION_LABEL, run]
    ((name, fraction),) = con.execute(_DEVICES, values).fetchall()
    return (None if name is None else device(name)), fraction


Place = tuple[int, int | None]
"""A module in one memory space: module_id and color."""


def each(con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value]) -> dict[Place, Overview]:
    """Return the summary of each selected module in each memory space, without parts or limit.

    It is that of the module's function for the compilation which answers show, and of the module
    alone for others; without counts and findings, which are about all modules.
    """
    values = {**filters, "color": ALL}
    devices: dict[str, tuple[Device | None, str | None]] = {}
    messages: dict[int, list[Row]] = {}
    for row in _rows(con, _MESSAGES, values):
        messages.setdefault(row["module_id"], []).append(row)
    overviews: dict[Place, Overview] = {}
    for sql, key in (
        (f"{COMPILATIONS}{_BY_NEED}", ("module_id",)),
        (_FUNCTIONS, ("run_name", "function_name", "platform")),
    ):
        spaces: dict[tuple[Any, ...], list[Row]] = {}
        for row in _rows(con, sql, values):
            row["function_name"] = row.get("known_name", row["function_name"])
            spaces.setdefault(tuple(row[name] for name in key), []).append(row)
        for rows in spaces.values():
            for row in rows:
                run = row["run_name"]
                if run not in devices:
                    devices[run] = _labeled(con, run)
                one = _alone(row, rows, messages.get(row["module_id"], []))
                one.labeled, one.memory_fraction = devices[run]
                overviews[row["module_id"], row["color"]] = one
    return overviews


def _alone(row: Row, spaces: Sequence[Row], messages: list[Row]) -> Overview:
    """Return the summary of one function or module, whose memory spaces are `spaces`."""
    # Each summary sets the size of the spaces in rows of its own.
    row, spaces = dict(row), [dict(other) for other in spaces if other is not row]
    result = Overview({}, others=spaces)
    result.peak = None if row["peak_bytes"] is None else row
    result.largest = row if row["color"] in LIMITED and need(row) is not None else None
    result.unknown = [row] if row["unknown_reason"] is not None else []
    result.out_of_memory = _of_a_message(messages, result.peak)
    return result


def add_parts(
    con: duckdb.DuckDBPyConnection,
    parts: Mapping[str, SavedQuery],
    overviews: Sequence[Overview],
    *,
    are_alone: bool = False,
) -> None:
    """Add the parts to the summaries of many functions, from one execution of each query.

    Within `execute.together` of these queries; with `are_alone`, where COMPILATIONS are functions.
    """
    name = "module_key" if are_alone else "function_name"
    by_function = {
        _function({**one.peak, "function_name": one.peak[name]}): one
        for one in overviews
        if one.peak is not None
    }
    keys = ", ".join([*FUNCTION, "unknown_reason IS NULL"])
    for part, query in parts.items():
        if part == "library_lines" and not any(map(is_of_one_line, by_function.values())):
            continue
        values: dict[str, Value] = {"top_n": QUERIES[part][1]}
        if query.param("rank_by") is not None:
            values["rank_by"] = "saving"
        result = execute.execute_each(con, query, values, keys, QUERIES[part][1])
        for one in by_function.values():
            one.parts.setdefault(part, [])
        for row in _as_rows(result):
            summary_of = by_function.get(_function(row))
            if summary_of is not None and _is_known(row):
                summary_of.parts[part].append(row)
    for one in by_function.values():
        if one.parts.get("advice"):
            one.parts.pop("savings", None)
        _keep_of_one_line(one)


def _function(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in FUNCTION)


def _is_known(row: Row) -> bool:
    """Return whether a row is an answer, or the reason why a known peak has no advice."""
    return row["unknown_reason"] is None or row.get("peak_bytes") is not None


def _capacity(row: Row, limit_bytes: int | None, known: Device | None) -> int | None:
    """Return the size of a memory space [bytes]; None if not known."""
    if row["color"] in LIMITED:
        return limit_bytes
    if known is None or known.filled is None or row["platform"] != "tpu":
        return None
    color, _, size = known.filled
    return size if row["color"] == color else None


def _of_a_message(messages: list[Row], peak: Row | None) -> dict[str, str]:
    """Return the parts, by code, of the message that gave the peak, else of the first."""
    ids = [row["module_id"] for row in messages]
    chosen = next((number for number in ids if peak and number == peak["module_id"]), None)
    parts: dict[str, str] = {}
    of_module = [
        row for row in messages if row["module_id"] == (ids[0] if chosen is None else chosen)
    ]
    for code, some in groupby(of_module, key=lambda row: str(row["code"])):
        first, *more = (str(row["message"]) for row in some)
        parts[code] = first + (f" ({len(more)} more: 'bufdb query diagnostics')" if more else "")
    if chosen is None:
        parts.pop("peak_at_least", None)  # of another peak
    return parts


def _rows(con: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Value]) -> list[Row]:
    return _as_rows(execute.execute_with(con, sql, values, "summary"))


def _as_rows(result: Result) -> list[Row]:
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


# -- `summary` as an answer: the highest peak of the selected modules, and what holds it -----------


class Summary(NamedTuple):
    """The content of one screen."""

    overview: Overview
    note: str | None
    """Why there is nothing to show; None if there is something."""


def summary(
    opened: Open,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
    color: int | str | None = None,
    limit: int | str | None = None,
    names: Sequence[str] = tuple(QUERIES),
    top_n: int | None = None,
) -> Summary:
    """Return the summary of the modules that the globs select, against `limit` (see `limit_of`).

    It has all parts, or those in `names`, with `top_n` rows each.

    Raises:
        UsageError: the limit is not valid.
    """
    limits = limit_of(limit)
    space = None if color is None else str(color)
    globs = {"run": run, "function": function, "module": module, "color": space}
    filters: dict[str, Value] = {name: text for name, text in globs.items() if text is not None}
    catalogue = own_queries()
    parts = queries(catalogue, tuple(names))
    for query in parts.values():
        for name in filters:
            if query.param(name) is None:
                raise UsageError(f"summary: --{name} is not a parameter of the query {query.name}")
    con = opened(sql_of(parts), runs=None if run is None else [run])
    for query in list(parts.values())[:1]:
        filters = numbered(con, query, filters)
    with execute.of_figures(con):
        answer = overview(con, parts, filters, *limits, top_n=top_n, is_last=True)
    if answer.counts["module_count"] or answer.accounts or answer.pools:
        return Summary(answer, None)
    return Summary(answer, why_nothing(Known(con, CATALOG), catalogue.find("modules"), filters))
