"""What the peak, and what has to be reserved, become once values are removed."""

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
from bufdb.what_if.module_choice import Choice
from bufdb.what_if.temps import Temps

# -- The peak of today's schedule with some values away and some parameters donated ----------------
#
# One model for both: what an output holds before the donated parameter is read for the last time
# needs bytes elsewhere until then. They are ranges in an allocation of their own, in addition to
# the module's, and the bytes of the output are no longer fixed ones; values are taken away by
# `bufdb.memory.savings`, which counts what only they hold.

_PAIRS = 1 << 21
"""Maximum pairs of a value and a set that are processed together."""


@dataclass(frozen=True)
class Height:
    """A peak."""

    peak_bytes: int
    """Peak including fixed bytes."""
    peak_time: int
    """Its first instant [program order]."""


class Model:
    """A module in one memory space; computes its peak without sets of its values."""

    def __init__(
        self,
        temps: Temps,
        fixed_bytes: int,
        schedule_length: int,
        donations: Sequence[Donation] = (),
        keep: Fraction = Fraction(0),
    ) -> None:
        """Model a module with some of its parameters donated.

        Args:
            temps: its values.
            fixed_bytes: memory_figures.fixed_bytes.
            schedule_length: its last instant.
            donations: the donations.
            keep: the share of their bytes that removed values keep.
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
        """Return the peak without the values of each set, which are rows of `Temps`.

        Raises:
            BufdbError: they share bytes with too many other values to compute it.
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
        peaks = [self.today] * len(sets)
        some = [number for number, rows in enumerate(sets) if len(rows)]
        if not some:
            return peaks
        rows = np.concatenate([sets[number] for number in some])
        owner = np.repeat(np.arange(len(some)), [len(sets[number]) for number in some])
        saved = self._savings.of(rows, owner, len(some), self.keep)
        if not saved.is_known.all():
            raise BufdbError(
                "values share bytes with so many others that the peak without them is not computed"
            )
        for number, peak, time in zip(some, saved.peak, saved.peak_time, strict=True):
            peaks[number] = self._height(peak, time)
        return peaks

    def _height(self, occupied: int, time: int) -> Height:
        return Height(self.fixed_bytes + int(occupied), int(time))


def _with_early(ranges: Ranges, donations: Sequence[Donation]) -> Ranges:
    """Return the ranges, followed by what outputs hold before their parameters are free."""
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


# -- Compute the bytes that XLA reserves for temporaries: its heap simulator over live ranges ------
#
# Buffers are placed from the largest down, each in the smallest gap that is free while it lives, as
# `GlobalDecreasingSizeBestFitHeap` does; and again from the longest-lived down. The lower of both
# arenas is taken, as `ChooseBestHeapAlgorithm` does.

ALIGNMENT = 64
"""Offsets are multiples of it; GPUs use more, which changes an arena by some bytes per buffer."""
_ENDLESS = 1 << 62


def buffers(ranges: Ranges) -> Ranges:
    """Merge ranges at the same offset that start while the previous one is live: XLA's buffers."""
    order = np.lexsort((ranges.start, ranges.offset, ranges.allocation))
    allocation, offset, size, start, end = (
        column[order]
        for column in (ranges.allocation, ranges.offset, ranges.size, ranges.start, ranges.end)
    )
    if not len(order):
        return ranges
    is_place = np.ones(len(order), np.bool_)
    is_place[1:] = (allocation[1:] != allocation[:-1]) | (offset[1:] != offset[:-1])
    # Ends so far at the same place: the lift puts those of a later place above all before it.
    lift = np.cumsum(is_place) * (int(end.max()) + 2)
    reached = np.maximum.accumulate(end + lift)
    is_first = is_place.copy()
    is_first[1:] |= start[1:] + lift[1:] > reached[:-1]
    first = np.flatnonzero(is_first)
    return Ranges(
        np.zeros(len(first), np.int64),
        allocation[first],
        offset[first],
        np.maximum.reduceat(size, first),
        start[first],
        np.maximum.reduceat(end, first),
    )


def arena_bytes(ranges: Ranges) -> int:
    """Return the bytes that the ranges take when placed again, over all allocations."""
    placed = buffers(ranges)
    total = 0
    for number in np.unique(placed.allocation).tolist():
        rows = placed.allocation == number
        size, start, end = placed.size[rows], placed.start[rows], placed.end[rows]
        orders = (
            np.lexsort((start, start - end, -size)),
            np.lexsort((start, -size, start - end)),
        )
        total += min(_height(size[order], start[order], end[order]) for order in orders)
    return total


def _height(size: Ints, start: Ints, end: Ints) -> int:
    """Place the buffers one after another, and return the end of the highest."""
    begin, height = np.zeros(len(size), np.int64), 0
    for number in range(len(size)):
        meets = (start[:number] <= end[number]) & (end[:number] >= start[number])
        low = begin[:number][meets]
        order = np.argsort(low)
        low, high = low[order], np.maximum.accumulate((low + size[:number][meets])[order])
        free = -(-np.concatenate([[0], high]) // ALIGNMENT) * ALIGNMENT
        room = np.concatenate([low, [_ENDLESS]]) - free
        fits = np.where(room >= size[number], room, _ENDLESS)
        # The first of the smallest gaps; the gap above all buffers is the largest.
        begin[number] = free[int(np.argmin(fits))] if fits.min() < _ENDLESS // 2 else free[-1]
        height = max(height, int(begin[number] + size[number]))
    return height


# -- The need after a change: the memory that XLA reserves for the remaining values ----------------

MOST_VALUES = 5_000
"""Maximum values to place again; the time is quadratic: a second or two for so many."""
TOLERANCE = 200
"""The arena can be recomputed if that gives the current size within 1/200 of it."""


@dataclass(frozen=True)
class Need:
    """Bytes that a device must have, as a range; one figure if the arena was recomputed."""

    low_bytes: int
    high_bytes: int


class Arena:
    """The temp allocations of a module, recomputed for the remaining values.

    If that gives the current size for the current values, its result for others is the need. If
    not, the need is between the peak and the peak plus the current holes, unless XLA packs worse.
    """

    def __init__(self, choice: Choice, temps: Temps, keep: Fraction) -> None:
        self.today = Need(choice.need_bytes, choice.need_bytes)
        self._ranges, self._keep = temps.ranges, keep
        self._holes = choice.need_bytes - choice.peak_bytes
        reserved = choice.need_bytes - choice.fixed_bytes
        self._besides: int | None = None
        """Bytes that XLA reserves besides the values; None if the arena cannot be recomputed."""
        if len(temps.ranges.size) <= MOST_VALUES:
            arena = arena_bytes(temps.ranges)
            if abs(reserved - arena) * TOLERANCE <= reserved:
                self._besides = reserved - arena

    def without(self, away: Ints, model: Model, height: Height) -> Need:
        """Return the need without some values; `height` is the peak then."""
        peak = height.peak_bytes
        if self._besides is None or model.donated:
            return Need(peak, peak + self._holes)
        need = model.fixed_bytes + self._besides + arena_bytes(self._left(away))
        return Need(max(peak, need), max(peak, need))

    def _left(self, away: Ints) -> Ranges:
        size = self._ranges.size.copy()
        above, below = self._keep.as_integer_ratio()
        size[away] = [-(-bytes_ * above // below) for bytes_ in size[away].tolist()]
        columns = {**vars(self._ranges), "size": size}
        return Ranges(**columns).where(np.flatnonzero(size > 0))
