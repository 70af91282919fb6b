"""Which module, and which of its memory spaces, a name means."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from bufdb.errors import BufdbError, UsageError, did_you_mean, quote

SQL = """
SELECT
  figures.run_name,
  figures.module_id,
  figures.module_key,
  coalesce(figures.function_name, figures.module_key),
  figures.color,
  coalesce(figures.memory_space_name, 'color ' || figures.color),
  figures.fixed_bytes,
  figures.peak_bytes,
  figures.peak_time,
  figures.peak_unknown_reason,
  modules.schedule_length
FROM memory_figures AS figures
JOIN modules ON modules.module_id = figures.module_id
WHERE (
    figures.module_key GLOB $module OR figures.module_key = $module
    OR figures.module_name GLOB $module OR figures.module_name = $module
    OR figures.function_name GLOB $module OR figures.function_name = $module
  )
  AND (
    $run IS NULL
    OR figures.run_name IN (SELECT run_name FROM run_selectors WHERE selector GLOB $run)
  )
ORDER BY figures.peak_bytes DESC NULLS LAST, figures.run_name, figures.module_key, figures.color
"""
_NAMES = """
SELECT unnest([module_key, module_name, function_name]) AS name
FROM modules
WHERE $run IS NULL OR run_name IN (SELECT run_name FROM run_selectors WHERE selector GLOB $run)
"""
_MOST_NAMED = 5


@dataclass(frozen=True)
class Choice:
    """A module in one memory space; its peak is known."""

    run_name: str
    module_id: int
    module_key: str
    function_name: str
    """The module's key if that is unknown."""
    color: int
    memory_space: str
    fixed_bytes: int
    peak_bytes: int
    peak_time: int
    schedule_length: int
    others: str
    """What else the name fits, in a sentence; '' if nothing."""


def choose(
    con: duckdb.DuckDBPyConnection, module: str, run: str | None, color: int | str | None
) -> Choice:
    """The module and memory space with the largest known peak of those that the name fits.

    Args:
        con: the database.
        module: key or name of a module, name of a function, or a glob of one.
        run: glob of a run's name, or of LABEL=VALUE; None for all runs.
        color: only this memory space, by its number or its name.

    Raises:
        UsageError: the name fits nothing, or modules of several runs.
        BufdbError: the peak is unknown of all that it fits.
    """
    fits = con.execute(SQL, {"module": module, "run": run}).fetchall()
    if not fits:
        names = con.execute(_NAMES, {"run": run}).fetchall()
        hint = did_you_mean(module, sorted({name for (name,) in names if name is not None}))
        where = "" if run is None else f" in runs {quote(run)}"
        raise UsageError(
            f"no module {quote(module)}{where}{hint or ';'} 'bufdb query modules' lists them"
        )
    runs = sorted({row[0] for row in fits})
    if len(runs) > 1:
        raise UsageError(
            f"{quote(module)} is in {len(runs)} runs: {_some(runs)}; choose one with --run"
        )
    mine = [
        row
        for row in fits
        if color is None or row[4] is None or str(color) in (str(row[4]), row[5])
    ]
    if not mine:
        colors = sorted({f"{row[4]} ({row[5]})" for row in fits})
        raise UsageError(f"{quote(module)} has no memory space {color}; it has {', '.join(colors)}")
    first = mine[0]
    if first[7] is None:
        raise BufdbError(f"the peak of {first[2]} is unknown: {first[9]}")
    run_name, module_id, key, function, number, space, fixed, peak, time, _, length = first
    if time is None:
        raise BufdbError(f"{key} is an out-of-memory message, which has no live ranges")
    return Choice(
        run_name,
        module_id,
        key,
        function,
        number,
        space,
        fixed,
        peak,
        time,
        length or 0,
        _others(module, mine),
    )


def _others(module: str, fits: list[tuple[object, ...]]) -> str:
    count = len({row[1] for row in fits})
    if count == 1:
        return ""
    text = f"{quote(module)} fits {count} modules; {fits[0][2]} has the largest known peak"
    unknown = len({row[1] for row in fits if row[7] is None})
    return f"{text}, that of {unknown} is unknown" if unknown else text


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
