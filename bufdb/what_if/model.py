"""The peak of today's schedule with some values away and some parameters donated.

One model for both: what an output holds before the donated parameter is read for the last time
needs bytes elsewhere until then. They are ranges in an allocation of their own beside those of the
module, and the bytes of the output are no longer fixed ones; values are taken away by
`bufdb.memory.savings`, which counts what only they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.errors import BufdbError
from bufdb.memory.occupancy import occupancy
from bufdb.memory.ranges import Ranges
from bufdb.memory.savings import Savings
from bufdb.what_if.donation import Donation
from bufdb.what_if.temps import Temps

_PAIRS = 1 << 21
"""Pairs of a value and a set that are looked at together."""


@dataclass(frozen=True)
class Height:
    """A peak."""

    peak_bytes: int
    """With fixed bytes."""
    peak_time: int
    """The first instant of it [program order]."""


class Model:
    """A module in one memory space, to be asked what its peak is without sets of its values."""

    def __init__(
        self,
        temps: Temps,
        fixed_bytes: int,
        schedule_length: int,
        donations: Sequence[Donation] = (),
        keep: Fraction = Fraction(0),
    ) -> None:
        """Take a module with some of its parameters donated.

        Args:
            temps: its values.
            fixed_bytes: memory_figures.fixed_bytes.
            schedule_length: its last instant.
            donations: what is donated.
            keep: the share of their bytes that values which are taken away keep.
        """
        self.keep = keep
        self.donated = bool(donations)
        self.fixed_bytes = fixed_bytes - sum(donation.size_bytes for donation in donations)
        ranges, occupied = temps.ranges, temps.occupied
        if donations:
            ranges = _with_early(ranges, donations)
            occupied = occupancy(ranges, 1, np.array([schedule_length]))
        self.today = self._height(occupied.peak[0], occupied.peak_time[0])
        self._ranges, self._occupied = ranges, occupied

    @cached_property
    def _savings(self) -> Savings:
        return Savings(self._ranges, self._occupied, 1)

    def without(self, sets: Sequence[Ints]) -> list[Height]:
        """The peak without the values of each set, which are rows of `Temps`.

        Raises:
            BufdbError: they share bytes with so many others that it is not computed.
        """
        heights: list[Height] = []
        part: list[Ints] = []
        for rows in sets:
            if part and sum(map(len, part)) + len(rows) > _PAIRS:
                heights += self._part(part)
                part = []
            part.append(rows)
        return heights + self._part(part)

    def _part(self, sets: Sequence[Ints]) -> list[Height]:
        found = [self.today] * len(sets)
        some = [number for number, rows in enumerate(sets) if len(rows)]
        if not some:
            return found
        rows = np.concatenate([sets[number] for number in some])
        owner = np.repeat(np.arange(len(some)), [len(sets[number]) for number in some])
        saved = self._savings.of(rows, owner, len(some), self.keep)
        if not saved.is_known.all():
            raise BufdbError(
                "values share bytes with so many others that what the peak would be without them "
                "is not computed"
            )
        for number, peak, time in zip(some, saved.peak, saved.peak_time, strict=True):
            found[number] = self._height(peak, time)
        return found

    def _height(self, occupied: int, time: int) -> Height:
        return Height(self.fixed_bytes + int(occupied), int(time))


def _with_early(ranges: Ranges, donations: Sequence[Donation]) -> Ranges:
    """The ranges, and behind them what outputs hold before their parameters are free."""
    rows = [
        (-1 - number, donation.size_bytes, *span)
        for number, donation in enumerate(donations)
        for span in donation.early
    ]
    allocation, size, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    zeros = np.zeros(len(rows), np.int64)
    return Ranges(
        np.concatenate([ranges.group, zeros]),
        np.concatenate([ranges.allocation, allocation]),
        np.concatenate([ranges.offset, zeros]),
        np.concatenate([ranges.size, size]),
        np.concatenate([ranges.start, start]),
        np.concatenate([ranges.end, end]),
    )
