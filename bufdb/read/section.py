"""One section of one or many modules, end to end in a block, and what was found wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bufdb.errors import quote
from bufdb.scan import Block, Bools, Cursor, Ints


@dataclass(frozen=True)
class Finding:
    """Something that could not be read or does not add up: a row of `diagnostics`."""

    module: int
    """Ordinal of the module in the batch being read."""
    severity: str
    """info, notice, data_loss or error."""
    code: str
    message: str
    path: str | None = None
    line_number: int | None = None
    """From 1; None if it is about no single line."""


@dataclass(frozen=True)
class Piece:
    """Text of one module's section, or a part of it that begins at a line's start."""

    module: int
    path: str
    text: bytes
    lines_before: Callable[[], int] = lambda: 0
    """Number of lines above the text in its file; asked only when something is reported."""
    line_numbers: Sequence[int] | None = None
    """For rewritten text: the line of the file that each line was made from."""


MAX_FINDINGS = 50
"""Lines reported one by one per section and kind of problem; the rest is one finding."""


class Section:
    """Pieces of one kind of section as one block; knows for every line its module and place."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = [piece for piece in pieces if piece.text]
        texts = [p.text if p.text.endswith(b"\n") else p.text + b"\n" for p in self.pieces]
        self.block = Block(*texts)
        sizes = np.array([0, *map(len, texts)], np.int64)
        self.piece_at: Ints = np.cumsum(sizes)[:-1]
        self.modules: Ints = np.array([p.module for p in self.pieces], np.int64)
        self.findings: list[Finding] = []
        self.index()

    def index(self) -> None:
        """Find the first line of every piece; again after the block's lines were split."""
        self.piece_lines: Ints = np.searchsorted(self.block.starts, self.piece_at)
        counts = np.diff(np.append(self.piece_lines, len(self.block)))
        self.module_of: Ints = np.repeat(self.modules, counts)

    def __len__(self) -> int:
        return len(self.block)

    def place(self, line: int) -> tuple[int, str, int]:
        """Module, path and line number in its file of a line of the block."""
        at = int(self.block.starts[line])
        number = int(np.searchsorted(self.piece_at, at, "right")) - 1
        piece = self.pieces[number]
        before = self.block.data.count(b"\n", int(self.piece_at[number]), at)
        if piece.line_numbers is not None:
            return piece.module, piece.path, piece.line_numbers[before]
        return piece.module, piece.path, piece.lines_before() + before + 1

    def finding(self, line: int, severity: str, code: str, message: str) -> None:
        """Report something about one line."""
        module, path, number = self.place(line)
        self.findings.append(Finding(module, severity, code, message, path, number))

    def unreadable(self, lines: Ints, expected: str) -> None:
        """Report whole lines that belong to no kind of line the section may have."""
        for count, line in enumerate(lines.tolist()):
            if count == MAX_FINDINGS:
                more = f"and {len(lines) - count} more lines like this from here on"
                self.finding(line, "data_loss", "unreadable_line", more)
                return
            text = self.block.line(line).decode(errors="replace")
            message = f"expected {expected}, found {quote(text)}"
            self.finding(line, "data_loss", "unreadable_line", message)

    def good(self, lines: Ints, cursor: Cursor) -> Bools | None:
        """Report the lines in which a cursor failed; which of the rows are good (None: all)."""
        for count, (row, place, expected) in enumerate(cursor.failures()):
            line = int(lines[row])
            if count == MAX_FINDINGS:
                more = f"and {len(cursor.problems) - count} more lines like this from here on"
                self.finding(line, "data_loss", "unreadable_line", more)
                break
            start = int(self.block.starts[line])
            column = len(self.block.data[start:place].decode(errors="replace")) + 1
            text = self.block.line(line).decode(errors="replace")
            message = f"expected {expected} at column {column}, found {quote(text)}"
            self.finding(line, "data_loss", "unreadable_line", message)
        return cursor.good()
