"""`bufdb show --process`: what a process holds over time, in characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bufdb.answers import process_curve
from bufdb.render.text import display_width, escape_control, human_bytes
from bufdb.show.drawing import GUTTER, Look, gutter

Row = dict[str, Any]
HEIGHT = 12
MOST = 4
"""Processes that are drawn."""
_MARKS = {False: ("█", "░", "─"), True: ("#", ":", "-")}
"""Of arrays, of the program that runs, and of the limit; with and without ASCII alone."""


def lines(rows: Sequence[Row], width: int, look: Look) -> Iterator[str]:
    """Yield a picture of one process, with what it shows in words."""
    alive, running, edge = _MARKS[look.is_plain]
    yield process_curve.heading(rows)
    limit = process_curve.limit(rows)
    top = max(*(row["running_top"] for row in _topped(rows)), limit or 0, 1)
    columns = list(_columns(rows, max(width - GUTTER, 10)))
    for level in reversed(range(HEIGHT)):
        low, high = top * level / HEIGHT, top * (level + 1) / HEIGHT
        middle = (low + high) / 2
        is_edge = limit is not None and low < limit <= high
        label = ""
        if is_edge:
            label = human_bytes(limit or 0)
        elif level == HEIGHT - 1:
            label = human_bytes(top)
        elif level == 0:
            label = "0 B"
        cells = "".join(
            alive
            if row["alive_bytes"] > middle
            else edge
            if is_edge
            else running
            if row["running_top"] > middle
            else " "
            for row in columns
        )
        yield f"{gutter(label, is_plain=look.is_plain)}{cells}".rstrip()
    yield _times(rows, len(columns))
    legend = [f"{alive} arrays that are alive"]
    if (name := process_curve.program(rows)) is not None:
        legend.append(f"{running} in addition while {escape_control(name)} runs, at the least")
    if limit is not None:
        legend.append(f"{edge} limit")
    for text in [*legend, *process_curve.sentences(rows)]:
        yield from textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _topped(rows: Sequence[Row]) -> list[Row]:
    """Return rows with the top of the column: with the program, where one is known."""
    return [
        {**row, "running_top": max(row["alive_bytes"], row["low_running_bytes"] or 0)}
        for row in rows
    ]


def _columns(rows: Sequence[Row], width: int) -> Iterator[Row]:
    """Yield the snapshot that each column shows: its highest, or else the one before it."""
    first, last = rows[0]["elapsed_seconds"], rows[-1]["elapsed_seconds"]
    places: dict[int, list[Row]] = {}
    for row in _topped(rows):
        share = (row["elapsed_seconds"] - first) / ((last - first) or 1.0)
        places.setdefault(min(int(share * width), width - 1), []).append(row)
    shown = _topped(rows)[0]
    for place in range(width):
        inside = places.get(place)
        if inside:
            yield max(inside, key=lambda row: (row["running_top"], row["alive_bytes"]))
            shown = inside[-1]
        else:
            yield shown


def _times(rows: Sequence[Row], width: int) -> str:
    texts = [escape_control(process_curve.at(rows[place])) for place in (0, -1)]
    room = max(1, width - display_width(texts[0]) - display_width(texts[1]))
    return " " * GUTTER + texts[0] + " " * room + texts[1]
