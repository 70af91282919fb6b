"""Occupied bytes over the program: in each column its highest instant, by group from below."""

from __future__ import annotations

from bufdb.report.terminal.axes import Scale
from bufdb.report.terminal.groups import Groups
from bufdb.report.terminal.paint import BLANK, FIXED, Cell, Look
from bufdb.summary.picture import Column, Picture

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def rows(picture: Picture, groups: Groups, scale: Scale, look: Look) -> list[list[Cell]]:
    """Rows of cells, the uppermost first."""
    columns = [_column(groups.bytes_of(column), scale, look) for column in picture.columns]
    return [[column[row] for column in columns] for row in reversed(range(scale.row_count))]


def _column(sizes: list[tuple[str, int]], scale: Scale, look: Look) -> list[Cell]:
    """Cells from below, of inks with their bytes from below."""
    edges, total = [], 0
    for ink, size in sizes:
        total += size
        edges.append((ink, scale.eighths(total)))
    return [_cell(edges, row * 8, look) for row in range(scale.row_count)]


def _cell(edges: list[tuple[str, int]], low: int, look: Look) -> Cell:
    """One cell, from `low` eighths on; of three inks in it the largest above the lowest is seen."""
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
    if below - low < 8:  # its upper part is empty, which leaves one colour for the rest
        first = max(inside, key=lambda item: item[1])[0]
        return Cell(_EIGHTHS[below - low], first)
    second = max(rest, key=lambda item: item[1])[0]
    return Cell(_EIGHTHS[height], first, second)


def _uncoloured(inside: list[tuple[str, int]], height: int, look: Look) -> Cell:
    """What is held throughout is pale, if it fills the cell."""
    is_fixed = inside[0] == (FIXED, 8)
    if look.is_plain:
        return Cell("-" if is_fixed else "#" if height >= 4 else ".")
    return Cell("░" if is_fixed else _EIGHTHS[height])


def highest(columns: list[Column]) -> int:
    """The most bytes that are to be drawn."""
    return max((column.occupied_bytes for column in columns), default=0)
