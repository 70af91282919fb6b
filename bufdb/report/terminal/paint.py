"""Cells of a picture, each with a character and colours, and the lines that they make.

Invariant: no meaning is in a colour alone: what has one has a letter too, and stands in the legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bufdb.report import colour

FIXED, OTHER = "fixed", "other"
LETTERS = "abcdefg"
"""One for each group that has a colour of its own."""
INKS = (*LETTERS, OTHER, FIXED)
# Told apart by people of each of the colour blindnesses, on a light and on a dark ground.
_OF_256 = dict(zip(INKS, (63, 202, 178, 30, 127, 39, 88, 245, 240), strict=True))
_OF_16 = dict(zip(INKS, (4, 1, 3, 6, 5, 14, 9, 7, 8), strict=True))
_DARK = frozenset(ink for ink in INKS if ink not in ("c", "f", OTHER))
"""Inks on which text is white."""


@dataclass(frozen=True)
class Look:
    """What the terminal can show."""

    is_coloured: bool = False
    is_plain: bool = False
    """ASCII alone."""
    has_256_colours: bool = True

    def style(self, front: str | None, back: str | None = None, *, is_text: bool = False) -> str:
        """The escape's parameters for an ink in front of another; of text black or white."""
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
        """What stands for an ink in the legend: its letter, on its colour."""
        text = MARKS[ink]
        if not self.is_coloured:
            return text
        return colour.painted(f" {text} ", self.style(None, ink, is_text=True))


MARKS = {**{letter: letter for letter in LETTERS}, OTHER: "o", FIXED: "-"}
"""The character of each ink in a picture without colours."""


@dataclass(frozen=True)
class Cell:
    """A character with the inks in front and behind; None for the terminal's own."""

    text: str = " "
    front: str | None = None
    back: str | None = None
    is_letter: bool = False
    """Whether it names the ink behind it."""


BLANK = Cell()


def line(cells: Iterable[Cell], look: Look) -> str:
    """A line of the terminal; nothing behind the last cell that shows anything."""
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
        parts.append(colour.painted(text, look.style(front, back, is_text=is_letter)))
    return "".join(parts)


def look_of(stream: Any, environment: Mapping[str, str], *, is_plain: bool) -> Look:
    """What a stream can show; it may be None, for a file in UTF-8.

    Characters beyond ASCII need a stream that takes UTF-8, colours a terminal (`colour.wanted`).
    """
    encoding = (getattr(stream, "encoding", None) or "utf-8") if stream is not None else "utf-8"
    is_utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    depth = environment.get("COLORTERM", "") + environment.get("TERM", "")
    return Look(
        colour.wanted(stream, environment),
        is_plain or not is_utf8,
        "256color" in depth or "truecolor" in depth or "24bit" in depth,
    )
