"""Rows of peak_savings: what the peak loses without a buffer or a group of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bufdb.columnar.rows import Labels, objects, strings
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, take
from bufdb.columnar.sets import distinct
from bufdb.memory.buffers import buffers, labels_of_buffers, shared_slots
from bufdb.memory.needs import Needs, together
from bufdb.memory.occupancy import Occupancy
from bufdb.memory.ranges import Ranges, numbered
from bufdb.memory.savings import LARGE_PART, Savings
from bufdb.read.used_values import UsedValues
from bufdb.rows.context import SECRET, Context, Observer
from bufdb.rows.residuals import Residuals
from bufdb.rows.value_index import places_of

# -- The low end of a saving: what a scan saves instead of what is left out of it ------------------

_COLUMNS = {
    "saving_form": "VARCHAR",
    "low_saving_bytes": "HUGEINT",
    "kept_bytes": "HUGEINT",
    "kept_name": "VARCHAR",
    "low_operation_count": "BIGINT",
    "operation_count": "BIGINT",
}


class Lows:
    """What is known of the temp values of a batch besides their bytes."""

    def __init__(
        self, residuals: Residuals, is_backward: Bools, row: Ints, buffer: Ints, holds: Bools
    ) -> None:
        """Find the stack of each buffer.

        Args:
            residuals: the stacks.
            is_backward: whether the backward pass makes each temp value.
            row: row of each in the index.
            buffer: the buffer of each.
            holds: which hold their bytes at the peak.
        """
        self.residuals, self.is_backward = residuals, is_backward
        self._stack = labels_of_buffers(buffer, residuals.numbers(row), holds)
        self._is_gone = residuals.is_gone
        counts = [stack.slice_count for stack in residuals.stacks]
        self._slice_counts = np.array([*counts, 0], np.int64)
        """By stack, the last for number -1."""

    def columns(
        self, savings: Savings, rows: Ints, sets: Ints, saving: Ints, backward: Ints, held: Ints
    ) -> Columns:
        """Return the columns of `peak_savings` for each set.

        Args:
            savings: the ranges.
            rows: ranges that belong to a set.
            sets: the number of the set of each.
            saving: what each set saves where nothing is kept instead.
            backward: bytes of each that the backward pass makes.
            held: bytes of each.
        """
        count = len(saving)
        stack = self._stack[rows]
        gone = np.flatnonzero(self._is_gone[stack])
        away = np.zeros(count, saving.dtype)
        if len(gone):
            away = savings.of(rows[gone], sets[gone], count).saving
        margin = self._slices(savings, rows, sets, stack, count)
        result: dict[str, list[Any]] = {name: [None] * count for name in _COLUMNS}
        there = stack >= 0
        # np.unique would import numpy.ma, which an ingest does without.
        most = int(stack.max(initial=0)) + 1
        number = distinct(sets[there].astype(np.int64) * most + stack[there])
        pairs = np.stack(np.divmod(number, most), axis=1)
        begins = np.flatnonzero(np.append(True, pairs[1:, 0] != pairs[:-1, 0])[: len(pairs)])
        for some in np.split(pairs, begins[1:]) if len(pairs) else []:
            at = int(some[0, 0])
            needs = [self.residuals.stacks[number].needs for number in some[:, 1].tolist()]
            cells = _cells(needs, int(away[at]) - int(margin[at]), int(saving[at]))
            for name, cell in cells.items():
                result[name][at] = cell
        columns: Columns = {
            name: strings(result[name]) if kind == "VARCHAR" else objects(result[name])
            for name, kind in _COLUMNS.items()
        }
        is_known = np.zeros(count, np.bool_)
        is_known[pairs[:, 0]] = True
        reason = np.where(is_known, 0, np.where((backward == held).astype(np.bool_), 2, 1))
        columns["low_unknown_reason"] = Labels(
            reason, [None, "no loop is known to stack it", "the backward pass makes it"]
        )
        return columns

    def _slices(self, savings: Savings, rows: Ints, sets: Ints, stack: Ints, count: int) -> Ints:
        """Return for each set the largest padded slice of what is no layer's input."""
        largest = np.zeros(count, np.int64)
        sliced = np.flatnonzero(self._slice_counts[stack] > 0)
        size = savings.ranges.size[rows[sliced]]
        np.maximum.at(largest, sets[sliced], -(-size // self._slice_counts[stack[sliced]]))
        return largest


def _cells(needs: Sequence[Needs], away: int, saving: int) -> dict[str, Any]:
    """Return the cells of a set of stacks; those that go save `away` bytes if nothing is kept."""
    freed = together(needs)
    return {
        "saving_form": freed.form,
        "low_saving_bytes": min(away - freed.kept_bytes, saving),
        "kept_bytes": freed.kept_bytes,
        "kept_name": freed.kept_name,
        "low_operation_count": freed.low_operation_count,
        "operation_count": freed.operation_count,
    }


# -- What each peak would lose without a buffer, a line, an op: rows of `peak_savings` -------------
#
# The temp values of modules whose peak is known are kept from where it is computed to the end of
# the assembly, since what belongs together comes later in the text: a buffer is known from the
# positions of its values, a line from their instructions.


@dataclass(frozen=True)
class Temps:
    """The temp values of a batch that occupy bytes, of modules whose peak is known."""

    groups: Ints
    """module and color of each memory space, a row each."""
    fixed_bytes: Any
    """memory_sums.fixed_bytes of each memory space."""
    ranges: Ranges
    occupied: Occupancy
    row: Ints
    """Row of each value in the index, ascending."""
    is_phi: Bools
    held_bytes: Ints
    """What each value holds at the peak, as in `peak_values`; mostly 0."""


@dataclass(frozen=True)
class Grouping:
    """Values grouped by something that the user knows."""

    what: str
    """peak_savings.what."""
    label: Ints
    """For each temp value the number of its name, or -1."""
    names: Sequence[str | bytes]
    """peak_savings.name by number; the same names in other modules and memory spaces are apart."""


class PeakSavings(Observer):
    """The temp values, with what is found out about them by later steps."""

    def __init__(self, context: Context, value_id: Ints, temps: Temps) -> None:
        """Keep the temp values.

        Args:
            context: takes a notice for each module whose savings are not computed.
            value_id: number of each value of the index.
            temps: the temp values.
        """
        self.context, self.value_id = context, value_id
        self.groups, self.fixed_bytes = temps.groups, temps.fixed_bytes
        self.occupied = temps.occupied
        r = temps.ranges
        self.slot = shared_slots(r, temps.is_phi)
        self.is_phi, self.row = temps.is_phi, temps.row
        held = np.flatnonzero(temps.held_bytes)
        self._held = held, temps.held_bytes[held]
        """The values that hold bytes at the peak, and their bytes."""
        self.ranges = r
        self.has_slots = bool((self.slot >= 0).any())
        self._has_slot = np.zeros(len(value_id) + 1, np.bool_)
        """Which values of the index have a slot; the last entry is for row -1."""
        self._has_slot[self.row[self.slot >= 0]] = True
        self._positions: list[tuple[Ints, Any, Bools]] = []

    def large_rows(self) -> Ints:
        """Return values with at least a hundredth of the peak of their memory space, ascending."""
        of_space = zip(self.fixed_bytes.tolist(), self.occupied.peak.tolist(), strict=True)
        least = [min(-(-sum(parts) // LARGE_PART), 2**63 - 1) for parts in of_space]
        ranges = self.ranges
        is_large = ranges.size >= np.array(least, np.int64)[ranges.group]
        return self.row[is_large]

    def see_uses(self, used: UsedValues) -> None:
        """Keep the places in tuples of values that may be another's buffer."""
        if not self.has_slots:
            return
        head = used.positions["head"]
        chosen = np.flatnonzero(self._has_slot[used.rows][head])
        place = places_of(self.row, used.rows[head[chosen]])
        index: Text = used.positions["shape_index"]
        self._positions.append(
            (
                place,
                index.take(chosen).hashes(SECRET),
                used.positions["ordinal"][chosen] == 0,
            )
        )

    def rows(
        self, groupings: Sequence[Grouping], residuals: Residuals, is_backward: Bools
    ) -> Iterator[Columns]:
        """Yield the rows of `peak_savings`, of the modules whose peak is still known.

        Each set whose values hold bytes at the peak has a row: each buffer, then each name of each
        grouping, with all buffers of the module that have it. A buffer has the name of the value
        that holds its bytes at the peak, so the names divide what is held there.

        Args:
            groupings: the names.
            residuals: what loops stack for a backward pass.
            is_backward: for each temp value whether that makes it.
        """
        ranges = self.ranges
        is_known = self.context.having("is_peak_known")[self.groups[:, 0]]
        known = is_known[ranges.group]
        if not known.any():
            return
        self.held_bytes = np.zeros(len(self.row), np.int64)
        self.held_bytes[self._held[0]] = self._held[1]
        buffer = self._buffers(ranges)
        self.lows = Lows(residuals, is_backward, self.row, buffer, self.held_bytes > 0)
        savings = Savings(ranges, self.occupied, len(self.groups))
        yield self._of_buffers(savings, buffer, known)
        for grouping in groupings:
            label = labels_of_buffers(buffer, grouping.label, self.held_bytes > 0)
            rows = np.flatnonzero(known & (label >= 0))
            yield self._of_names(savings, grouping, rows, label[rows])
        for module in distinct(self.groups[savings.alone.is_too_much & is_known, 0]).tolist():
            message = (
                "values share bytes with so many others that the peak without them is not computed"
            )
            self.context.find(module, "notice", "savings_unknown", message)

    def _buffers(self, ranges: Ranges) -> Ints:
        none = np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.bool_)
        columns = [list(column) for column in zip(none, *self._positions, strict=True)]
        self._positions.clear()
        row, index, is_defining = (np.concatenate(columns.pop(0)) for _ in none)
        return buffers(self.slot, self.is_phi, ranges.start, ranges.end, row, index, is_defining)

    def _of_buffers(self, savings: Savings, buffer: Ints, known: Bools) -> Columns:
        """Return a row for each buffer, named for its one value in `peak_values`.

        Values of a buffer have the same bytes, which count for the first of them.
        """
        holder = np.flatnonzero(known & (self.held_bytes > 0))
        number = np.full(len(buffer), -1)
        number[buffer[holder]] = np.arange(len(holder))
        rows = np.flatnonzero(number[buffer] >= 0)
        nothing = np.zeros(len(holder), np.int64)
        names = {
            "what": Labels(nothing, ["value"]),
            "name": Labels(nothing, [None]),
            "value_id": Numbers(self.value_id[self.row[holder]]),
        }
        return self._saved(savings, rows, number[buffer[rows]], names)

    def _of_names(self, savings: Savings, grouping: Grouping, rows: Ints, label: Ints) -> Columns:
        """Return a row for each name that holds bytes at the peak, in order of appearance.

        Numbers of names mean nothing: they are in the order of hashes, which differs between
        processes.
        """
        sets = _by_appearance(numbered(savings.ranges.group[rows], label))
        count = int(sets.max(initial=-1)) + 1
        holds = np.zeros(count, np.bool_)
        holds[sets[self.held_bytes[rows] > 0]] = True
        name = np.zeros(count, np.int64)
        name[sets] = label
        chosen = holds[sets]
        number = np.cumsum(holds) - 1
        nothing = np.zeros(int(holds.sum()), np.int64)
        used, code = np.unique(name[holds], return_inverse=True)
        names = {
            "what": Labels(nothing, [grouping.what]),
            "name": Labels(code, [grouping.names[number] for number in used.tolist()]),
            "value_id": Numbers(nothing, nothing > 0),
        }
        return self._saved(savings, rows[chosen], number[sets[chosen]], names)

    def _saved(self, savings: Savings, rows: Ints, sets: Ints, names: Columns) -> Columns:
        """Return the sets with their figures, where these are known."""
        count = len(names["what"])
        saved, half = savings.of_each(rows, sets, count, [Fraction(0), Fraction(1, 2)])
        group = np.zeros(count, np.int64)
        group[sets] = savings.ranges.group[rows]
        held = np.zeros(count, saved.saving.dtype)
        np.add.at(held, sets, self.held_bytes[rows].astype(held.dtype))
        backward = np.zeros(count, held.dtype)
        of_backward = self.lows.is_backward[rows]
        np.add.at(
            backward, sets[of_backward], self.held_bytes[rows[of_backward]].astype(held.dtype)
        )
        columns = {
            "module": self.groups[group, 0],
            "color": self.groups[group, 1],
            **names,
            "held_bytes": held,
            "saving_bytes": saved.saving,
            "half_saving_bytes": half.saving,
            "peak_bytes_without": _sum(saved.peak, self.fixed_bytes[group]),
            "peak_time_without": saved.peak_time,
            "backward_bytes": backward,
            **self.lows.columns(savings, rows, sets, saved.saving, backward, held),
        }
        return take(columns, None if saved.is_known.all() else saved.is_known)


def _by_appearance(numbers: Ints) -> Ints:
    """Renumber from 0, without gaps, so that the lower number appears first."""
    first = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    # The last write stays.
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    ranks: Ints = rank[numbers]
    return ranks


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two columns, as Python's integers where 64 bits may not hold it."""
    largest = one.astype(np.float64).max(initial=0) + other.astype(np.float64).max(initial=0)
    return one + other if largest < 2.0**62 else one.astype(object) + other
