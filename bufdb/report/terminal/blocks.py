"""The block map: which buffer has which bytes of the temp arena, over the program.

A column is the arena at the instant that the curve's column shows. A cell shows the group that has
most of its bytes then; one with any byte occupied is never blank.
"""

from __future__ import annotations

from bufdb.report.terminal.groups import Groups
from bufdb.report.terminal.paint import BLANK, LETTERS, MARKS, Cell, Look
from bufdb.summary.picture import Column, Picture

ROWS = 8
_LEAST_LABELLED = 5
"""Cells that an area is wide at the least to bear its letter."""

Ink = str | None


def rows(picture: Picture, groups: Groups, look: Look) -> list[list[Cell]]:
    """Rows of cells, the uppermost first, with the arena's first byte at the bottom."""
    # Half a cell has a colour of its own: the lower half in front of the upper one.
    halves = 2 if look.is_coloured and not look.is_plain else 1
    known: dict[int, list[Ink]] = {}
    columns = []
    for column in picture.columns:
        if column.time not in known:
            known[column.time] = inks(column, groups, picture.arena_bytes, ROWS * halves)
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


def inks(column: Column, groups: Groups, arena_bytes: int, row_count: int) -> list[Ink]:
    """The ink of each row of a column, from below; None where nothing is occupied."""
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
    """The same with the letter of each group in the middle of the widest run that it fills."""
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
    """The rows of the map, from below, in which a temp allocation begins that is not the first."""
    height = max(1, -(-picture.arena_bytes // ROWS))
    return {wall // height for wall in picture.walls}
