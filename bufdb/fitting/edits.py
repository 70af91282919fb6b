"""Edits of a text at offsets in bytes, and the diff of what comes out.

Invariant: only what an edit covers changes; every other byte stays, line ends and tabs included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

CONTEXT = 3
"""Unchanged lines around a change in a diff."""


class Refused(Exception):
    """Why an edit cannot be made safely; a phrase without a period."""


Render = Callable[[int, int], str]
"""Text of a span, with the edits inside of it."""


@dataclass(frozen=True)
class Edit:
    """A change of a span of bytes; spans of edits are nested or apart."""

    start: int
    end: int
    make: Callable[[Render], str]
    """The new text; the argument renders spans inside."""
    rank: int = 0
    """Of edits of the same span, the lower is outside."""


class Edits:
    """A text, and the edits that are to be made."""

    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        self.edits: list[Edit] = []
        self._starts = [0]
        for line in _lines(text):
            self._starts.append(self._starts[-1] + len(line.encode()))

    def offset(self, line: int, column: int) -> int:
        """Return the offset in bytes of a position of `ast`."""
        return self._starts[line - 1] + column

    def end_of_line(self, line: int) -> int:
        """Return the offset in bytes of the end of a line, before what ends it."""
        end = self._starts[line] if line < len(self._starts) else len(self.raw)
        return len(self.raw[:end].rstrip(b"\r\n")) if end > self._starts[line - 1] else end

    def replace(self, span: tuple[int, int], make: Callable[[Render], str], rank: int = 0) -> None:
        """Add an edit."""
        self.edits.append(Edit(*span, make, rank))

    def drop_lines(self, first: int, last: int) -> None:
        """Remove whole lines."""
        self.replace((self._starts[first - 1], self._starts[last]), lambda render: "")

    def insert_line(self, line: int, text: str) -> None:
        """Insert a line before a line."""
        at = self._starts[min(line - 1, len(self._starts) - 1)]
        text += self.line_end
        if at and self.raw[at - 1 : at] not in (b"\n", b"\r"):
            text = self.line_end + text
        self.replace((at, at), lambda render: text)

    @property
    def line_end(self) -> str:
        """Line end of the file's first line."""
        first = self.raw.decode().partition("\n")[0]
        return "\r\n" if first.endswith("\r") else "\n"

    def edited(self) -> str:
        """Return the text with all edits.

        Raises:
            Refused: two edits overlap.
        """
        return self._render(0, len(self.raw), sorted(self.edits, key=_order))

    def _render(self, start: int, end: int, edits: Sequence[Edit]) -> str:
        pieces, at = [], start
        for number, edit in enumerate(edits):
            if edit.start < at or edit.start < start:
                if edit.end > at:
                    raise Refused("two changes overlap")
                continue
            if edit.end > end:
                continue
            inner = [
                other
                for other in edits[number + 1 :]
                if edit.start <= other.start and other.end <= edit.end and edit.end > edit.start
            ]
            pieces.append(self.raw[at : edit.start].decode())
            pieces.append(edit.make(lambda a, b, inner=inner: self._render(a, b, inner)))  # type: ignore[misc]
            at = edit.end
        pieces.append(self.raw[at:end].decode())
        return "".join(pieces)


def _order(edit: Edit) -> tuple[int, bool, int, int]:
    """Return the sort key of edits: insertions first, then the outer edits."""
    return edit.start, edit.end > edit.start, -edit.end, edit.rank


def _lines(text: str) -> list[str]:
    """Return the lines as Python counts them, with their ends."""
    lines, start = [], 0
    for at, character in enumerate(text):
        if character == "\n" or (character == "\r" and text[at + 1 : at + 2] != "\n"):
            lines.append(text[start : at + 1])
            start = at + 1
    return [*lines, text[start:]] if start < len(text) else lines


# -- the diff --------------------------------------------------------------------------------------


def unified_diff(old: str, new: str, path: str) -> str:
    r"""Return a unified diff that `git apply` takes; lines end at \n alone, as git has it."""
    before, after = _git_lines(old), _git_lines(new)
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        first, last = group[0], group[-1]
        ranges = (_range(first[1], last[2]), _range(first[3], last[4]))
        lines.append(f"@@ -{ranges[0]} +{ranges[1]} @@\n")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += _marked(" ", before[a:b])
            else:
                lines += _marked("-", before[a:b]) + _marked("+", after[c:d])
    return "".join(lines) if len(lines) > 2 else ""


def _git_lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    if lines[-1] == "\n":
        return lines[:-1]
    return [*lines[:-1], lines[-1][:-1]]


def _range(start: int, end: int) -> str:
    count = end - start
    # An empty range is after the line before it.
    return f"{start + (count > 0)},{count}"


def _marked(mark: str, lines: Iterable[str]) -> list[str]:
    return [
        mark + (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        for line in lines
    ]
