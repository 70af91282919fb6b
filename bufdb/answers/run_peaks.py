"""The modules of one run with the largest needs."""

from __future__ import annotations

from bufdb.database import store
from bufdb.query import figures
from bufdb.query.figures import METRICS
from bufdb.query.result import Result

TABLE_ROWS = 20
"""Modules in the table."""


def peaks(db: str, name: str) -> tuple[Result, str | None]:
    """Return the modules with the largest needs, and a note on the rest if there are more."""
    with store.open_readable(db) as con:
        modules = [f for f in figures.of_run(con, name) if f.is_device_memory or f.color is None]
    metrics = ("peak", "need", "arguments", "outputs", "temp", "constants", "fragmentation")
    # An unknown peak may be the highest, so it comes first.
    modules.sort(
        key=lambda f: [
            f.values["peak"] is not None,
            *(
                (f.values[metric] is not None, -(f.values[metric] or 0))
                for metric in ("need", "peak")
            ),
        ]
    )
    columns = [
        ("function_name", "VARCHAR"),
        ("memory_space", "VARCHAR"),
        *((METRICS[metric], "HUGEINT") for metric in metrics),
        ("module_key", "VARCHAR"),
        ("unknown_reason", "VARCHAR"),
    ]
    rows = [
        (
            figure.function,
            figure.memory_space or (None if figure.color is None else f"color {figure.color}"),
            *(figure.values[metric] for metric in metrics),
            figure.module_key,
            figure.unknown_reason,
        )
        for figure in modules
    ]
    left_out = len(rows[TABLE_ROWS:])
    more = f"{left_out} more rows: bufdb query modules --run {name}" if left_out else None
    return Result(columns, rows[:TABLE_ROWS]), more
