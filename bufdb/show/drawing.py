"""Pictures in characters: inks, groups, axes, the memory curve and the block map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bufdb.render.text import human_bytes, painted, use_colour
from bufdb.show.picture import Column, Picture, place_of

# -- Cells of a picture, each with a character and colors, and the lines that they make -----------
#
# Invariant: no meaning is in a color alone: each has a letter, too, and is in the legend.

FIXED, OTHER = "fixed", "other"
LETTERS = "abcdefg"
"""One for each group with a color of its own."""
INKS = (*LETTERS, OTHER, FIXED)
# Distinguishable with every kind of color blindness, on a light and on a dark background.
_OF_256 = dict(zip(INKS, (63, 202, 178, 30, 127, 39, 88, 245, 240), strict=True))
_OF_16 = dict(zip(INKS, (4, 1, 3, 6, 5, 14, 9, 7, 8), strict=True))
_DARK = frozenset(ink for ink in INKS if ink not in ("c", "f", OTHER))
"""Inks on which text is white."""


@dataclass(frozen=True)
class Look:
    """The capabilities of the terminal."""

    is_coloured: bool = False
    is_plain: bool = False
    """Only ASCII characters."""
    has_256_colours: bool = True

    def style(self, front: str | None, back: str | None = None, *, is_text: bool = False) -> str:
        """Return the escape parameters for an ink in front of another; text is black or white."""
        parts = []
        if is_text and back is not None:
            parts.append(self._number(231 if back in _DARK else 16, 15 if back in _DARK else 0, 38))
        elif front is not None:
            parts.append(self._number(_OF_256[front], _OF_16[front], 38))
        if back is not None:
            parts.append(self._number(_OF_256[back], _OF_16[back], 48))
        return ";".join(parts)

    def _number(self, of_256: int, of_16: int, ground: int) -> str:
        if self.has_256_colours:
            return f"{ground};5;{of_256}"
        return str(ground - 8 + of_16 if of_16 < 8 else ground + 52 + of_16 - 8)

    def swatch(self, ink: str) -> str:
        """Return the legend symbol of an ink: its letter, on its color."""
        text = MARKS[ink]
        if not self.is_coloured:
            return text
        return painted(f" {text} ", self.style(None, ink, is_text=True))


MARKS = {**{letter: letter for letter in LETTERS}, OTHER: "o", FIXED: "-"}
"""The character of each ink in a picture without colors."""


@dataclass(frozen=True)
class Cell:
    """A character with its foreground and background inks; None for the terminal's own."""

    text: str = " "
    front: str | None = None
    back: str | None = None
    is_letter: bool = False
    """Whether it is the letter of its background ink."""


BLANK = Cell()


def line(cells: Iterable[Cell], look: Look) -> str:
    """Return a line of the terminal, without invisible cells at its end."""
    row = list(cells)
    while row and row[-1].text == " " and row[-1].back is None:
        row.pop()
    if not look.is_coloured:
        return "".join(cell.text for cell in row)
    parts = []
    for (front, back, is_letter), some in groupby(
        row, key=lambda cell: (cell.front, cell.back, cell.is_letter)
    ):
        text = "".join(cell.text for cell in some)
        parts.append(painted(text, look.style(front, back, is_text=is_letter)))
    return "".join(parts)


def look_of(stream: Any, environment: Mapping[str, str], *, is_plain: bool) -> Look:
    """Return the capabilities of a stream; it may be None, for a file in UTF-8.

    Characters beyond ASCII need a stream in UTF-8, colors a terminal (`use_colour`).
    """
    encoding = (getattr(stream, "encoding", None) or "utf-8") if stream is not None else "utf-8"
    is_utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    depth = environment.get("COLORTERM", "") + environment.get("TERM", "")
    return Look(
        use_colour(stream, environment),
        is_plain or not is_utf8,
        "256color" in depth or "truecolor" in depth or "24bit" in depth,
    )


# -- Color buffers by group: the largest groups at the chosen instant, and the others --------------
#
# Invariant: fixed bytes, the groups and the others add up to the bytes at any instant.

UNKNOWN = "(temp)"
"""Name of buffers without one, as in saved queries."""


