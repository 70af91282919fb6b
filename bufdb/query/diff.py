"""What `bufdb diff` says of two sides: the rows of schema/diff/, made readable.

Asks the table macros and lays out their answer; compares nothing itself. Invariant: `~` stands
where nothing changed and nowhere else; rows cut off are summed up, so that what is shown adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query.execute import execute_with
from bufdb.query.header import Value
from bufdb.query.result import Result

if TYPE_CHECKING:
    import duckdb


_COMMON = """
  place, function_name, base_function_name, new_function_name, platform, paired_by,
  base_run_name, new_run_name, base_module_key, new_module_key,
  color, memory_space_name"""
_NUMBERS = "base_bytes, new_bytes, delta_bytes, delta_ratio"
_DETAILS = """
  base_value_count, new_value_count, base_added_bytes, new_added_bytes, base_shape, new_shape,
  base_source, new_source"""
_WHERE = """
WHERE (getvariable('function')::VARCHAR IS NULL
    OR base_function_name GLOB getvariable('function')::VARCHAR
    OR new_function_name GLOB getvariable('function')::VARCHAR)
  AND (getvariable('module')::VARCHAR IS NULL
    OR base_module_key GLOB getvariable('module')::VARCHAR
    OR new_module_key GLOB getvariable('module')::VARCHAR)
  AND (getvariable('color')::VARCHAR IS NULL OR color IS NULL
    OR getvariable('color')::VARCHAR IN ('all', color::VARCHAR, memory_space_name))
ORDER BY place"""
_SIDES = "getvariable('base')::VARCHAR, getvariable('new')::VARCHAR"
_ASKED = "getvariable('pair')::VARCHAR"
_KEYED = f"{_SIDES}, getvariable('key_name')::VARCHAR, {_ASKED}"

_MODULES = f"""
SELECT {_COMMON}, figure, NULL::VARCHAR AS allocation_kind, NULL::VARCHAR AS part,
  CASE
    WHEN delta_bytes > 0 THEN 'grew' WHEN delta_bytes < 0 THEN 'shrank'
    WHEN delta_bytes = 0 THEN 'same' WHEN unknown_reason IS NOT NULL THEN 'unknown'
  END AS change,
  {_NUMBERS}, NULL::BIGINT AS base_value_count, NULL::BIGINT AS new_value_count,
  NULL::HUGEINT AS base_added_bytes, NULL::HUGEINT AS new_added_bytes,
  NULL::VARCHAR AS base_shape, NULL::VARCHAR AS new_shape,
  NULL::VARCHAR AS base_source, NULL::VARCHAR AS new_source, unknown_reason
FROM diff_modules({_SIDES}, {_ASKED})
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

_NAMES = """
SELECT DISTINCT unnest([modules.function_name, modules.module_name, modules.module_key]) AS name
FROM modules
JOIN selected_runs(getvariable('x')::VARCHAR) AS runs ON runs.run_name = modules.run_name"""
_ASKED_PAIRS = f"""
SELECT paired_by FROM diff_pairs({_SIDES}, {_ASKED}) WHERE paired_by GLOB 'asked*' LIMIT 1"""
_RUNS = "SELECT run_name FROM selected_runs(getvariable('x')::VARCHAR)"
SQL = "\n".join((_MODULES, _PEAK, _TEMPS, _NAMES, _ASKED_PAIRS, _RUNS))
"""All that a comparison asks."""


class Row(NamedTuple):
    """A figure of a pair of modules (`part` is None), or a part of its change."""

    place: int
    """Number of the pair and memory space, what grew most first."""
    function_name: str
    """The name in new, or if it is not there in base."""
    base_function_name: str | None
    new_function_name: str | None
    platform: str | None
    """Backend, OLD -> NEW if it is another one."""
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
    base_added_bytes: int | None
    """Of base_bytes, those that XLA adds for what the part is named after."""
    new_added_bytes: int | None
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
    key_name: str
    """What the parts are grouped by."""

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


def asked_pairs(
    con: duckdb.DuckDBPyConnection, base: str, new: str, pairs: Sequence[str]
) -> str | None:
    """The parameter pair of `compare`: OLD=NEW, names of functions or modules; None for none.

    Raises:
        UsageError: a name is not there, or twice, or the two cannot be compared.
    """
    if not pairs:
        return None
    known = [_names(con, _NAMES, side) for side in (base, new)]
    sides = [_pair(text, *known) for text in pairs]
    for names in zip(*sides, strict=True):
        for name, count in Counter(names).items():
            if count > 1:
                raise UsageError(f"--pair: {quote(name)} is in several pairs")
    for text in pairs:
        if "," in text:  # which stands between pairs
            raise UsageError(f"--pair {quote(text)}: a name with a comma cannot be asked for")
        values = {"base": base, "new": new, "pair": text}
        if not execute_with(con, _ASKED_PAIRS, values, "diff").rows:
            raise UsageError(
                f"--pair {quote(text)}: both are there, but of another platform, or in runs of "
                "other labels"
            )
    return ",".join(pairs)


def _pair(text: str, base_names: list[str], new_names: list[str]) -> tuple[str, str]:
    """Both names of OLD=NEW; a name may have a "=" of its own."""
    pieces = text.split("=")
    splits = [("=".join(pieces[:n]), "=".join(pieces[n:])) for n in range(1, len(pieces))]
    if not splits:
        raise UsageError(f"--pair: expected OLD=NEW, found {quote(text)}")
    for old, new in splits:
        if old in base_names and new in new_names:
            return old, new
    old, new = splits[0]
    name, side, names = (old, "BASE", base_names)
    if old in base_names:
        name, side, names = (new, "NEW", new_names)
    hint = did_you_mean(name, names) or "; 'bufdb query modules' lists them"
    raise UsageError(f"--pair: no function and no module {quote(name)} in {side}{hint}")


def _names(con: duckdb.DuckDBPyConnection, sql: str, value: str) -> list[str]:
    rows = execute_with(con, sql, {"x": value}, "diff").rows
    return [name for (name,) in rows if name is not None]


def compare(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, temps: bool
) -> Comparison:
    """Compare two sides.

    `values`: base and new (see `selected_runs`), key_name (see diff_peak), and if wanted function
    (a glob), color (a memory space's number or name, or all) and pair (see `asked_pairs`). `temps`
    asks for the parts of the temp allocations too.
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
        key_name=str(values["key_name"]),
    )


def _rows(result: Result) -> list[Row]:
    return [Row(*row) for row in result.rows]
