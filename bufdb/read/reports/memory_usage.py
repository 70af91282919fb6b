"""The memory-usage-report: its totals alone, which are exact (format section 9.1)."""

from __future__ import annotations

import re

_SPACE = re.compile(rb"Memory Space: [^\n]*\(color=(\d{1,18})\)\r?$")
_BYTES = re.compile(rb"Total bytes: (-?\d{1,38}) \(")
_USED = re.compile(rb"Total bytes used: (-?\d{1,38}) \(")


def read(text: bytes) -> tuple[list[tuple[int | None, int]], int]:
    """(color, bytes) of each total, and the number of lines that say so.

    The color is None for the total of all memory spaces, which is that of jaxlib 0.4.35 to 0.9.1.
    A total without a color above it, and a second one of the same color, are left out: the report
    was damaged there.
    """
    found: dict[int | None, int] = {}
    color: int | None = None
    lines = 0
    for line in text.split(b"\n"):
        if space := _SPACE.match(line):
            color = int(space[1])
            lines += 1
        elif (total := _BYTES.match(line)) and color is not None:
            found.setdefault(color, int(total[1]))
            color = None
            lines += 1
        elif used := _USED.match(line):
            found.setdefault(None, int(used[1]))
            lines += 1
    return list(found.items()), lines
