"""Tenants of the bytes of temp allocations: each byte at each instant has at most one value.

Values share bytes: what a loop carries and its input, and values at the instant at which one ends
and the next begins. Of the values that cover a byte, the first in order of offset, size (largest
first) and number has it, as in `peak_values`, and in `bufdb query peak -p step=N` at any instant.
So tenancies at an instant add up to the bytes occupied then, as in `occupancy_steps`, and each
value has the bytes that answers report for it.

In that order each value has one piece: its bytes beyond the furthest end of the values before it.
A value with a non-empty piece is a tenant, and the ends of tenants ascend; so a value that begins
or ends only changes its neighbors, and 100,000 values take about a second.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bufdb.export.values import HloValue


@dataclass(frozen=True)
class Tenancy:
    """Bytes of an allocation that belong to one value for a period."""

    value: HloValue
    offset_bytes: int
    size_bytes: int
    start_time: int
    end_time: int
    """Last instant, inclusive [program order]."""


class Stay(NamedTuple):
    """A value in an allocation; the first fields are the order in which values get bytes."""

    offset_bytes: int
    negative_size_bytes: int
    number: int
    start_time: int
    end_time: int

    @property
    def end_bytes(self) -> int:
        """The first byte after it."""
        return self.offset_bytes - self.negative_size_bytes


class Piece(NamedTuple):
    """Bytes that a value has from one instant to another, inclusive."""

    number: int
    """Number of the value."""
    begin_bytes: int
    end_bytes: int
    start_time: int
    end_time: int


def tenancies(values: Iterable[HloValue], schedule_length: int) -> list[Tenancy]:
    """Return the tenancies of temp values, ordered by start.

    Args:
        values: of any kind; those of other allocations, without a live range or without bytes
            are left out.
        schedule_length: the last instant to consider.
    """
    by_allocation: dict[int, list[Stay]] = defaultdict(list)
    by_number = {}
    for value in values:
        start, end, size = value.start_time, value.end_time, value.size_bytes
        if value.allocation_kind != "temp" or start is None or end is None:
            continue
        stay = Stay(value.offset_bytes, -size, value.value_id, start, end)
        by_allocation[value.allocation_index].append(stay)
        by_number[value.value_id] = value
    ordered = [
        Tenancy(
            by_number[piece.number],
            piece.begin_bytes,
            piece.end_bytes - piece.begin_bytes,
            piece.start_time,
            piece.end_time,
        )
        for stays in by_allocation.values()
        for piece in pieces(stays, schedule_length)
    ]
    key = lambda part: (part.start_time, part.value.allocation_index, part.offset_bytes)  # noqa: E731
    return sorted(ordered, key=key)


def pieces(stays: Iterable[Stay], schedule_length: int) -> list[Piece]:
    """Return which value has which bytes of an allocation; empty or inverted stays have none."""
    starts: dict[int, list[Stay]] = defaultdict(list)
    leaves: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        if stay.negative_size_bytes < 0 and stay.start_time <= min(stay.end_time, schedule_length):
            starts[stay.start_time].append(stay)
            leaves[stay.end_time + 1].append(stay)
    allocation = _Allocation()
    for time in sorted(starts.keys() | leaves.keys()):
        for stay in leaves[time]:
            allocation.leave(stay, time)
        for stay in starts[time]:
            allocation.enter(stay, time)
    return [piece for piece in allocation.done if piece is not None]


class _Allocation:
    """One allocation, advanced instant by instant."""

    def __init__(self) -> None:
        self.tenants: list[Stay] = []
        """In order; both their offsets and their ends ascend."""
        self.covered: list[Stay] = []
        """Live values whose bytes all belong to others, in order."""
        self.open: dict[Stay, tuple[int, int]] = {}
        """By tenant, the first byte that it has, and since when."""
        self.done: list[Piece | None] = []
        self.last: dict[Stay, int] = {}
        """By value, the index of its last piece in `done`."""

    def enter(self, stay: Stay, time: int) -> None:
        """Add a value: it gets bytes that none before it in order has, and those of later ones."""
        first = bisect_left(self.tenants, stay)
        before = self._end_before(first, stay)
        if stay.end_bytes <= before:
            insort(self.covered, stay)
            return
        last = first
        while last < len(self.tenants) and self.tenants[last].end_bytes <= stay.end_bytes:
            self._end(self.tenants[last], time)
            insort(self.covered, self.tenants[last])
            last += 1
        self.tenants[first:last] = [stay]
        self._begin(stay, before, time)
        self._move(first + 1, time)

    def leave(self, stay: Stay, time: int) -> None:
        """Remove a value: its bytes go to those that it covered."""
        place = bisect_left(self.tenants, stay)
        if place == len(self.tenants) or self.tenants[place] != stay:
            del self.covered[bisect_left(self.covered, stay)]
            return
        self._end(stay, time)
        del self.tenants[place]
        at = bisect_right(self.covered, stay)
        # Values that the next tenant covers stay covered.
        after = len(self.covered)
        if place < len(self.tenants):
            after = bisect_left(self.covered, self.tenants[place])
        before = self._end_before(place, stay)
        while at < after and before < stay.end_bytes:
            heir = self.covered[at]
            if heir.end_bytes <= before:
                at += 1
                continue
            del self.covered[at]
            after -= 1
            self.tenants.insert(place, heir)
            self._begin(heir, before, time)
            before = heir.end_bytes
            place += 1
        self._move(place, time)

    def _end_before(self, place: int, stay: Stay) -> int:
        """Return the end of the tenant before a place; without one, the start of `stay`."""
        return self.tenants[place - 1].end_bytes if place else stay.offset_bytes

    def _move(self, place: int, time: int) -> None:
        """Give the tenant at a place the bytes that the one before it leaves."""
        if place == len(self.tenants):
            return
        stay = self.tenants[place]
        before = self._end_before(place, stay)
        if self.open[stay][0] != max(stay.offset_bytes, before):
            self._end(stay, time)
            self._begin(stay, before, time)

    def _begin(self, stay: Stay, before: int, time: int) -> None:
        begin = max(stay.offset_bytes, before)
        place = self.last.get(stay)
        piece = None if place is None else self.done[place]
        # It regains the bytes at the instant at which it lost them: merge the pieces.
        if piece is not None and (piece.begin_bytes, piece.end_time) == (begin, time - 1):
            self.done[self.last[stay]] = None
            time = piece.start_time
        self.open[stay] = (begin, time)

    def _end(self, stay: Stay, time: int) -> None:
        begin, since = self.open.pop(stay)
        if since < time:
            self.last[stay] = len(self.done)
            self.done.append(Piece(stay.number, begin, stay.end_bytes, since, time - 1))
