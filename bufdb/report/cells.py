"""How the text of one cell gives way where a table is too wide: what tells most stays.

Invariant: a figure never gives way; what gives way shows an `…`, a shape that loses its layout
excepted: `f32[8,100]{1,0}` becomes `f32[8,100]`.
"""

from __future__ import annotations

import re

from bufdb.report.text import display_width, shorten

SMALLEST = 18
"""Columns that a name is left at the least."""
SMALLEST_PROSE = 48
"""Columns that a sentence is left at the least."""
SMALLEST_START = 24
"""Columns that a shape or a call stack is left at the least, of which the start tells most."""
SMALLEST_PATH = 16
"""Columns that the end of a path is left at the least."""
SMALLEST_OP = 24
"""Columns that the end of an op_name is left at the least."""

_SHAPE = re.compile(r"(?:.*_)?shapes?$")
_OP = re.compile(r"(?:.*_)?(?:op_name|op_path)$")
_START = re.compile(r"(?:.*_)?(?:key|stack)$")
"""Columns of which the start tells most: module_0002.jit_train_step.cpu_after_optimizations."""
_PROSE = re.compile(r"(?:.*_)?(?:reason|message|advice|labels|metadata|options)$")
"""Columns whose texts are no path, slashes or not."""
_WHOLE = ("layout", "remedy")
"""Columns that a question is asked for."""
_LAYOUT = re.compile(r"\{[^{}]*\}")
_PATH = re.compile(r"((?:saved |for )?library |saved |for )(.+)|()(.*/.*)", re.DOTALL)


def least(column: str, text: str) -> int:
    """The columns of a terminal that a text of this column of a table needs at the least."""
    if column in _WHOLE:
        return display_width(text)
    if _SHAPE.fullmatch(column):
        return min(display_width(_LAYOUT.sub("", text)), SMALLEST_START)
    if column.endswith("stack"):
        return min(display_width(text), SMALLEST_START)
    if _PROSE.fullmatch(column):
        return min(display_width(text), SMALLEST_PROSE)
    prefix, path = _parts(column, text)
    if path:
        smallest = SMALLEST_OP if _OP.fullmatch(column) else SMALLEST_PATH
        return min(display_width(text), len(prefix) + smallest)
    return min(display_width(text), SMALLEST)


def give_way(column: str, text: str, width: int) -> str:
    """Text of at most `width` columns.

    A shape loses its layout before anything else. Of a path and an op_name the end stays, in whole
    parts where one fits, of a module's key and a call stack the start; any other text loses its
    middle.
    """
    if display_width(text) <= width:
        return text
    if _SHAPE.fullmatch(column):
        bare = _LAYOUT.sub("", text)
        return bare if display_width(bare) <= width else _start(bare, width)
    if _START.fullmatch(column):
        return _start(text, width)
    prefix, path = _parts(column, text)
    if path and width > len(prefix) + 2:
        return prefix + _end(path, width - len(prefix))
    return shorten(text, width)


def _parts(column: str, text: str) -> tuple[str, str]:
    """What a path is there for ("saved ", "library "), and the path; both empty if it is none."""
    found = _PATH.fullmatch(text)
    if found is None or _PROSE.fullmatch(column) or _START.fullmatch(column):
        return "", ""
    return found[1] or "", found[2] or found[4]


def _start(text: str, width: int) -> str:
    while display_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _end(path: str, width: int) -> str:
    """The longest end of whole parts that fits behind a '…', else as much of the last as fits."""
    for slash in re.finditer("/", path):
        if display_width(path[slash.start() :]) < width:
            return "…" + path[slash.start() :]
    while display_width(path) > width - 1:
        path = path[1:]
    return "…" + path
