"""Two sides next to each other, as rows: each figure, then its parts; the time comes last."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from bufdb.answers.diff import TIMED, Comparison, Row, Time
from bufdb.query.result import Result

_COLUMNS = ("base_ns", "new_ns", "delta_ns")
_FIGURE = Row._fields.index("figure")


def rows(comparison: Comparison) -> Result:
    """Return all rows of a comparison; bytes are those of `Row`, times [nanoseconds] follow them.

    Parts of a figure add up to its change, of the time too.
    """
    parts: dict[tuple[int, str], list[Row]] = {}
    for row in (*comparison.peak_parts, *comparison.temp_parts):
        parts.setdefault((row.place, row.figure), []).append(row)
    times: dict[int, list[Time]] = {}
    for time in comparison.times:
        if time.is_whole or comparison.key_name in TIMED:
            times.setdefault(time.place, []).append(time)
    table: list[tuple[Any, ...]] = []
    for place, group in groupby(comparison.figures, key=lambda row: row.place):
        figures = list(group)
        for figure in figures:
            of = (figure, *parts.get((place, figure.figure), ()))
            table += [(*row, *[None] * len(_COLUMNS)) for row in of]
        key_name = comparison.key_name
        table += [_timed(figures[0], time, key_name) for time in times.get(place, ())]
    return Result([*comparison.columns, *((name, "BIGINT") for name in _COLUMNS)], table)


def _timed(figure: Row, time: Time, key_name: str) -> tuple[Any, ...]:
    """Return a row of the figure time, of the pair of another figure."""
    delta = time.new_ns - time.base_ns
    row = Row._make([*figure[:_FIGURE], "time", *[None] * (len(Row._fields) - _FIGURE - 1)])
    row = row._replace(
        part=None if time.is_whole else time.part or f"(no {key_name})",
        change="grew" if delta > 0 else "shrank" if delta else "same",
        delta_ratio=delta / time.base_ns if time.base_ns else None,
    )
    return (*row, time.base_ns, time.new_ns, delta)