class Groups:
    """Inks by group, constant over the whole program."""

    def __init__(self, picture: Picture) -> None:
        self.fixed_bytes = picture.subject.fixed_bytes or 0
        sizes: dict[str, int] = {}
        for part in picture.instant.parts:
            name = part.group or UNKNOWN
            sizes[name] = sizes.get(name, 0) + part.end_bytes - part.begin_bytes
        self.names = sorted(sizes, key=lambda name: (-sizes[name], name))
        self.inks = dict(zip(self.names, LETTERS, strict=False))

    def ink(self, group: str | None) -> str:
        """Return the ink of a group."""
        return self.inks.get(group or UNKNOWN, OTHER)

    def bytes_of(self, column: Column) -> list[tuple[str, int]]:
        """Return the inks of a column that have bytes, with these bytes, from below."""
        sizes = dict.fromkeys((FIXED, *LETTERS, OTHER), 0)
        sizes[FIXED] = self.fixed_bytes
        for part in column.parts:
            sizes[self.ink(part.group)] += part.end_bytes - part.begin_bytes
        return [(ink, size) for ink, size in sizes.items() if size]


# -- Axes of a picture: bytes upwards in powers of two, steps of the program to the right ----------

GUTTER = 12
"""Columns to the left of a picture, for the figures of its axis."""
LEAST_ROWS = 8
_MOST_TICKS = 5
_TICK_ROOM = 12
"""Minimum columns between two figures of the lower axis."""


