"""Where the sections of a dump lie in its text (format section 13, step 2).

A single file may hold all sections, one, or several; the cut goes by content, not by file name. A
file is scanned once, in parts of whole lines, so that a large file is cut as a small one is. Every
line of a file belongs to exactly one section: text above the first title goes with the section
below it, whose reader reports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Span = tuple[int, int]

BOM = b"\xef\xbb\xbf"
_LIVE = re.compile(rb"HloLiveRange \(max \d+\):\r?\n|HloLiveRange not available")
_USED = re.compile(rb"Used values:\r?\n")
TITLE, ALLOCATION = b"BufferAssignment:", b"allocation "
TOTAL, USED, LIVE = b"Total bytes used:", b"Used values:", b"HloLiveRange "


@dataclass(frozen=True)
class Cut:
    """Spans of a text's sections; empty where it has none."""

    allocations: Span = (0, 0)
    used_values: Span = (0, 0)
    live_ranges: Span = (0, 0)

    @property
    def is_empty(self) -> bool:
        """Whether the text holds no section at all."""
        return not (self.allocations[1] or self.used_values[1] or self.live_ranges[1])


class Titles:
    """The places of the titles in a file that comes in parts of whole lines."""

    def __init__(self, kind: str) -> None:
        """Begin a file of this kind; one that its name says is one section is not searched."""
        self.kind = kind
        self._has_titles = kind == "buffer_assignment"
        self.size = 0
        """Bytes read so far."""
        self.line_count = 0
        """Line ends so far."""
        self.first_line = b""
        """Its first bytes."""
        self.cr_count = 0
        """Lines that end with CR LF."""
        self._first_is_crlf = False
        self.allocations = self.total = self.used = self.live = -1
        """First of "BufferAssignment:" or an allocation, of the total, of "Used values:"; last of
        the live ranges, since text above it may look like one. -1 where there is none."""

    def feed(self, text: bytes) -> None:
        """Scan the next part; each one ends with a line end, except perhaps the last."""
        import numpy as np  # 60 ms, saved when only kinds of files are asked for

        begin = 0
        if self.size == 0:
            begin = len(BOM) if text.startswith(BOM) else 0
            end = text.find(b"\n", begin)
            self.first_line = text[begin : min(len(text), begin + 4096) if end < 0 else end]
            self._first_is_crlf = end > begin and text[end - 1 : end] == b"\r"
            self._has_titles |= self.first_line.startswith(TITLE)
        if self._has_titles:
            self._look(text, begin)
        self.size += len(text)
        # A third of the time of text.count.
        self.line_count += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
        if b"\r" in text:
            self.cr_count += text.count(b"\r\n")

    def _look(self, text: bytes, begin: int) -> None:
        if self.allocations < 0:
            places = [self._first(text, begin, title) for title in (TITLE, ALLOCATION)]
            self.allocations = min((place for place in places if place >= 0), default=-1)
        if self.total < 0:
            self.total = self._first(text, begin, TOTAL)
        if self.used < 0:
            self.used = self._first(text, begin, USED, _USED)
        # Most parts lack even its first letter, which takes a fifth of the time to find.
        end = len(text) if LIVE[:1] in text else begin
        while (place := text.rfind(LIVE, begin, end)) >= 0:
            if (place == begin or text[place - 1 : place] == b"\n") and _LIVE.match(text, place):
                self.live = self.size + place
                break
            end = place + len(LIVE) - 1

    @property
    def is_crlf(self) -> bool:
        """Whether CR LF ends the first line or most of them.

        XLA writes none as a line end, but text that it prints raw may hold some.
        """
        return self._first_is_crlf or 2 * self.cr_count > self.line_count

    def _first(
        self, text: bytes, begin: int, prefix: bytes, pattern: re.Pattern[bytes] | None = None
    ) -> int:
        """Return the first line that begins with `prefix` (and matches `pattern`), or -1."""
        place = begin if text.startswith(prefix, begin) else _below(text, begin, prefix)
        while place >= 0 and pattern is not None and not pattern.match(text, place):
            place = _below(text, place, prefix)
        return -1 if place < 0 else self.size + place


def _below(text: bytes, at: int, prefix: bytes) -> int:
    """Return the next line below a position that begins with `prefix`, or -1."""
    start = text.find(b"\n" + prefix, at)
    return -1 if start < 0 else start + 1


def cut(titles: Titles) -> Cut:
    """Cut a file that was scanned to its end."""
    size = titles.size
    if titles.kind == "values" and not titles.first_line.startswith(TITLE):
        return Cut(used_values=(0, size))
    if titles.kind == "live_range" and not titles.first_line.startswith(TITLE):
        return Cut(live_ranges=(0, size))
    live = titles.live if titles.live >= 0 else size
    used = next((place for place in (titles.total, titles.used) if 0 <= place < live), live)
    if 0 <= titles.allocations < used:
        first = "allocations"
    elif used < live:
        first, used = "used_values", 0
    elif live < size:
        first, used, live = "live_ranges", 0, 0
    else:
        return Cut()
    return Cut(
        (0, used) if first == "allocations" else (0, 0),
        (used, live) if used < live else (0, 0),
        (live, size) if live < size else (0, 0),
    )


def kind_of(head: bytes) -> str | None:
    """Return what a file of unknown name holds, by its first few kilobytes; None if not a dump."""
    head = head.removeprefix(BOM).replace(b"\r\n", b"\n")
    if re.search(rb"^BufferAssignment:", head, re.MULTILINE):
        return "buffer_assignment"
    if _LIVE.match(head):
        return "live_range"
    if re.match(rb"\n?Total bytes used:", head) and re.search(rb"^Used values:", head, re.M):
        return "values"
    return None
