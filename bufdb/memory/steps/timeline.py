"""The instants of many step functions in one order, and in slices of it.

What happens at an instant depends on the ranges that begin or end there and on what holds from
before: so whole schedules are gone through in slices, and what is worked out takes the memory of a
slice. There are few slices whatever the number of ranges, so that to look for the rows of each
costs no more than to sort them would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.columnar.sets import distinct
from bufdb.memory.ranges import parts

SLICE_ROWS = 1 << 16
"""Ranges that begin in a slice, about."""
_MOST_SLICES = 128


class Timeline:
    """(group, time) as one integer, in order."""

    def __init__(self, group: Any, start: Any, end: Any, slice_rows: int = SLICE_ROWS) -> None:
        """Take ranges that are not reversed.

        Args:
            group: the step function that each belongs to, from 0.
            start: first instant.
            end: last instant, itself included.
            slice_rows: how many of them may begin in a slice, about.
        """
        self.group, self.start, self.end, self.slice_rows = group, start, end, slice_rows
        self._points: Ints | None = None
        self._first = int(start.min(initial=0))
        self._width = int(end.max(initial=0)) - self._first + 3
        if (int(group.max(initial=0)) + 1) * self._width >= 2**62:
            # Instants and those behind them by number: nothing lies between.
            self._points = distinct(np.concatenate([start, start + 1, end, end + 1]))
            self._first, self._width = 0, len(self._points) + 1

    def keys(self, group: Any, time: Any) -> Ints:
        """(group, time) as integers; of a time that ranges begin or end at, or the one behind."""
        if self._points is not None:
            time = np.searchsorted(self._points, time)
        keys: Ints = group * self._width + (time - self._first)
        return keys

    def parted(self, keys: Ints) -> tuple[Ints, Ints]:
        """Group and time of such integers."""
        group, time = np.divmod(keys, self._width)
        return group, time + self._first if self._points is None else self._points[time]

    def slices(self) -> Iterator[tuple[int, Ints, Ints]]:
        """What is behind the last key of each slice, and the rows that begin and that end in it."""
        count = min(-(-len(self.start) // self.slice_rows), _MOST_SLICES)
        if count <= 1:
            rows = np.arange(len(self.start))
            yield 2**63 - 1, rows, rows
            return
        step = max(1, len(self.start) // (count << 10))
        some = slice(None, None, step)
        keys = [self.keys(self.group[some], x[some]) for x in (self.start, self.end)]
        sample = np.sort(np.concatenate(keys))
        bounds = distinct(sample[np.arange(1, count) * len(sample) // count])
        number = [self._slices_of(bounds, x) for x in (self.start, self.end)]
        for place, bound in enumerate([*bounds.tolist(), 2**63 - 1]):
            begins, ends = (np.flatnonzero(x == place) for x in number)
            yield bound, begins, ends

    def _slices_of(self, bounds: Ints, time: Any) -> Any:
        """In which slice each instant lies."""
        found = np.empty(len(time), np.uint8)
        for part in parts(len(time)):
            found[part] = np.searchsorted(bounds, self.keys(self.group[part], time[part]), "right")
        return found


def running_sums(slices: Iterable[tuple[int, Any, Any]]) -> Iterator[tuple[Ints, Any]]:
    """The sums after all changes of each key, slice by slice.

    Args:
        slices: what is behind the last key of a slice, keys of changes in it or beyond, changes.
    """
    keys, changes, total = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for bound, some, their in slices:
        keys, changes = np.concatenate([keys, some]), np.concatenate([changes, their])
        later = keys >= bound
        mine = np.flatnonzero(~later)
        order = mine[np.argsort(keys[mine])]
        if len(order):
            ordered, sums = keys[order], np.cumsum(changes[order]) + total
            last = np.append(ordered[1:] != ordered[:-1], True)
            total = sums[-1]
            yield ordered[last], sums[last]
        keys, changes = keys[later], changes[later]