class Scale:
    """Rows for bytes from 0 up: several per tick, with ticks a power of two bytes apart."""

    def __init__(self, most_bytes: int) -> None:
        self.tick_bytes = 1
        while self.tick_bytes * _MOST_TICKS < most_bytes:
            self.tick_bytes *= 2
        ticks = max(1, -(-most_bytes // self.tick_bytes))
        self.tick_rows = -(-LEAST_ROWS // ticks)
        self.row_count = ticks * self.tick_rows
        self.top_bytes = ticks * self.tick_bytes

    def eighths(self, size: int) -> int:
        """Return the height of so many bytes in eighths of a row; at least 1 if there are any."""
        if size <= 0:
            return 0
        return max(1, (2 * size * self.row_count * 8 + self.top_bytes) // (2 * self.top_bytes))

    def label(self, row: int) -> str:
        """Return the figure at the upper edge of a row counted from below; '' if it has none."""
        ticks, rest = divmod(row + 1, self.tick_rows)
        return "" if rest else human_bytes(ticks * self.tick_bytes)


def gutter(label: str, *, is_plain: bool) -> str:
    """Return the text to the left of a row of a picture."""
    if label:
        return f"{label:>{GUTTER - 2}} " + ("+" if is_plain else "┤")
    return " " * (GUTTER - 1) + ("|" if is_plain else "│")


def steps(last: int, width: int, *, is_plain: bool) -> list[str]:
    """Return the lower axis with 0 bytes at its left, and the steps of the program below."""
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


# -- Occupied bytes over the program: in each column its highest instant, by group from below ------

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def curve_rows(picture: Picture, groups: Groups, scale: Scale, look: Look) -> list[list[Cell]]:
    """Return rows of cells, the top row first."""
    columns = [_column(groups.bytes_of(column), scale, look) for column in picture.columns]
    return [[column[row] for column in columns] for row in reversed(range(scale.row_count))]


def _column(sizes: list[tuple[str, int]], scale: Scale, look: Look) -> list[Cell]:
    """Return cells from the bottom up, given inks with their bytes from the bottom up."""
    edges, total = [], 0
    for ink, size in sizes:
        total += size
        edges.append((ink, scale.eighths(total)))
    return [_cell(edges, row * 8, look) for row in range(scale.row_count)]


def _cell(edges: list[tuple[str, int]], low: int, look: Look) -> Cell:
    """Return a cell from `low` eighths up, with its lowest ink and the largest of the others."""
    inside, below = [], low
    for ink, edge in edges:
        if edge > below:
            inside.append((ink, min(edge, low + 8) - below))
            below = min(edge, low + 8)
    if not inside or below <= low:
        return BLANK
    if not look.is_coloured:
        return _uncoloured(inside, below - low, look)
    (first, height), *rest = [item for item in inside if item[1] > 0]
    if height == 8:
        return Cell("█", first)
    if below - low < 8:  # its upper part is empty, which leaves one color for the rest
        first = max(inside, key=lambda item: item[1])[0]
        return Cell(_EIGHTHS[below - low], first)
    second = max(rest, key=lambda item: item[1])[0]
    return Cell(_EIGHTHS[height], first, second)


def _uncoloured(inside: list[tuple[str, int]], height: int, look: Look) -> Cell:
    """Return a cell without colors, pale where fixed bytes fill it."""
    is_fixed = inside[0] == (FIXED, 8)
    if look.is_plain:
        return Cell("-" if is_fixed else "#" if height >= 4 else ".")
    return Cell("░" if is_fixed else _EIGHTHS[height])


def highest(columns: list[Column]) -> int:
    """Return the maximum of the bytes to draw."""
    return max((column.occupied_bytes for column in columns), default=0)


# -- The block map: the buffers in the bytes of the temp arena, over the program -------------------
#
# A column is the arena at the instant that the curve's column shows. A cell shows the group that
# has most of its bytes then; a cell with any occupied byte is never blank.

ROWS = 8
_LEAST_LABELLED = 5
"""Minimum width of an area to show its letter."""

Ink = str | None


def block_rows(picture: Picture, groups: Groups, look: Look) -> list[list[Cell]]:
    """Return rows of cells, the top row first, with the arena's first byte at the bottom."""
    # Each half of a cell has its own color: one in the foreground, one in the background.
    halves = 2 if look.is_coloured and not look.is_plain else 1
    known: dict[int, list[Ink]] = {}
    columns = []
    for column in picture.columns:
        if column.time not in known:
            known[column.time] = block_inks(column, groups, picture.arena_bytes, ROWS * halves)
        columns.append(known[column.time])
    lines = [[column[row] for column in columns] for row in reversed(range(ROWS * halves))]
    if not look.is_coloured:
        return [[BLANK if ink is None else Cell(MARKS[ink]) for ink in line] for line in lines]
    if halves == 1:
        return _labelled([[Cell(" ", None, ink) for ink in line] for line in lines])
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return _labelled(
        [[_halves(*pair) for pair in zip(upper, lower, strict=True)] for upper, lower in pairs]
    )


def block_inks(column: Column, groups: Groups, arena_bytes: int, row_count: int) -> list[Ink]:
    """Return the ink of each row of a column, from below; None where nothing is occupied."""
    held: list[dict[str, int]] = [{} for _ in range(row_count)]
    height = max(1, -(-arena_bytes // row_count))
    for part in column.parts:
        ink = groups.ink(part.group)
        for row in range(max(0, part.begin_bytes // height), -(-part.end_bytes // height)):
            begin = max(part.begin_bytes, row * height)
            end = min(part.end_bytes, (row + 1) * height)
            held[row][ink] = held[row].get(ink, 0) + end - begin
    return [max(row, key=lambda ink: (row[ink], ink), default=None) for row in held]


def _halves(upper: Ink, lower: Ink) -> Cell:
    if upper == lower:
        return Cell(" ", None, upper)
    if upper is None:
        return Cell("▄", lower)
    return Cell("▀", upper, lower)


def _labelled(lines: list[list[Cell]]) -> list[list[Cell]]:
    """Add the letter of each group in the middle of the widest run that it fills."""
    widest: dict[str, tuple[int, int, int]] = {}
    for number, line in enumerate(lines):
        start = 0
        for place in range(1, len(line) + 1):
            if place < len(line) and line[place] == line[start]:
                continue
            ink = line[start].back if line[start].text == " " else None
            if ink is not None and place - start > widest.get(ink, (0, 0, 0))[0]:
                widest[ink] = (place - start, number, (start + place) // 2)
            start = place
    for ink, (width, number, place) in widest.items():
        if width >= _LEAST_LABELLED and ink in LETTERS:
            lines[number][place] = Cell(ink, None, ink, is_letter=True)
    return lines


def wall_rows(picture: Picture) -> set[int]:
    """Return the map rows, from below, in which a temp allocation after the first begins."""
    height = max(1, -(-picture.arena_bytes // ROWS))
    return {wall // height for wall in picture.walls}
