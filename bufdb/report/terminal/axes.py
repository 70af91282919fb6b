"""Axes of a picture: bytes upwards in powers of two, steps of the program to the right."""

from __future__ import annotations

from bufdb.report.text import human_bytes
from bufdb.summary.picture import place_of

GUTTER = 12
"""Columns left of a picture, for the figures of its axis."""
LEAST_ROWS = 8
_MOST_TICKS = 5
_TICK_ROOM = 12
"""Columns between two figures of the lower axis, at the least."""


class Scale:
    """Rows for bytes from 0 up: some to each tick, and ticks a power of two bytes apart."""

    def __init__(self, most_bytes: int) -> None:
        self.tick_bytes = 1
        while self.tick_bytes * _MOST_TICKS < most_bytes:
            self.tick_bytes *= 2
        ticks = max(1, -(-most_bytes // self.tick_bytes))
        self.tick_rows = -(-LEAST_ROWS // ticks)
        self.row_count = ticks * self.tick_rows
        self.top_bytes = ticks * self.tick_bytes

    def eighths(self, size: int) -> int:
        """How high so many bytes are, in eighths of a row; what is there is seen."""
        if size <= 0:
            return 0
        return max(1, (2 * size * self.row_count * 8 + self.top_bytes) // (2 * self.top_bytes))

    def label(self, row: int) -> str:
        """The figure at the upper edge of a row counted from below, '' if it has none."""
        ticks, rest = divmod(row + 1, self.tick_rows)
        return "" if rest else human_bytes(ticks * self.tick_bytes)


def gutter(label: str, *, is_plain: bool) -> str:
    """What stands left of a row of a picture."""
    if label:
        return f"{label:>{GUTTER - 2}} " + ("+" if is_plain else "┤")
    return " " * (GUTTER - 1) + ("|" if is_plain else "│")


def steps(last: int, width: int, *, is_plain: bool) -> list[str]:
    """The lower axis with 0 bytes at its left, and the steps of the program below."""
    unit = 1
    while (last + 1) * _TICK_ROOM > unit * width:
        unit = {"1": 2, "2": 5, "5": 10}[str(unit)[0]] * 10 ** (len(str(unit)) - 1)
    rule, corner, mark = ("-", "+", "+") if is_plain else ("─", "└", "┬")
    axis, below = [rule] * width, [" "] * (width + GUTTER)
    free = 0
    for time in range(0, last + 1, unit):
        place = place_of(time, last, width)
        text = str(time)
        start = GUTTER + place - (0 if place == 0 else len(text) // 2)
        if start >= free and start + len(text) <= len(below):
            axis[place] = mark
            below[start : start + len(text)] = text
            free = start + len(text) + 2
    head = f"{'0 B':>{GUTTER - 2}} {corner}"
    named = f"{'step':>{GUTTER - 2}}" + "".join(below)[GUTTER - 2 :]
    return [head + "".join(axis), named.rstrip()]
