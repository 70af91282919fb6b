"""Parts of a summary: what holds the peak, as figures with names, of a terminal or a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from bufdb.answers.summary import Row
from bufdb.render.text import human_bytes


class Figure(NamedTuple):
    """A part of the peak, or a change that lowers it."""

    name: str
    size_bytes: int
    size: str
    ratio: float
    """Of the peak."""
    share: str
    notes: Sequence[tuple[str, str]] = ()
    """The low end of a saving, and what to do."""
    saving_bytes: int | None = None
    """How far the peak would fall without it."""
    saving: str = ""


class Section(NamedTuple):
    """What one query answers about the peak."""

    name: str
    heading: str
    figures: list[Figure]
    notes: list[str]
    """In place of figures, or what the rest of them holds."""
    has_bars: bool = True


def of_step(rows: list[Row]) -> Section:
    """Return the lines that hold most of a training step that is not the highest program."""
    name = rows[0]["function_name"]
    figures = [held(row["source"], row) for row in rows]
    note = shlex.join(["--function", name])
    return Section("step_lines", f"lines that hold most of {name}", figures, [f"{note} for more"])


def of_library(rows: list[Row]) -> Section:
    """Return the lines of a library under a line of the user's that holds most of the peak."""
    first, library = rows[0], rows[0]["package"]
    line = PurePosixPath(first["source"]).name
    share = f"{first['source_bytes'] / first['peak_bytes']:.1%}"
    heading = f"lines of {library} under {line}, which holds {share}"
    figures = [held(row["library_source"].replace("library ", "", 1), row) for row in rows]
    note = f"--own {library} at ingest, capture or explain attributes bytes to them"
    return Section("library_lines", heading, figures, [note])


def held(name: str, row: Row) -> Figure:
    """Return what a part of the peak holds, as a figure with its name."""
    ratio = row["held_ratio"] or 0.0
    size = human_bytes(row["held_bytes"])
    saving = row.get("saving_bytes")
    return Figure(
        name, row["held_bytes"], size, ratio, f"{ratio:.1%}",
        saving_bytes=saving, saving=_saves(row.get("low_saving_bytes"), saving),
    )  # fmt: skip


def _saves(low: int | None, high: int | None) -> str:
    """Return e.g. `saves 1.34 MiB to 1.53 MiB`; '' if that is not known."""
    if high is None:
        return ""
    if high <= 0:
        return "saves nothing"
    if low is None or low == high:
        return f"saves {human_bytes(high)}"
    return f"saves {human_bytes(low) if low > 0 else 'nothing'} to {human_bytes(high)}"
