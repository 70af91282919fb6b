"""Sections: texts end to end, whose lines are all read, known or reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bufdb.columnar.scan import PAD, Block, Bools, Cursor, Ints
from bufdb.columnar.sets import distinct
from bufdb.errors import quote

# -- What became of every line of a dump: read, known to carry nothing, or not understood ----------
#
# Owns the findings of a batch of modules and the tally of their files. Invariant: nothing here
# depends on how a file came in rounds or on what else is in the batch: findings are limited per
# file and per module, lowest lines first, and the three counts of a file add up to its lines.

States = NDArray[np.uint8]

UNSEEN, KNOWN, READ, UNREAD = range(4)
"""States of a line; the highest counts where a line has several parts."""
MAX_FINDINGS = 50
"""Findings of one kind reported one by one per file, or per module; the rest is one finding."""


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


@dataclass
class Tally:
    """The lines of one file."""

    line_count: int = 0
    read_count: int = 0
    known_count: int = 0
    unread_count: int = 0
    rest_is_known: bool = False
    """Whether lines that no reader takes are known to carry nothing for us."""


@dataclass
class _LineFindings:
    """Findings of one kind about lines of one file: the lowest ones, and how many there are."""

    severity: str
    lowest: list[tuple[int, str]] = field(default_factory=list)
    """(line number, message), in order; one more than are reported one by one."""
    count: int = 0

    def add(self, some: Sequence[tuple[int, str]], count: int) -> None:
        self.lowest = sorted([*self.lowest, *some])[: MAX_FINDINGS + 1]
        self.count += count


class Account:
    """Findings and tallies of a batch, by module ordinal and path."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[int, str], Tally] = {}
        self._by_line: dict[tuple[int, str, str], _LineFindings] = {}
        self._others: dict[tuple[int, str], list[Finding]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._states: dict[tuple[int, str], States] = {}

    def open(self, module: int, path: str, line_count: int, *, rest_is_known: bool) -> None:
        """Set how many lines a file has, and whether those that no reader takes are known."""
        self.tallies[module, path] = Tally(line_count, rest_is_known=rest_is_known)

    def count(self, module: int, path: str, states: States) -> None:
        """Add lines of a file by their states."""
        self.count_by_state(module, path, np.bincount(states, minlength=4).tolist())

    def count_by_state(self, module: int, path: str, counts: Sequence[int]) -> None:
        """Add lines of a file: how many have each of the states."""
        tally = self.tallies.setdefault((module, path), Tally())
        tally.known_count += counts[KNOWN]
        tally.read_count += counts[READ]
        tally.unread_count += counts[UNREAD]

    def count_numbered(self, module: int, path: str, numbers: Ints, states: States) -> None:
        """Add lines by number (from 1), for text in which a line of the file may come twice."""
        lines = self.tallies[module, path].line_count
        known = self._states.setdefault((module, path), np.zeros(lines, np.uint8))
        np.maximum.at(known, numbers - 1, states)

    def unread(
        self,
        module: int,
        path: str,
        lowest: Sequence[tuple[int, str]],
        count: int,
        code: str = "unreadable_line",
        severity: str = "data_loss",
    ) -> None:
        """Report lines of a file: the lowest ones as (number, message), and how many in all."""
        key = (module, path, code)
        self._by_line.setdefault(key, _LineFindings(severity)).add(lowest, count)

    def find(
        self,
        module: int,
        severity: str,
        code: str,
        message: str,
        path: str | None = None,
        line_number: int | None = None,
    ) -> None:
        """Report something about a module or a file, in the order of the dump; once each."""
        self.add(Finding(module, severity, code, message, path, line_number))

    def add(self, finding: Finding) -> None:
        """Report something about a module or a file."""
        key = (finding.module, finding.code)
        findings = self._others.setdefault(key, [])
        if finding in findings:
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        if len(findings) < MAX_FINDINGS:
            findings.append(finding)

    def close(self) -> None:
        """Settle the tallies; lines that no reader took are reported, so that none is lost."""
        for (module, path), states in self._states.items():
            self.count(module, path, states)
        self._states = {}
        for (module, path), tally in self.tallies.items():
            seen = tally.read_count + tally.known_count + tally.unread_count
            lost = tally.line_count - seen
            if lost and tally.rest_is_known:
                tally.known_count += lost
            elif lost:
                tally.unread_count += lost
                message = f"{lost} lines belong to no section"
                self.find(module, "data_loss", "unreadable_file", message, path)

    def findings(self) -> list[Finding]:
        """Return all findings: those about lines by file and line, then the rest."""
        result = []
        for (module, path, code), lines in sorted(self._by_line.items()):
            for number, message in lines.lowest[:MAX_FINDINGS]:
                result.append(Finding(module, lines.severity, code, message, path, number))
            if lines.count > MAX_FINDINGS:
                more = f"and {lines.count - MAX_FINDINGS} more lines like this from here on"
                number = lines.lowest[MAX_FINDINGS][0]
                result.append(Finding(module, lines.severity, code, more, path, number))
        for (module, code), others in sorted(self._others.items()):
            result += others
            if (more_count := self._counts[module, code] - MAX_FINDINGS) > 0:
                message = f"and {more_count} more like this"
                result.append(Finding(module, others[0].severity, code, message))
        return result


# -- One section of one or many modules, end to end in a block, and what became of its lines -------
#
# A piece's border is a wall: readers learn from `piece_of` where one ends, and nothing in
# one piece says anything about a line of another.


@dataclass(frozen=True)
class Piece:
    """Text of one file's section, or a part of it that begins at a line's start."""

    module: int
    path: str
    data: bytes
    """What holds the text."""
    lines_before: Callable[[], int] = lambda: 0
    """Number of lines above the text in its file; asked only when something is reported."""
    line_numbers: Sequence[int] | None = None
    """For rewritten text: the line of the file that each line was made from."""
    begins: bool = True
    """Whether the section begins here; False for what goes on from the round before."""
    above: bytes = b""
    """What the round before left: whole lines that are read again before the text."""
    span: tuple[int, int] | None = None
    """The position of the text in the data; None if it is all of it."""

    @property
    def text(self) -> bytes:
        """The text alone, copied if there is more in the data."""
        return self.data if self.span is None else self.data[slice(*self.span)]

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.data) if self.span is None else self.span[1] - self.span[0]

    def in_place(self) -> tuple[int, int] | None:
        """Return where the text with what is above it is in the data, if a block can be there."""
        if self.span is None:
            return None
        start, stop = self.span[0] - len(self.above), self.span[1]
        is_whole = start >= 0 and self.data.startswith(self.above, start)
        has_room = len(self.data) - stop >= len(PAD) and not self.data.endswith(b"\0")
        ends = self.data.endswith(b"\n", start, stop)
        return (start, stop) if is_whole and has_room and ends else None

    def parts(self, size: int) -> Iterator[Piece]:
        """Yield the piece as pieces of whole lines, each of at most `size` bytes or of one line."""
        begin, text = 0, self.text
        while len(text) - begin > size and self.line_numbers is None:
            end = text.rfind(b"\n", begin, begin + size) + 1 or text.find(b"\n", begin) + 1
            if not end:
                break
            yield self._from(begin, end)
            begin = end
        yield self._from(begin, len(text)) if begin else self

    def _from(self, begin: int, end: int) -> Piece:
        def lines_before() -> int:
            return self.lines_before() + self.text.count(b"\n", 0, begin)

        begins = self.begins and begin == 0
        text = self.text[begin:end]
        return replace(self, data=text, span=None, lines_before=lines_before, begins=begins)


