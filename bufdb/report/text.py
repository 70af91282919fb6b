"""Text fit to be shown: units, widths, escapes.

Names come from dumps, so from anybody. `terminal_safe` makes any text fit to be shown.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from bufdb.errors import OBEYED, one_line

if TYPE_CHECKING:  # bufdb.query.execute imports duckdb, which a list of the queries does not need
    pass

_CONTROL_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{OBEYED}]")
_MARKDOWN = re.compile(
    r"[\\`*|<>$]|\](?=[(\[:])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|~(?=[~\w])|&(?=#?\w+;)"
)
# What GitHub and GitLab link of themselves, backslash or not: a mention notifies somebody.
_REFERENCE = re.compile(
    r"@(?=\w)|#(?=\d)|\bGH-(?=\d)|(?<!\w)[!%](?=\d)|[a-z]:(?=//)|\bwww(?=\.)", re.IGNORECASE
)
_ZERO_WIDTH_SPACE = "&#8203;"


def human_bytes(count: int) -> str:
    """A number of bytes with an IEC unit and one decimal: '16.0 MiB', '512 B'."""
    size = float(abs(count))
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
    unit = 0
    # Compared as rounded, or 1048575 would read 1024.0 KiB.
    while (size if unit == 0 else round(size, 1)) >= 1024 and unit < len(units) - 1:
        size /= 1024
        unit += 1
    sign = "-" if count < 0 else ""
    return f"{sign}{size:.0f} B" if unit == 0 else f"{sign}{size:.1f} {units[unit]}"


def escape_control(text: str) -> str:
    r"""Text that a terminal shows and does not obey: control characters as \n, \x1b, \u202e."""
    return one_line(text)


def terminal_safe(text: str) -> str:
    r"""Lines of an answer in any format that a terminal shows and does not obey.

    The escapes are those of JSON, \u001b, which is valid still: only in strings can they be.
    """
    return _CONTROL_IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def markdown_escape(text: str) -> str:
    """Text that Markdown shows as it is, also in a cell of a table; nobody is mentioned by it."""
    escaped = _MARKDOWN.sub(lambda match: "\\" + match[0], escape_control(text))
    return _REFERENCE.sub(lambda match: match[0] + _ZERO_WIDTH_SPACE, escaped)


def shorten(text: str, width: int) -> str:
    """Text of at most `width` columns; '…' stands for its middle, more of the end is kept.

    The end of a path or an op_name says most: the file and line, the operation.
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
    """Lines of cells in columns two blanks apart; `right` says which are aligned right."""
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
    """Columns of a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )
