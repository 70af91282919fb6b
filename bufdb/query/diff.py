"""What `bufdb diff` says of two sides: the rows of schema/diff/, made readable.

Asks the table macros and lays out their answer; compares nothing itself. Invariant: `~` stands
where nothing changed and nowhere else; rows cut off are summed up, so that what is shown adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query.execute import execute_with
from bufdb.query.header import Value
from bufdb.query.result import Result

if TYPE_CHECKING:
    import duckdb


_COMMON = """
  place, function_name, paired_by, base_run_name, new_run_name, base_module_key, new_module_key,
  color, memory_space_name"""
_NUMBERS = "base_bytes, new_bytes, delta_bytes, delta_ratio"
_DETAILS = """
  base_value_count, new_value_count, base_shape, new_shape, base_source, new_source"""
_WHERE = """
WHERE (getvariable('function')::VARCHAR IS NULL
    OR function_name GLOB getvariable('function')::VARCHAR)
  AND (getvariable('color')::VARCHAR IS NULL OR color IS NULL
    OR getvariable('color')::VARCHAR IN (color::VARCHAR, memory_space_name))
ORDER BY place"""
_SIDES = "getvariable('base')::VARCHAR, getvariable('new')::VARCHAR"
_KEYED = f"{_SIDES}, getvariable('key_name')::VARCHAR"

_MODULES = f"""
SELECT {_COMMON}, figure, NULL::VARCHAR AS allocation_kind, NULL::VARCHAR AS part,
  CASE
    WHEN delta_bytes > 0 THEN 'grew' WHEN delta_bytes < 0 THEN 'shrank'
    WHEN delta_bytes = 0 THEN 'same' WHEN unknown_reason IS NOT NULL THEN 'unknown'
  END AS change,
  {_NUMBERS}, NULL::BIGINT AS base_value_count, NULL::BIGINT AS new_value_count,
  NULL::VARCHAR AS base_shape, NULL::VARCHAR AS new_shape,
  NULL::VARCHAR AS base_source, NULL::VARCHAR AS new_source, unknown_reason
FROM diff_modules({_SIDES})
{_WHERE}, figure_place"""
_PEAK = f"""
SELECT {_COMMON}, 'peak' AS figure, allocation_kind, part, change, {_NUMBERS}, {_DETAILS},
  unknown_reason
FROM diff_peak({_KEYED})
{_WHERE}, part_place"""
_TEMPS = f"""
SELECT {_COMMON}, 'temps' AS figure, 'temp' AS allocation_kind, part, change, {_NUMBERS},
  {_DETAILS}, NULL::VARCHAR AS unknown_reason
FROM diff_temps({_KEYED})
{_WHERE}, part_place"""

_RUNS = "SELECT run_name FROM selected_runs(getvariable('x')::VARCHAR)"
SQL = "\n".join((_MODULES, _PEAK, _TEMPS, _RUNS))
"""All that a comparison asks."""


class Row(NamedTuple):
    """A figure of a pair of modules (`part` is None), or a part of its change."""

    place: int
    """Number of the pair and memory space, what grew most first."""
    function_name: str
    paired_by: str
    base_run_name: str | None
    new_run_name: str | None
    base_module_key: str | None
    new_module_key: str | None
    color: int | None
    """None where neither side has allocations."""
    memory_space_name: str | None
    figure: str
    allocation_kind: str | None
    part: str | None
    change: str | None
    base_bytes: int | None
    new_bytes: int | None
    delta_bytes: int | None
    delta_ratio: float | None
    base_value_count: int | None
    new_value_count: int | None
    base_shape: str | None
    new_shape: str | None
    base_source: str | None
    new_source: str | None
    unknown_reason: str | None
    """Which side does not give the figure, and why."""


@dataclass(frozen=True)
class Comparison:
    """Two sides next to each other."""

    figures: list[Row]
    """By place, then in the order of figures."""
    peak_parts: list[Row]
    """Parts of each change of a peak, by place, largest change first."""
    temp_parts: list[Row]
    """The same for temps; empty if they were not asked for."""
    columns: list[tuple[str, str]]
    """(name, DuckDB type) of the fields of `Row`."""

    def as_result(self) -> Result:
        """All rows: each figure, followed by its parts."""
        parts: dict[tuple[int, str], list[Row]] = {}
        for row in (*self.peak_parts, *self.temp_parts):
            parts.setdefault((row.place, row.figure), []).append(row)
        rows = [
            tuple(row)
            for figure in self.figures
            for row in (figure, *parts.get((figure.place, figure.figure), ()))
        ]
        return Result(self.columns, rows)


def selected_runs(con: duckdb.DuckDBPyConnection, selection: str) -> list[str]:
    """Names of the runs that a run name or LABEL=VALUE means.

    Raises:
        UsageError: none, or both a run and a label of other runs.
    """
    runs = _names(con, _RUNS, selection)
    labelled = _names(
        con,
        "SELECT run_name FROM run_labels WHERE label || '=' || label_value = getvariable('x')",
        selection,
    )
    if selection in runs and set(labelled) - {selection}:
        raise UsageError(
            f"{quote(selection)} is a run and also a label of {', '.join(labelled)}; name the runs"
        )
    if runs:
        return runs
    known = _names(
        con,
        "SELECT run_name FROM runs UNION SELECT label || '=' || label_value FROM run_labels "
        "ORDER BY ALL",
        "",
    )
    hint = did_you_mean(selection, known) or ";"
    raise UsageError(f"no run and no label {quote(selection)}{hint} 'bufdb query runs' lists them")


def _names(con: duckdb.DuckDBPyConnection, sql: str, value: str) -> list[str]:
    return [name for (name,) in execute_with(con, sql, {"x": value}, "diff").rows]


def compare(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, temps: bool
) -> Comparison:
    """Compare two sides.

    `values`: base and new (see `selected_runs`), key_name (see diff_peak), and if wanted function
    (a glob) and color (a memory space's number or name). `temps` asks for the parts of the temp
    allocations too.
    """
    modules = execute_with(con, _MODULES, values, "diff")
    return Comparison(
        figures=_rows(modules),
        # A pair with an unknown peak has no parts; its figure says so.
        peak_parts=[
            row
            for row in _rows(execute_with(con, _PEAK, values, "diff"))
            if row.unknown_reason is None
        ],
        temp_parts=_rows(execute_with(con, _TEMPS, values, "diff")) if temps else [],
        columns=modules.columns,
    )


def _rows(result: Result) -> list[Row]:
    return [Row(*row) for row in result.rows]
