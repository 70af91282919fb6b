"""The low end of what a peak loses: what a scan saves instead of what is left out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bufdb.assemble.residuals.residuals import Residuals
from bufdb.columnar.rows import Labels, objects, strings
from bufdb.columnar.scan import Bools, Columns, Ints
from bufdb.columnar.sets import distinct
from bufdb.memory.buffers import labels_of_buffers
from bufdb.memory.needs import Needs, together
from bufdb.memory.savings import Savings

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
        """Columns of `peak_savings` for each set.

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
        found: dict[str, list[Any]] = {name: [None] * count for name in _COLUMNS}
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
                found[name][at] = cell
        columns: Columns = {
            name: strings(found[name]) if kind == "VARCHAR" else objects(found[name])
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
        """For each set the largest slice, as padded in memory, of what is no layer's input."""
        largest = np.zeros(count, np.int64)
        mine = np.flatnonzero(self._slice_counts[stack] > 0)
        size = savings.ranges.size[rows[mine]]
        np.maximum.at(largest, sets[mine], -(-size // self._slice_counts[stack[mine]]))
        return largest


def _cells(needs: Sequence[Needs], away: int, saving: int) -> dict[str, Any]:
    """What is said of a set of stacks; those that go save `away` bytes if nothing is kept."""
    found = together(needs)
    return {
        "saving_form": found.form,
        "low_saving_bytes": min(away - found.kept_bytes, saving),
        "kept_bytes": found.kept_bytes,
        "kept_name": found.kept_name,
        "low_operation_count": found.low_operation_count,
        "operation_count": found.operation_count,
    }
