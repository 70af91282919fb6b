"""Units, widths, escapes and colors of text."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from bufdb.errors import OBEYED, one_line

# -- Text fit to be shown: units, widths, escapes --------------------------------------------------
#
# Names come from dumps, so from anybody. `terminal_safe` makes any text fit to be shown.

_CONTROL_IN_LINES = f"[\x00-\x08\x0b-\x1f{OBEYED}]"
_MARKDOWN = r"[\\`*|<>$]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|~(?=[~\w])|&(?=#?\w+;)"
# References that GitHub and GitLab link even after a backslash: a mention notifies a person.
_REFERENCE = r"(?i)@(?=\w)|#(?=\d)|\bGH-(?=\d)|(?<!\w)[!%](?=\d)|[a-z]:(?=//)|\bwww(?=\.)"
_ZERO_WIDTH_SPACE = "&#8203;"


_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
DIGITS = 3
"""Significant digits of a size."""
_MOST_DIGITS = 6
"""Digits up to which sizes are distinguished; closer ones are shown in bytes."""
_LARGEST_PERCENT = 10
"""Ratios from here on are shown as factors."""


def human_bytes(count: int, digits: int = DIGITS) -> str:
    """Format bytes with an IEC unit and three significant digits: '16.0 MiB', '512 B'."""
    if abs(count) < 1024:
        return f"{count} B"
    size, units = abs(count) / 1024, iter(_UNITS)
    # Compare the rounded text, or 1048575 would read 1024 KiB.
    text, unit = _rounded(size, digits), next(units)
    while float(text) >= 1024 and unit != _UNITS[-1]:
        size /= 1024
        text, unit = _rounded(size, digits), next(units)
    return f"{'-' if count < 0 else ''}{text} {unit}"


_TIMES = (("s", 10**9), ("ms", 10**6), ("µs", 10**3))


def human_time(ns: float) -> str:
    """Format nanoseconds with a unit and three significant digits: '12.3 ms', '512 ns'."""
    for unit, size in _TIMES:
        # Compare the rounded text, or 999,999 would read 1000 µs.
        text = _rounded(abs(ns) / size, DIGITS)
        if float(text) >= 1:
            return f"{'-' if ns < 0 else ''}{text} {unit}"
    return f"{ns:.0f} ns"


def _rounded(size: float, digits: int) -> str:
    """Return a number with so many significant digits, but with all digits before the point."""
    text = f"{size:.{max(0, digits - len(str(int(size))))}f}"
    # 9.999 has gained a digit as 10.00.
    return f"{size:.{max(0, digits - len(str(int(float(text)))))}f}"


def human_apart(counts: Sequence[int]) -> list[str]:
    """Format bytes for comparison, with enough digits to show where they differ."""
    for digits in range(DIGITS, _MOST_DIGITS + 1):
        texts = [human_bytes(count, digits) for count in counts]
        if len(set(texts)) == len(set(counts)):
            return texts
    return [f"{count} B" for count in counts]


def human_ratio(ratio: float, sign: str = "") -> str:
    """Format a share: '12.5%', or '×85,600' for many times the whole; sign "+" gives '+12.5%'."""
    if not _LARGEST_PERCENT <= abs(ratio) < math.inf:
        return f"{ratio:{sign}.1%}"
    rounded = float(f"{abs(ratio):.{DIGITS}g}")
    return f"{'-' if ratio < 0 else ''}×{rounded:,.{0 if rounded >= 100 else 1}f}"


def human_change(ratio: float, sign: str = "") -> str:
    """Format a change as a share of the old value: '12.5%'; large growth as '×85,600'."""
    return human_ratio(ratio + 1 if ratio >= _LARGEST_PERCENT else ratio, sign)


def escape_control(text: str) -> str:
    r"""Escape control characters for a terminal: \n, \x1b, \u202e."""
    return one_line(text)


def terminal_safe(text: str) -> str:
    r"""Escape control characters in the lines of an answer in any format.

    The escapes are those of JSON, \u001b, so JSON stays valid: they only occur in strings.
    """
    return re.sub(_CONTROL_IN_LINES, lambda match: f"\\u{ord(match[0]):04x}", text)


def markdown_escape(text: str) -> str:
    """Escape text so that Markdown shows it unchanged, also in a table; mentions are disabled."""
    escaped = re.sub(_MARKDOWN, lambda match: "\\" + match[0], escape_control(text))
    return re.sub(_REFERENCE, lambda match: match[0] + _ZERO_WIDTH_SPACE, escaped)


def shorten(text: str, width: int) -> str:
    """Shorten text to at most `width` columns; '…' replaces its middle, more of the end is kept.

    The end of a path or an op_name is most informative: the file and line, the operation.
    """
    if display_width(text) <= width:
        return text
    head, tail = "", ""
    for char in text:
        if display_width(head + char) > (width - 1) // 3:
            break
        head += char
    for char in reversed(text):
        if display_width(head + tail + char) > width - 1:
            break
        tail = char + tail
    return f"{head}…{tail}"


def align(rows: list[list[str]], right: list[bool]) -> str:
    """Return lines of cells in columns two spaces apart; `right` marks right-aligned columns."""
    widths = [max(map(display_width, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for cell, width, is_right in zip(row, widths, right, strict=True):
            pad = " " * (width - display_width(cell))
            cells.append(pad + cell if is_right else cell + pad)
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def display_width(text: str) -> int:
    """Return terminal columns: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


# --------------------------------------------------------------------------------------------------
# Terminal colors to highlight what is unknown, wrong, or grew.
#
# Invariant: only escaped text is colored, and no meaning depends on color alone.

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
_SEVERITIES = {"error": RED, "data_loss": RED, "notice": YELLOW}


def painted(text: str, style: str | None) -> str:
    """Return the text in a style that ends with the text."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def style_of(column: str, cell: str) -> str | None:
    """Return a cell's style: red for errors and growth, green if it shrank, yellow for unknown."""
    if column == "severity":
        return _SEVERITIES.get(cell)
    if column.endswith("unknown_reason") and cell != "-":
        return YELLOW
    if "delta_" in column or "change_" in column:
        is_change = any(digit in cell for digit in "123456789")
        return (GREEN if cell.startswith("-") else RED) if is_change else None
    return None


def use_colour(stream: Any, environment: Mapping[str, str]) -> bool:
    """Return whether to color a stream: it is a capable terminal, and NO_COLOR is not set."""
    if stream is None or stream.closed or not stream.isatty():
        return False
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
