"""Two sides as `bufdb diff` compares them, for a page: all figures, and the parts of each peak.

Invariant: parts of a peak add up to its change; those beyond a number are one row with their sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import duckdb

from bufdb.errors import UsageError, quote
from bufdb.export.page.modules import Asked
from bufdb.query import diff, execute
from bufdb.query.asked.spaces import ALL
from bufdb.query.asked.texts import glob
from bufdb.query.header import Value

KEYS = ("op", "source", "category", "shape")
TOP = 200
"""Parts of a peak that have a row of their own."""
MOST_PLACES = 500
"""Pairs on a page, each in one memory space: what changed most comes first."""
_RUNS = "SELECT run_name FROM asked_runs ORDER BY run_name"
SQL = f"{diff.SQL}\n{_RUNS}"
"""All that is executed."""


@dataclass(frozen=True)
class Compared:
    """Two sides."""

    base: str
    new: str
    columns: list[tuple[str, str]]
    """Name and DuckDB type of the columns of all rows."""
    figures: list[diff.Row]
    is_cut: bool
    """Whether there are more than MOST_PLACES."""
    parts: dict[str, list[diff.Row]] = field(default_factory=dict)
    """Parts of peaks by key, with the rest of each place in one row."""

    def asked(self, filters: Asked) -> list[Asked]:
        """What the modules of both sides are asked for with, the new one last."""
        return [{**filters, "run": glob(side)} for side in (self.base, self.new)]


def compared(con: duckdb.DuckDBPyConnection, base: str, filters: Asked) -> Compared:
    """Compare a side, a run or LABEL=VALUE, with the run that `filters` ask for.

    Args:
        con: the database.
        base: the old side.
        filters: run, function, module and platform, as globs. Without a run the new side is the
            one that there is beside `base`.

    Raises:
        UsageError: a side is no run and no label, or which run is the new side is not clear.
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
    """The new side: what --run names, or a glob that one run alone fits, or the only other run."""
    asked = {} if run is None else {"run": run}
    names = [name for (name,) in execute.execute_with(con, _RUNS, asked, "report").rows]
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
    """The first parts of each place, and one row for the others."""
    found = []
    for _, group in groupby(rows, key=lambda row: row.place):
        parts = list(group)
        found += parts[:TOP]
        if len(parts) > TOP:
            found.append(_rest(parts[TOP:]))
    return found


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
