"""Bars of a share, in eighths of a column of a terminal."""

from __future__ import annotations

WIDTH = 22
"""Columns of a bar for all of it, where there is room."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(ratio: float, width: int = WIDTH, *, is_plain: bool = False) -> str:
    """A bar for a share of 1, in eighths of a column; nothing above 1 is drawn.

    With `is_plain` in whole columns, of ASCII characters.
    """
    share = max(0.0, min(1.0, ratio))
    if is_plain:
        return "#" * round(share * width)
    whole, rest = divmod(round(share * width * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