Rounds = Iterator[list[Piece]]
"""Rounds in which a section is read: whole lines, each with the pieces it is made of."""


class Section:
    """Pieces of one kind of section as one block, with the piece and place of every line."""

    def __init__(self, pieces: Sequence[Piece], account: Account | None = None) -> None:
        """Take the pieces; what is found goes to `account`, if it is given."""
        self.pieces = [piece for piece in pieces if piece.above or piece.size]
        self.account = Account() if account is None else account
        place = self.pieces[0].in_place() if len(self.pieces) == 1 else None
        if place is not None:
            self.block = Block.within(self.pieces[0].data, *place)
            self.piece_at: Ints = np.array(place[:1])
        else:
            texts = []  # three of each piece, which the block joins
            for piece in self.pieces:
                text = piece.text
                is_whole = (text or piece.above).endswith(b"\n")
                texts += [piece.above, text, b"" if is_whole else b"\n"]
            self.block = Block(*texts)
            self.piece_at = np.cumsum(np.array([0, *map(len, texts)], np.int64))[:-1:3]
        self.modules: Ints = np.array([p.module for p in self.pieces], np.int64)
        self._starts = self.block.starts
        """Starts of the lines of the files: readers may split lines further."""
        self._bad: list[tuple[Ints, Ints | None, list[str] | str]] = []
        self._notes: list[tuple[int, str, str, str]] = []
        self._stop = 0
        self.first_state = UNSEEN
        """State of what the round before read of the first line."""
        self.index()

    def index(self) -> None:
        """Find the first line of every piece; again after the block's lines were split."""
        self.piece_lines: Ints = np.searchsorted(self.block.starts, self.piece_at)
        counts = np.diff(np.append(self.piece_lines, len(self.block)))
        self.piece_of: Ints = np.repeat(np.arange(len(self.pieces)), counts)
        self.module_of: Ints = np.repeat(self.modules, counts)
        self.states = np.zeros(len(self.block), np.uint8)

    def __len__(self) -> int:
        return len(self.block)

    def is_blank(self) -> Bools:
        """Return which lines are empty."""
        blank: Bools = self.block.starts == self.block.ends
        return blank

    def mark(self, lines: Ints | Bools, state: int) -> None:
        """Set the state of these lines."""
        self.states[lines] = state

    def finding(self, line: int, severity: str, code: str, message: str) -> None:
        """Report something about one line, unless the next round reads it again."""
        self._notes.append((line, severity, code, message))

    def unreadable(self, lines: Ints, expected: str) -> None:
        """Report whole lines that belong to no kind of line the section may have."""
        if len(lines):
            self.mark(lines, UNREAD)
            self._bad.append((lines, None, expected))

    def good(self, lines: Ints, cursor: Cursor) -> Bools | None:
        """Mark lines as read unless a cursor failed there; return the good rows (None: all)."""
        self.mark(lines, READ)
        if cursor.problems:
            failures = list(cursor.failures())
            rows = np.array([row for row, _, _ in failures], np.int64)
            places = np.array([place for _, place, _ in failures], np.int64)
            self.mark(lines[rows], UNREAD)
            self._bad.append((lines[rows], places, [expected for _, _, expected in failures]))
        return cursor.good()

    def settle(self, expected: str | None = None, stop: int | None = None) -> None:
        """Mark the lines that no reader has taken.

        Args:
            expected: what such a line should have been; None if such lines are known to carry
                nothing. Empty lines always are.
            stop: the first line that is read again in the next round; None for the end.
        """
        self._stop = len(self) if stop is None else stop
        rest = np.flatnonzero(self.states[: self._stop] == UNSEEN)
        if expected is not None:
            blank = self.block.starts[rest] == self.block.ends[rest]
            self.mark(rest[blank], KNOWN)
            self.unreadable(rest[~blank], expected)
        else:
            self.mark(rest, KNOWN)

    def close(self) -> int:
        """Enter into the account what became of the lines.

        Returns:
            The state of a line that the next round reads in part again, and counts; UNSEEN if there
            is none.
        """
        total = self._stop
        count, states = self._line_states(total)
        left, states = int(states[count]), states[:count]
        first = np.append(np.searchsorted(self._starts, self.piece_at), len(self._starts))
        bounds = np.minimum(first, count)
        owner = np.repeat(np.arange(len(self.pieces)), np.diff(bounds))
        counts = np.bincount(4 * owner + states, minlength=4 * len(self.pieces)).reshape(-1, 4)
        for number, (piece, outcome) in enumerate(zip(self.pieces, counts.tolist(), strict=True)):
            if piece.line_numbers is not None:
                some = states[bounds[number] : bounds[number + 1]]
                numbers = np.array(piece.line_numbers[: len(some)], np.int64)
                self.account.count_numbered(piece.module, piece.path, numbers, some)
            elif any(outcome):
                self.account.count_by_state(piece.module, piece.path, outcome)
        self._report(total)
        for line, severity, code, message in self._notes:
            if line < total:
                piece = self.pieces[self.piece_of[line]]
                lines = [(self._number(line), message)]
                self.account.unread(piece.module, piece.path, lines, 1, code, severity)
        return left

    def _line_states(self, total: int) -> tuple[int, States]:
        """Return how many lines of files the first lines of the block are, and their states.

        After these comes the state of a line that is only partly among them.
        """
        states = np.zeros(len(self._starts) + 1, np.uint8)
        if self.block.starts is self._starts:  # no line was split
            count = total
            states[:total] = self.states[:total]
        else:
            line_of = np.searchsorted(self._starts, self.block.starts[: total + 1], "right") - 1
            count = int(line_of[-1]) + (total == len(self)) if len(line_of) else 0
            np.maximum.at(states, line_of[:total], self.states[:total])
        states[:1] = np.maximum(states[:1], self.first_state)
        return count, states

    def _report(self, total: int) -> None:
        """Report the lowest unread lines of each piece."""
        if not self._bad:
            return
        lines = np.concatenate([lines for lines, _, _ in self._bad])
        group = np.repeat(np.arange(len(self._bad)), [len(lines) for lines, _, _ in self._bad])
        row = np.concatenate([np.arange(len(lines)) for lines, _, _ in self._bad])
        lines, first = np.unique(lines, return_index=True)
        first, lines = first[lines < total], lines[lines < total]
        owners = self.piece_of[lines]
        for number in distinct(owners).tolist():
            unread_lines = np.flatnonzero(owners == number)
            lowest = [
                (
                    self._number(int(lines[at])),
                    self._message(int(lines[at]), self._bad[group[first[at]]], int(row[first[at]])),
                )
                for at in unread_lines[: MAX_FINDINGS + 1].tolist()
            ]
            piece = self.pieces[number]
            self.account.unread(piece.module, piece.path, lowest, len(unread_lines))
        self._bad = []

    def _message(self, line: int, bad: tuple[Ints, Ints | None, list[str] | str], row: int) -> str:
        _, places, expected = bad
        start = int(self.block.starts[line])
        text = self.block.data[start : min(int(self.block.ends[line]), start + 400)]
        quoted = quote(text.decode(errors="replace"))
        if places is None:
            return f"expected {expected}, found {quoted}"
        place = min(int(places[row]), int(self.block.ends[line]))
        column = len(self.block.data[start:place].decode(errors="replace")) + 1
        return f"expected {expected[row]} at column {column}, found {quoted}"

    def _number(self, line: int) -> int:
        """Return the number in its file of a line of the block."""
        number = int(self.piece_of[line])
        piece = self.pieces[number]
        at = int(self.block.starts[line])
        first = int(np.searchsorted(self._starts, self.piece_at[number]))
        before = int(np.searchsorted(self._starts, at, "right")) - 1 - first
        if piece.line_numbers is not None:
            return piece.line_numbers[before]
        return piece.lines_before() + before + 1
