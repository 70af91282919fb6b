"""The modules that a page lists, and two runs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from bufdb.answers import diff
from bufdb.database.engine import duckdb
from bufdb.errors import UsageError, quote
from bufdb.query import execute
from bufdb.query.header import Value
from bufdb.query.parameters import ALL, COUNTS, FINDINGS, glob

# -- The modules that a page lists, one row for each memory space, with the figures of each --------
#
# Invariant: a figure is a cell of `asked_modules`, which `bufdb query modules --color all` shows.

DEVICE_LABEL = "device"
"""Label or metadata of a run that names the device its programs run on."""

MODULES_SQL = f"""
SELECT
  asked.module_id,
  asked.run_name,
  coalesce(asked.function_name, asked.module_key) AS function_name,
  asked.module_key,
  asked.platform,
  asked.color,
  coalesce(asked.memory_space_name, 'color ' || asked.color) AS memory_space,
  asked.peak_bytes,
  asked.peak_time,
  coalesce(modules.schedule_length, 0) AS schedule_length,
  asked.occupied_temp_bytes,
  asked.fixed_bytes,
  asked.argument_bytes,
  asked.output_bytes,
  asked.alias_bytes,
  asked.constant_bytes,
  asked.temp_bytes,
  asked.total_bytes,
  asked.fragmentation_bytes,
  asked.need_bytes,
  asked.peak_unknown_reason,
  largest.module_id IS NOT NULL AS is_largest,
  coalesce(asked.is_device_memory, FALSE) AS is_device_memory,
  (
    SELECT min(run_labels.label_value)
    FROM run_labels
    WHERE run_labels.run_name = asked.run_name
      AND run_labels.label = '{DEVICE_LABEL}'
  ) AS device_name,
  (
    SELECT count(*)
    FROM "values"
    WHERE "values".module_id = asked.module_id
  ) AS value_count
FROM asked_modules AS asked
JOIN modules ON modules.module_id = asked.module_id
LEFT JOIN asked_functions AS largest
  ON largest.module_id = asked.module_id
  AND largest.color IS NOT DISTINCT FROM asked.color
ORDER BY
  asked.peak_bytes IS NULL, NOT coalesce(asked.is_device_memory, FALSE),
  asked.need_bytes DESC NULLS LAST, asked.peak_bytes DESC NULLS LAST, asked.run_name,
  function_name, asked.module_key, asked.color
"""

Filters = Mapping[str, Value]
"""Parameters of saved queries: globs run, function and module, and a platform."""


class Module(NamedTuple):
    """A module in one memory space; bytes are None where `memory_figures` has NULL."""

    module_id: int
    run_name: str
    function_name: str
    """The module's key if that is unknown."""
    module_key: str
    platform: str | None
    color: int | None
    """None for a module without allocations."""
    memory_space: str | None
    peak_bytes: int | None
    peak_time: int | None
    """[program order]."""
    schedule_length: int
    """The last instant [program order]; 0 without live ranges."""
    occupied_temp_bytes: int | None
    fixed_bytes: int | None
    argument_bytes: int | None
    output_bytes: int | None
    alias_bytes: int | None
    constant_bytes: int | None
    temp_bytes: int | None
    total_bytes: int | None
    fragmentation_bytes: int | None
    need_bytes: int | None
    unknown_reason: str | None
    """Why the peak is unknown."""
    is_largest: bool
    """Whether saved queries answer for this compilation of the function (asked_functions)."""
    is_device_memory: bool
    """Whether it is the memory of the device, to which a limit applies."""
    device_name: str | None
    """The device that the run is labeled with."""
    value_count: int
    """Values in all memory spaces."""

    @property
    def place(self) -> tuple[int, int | None]:
        """The key that identifies it."""
        return self.module_id, self.color

    @property
    def function(self) -> tuple[str, str, str | None, int | None]:
        """The key of the function in answers of saved queries."""
        return self.run_name, self.function_name, self.platform, self.color


def modules(con: duckdb.DuckDBPyConnection, filters: Filters) -> list[Module]:
    """Return the selected modules, in every memory space.

    Those in the memory of the device come first, by descending need; unknown peaks last.
    """
    values: dict[str, Value] = {"color": ALL, **filters}
    return [Module(*row) for row in execute.execute_with(con, MODULES_SQL, values, "report").rows]


def counts(con: duckdb.DuckDBPyConnection, filters: Filters) -> dict[str, int | str | None]:
    """Return run_count, module_count, function_count and platforms of the selected modules."""
    result = execute.execute_with(con, COUNTS, filters, "report")
    return dict(zip((name for name, _ in result.columns), result.rows[0], strict=True))


