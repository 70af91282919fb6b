"""Colours of a terminal, for what a reader looks for: what is unknown, what is wrong, what grew.

Invariant: no text is coloured that was not escaped before, and no meaning is in a colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_SEVERITIES = {"error": RED, "data_loss": RED, "notice": YELLOW}


def painted(text: str, style: str | None) -> str:
    """The text in a style, which ends with it."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def style_of(column: str, cell: str) -> str | None:
    """The style of a cell: red what is wrong or grew, green what shrank, yellow what is unknown."""
    if column == "severity":
        return _SEVERITIES.get(cell)
    if column.endswith("unknown_reason") and cell != "-":
        return YELLOW
    if "delta_" in column or "change_" in column:
        is_change = any(digit in cell for digit in "123456789")
        return (GREEN if cell.startswith("-") else RED) if is_change else None
    return None


def wanted(stream: Any, environment: Mapping[str, str]) -> bool:
    """Whether a stream is to be coloured: a terminal that can, and nobody said NO_COLOR."""
    if stream is None or stream.closed or not stream.isatty():
        return False
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
