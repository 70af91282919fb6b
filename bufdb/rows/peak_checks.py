"""Rows of peaks of occupied bytes, and what allocations and live ranges say of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, take
from bufdb.columnar.sets import distinct
from bufdb.memory.buffers import largest_rows, own_bytes
from bufdb.memory.maxima import hills
from bufdb.memory.occupancy import Occupancy, largest_sum, live_at, occupancy
from bufdb.memory.ranges import Ranges, distinct_pairs, parts, sums_by_kind
from bufdb.read.allocations import KINDS
from bufdb.rows.context import Context
from bufdb.rows.lifetimes import Lifetimes
from bufdb.rows.peak_savings import Temps
from bufdb.rows.value_index import ValueIndex, lookup

# -- Rows of the tables about the peak: what is occupied when, and who holds it at the peak --------

FIXED = [kind for kind in KINDS if kind not in ("temp", "thread_local")]
"""Allocations that are held all the time."""


@dataclass(frozen=True)
class Live:
    """What is live when in a batch, of modules whose peak is known.

    It is made before the index gives up where values lie, and used after that: both together are
    the most that is held of a large module between two sections.
    """

    table: Columns
    """module, allocation_index, size_bytes, color and kind of the allocations."""
    groups: Ints
    """module and color of each memory space, a row each."""
    number: Ints
    """The memory space of each allocation."""
    naive: list[int]
    """The largest sum of live sizes of each memory space."""
    ranges: Ranges
    """The temp values that occupy bytes."""
    rows: Ints
    """Their rows in the index, ascending."""
    is_phi: Bools
    allocation: Ints
    """The row of the allocation of each, in `table`."""
    fixed: Ints
    """Rows in `table` of what is held all the time."""
    standing: Ints
    """For each of these the value that represents it, as a row of the index, or -1."""

    def occupied(self, context: Context, lifetimes: Lifetimes) -> tuple[dict[str, Columns], Temps]:
        """Return the rows of the tables about the peak, and the temp values."""
        groups, table = self.groups, self.table
        lengths = [f.live.schedule_length or 0 for f in context.facts]
        last = np.array(lengths, np.int64)[groups[:, 0]]
        occupied = occupancy(self.ranges, len(groups), last)
        self._check_peaks(context, occupied.peak)
        held, held_by = self._held(lifetimes, occupied.peak_time)
        tables = {
            "occupied_peaks": {
                "module": groups[:, 0],
                "color": groups[:, 1],
                "peak_time": occupied.peak_time,
                "occupied_temp_bytes": occupied.peak,
                "naive_live_bytes": np.array(self.naive, object),
            },
            "occupancy_steps": {
                "module": groups[occupied.group, 0],
                "color": groups[occupied.group, 1],
                "start_time": occupied.time,
                "occupied_temp_bytes": occupied.occupied,
            },
            "peaks": _peaks(groups, occupied),
            "peak_values": held,
        }
        totals = sums_by_kind(
            self.number, table["kind"], table["size_bytes"], len(groups), len(KINDS)
        )
        fixed = totals[:, [KINDS.index(kind) for kind in FIXED]].sum(axis=1)
        return tables, Temps(groups, fixed, self.ranges, occupied, self.rows, self.is_phi, held_by)

    def _held(self, lifetimes: Lifetimes, peak_time: Ints) -> tuple[Columns, Ints]:
        """Rows of `peak_values`, and for each temp value its bytes in them.

        Args:
            lifetimes: gives the numbers of values.
            peak_time: the instant of the peak of each memory space.
        """
        table, fixed = self.table, self.fixed
        live = np.concatenate([np.empty(0, np.int64), *live_at(self.ranges, peak_time)])
        # Values are in order of their numbers, which decides between equal ones.
        some = self.ranges.where(live)
        held = own_bytes(self.allocation[live], some.offset, some.size)
        live, held = live[held > 0], held[held > 0]
        held_by = np.zeros(len(self.rows), np.int64)
        held_by[live] = held
        holder = np.concatenate([self.rows[live], self.standing])
        allocation = np.concatenate([self.allocation[live], fixed])
        order = np.argsort(allocation, kind="stable")
        holder, allocation = holder[order], allocation[order]
        columns = {
            "module": table["module"][allocation],
            "color": table["color"][allocation],
            "allocation_index": table["allocation_index"][allocation],
            "allocation_kind": Labels(table["kind"][allocation], KINDS),
            "value_id": lifetimes.value_ids(holder),
            "held_bytes": np.concatenate([held, table["size_bytes"][fixed]])[order],
        }
        return columns, held_by

    def _check_peaks(self, context: Context, peaks: Any) -> None:
        """Check that temp allocations hold no more than their size: a peak is within the total."""
        table, groups = self.table, self.groups
        temps = table["kind"] == KINDS.index("temp")
        room = np.zeros(len(groups))
        np.add.at(room, self.number[temps], table["size_bytes"][temps].astype(np.float64))
        # Doubles are enough to detect a wrong peak as long as sizes are below 2^53.
        for group in np.flatnonzero(peaks.astype(np.float64) > room * (1 + 1e-15)).tolist():
            message = f"{peaks[group]} bytes are occupied in temp allocations of {room[group]:.0f}"
            context.find(int(groups[group, 0]), "error", "peak_exceeds_total", message)


def _peaks(groups: Ints, occupied: Occupancy) -> Columns:
    """Return the rows of `peaks`; where nothing is ever occupied, that is the peak."""
    heights: Any = occupied.occupied
    if heights.dtype == object and occupied.peak.astype(np.float64).max() < 2.0**62:
        heights = heights.astype(np.int64)  # which are faster by far
    hill = hills(occupied.group, occupied.time, heights, len(groups))
    flat = np.flatnonzero(np.bincount(hill.group, minlength=len(groups)) == 0)
    zeros = np.zeros(len(flat), np.int64)
    group = np.concatenate([hill.group, flat])
    valley: Any = np.concatenate([hill.valley, zeros])
    ordinal = np.concatenate([hill.ordinal, zeros + 1])
    if valley.dtype == object:
        valley[ordinal == 1] = None
    else:
        valley = Numbers(valley, ordinal > 1)
    return {
        "module": groups[group, 0],
        "color": groups[group, 1],
        "peak_ordinal": ordinal,
        "peak_time": np.concatenate([hill.time, zeros]),
        "occupied_temp_bytes": np.concatenate([hill.height, zeros]),
        "valley_bytes": valley,
    }


# -- Joint facts of a batch's allocations, values and live ranges: occupied bytes, and checks ------

SUMS = {
    "argument_bytes": ["parameter", "donated_parameter"],
    "output_bytes": ["output", "donated_parameter"],
    "alias_bytes": ["donated_parameter"],
    "temp_bytes": ["temp"],
    "constant_bytes": ["constant"],
    "thread_local_bytes": ["thread_local"],
    "total_bytes": KINDS,
    "fixed_bytes": FIXED,
}
"""Which kinds of allocation each column of `memory_sums` adds up."""


@dataclass
class MemoryChecks:
    """The allocations and values of a batch with their live ranges."""

    context: Context
    table: Columns
    """module, allocation_index, size_bytes, color and kind of the allocations."""
    values: ValueIndex
    lifetimes: Lifetimes
    _row: Ints | None = None
    """For each value the row of its allocation in the table, from where it is checked on."""

    def sums(self) -> Columns:
        """Return the rows of `memory_sums`: the allocations by module and memory space, summed."""
        table = self.table
        groups, number = distinct_pairs(table["module"], table["color"])
        totals = sums_by_kind(number, table["kind"], table["size_bytes"], len(groups), len(KINDS))
        sums = {
            name: totals[:, [KINDS.index(kind) for kind in kinds]].sum(axis=1)
            for name, kinds in SUMS.items()
        }
        return {"module": groups[:, 0], "color": groups[:, 1], **sums}

    def live(self) -> Live:
        """Return what is live when, where the peak is known; placements are not needed again."""
        table = self.table
        chosen = self.context.having("is_peak_known")[table["module"]]
        chosen_rows = take(table, None if chosen.all() else chosen)
        groups, number = distinct_pairs(chosen_rows["module"], chosen_rows["color"])
        row = self._row if chosen_rows is table else None
        self._row = None
        row = self._allocation_row(chosen_rows) if row is None else row
        naive, ranges, rows = self._ranges(chosen_rows, number, row, len(groups))
        is_phi, allocation = self.values.is_phi[rows], row[rows]
        fixed, standing = self._standing(chosen_rows, row)
        return Live(
            chosen_rows, groups, number, naive, ranges, rows, is_phi, allocation, fixed, standing
        )

    def _ranges(
        self, table: Columns, number: Ints, row: Ints, groups: int
    ) -> tuple[list[int], Ranges, Any]:
        """Return each memory space's largest sum of live sizes; live temp values and their rows.

        Args:
            table: allocations of modules whose peak is known.
            number: the memory space of each.
            row: for each value the row of its allocation in that table, or -1.
            groups: number of memory spaces.
        """
        values, lifetimes = self.values, self.lifetimes
        rows = np.flatnonzero(lifetimes.is_live & (row >= 0))
        size, start, end = values.size_bytes, lifetimes.start, lifetimes.end
        naive = largest_sum(number[row[rows]], size[rows], start[rows], end[rows], groups)
        rows = rows[table["kind"][row[rows]] == KINDS.index("temp")]
        rows = rows[(size[rows] > 0) & (start[rows] <= end[rows])]
        index, offset = table["allocation_index"], values.offset_bytes
        ranges = Ranges(
            number[row[rows]], index[row[rows]], offset[rows], size[rows], start[rows], end[rows]
        )
        return naive, ranges, rows

    def _standing(self, table: Columns, row: Ints) -> tuple[Ints, Ints]:
        """Return allocations that are held throughout, and the value that represents each.

        Args:
            table: allocations of modules whose peak is known.
            row: for each value the row of its allocation in that table, or -1.
        """
        values = self.values
        not_fixed = [KINDS.index("temp"), KINDS.index("thread_local")]
        is_fixed = ~np.isin(table["kind"], not_fixed)
        whole = np.flatnonzero((row >= 0) & (values.offset_bytes == 0))
        whole = whole[is_fixed[row[whole]]]
        largest = largest_rows(row[whole], values.size_bytes[whole], len(is_fixed))
        fixed = np.flatnonzero(is_fixed & (table["size_bytes"] > 0))
        largest = largest[fixed]
        standing = np.full(len(fixed), -1)
        standing[largest >= 0] = whole[largest[largest >= 0]]
        return fixed, standing

    def _allocation_row(self, table: Columns) -> Ints:
        """For each value the row of its allocation in a table sorted by module, or -1."""
        if not len(self.values) or not len(table["module"]):
            return np.full(len(self.values), -1)
        indexes = table["allocation_index"], self.values.allocation_index
        modules = table["module"], self.values.module
        if max(int(index.max()) for index in indexes) >= 1 << 40:
            ids = distinct(np.concatenate(indexes))
            indexes = np.searchsorted(ids, indexes[0]), np.searchsorted(ids, indexes[1])
        if any(module.any() for module in modules):
            pairs = zip(modules, indexes, strict=True)
            indexes = tuple((module << 40) | index for module, index in pairs)
        keys, keys_of_allocations = indexes
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        return lookup(keys, order, keys_of_allocations)

    def check(self) -> None:
        """Check the sums and counts that every dump must satisfy (format section 8)."""
        table = self.table
        bounds = np.searchsorted(table["module"], np.arange(len(self.context.facts) + 1))
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(table["size_bytes"])])
        totals = sums[bounds[1:]] - sums[bounds[:-1]]
        for number, facts in enumerate(self.context.facts):
            facts.allocation_sum = int(totals[number])
        in_order = table["allocation_index"] + bounds[table["module"]] == np.arange(len(sums) - 1)
        for module in distinct(table["module"][~in_order]).tolist():
            message = "the allocations are not numbered 0, 1, 2, …; the file may be truncated"
            self.context.find(module, "error", "allocation_gap", message)
        negative = table["module"][table["size_bytes"] < 0]
        message = "{count} allocations have a size below 0"
        self.context.find_in_each(negative, "error", "negative_size", message)
        if len(table["module"]):
            self._row = self._allocation_row(table)
            self._check_values(self._row)
        self._check_times()

    def _check_values(self, row: Ints) -> None:
        """Values lie in their allocation, fill it to its end if it is temp, and live some time."""
        table, values, find = self.table, self.values, self.context.find_in_each
        # In a thread-local computation constants have no live range either.
        without = [KINDS.index("thread_local"), KINDS.index("constant")]
        filled = np.zeros(len(table["module"]), np.bool_)
        wrong, dead = np.zeros(len(row), np.bool_), np.zeros(len(row), np.bool_)
        for part in parts(len(row)):
            kind, room = table["kind"][row[part]], table["size_bytes"][row[part]]
            offset, size = values.offset_bytes[part], values.size_bytes[part]
            placed = row[part] >= 0
            # With numbers below 0 the difference may not fit into 64 bits.
            outside = (offset < 0) | (size < 0) | (room < 0) | (offset > room - size)
            wrong[part] = placed & outside
            filled[row[part][placed & ~outside & (offset == room - size)]] = True
            dead[part] = placed & ~self.lifetimes.is_live[part] & ~np.isin(kind, without)
        message = "{count} values are not inside their allocation"
        find(values.module[wrong], "error", "value_outside_allocation", message)
        # Of fast memory a kernel may have all, for its scratch, which is no value.
        has_values = np.zeros(len(filled), np.bool_)
        has_values[row[row >= 0]] = True
        filled |= (table["color"] > 0) & ~has_values
        empty = ~filled & (table["kind"] == KINDS.index("temp")) & (table["size_bytes"] > 0)
        message = "values of {count} temp allocations are missing: those listed do not fill it"
        find(table["module"][empty], "data_loss", "missing_values", message)
        has_ranges = self.context.having("has_live_ranges")
        message = "{count} values that are neither thread-local nor constant have no live range"
        dead &= has_ranges[values.module]
        find(values.module[dead], "error", "missing_live_range", message)

    def _check_times(self) -> None:
        """Check that live ranges lie within the schedule."""
        lengths = [f.live.schedule_length or 0 for f in self.context.facts]
        last = np.array(lengths, np.int64)
        odd = self.lifetimes.is_live & (
            (self.lifetimes.start < 0)
            | (self.lifetimes.end < self.lifetimes.start)
            | (self.lifetimes.end > last[self.values.module])
        )
        self.context.find_in_each(
            self.values.module[odd],
            "error",
            "live_range_outside_schedule",
            "{count} live ranges are not within the schedule",
        )


def checked_sums(context: Context, sums: Columns) -> Columns:
    """Return the rows of `memory_sums`, checked against the printed totals.

    They are NULL in modules whose allocations are found not to be those of one whole program.
    """
    for number in range(context.count):
        _check_total(context, number)
    _check_reports(context, sums)
    unknown = np.array([facts.sum_problem is not None for facts in context.facts], np.bool_)
    rows = unknown[sums["module"]]
    if not rows.any():
        return sums
    return {
        name: np.where(rows, None, column) if name in SUMS else column
        for name, column in sums.items()
    }


def _check_total(context: Context, number: int) -> None:
    """Check the printed total against the allocations, and its human form against itself."""
    facts, find = context.facts[number], context.find
    total = facts.total_bytes
    if total is None:
        return
    if facts.has_allocations and total != facts.allocation_sum:
        message = f"the allocations sum to {facts.allocation_sum}, the dump says {total}"
        find(number, "error", "total_mismatch", message)
    if facts.human_total not in (None, xla_bytes(total)):
        message = f"{total} bytes print as {xla_bytes(total)}, the dump says {facts.human_total}"
        find(number, "notice", "human_total_mismatch", message)


def _check_reports(context: Context, sums: Columns) -> None:
    """Check totals of memory-usage-reports, which XLA prints as int64 (format section 9.1)."""
    reports = context.source.reported_sums
    totals: dict[tuple[int, int | None], int] = {}
    for row in np.flatnonzero(np.isin(sums["module"], list(reports))).tolist():
        module, color = int(sums["module"][row]), int(sums["color"][row])
        of_space = int(sums["total_bytes"][row])
        totals[module, color] = of_space
        totals[module, None] = totals.get((module, None), 0) + of_space
    for module, report in reports.items():
        for space, reported in report if context.facts[module].has_allocations else ():
            total = totals.get((module, space), 0)
            if (reported - total) % (1 << 64):
                where = "in all" if space is None else f"in memory space {space}"
                message = f"the allocations sum to {total} {where}, the report says {reported}"
                context.find(module, "error", "memory_report_mismatch", message)
                break


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def xla_bytes(size: int) -> str:
    """Return a size as XLA's HumanReadableNumBytes prints it."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size < 1024:
        return f"{sign}{size}B"
    unit = 1
    while size >= 1024 * 1024:
        size //= 1024
        unit += 1
    return f"{sign}{size / 1024:.{1 if unit == 1 else 2}f}{_UNITS[unit]}"