def findings(con: duckdb.DuckDBPyConnection, filters: Filters) -> list[tuple[str, str, int]]:
    """Return severity, code and number of findings about the dumps, worst first."""
    return execute.execute_with(con, FINDINGS, filters, "report").rows


# --------------------------------------------------------------------------------------------------
# Two sides as `bufdb diff` compares them, for a page: all figures, and the parts of each peak.
#
# Invariant: parts of a peak add up to its change; those beyond a number are one row with their
# sums.

KEYS = ("op", "source", "category", "shape")
TOP = 200
"""Maximum parts of a peak with a row each."""
MOST_PLACES = 500
"""Maximum pairs on a page, each in one memory space, the largest change first."""
_RUNS = "SELECT run_name FROM asked_runs ORDER BY run_name"
SQL = f"{diff.SQL}\n{_RUNS}"
"""All SQL that is executed."""


@dataclass(frozen=True)
class Compared:
    """Two sides."""

    base: str
    new: str
    columns: list[tuple[str, str]]
    """Name and DuckDB type of the columns of all rows."""
    figures: list[diff.Row]
    is_cut: bool
    """Whether there are more pairs than MOST_PLACES."""
    parts: dict[str, list[diff.Row]] = field(default_factory=dict)
    """Parts of peaks by key, with the rest of each place in one row."""

    def sides(self, filters: Filters) -> list[Filters]:
        """Return the query parameters for the modules of both sides, the new one last."""
        return [{**filters, "run": glob(side)} for side in (self.base, self.new)]


def compared(con: duckdb.DuckDBPyConnection, base: str, filters: Filters) -> Compared:
    """Compare a side, a run or LABEL=VALUE, with the run that `filters` select.

    Args:
        con: the database.
        base: the old side.
        filters: run, function, module and platform, as globs. Without a run the new side is the
            only run other than `base`.

    Raises:
        UsageError: a side is neither a run nor a label, or the new side is ambiguous.
    """
    old = diff.selected_runs(con, base)
    new = _new_side(con, filters.get("run"), old)
    kept = ("function", "module", "platform")
    values: dict[str, Value] = {name: filters.get(name) for name in kept}
    values |= {"base": base, "new": new, "color": ALL, "pair": None}
    values["most_places"] = MOST_PLACES + 1
    answers = {key: diff.compare(con, {**values, "key_name": key}, temps=False) for key in KEYS}
    first = answers[KEYS[0]]

    places = list(dict.fromkeys(row.place for row in first.figures))
    end = places[MOST_PLACES] if len(places) > MOST_PLACES else math.inf
    shown = [row for row in first.figures if row.place < end]
    parts = {
        key: _summed(row for row in answer.peak_parts if row.place < end)
        for key, answer in answers.items()
    }
    return Compared(base, new, first.columns, shown, end != math.inf, parts)


def _new_side(con: duckdb.DuckDBPyConnection, run: Value, old: list[str]) -> str:
    """Return the new side: --run (a name, a label, or a glob of one run), or the only other run."""
    filters = {} if run is None else {"run": run}
    names = [name for (name,) in execute.execute_with(con, _RUNS, filters, "report").rows]
    if run is None:
        names = [name for name in names if name not in old]
    if len(names) == 1:
        return str(names[0])
    if run is not None and names:
        diff.selected_runs(con, str(run))  # LABEL=VALUE is a side too
        return str(run)
    if run is not None:
        diff.selected_runs(con, str(run))
    raise UsageError(f"--diff {quote(', '.join(old))}: with which run? --run names it")


def _summed(rows: Iterable[diff.Row]) -> list[diff.Row]:
    """Return the first parts of each place, and one row for the rest."""
    first = []
    for _, group in groupby(rows, key=lambda row: row.place):
        parts = list(group)
        first += parts[:TOP]
        if len(parts) > TOP:
            first.append(_rest(parts[TOP:]))
    return first


def _rest(rows: Sequence[diff.Row]) -> diff.Row:
    def total(name: str) -> Any:
        known = [value for row in rows if (value := getattr(row, name)) is not None]
        return sum(known) if known else None

    sums: dict[str, Any] = {
        name: total(name)
        for name in (
            "base_bytes", "new_bytes", "delta_bytes", "base_value_count", "new_value_count",
            "base_added_bytes", "new_added_bytes",
        )
    }  # fmt: skip
    delta = sums["delta_bytes"] or 0
    unnamed: dict[str, Any] = dict.fromkeys(
        ("allocation_kind", "delta_ratio", "base_shape", "new_shape", "base_source", "new_source")
    )
    change = "grew" if delta > 0 else "shrank" if delta < 0 else "same"
    part = f"({len(rows)} other parts)"
    return rows[0]._replace(part=part, change=change, **sums, **unnamed)
