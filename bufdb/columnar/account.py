"""What became of every line of a dump: read, known to carry nothing, or not understood.

Owns the findings of a batch of modules and the tally of their files. Invariant: nothing here
depends on how a file came in rounds or on what else is in the batch: findings are limited per file
and per module, lowest lines first, and the three counts of a file add up to its lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bufdb.columnar.scan import Ints

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
    """Whether lines that nobody speaks for are known to carry nothing for us."""


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
        """Say how many lines a file has, and whether those that no reader takes are known."""
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

    def add(self, found: Finding) -> None:
        """Report something about a module or a file."""
        key = (found.module, found.code)
        mine = self._others.setdefault(key, [])
        if found in mine:
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        if len(mine) < MAX_FINDINGS:
            mine.append(found)

    def close(self) -> None:
        """Settle the tallies; lines that nobody spoke for are reported, so that none is lost."""
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
        """All findings: what is about lines by file and line, then the rest."""
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
