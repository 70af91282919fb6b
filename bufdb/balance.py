"""What a batch's allocations, values and live ranges say together: occupied bytes, and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columns import strings
from bufdb.keys import Keys, lookup
from bufdb.occupancy import Ranges, largest_sum, occupancy
from bufdb.read import live_ranges
from bufdb.read.allocations import KINDS
from bufdb.scan import Bools, Columns, Ints, take

Emit = Callable[[str, Columns], None]
"""Takes a table's name and columns; `module` in them is the module's ordinal in the batch."""
Find = Callable[[int, str, str, str], None]
"""Takes a module's ordinal, severity, code and message of a finding."""


@dataclass
class ModuleFacts:
    """What is known of one module besides its rows."""

    total_bytes: int | None = None
    human_total: str | None = None
    allocation_sum: int = 0
    """Modulo 2^64, signed: what XLA prints as the total."""
    has_allocations: bool = False
    has_used_values: bool = False
    has_live_ranges: bool = False
    has_tellings: bool = False
    has_tiles: bool = False
    has_pointer: bool = False
    """Whether allocation lines print an address, as until 2022."""
    needs_frames: bool = False
    live: live_ranges.Facts = field(default_factory=live_ranges.Facts)
    jit_name: str | None = None


@dataclass
class Balance:
    """The allocations and values of a batch with their live ranges."""

    table: Columns
    """module, allocation_index, size_bytes, color and kind of the allocations."""
    keys: Keys
    start: Ints
    """First live instant of each value."""
    end: Ints
    """Last live instant of each value, itself included."""
    is_live: Bools
    """Whether a value has a live range."""
    facts: list[ModuleFacts]
    find: Find

    def occupied(self, emit: Emit) -> None:
        """Occupied bytes of the temp allocations, per module with live ranges and color."""
        table = self.table
        live = np.array([f.has_live_ranges for f in self.facts], np.bool_)
        mine = take(table, live[table["module"]])
        if not len(mine["module"]):
            return
        pairs = np.stack([mine["module"], mine["color"]], axis=1)
        groups, number = np.unique(pairs, axis=0, return_inverse=True)
        number = number.reshape(-1)
        row = self._allocation_row(mine)
        rows = np.flatnonzero(self.is_live & (row >= 0))
        kind = mine["kind"][row[rows]]
        naive = largest_sum(
            number[row[rows]],
            self.keys.size_bytes[rows],
            self.start[rows],
            self.end[rows],
            len(groups),
        )
        rows = rows[kind == KINDS.index("temp")]
        rows = rows[(self.keys.size_bytes[rows] > 0) & (self.start[rows] <= self.end[rows])]
        ranges = Ranges(
            number[row[rows]],
            mine["allocation_index"][row[rows]],
            self.keys.offset_bytes[rows],
            self.keys.size_bytes[rows],
            self.start[rows],
            self.end[rows],
        )
        lengths = [f.live.schedule_length or 0 for f in self.facts]
        last = np.array(lengths, np.int64)[groups[:, 0]]
        found = occupancy(ranges, len(groups), last)
        self._check_peaks(mine, number, groups, found.peak)
        emit(
            "occupied_peaks",
            {
                "module": groups[:, 0],
                "color": groups[:, 1],
                "peak_time": found.peak_time,
                "occupied_temp_bytes": _exact_integers(found.peak),
                "naive_live_bytes": _exact_integers(np.array(naive, object)),
            },
        )
        emit(
            "occupancy_steps",
            {
                "module": groups[found.group, 0],
                "color": groups[found.group, 1],
                "start_time": found.time,
                "occupied_temp_bytes": _exact_integers(found.occupied),
            },
        )

    def _check_peaks(self, table: Columns, number: Ints, groups: Ints, peaks: Any) -> None:
        """Temp allocations hold no more than they are large, so a peak is within the total."""
        temps = table["kind"] == KINDS.index("temp")
        room = np.zeros(len(groups))
        np.add.at(room, number[temps], table["size_bytes"][temps].astype(np.float64))
        # Doubles tell a wrong peak from a right one wherever sizes are below 2^53.
        for group in np.flatnonzero(peaks.astype(np.float64) > room * (1 + 1e-15)).tolist():
            message = f"{peaks[group]} bytes are occupied in temp allocations of {room[group]:.0f}"
            self.find(int(groups[group, 0]), "error", "peak_exceeds_total", message)

    def _allocation_row(self, table: Columns) -> Ints:
        """For each value the row of its allocation in a table sorted by module, or -1."""
        if not len(self.keys) or not len(table["module"]):
            return np.full(len(self.keys), -1)
        indexes = np.concatenate([table["allocation_index"], self.keys.allocation_index])
        ids, rank = np.unique(indexes, return_inverse=True)
        mine = table["module"] * len(ids) + rank[: len(table["module"])]
        order = np.argsort(mine, kind="stable")
        theirs = self.keys.module * len(ids) + rank[len(mine) :]
        return lookup(mine[order], order, theirs)

    def check(self) -> None:
        """Sums and counts that every dump must satisfy (format section 8)."""
        table = self.table
        bounds = np.searchsorted(table["module"], np.arange(len(self.facts) + 1))
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(table["size_bytes"])])
        totals = sums[bounds[1:]] - sums[bounds[:-1]]
        in_order = table["allocation_index"] + bounds[table["module"]] == np.arange(len(sums) - 1)
        for module in np.unique(table["module"][~in_order]).tolist():
            message = "the allocations are not numbered 0, 1, 2, …; the file may be truncated"
            self.find(module, "error", "allocation_gap", message)
        steps = np.searchsorted(self.keys.module, np.arange(len(self.facts) + 1))
        row = self._allocation_row(table)
        outside = dead = np.zeros(len(self.keys), np.bool_)
        if len(table["module"]):
            kind, room = table["kind"][row], table["size_bytes"][row]
            offset, size = self.keys.offset_bytes, self.keys.size_bytes
            outside = (row >= 0) & ((offset < 0) | (size < 0) | (offset > room - size))
            # Of a thread-local computation constants have no live range either.
            without = [KINDS.index("thread_local"), KINDS.index("constant")]
            dead = (row >= 0) & ~self.is_live & ~np.isin(kind, without)
        for number, facts in enumerate(self.facts):
            facts.allocation_sum = int(totals[number])
            mine = slice(steps[number], steps[number + 1])
            self._check_module(number, facts, int(outside[mine].sum()), int(dead[mine].sum()))

    def _check_module(self, number: int, facts: ModuleFacts, outside: int, dead: int) -> None:
        if outside:
            message = f"{outside} values do not lie inside their allocation"
            self.find(number, "error", "value_outside_allocation", message)
        if facts.has_live_ranges and dead:
            message = f"{dead} values that are neither thread-local nor constant have no live range"
            self.find(number, "error", "missing_live_range", message)


def check_total(number: int, facts: ModuleFacts, find: Find) -> None:
    """Hold the printed total against the allocations, and its human form against itself."""
    total = facts.total_bytes
    if total is None:
        return
    if facts.has_allocations and total != facts.allocation_sum:
        message = f"the allocations sum to {facts.allocation_sum}, the dump says {total}"
        find(number, "error", "total_mismatch", message)
    if facts.human_total not in (None, human_bytes(total)):
        message = f"{total} bytes print as {human_bytes(total)}, the dump says {facts.human_total}"
        find(number, "notice", "human_total_mismatch", message)


def _exact_integers(values: Any) -> Any:
    """A column for HUGEINT: text, which DuckDB converts, where 64 bits may not do."""
    return strings([str(value) for value in values]) if values.dtype == object else values


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(size: int) -> str:
    """A size as XLA's HumanReadableNumBytes prints it."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size < 1024:
        return f"{sign}{size}B"
    unit = 1
    while size >= 1024 * 1024:
        size //= 1024
        unit += 1
    return f"{sign}{size / 1024:.{1 if unit == 1 else 2}f}{_UNITS[unit]}"
