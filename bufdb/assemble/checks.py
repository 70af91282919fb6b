"""What a batch's allocations, values and live ranges say together: occupied bytes, and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.assemble.value_index import Keys, lookup
from bufdb.columnar.scan import Bools, Columns, Ints, take
from bufdb.memory.occupancy import Ranges, largest_sum, occupancy
from bufdb.read import live_ranges
from bufdb.read.allocations import KINDS

Emit = Callable[[str, Columns], None]
"""Takes a table's name and columns; `module` in them is the module's ordinal in the batch."""
Find = Callable[[int, str, str, str], None]
"""Takes a module's ordinal, severity, code and message of a finding."""

PEAK_PROBLEMS = frozenset(
    {
        "allocation_gap",
        "duplicate_live_range",
        "duplicate_value",
        "live_range_outside_schedule",
        "missing_live_range",
        "missing_values",
        "negative_size",
        "peak_exceeds_total",
        "peak_listing_mismatch",
        "schedule_mismatch",
        "total_mismatch",
        "unassigned_values",
        "value_outside_allocation",
    }
)
"""Codes of findings with which the peak of a module cannot be relied on."""


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
    has_shapes: bool = False
    """Whether allocation lines print shapes of parameters and outputs, as since 2019-12."""
    has_unread_allocations: bool = False
    """Whether a line of the allocations was not understood."""
    has_unread_live_ranges: bool = False
    """Whether a line of the schedule or the live ranges was not understood."""
    needs_frames: bool = False
    lost_frames: int = 0
    """Instructions that name a stack frame that is in no table."""
    live: live_ranges.Facts = field(default_factory=live_ranges.Facts)
    jit_name: str | None = None
    peak_problem: str | None = None
    """What was found first that makes the peak uncertain."""

    @property
    def peak_unknown_reason(self) -> str | None:
        """modules.peak_unknown_reason: None if all that the peak is made of was read and agrees."""
        if not self.has_allocations:
            return "the dump has no allocations"
        if not self.has_live_ranges:
            return "the dump has no live ranges"
        if self.has_unread_allocations:
            return "lines of the allocations could not be read"
        if self.has_unread_live_ranges:
            return "lines of the schedule or the live ranges could not be read"
        return self.peak_problem


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

    def occupied(self) -> dict[str, Columns]:
        """Rows of `occupied_peaks` and `occupancy_steps` of the modules whose peak is known."""
        table = self.table
        known = np.array([f.peak_unknown_reason is None for f in self.facts], np.bool_)
        mine = take(table, known[table["module"]])
        if not len(mine["module"]):
            return {}
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
        return {
            "occupied_peaks": {
                "module": groups[:, 0],
                "color": groups[:, 1],
                "peak_time": found.peak_time,
                "occupied_temp_bytes": found.peak,
                "naive_live_bytes": np.array(naive, object),
            },
            "occupancy_steps": {
                "module": groups[found.group, 0],
                "color": groups[found.group, 1],
                "start_time": found.time,
                "occupied_temp_bytes": found.occupied,
            },
        }

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
        for number, facts in enumerate(self.facts):
            facts.allocation_sum = int(totals[number])
        in_order = table["allocation_index"] + bounds[table["module"]] == np.arange(len(sums) - 1)
        for module in np.unique(table["module"][~in_order]).tolist():
            message = "the allocations are not numbered 0, 1, 2, …; the file may be truncated"
            self.find(module, "error", "allocation_gap", message)
        for module, count in self._counts(table["module"][table["size_bytes"] < 0]):
            self.find(module, "error", "negative_size", f"{count} allocations have a size below 0")
        if len(table["module"]):
            self._check_values(self._allocation_row(table))
        self._check_times()

    def _check_values(self, row: Ints) -> None:
        """Values lie in their allocation, fill it to its end if it is temp, and live some time."""
        table, keys = self.table, self.keys
        kind, room = table["kind"][row], table["size_bytes"][row]
        offset, size = keys.offset_bytes, keys.size_bytes
        placed = row >= 0
        # Of numbers below 0 the difference may not fit into 64 bits.
        outside = (offset < 0) | (size < 0) | (room < 0) | (offset > room - size)
        for module, count in self._counts(keys.module[placed & outside]):
            message = f"{count} values do not lie inside their allocation"
            self.find(module, "error", "value_outside_allocation", message)
        filled = np.zeros(len(table["module"]), np.bool_)
        filled[row[placed & ~outside & (offset == room - size)]] = True
        empty = ~filled & (table["kind"] == KINDS.index("temp")) & (table["size_bytes"] > 0)
        for module, count in self._counts(table["module"][empty]):
            message = f"values of {count} temp allocations are missing: those listed do not fill it"
            self.find(module, "data_loss", "missing_values", message)
        # Of a thread-local computation constants have no live range either.
        without = [KINDS.index("thread_local"), KINDS.index("constant")]
        dead = placed & ~self.is_live & ~np.isin(kind, without)
        has_ranges = np.array([f.has_live_ranges for f in self.facts], np.bool_)
        for module, count in self._counts(keys.module[dead & has_ranges[keys.module]]):
            message = (
                f"{count} values that are neither thread-local nor constant have no live range"
            )
            self.find(module, "error", "missing_live_range", message)

    def _check_times(self) -> None:
        """Live ranges lie within the schedule."""
        lengths = [f.live.schedule_length or 0 for f in self.facts]
        last = np.array(lengths, np.int64)[self.keys.module]
        odd = self.is_live & ((self.start < 0) | (self.end < self.start) | (self.end > last))
        for module, count in self._counts(self.keys.module[odd]):
            message = f"{count} live ranges do not lie within the schedule"
            self.find(module, "error", "live_range_outside_schedule", message)

    @staticmethod
    def _counts(modules: Ints) -> list[tuple[int, int]]:
        """Each module with how often it is there."""
        found, counts = np.unique(modules, return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))


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
