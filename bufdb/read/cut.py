"""Where the sections of a dump lie in its text (format section 13, step 2).

A single file may hold all sections, one, or several; the cut goes by content, not by file name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Span = tuple[int, int]

_LIVE = re.compile(rb"HloLiveRange \(max \d+\):\n|HloLiveRange not available")
TOTAL, USED, LIVE = b"Total bytes used:", b"Used values:\n", b"HloLiveRange "


@dataclass(frozen=True)
class Cut:
    """Spans of a text's sections; empty where it has none."""

    allocations: Span = (0, 0)
    used_values: Span = (0, 0)
    live_ranges: Span = (0, 0)


def cut(text: bytes) -> Cut:
    """Cut one file's whole text into its sections."""
    live = live_start(text)
    end = len(text) if live < 0 else live
    used = used_start(text, end)
    start = line_start(text, b"BufferAssignment:")
    assignment = (start, end if used < 0 else used) if 0 <= start < end else (0, 0)
    return Cut(
        assignment,
        (0, 0) if used < 0 else (used, end),
        (0, 0) if live < 0 else (live, len(text)),
    )


def cut_part(head: bytes, size: int, kind: str) -> Cut | None:
    """The cut of a file of one section, by its kind and how it begins; None for any other."""
    if kind == "live_range" and head.startswith(LIVE):
        return Cut(live_ranges=(0, size))
    if kind == "values" and head.startswith((b"\n" + TOTAL, TOTAL)):
        return Cut(used_values=(0, size))
    return None


def line_start(text: bytes, prefix: bytes, end: int | None = None) -> int:
    """First line that starts so; -1 if none does."""
    if text.startswith(prefix):
        return 0
    found = text.find(b"\n" + prefix, 0, end)
    return found + 1 if found >= 0 else -1


def used_start(text: bytes, end: int) -> int:
    """Start of the totals and used values; -1 without them."""
    total = line_start(text, TOTAL, end)
    return total if total >= 0 else line_start(text, USED, end)


def live_start(text: bytes) -> int:
    """Start of the last title of live ranges: text above it may look like one; -1 without it."""
    end = len(text)
    while (place := text.rfind(b"\n" + LIVE, 0, end)) >= 0:
        if _LIVE.match(text, place + 1):
            return place + 1
        end = place + len(LIVE)
    return 0 if _LIVE.match(text) else -1


def kind_of(head: bytes) -> str | None:
    """What a file of unknown name holds, by its first few kilobytes; None if it is no dump."""
    if line_start(head, b"BufferAssignment:") >= 0:
        return "buffer_assignment"
    if _LIVE.match(head):
        return "live_range"
    used = line_start(head, USED)
    if used >= 0 and line_start(head, TOTAL) in (0, 1):
        return "values"
    return None
