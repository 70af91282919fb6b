"""What a batch's allocations, values and live ranges say together: occupied bytes, and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.assemble.peak.savings import Temps
from bufdb.columnar.arrow import Labels
from bufdb.columnar.freed import give_back
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, take
from bufdb.link.context import Context
from bufdb.link.lifetimes import Lifetimes
from bufdb.link.value_index import ValueIndex, lookup
from bufdb.memory.hills import hills
from bufdb.memory.holders import largest_rows, own_bytes
from bufdb.memory.occupancy import Occupancy, largest_sum, occupancy
from bufdb.memory.ranges import Narrow, Ranges, narrow, parts, wide
from bufdb.memory.sums import distinct_pairs, sums_by_kind
from bufdb.read.allocations import KINDS

_FIXED = [kind for kind in KINDS if kind not in ("temp", "thread_local")]
SUMS = {
    "argument_bytes": ["parameter", "donated_parameter"],
    "output_bytes": ["output", "donated_parameter"],
    "alias_bytes": ["donated_parameter"],
    "temp_bytes": ["temp"],
    "constant_bytes": ["constant"],
    "thread_local_bytes": ["thread_local"],
    "total_bytes": KINDS,
    "fixed_bytes": _FIXED,
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

    def sums(self) -> Columns:
        """Rows of `memory_sums`: the allocations of each module and memory space, summed up."""
        table = self.table
        groups, number = distinct_pairs(table["module"], table["color"])
        totals = sums_by_kind(number, table["kind"], table["size_bytes"], len(groups), len(KINDS))
        sums = {
            name: totals[:, [KINDS.index(kind) for kind in kinds]].sum(axis=1)
            for name, kinds in SUMS.items()
        }
        return {"module": groups[:, 0], "color": groups[:, 1], **sums}

    def occupied(self) -> tuple[dict[str, Columns], Temps]:
        """Rows of the tables about the peak, and the temp values; of modules with a known peak."""
        table = self.table
        known = self.context.having("is_peak_known")
        mine = take(table, known[table["module"]])
        groups, number = distinct_pairs(mine["module"], mine["color"])
        row = self._allocation_row(mine)
        naive, ranges, rows = self._live(mine, number, row, len(groups))
        give_back(len(rows))
        lengths = [f.live.schedule_length or 0 for f in self.context.facts]
        last = np.array(lengths, np.int64)[groups[:, 0]]
        found = occupancy(ranges, len(groups), last)
        give_back(len(rows))
        self._check_peaks(mine, number, groups, found.peak)
        held, held_by = self._held(mine, row, found.peak_time[number])
        tables = {
            "occupied_peaks": {
                "module": groups[:, 0],
                "color": groups[:, 1],
                "peak_time": found.peak_time,
                "occupied_temp_bytes": found.peak,
                "naive_live_bytes": np.array(naive, object),
            },
            "occupancy_steps": {
                "module": narrow(groups[found.group, 0]),
                "color": narrow(groups[found.group, 1]),
                "start_time": narrow(found.time),
                "occupied_temp_bytes": found.occupied,
            },
            "peaks": _peaks(groups, found),
            "peak_values": held,
        }
        totals = sums_by_kind(number, mine["kind"], mine["size_bytes"], len(groups), len(KINDS))
        fixed = totals[:, [KINDS.index(kind) for kind in _FIXED]].sum(axis=1)
        temps = Temps(groups, fixed, ranges, found, rows, self.values.is_phi[rows], held_by[rows])
        return tables, temps

    def _live(
        self, table: Columns, number: Ints, row: Narrow, groups: int
    ) -> tuple[list[int], Ranges, Any]:
        """The largest sum of live sizes of each memory space; the live temp values, and their rows.

        Args:
            table: allocations of modules whose peak is known.
            number: the memory space of each.
            row: for each value the row of its allocation in that table, or -1.
            groups: number of memory spaces.
        """
        values, lifetimes = self.values, self.lifetimes
        rows = narrow(np.flatnonzero(lifetimes.is_live & (row >= 0)))
        number = narrow(number)
        size, start, end = values.size_bytes, lifetimes.start, lifetimes.end
        naive = largest_sum(number[row[rows]], size[rows], start[rows], end[rows], groups)
        rows = rows[table["kind"][row[rows]] == KINDS.index("temp")]
        rows = rows[(size[rows] > 0) & (start[rows] <= end[rows])]
        index, offset = narrow(table["allocation_index"]), values.offset_bytes
        ranges = Ranges(
            number[row[rows]], index[row[rows]], offset[rows], size[rows], start[rows], end[rows]
        )
        return naive, ranges.narrowed(), rows

    def _held(self, table: Columns, row: Narrow, peak_time: Ints) -> tuple[Columns, Ints]:
        """Rows of `peak_values`, and for each value the bytes of temp allocations in them.

        Args:
            table: allocations of modules whose peak is known.
            row: for each value the row of its allocation in that table, or -1.
            peak_time: for each allocation the instant of the peak of its memory space.
        """
        values, lifetimes = self.values, self.lifetimes
        is_temp = table["kind"] == KINDS.index("temp")
        is_fixed = ~is_temp & (table["kind"] != KINDS.index("thread_local"))
        live = np.concatenate([np.empty(0, np.int64), *self._live_at(row, is_temp, peak_time)])
        # Values are in order of their numbers, by which equal ones are told apart.
        offset, size = wide(values.offset_bytes[live]), wide(values.size_bytes[live])
        held = own_bytes(row[live], offset, size)
        live, held = live[held > 0], held[held > 0]
        held_by = np.zeros(len(values), narrow(held).dtype)
        held_by[live] = held
        whole = np.flatnonzero((row >= 0) & (values.offset_bytes == 0))
        whole = whole[is_fixed[row[whole]]]
        largest = largest_rows(row[whole], wide(values.size_bytes[whole]), len(is_fixed))
        fixed = np.flatnonzero(is_fixed & (table["size_bytes"] > 0))
        largest = largest[fixed]
        standing = np.full(len(fixed), -1)
        standing[largest >= 0] = whole[largest[largest >= 0]]
        holder = np.concatenate([live, standing])
        allocation = np.concatenate([row[live], fixed])
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

    def _live_at(self, row: Narrow, chosen: Bools, time: Ints) -> Iterator[Ints]:
        """The values of chosen allocations that are live at the instant of their allocation."""
        lifetimes = self.lifetimes
        for part in parts(len(row)):
            live = part.start + np.flatnonzero(lifetimes.is_live[part] & (row[part] >= 0))
            live = live[chosen[row[live]]]
            at = time[row[live]]
            yield live[(lifetimes.start[live] <= at) & (at <= lifetimes.end[live])]

    def _check_peaks(self, table: Columns, number: Ints, groups: Ints, peaks: Any) -> None:
        """Temp allocations hold no more than they are large, so a peak is within the total."""
        temps = table["kind"] == KINDS.index("temp")
        room = np.zeros(len(groups))
        np.add.at(room, number[temps], table["size_bytes"][temps].astype(np.float64))
        # Doubles are enough to know a wrong peak wherever sizes are below 2^53.
        for group in np.flatnonzero(peaks.astype(np.float64) > room * (1 + 1e-15)).tolist():
            message = f"{peaks[group]} bytes are occupied in temp allocations of {room[group]:.0f}"
            self.context.find(int(groups[group, 0]), "error", "peak_exceeds_total", message)

    def _allocation_row(self, table: Columns) -> Narrow:
        """For each value the row of its allocation in a table sorted by module, or -1."""
        if not len(self.values) or not len(table["module"]):
            return np.full(len(self.values), -1, np.int8)
        indexes = narrow(table["allocation_index"]), self.values.allocation_index
        modules = table["module"], self.values.module
        if max(int(index.max()) for index in indexes) >= 1 << 40:
            ids = np.unique(np.concatenate(indexes))
            indexes = np.searchsorted(ids, indexes[0]), np.searchsorted(ids, indexes[1])
        if any(module.any() for module in modules):
            pairs = zip(modules, indexes, strict=True)
            indexes = tuple((wide(module) << 40) | index for module, index in pairs)
        mine, theirs = indexes
        order = np.argsort(mine, kind="stable")
        mine = mine[order]
        kind = narrow(np.array([len(order)])).dtype
        found = [lookup(mine, order, theirs[part]).astype(kind) for part in parts(len(theirs))]
        return np.concatenate(found)

    def check(self) -> None:
        """Sums and counts that every dump must satisfy (format section 8)."""
        table = self.table
        bounds = np.searchsorted(table["module"], np.arange(len(self.context.facts) + 1))
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(table["size_bytes"])])
        totals = sums[bounds[1:]] - sums[bounds[:-1]]
        for number, facts in enumerate(self.context.facts):
            facts.allocation_sum = int(totals[number])
        in_order = table["allocation_index"] + bounds[table["module"]] == np.arange(len(sums) - 1)
        for module in np.unique(table["module"][~in_order]).tolist():
            message = "the allocations are not numbered 0, 1, 2, …; the file may be truncated"
            self.context.find(module, "error", "allocation_gap", message)
        negative = table["module"][table["size_bytes"] < 0]
        message = "{count} allocations have a size below 0"
        self.context.find_in_each(negative, "error", "negative_size", message)
        if len(table["module"]):
            self._check_values(self._allocation_row(table))
        self._check_times()

    def _check_values(self, row: Narrow) -> None:
        """Values lie in their allocation, fill it to its end if it is temp, and live some time."""
        table, values, find = self.table, self.values, self.context.find_in_each
        # Of a thread-local computation constants have no live range either.
        without = [KINDS.index("thread_local"), KINDS.index("constant")]
        filled = np.zeros(len(table["module"]), np.bool_)
        wrong, dead = np.zeros(len(row), np.bool_), np.zeros(len(row), np.bool_)
        for part in parts(len(row)):
            kind, room = table["kind"][row[part]], table["size_bytes"][row[part]]
            offset, size = values.offset_bytes[part], values.size_bytes[part]
            placed = row[part] >= 0
            # Of numbers below 0 the difference may not fit into 64 bits.
            outside = (offset < 0) | (size < 0) | (room < 0) | (offset > room - size)
            wrong[part] = placed & outside
            filled[row[part][placed & ~outside & (offset == room - size)]] = True
            dead[part] = placed & ~self.lifetimes.is_live[part] & ~np.isin(kind, without)
        message = "{count} values do not lie inside their allocation"
        find(values.module[wrong], "error", "value_outside_allocation", message)
        empty = ~filled & (table["kind"] == KINDS.index("temp")) & (table["size_bytes"] > 0)
        message = "values of {count} temp allocations are missing: those listed do not fill it"
        find(table["module"][empty], "data_loss", "missing_values", message)
        has_ranges = self.context.having("has_live_ranges")
        message = "{count} values that are neither thread-local nor constant have no live range"
        dead &= has_ranges[values.module]
        find(values.module[dead], "error", "missing_live_range", message)

    def _check_times(self) -> None:
        """Live ranges lie within the schedule."""
        lengths = [f.live.schedule_length or 0 for f in self.context.facts]
        last = narrow(np.array(lengths, np.int64))
        odd = self.lifetimes.is_live & (
            (self.lifetimes.start < 0)
            | (self.lifetimes.end < self.lifetimes.start)
            | (self.lifetimes.end > last[self.values.module])
        )
        self.context.find_in_each(
            self.values.module[odd],
            "error",
            "live_range_outside_schedule",
            "{count} live ranges do not lie within the schedule",
        )


def _peaks(groups: Ints, found: Occupancy) -> Columns:
    """Rows of `peaks`; where nothing is ever occupied, that is the peak."""
    heights: Any = found.occupied
    if heights.dtype == object and found.peak.astype(np.float64).max() < 2.0**62:
        heights = heights.astype(np.int64)  # which are faster by far
    hill = hills(found.group, found.time, heights, len(groups))
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


def check_total(context: Context, number: int) -> None:
    """Hold the printed total against the allocations, and its human form against itself."""
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


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def xla_bytes(size: int) -> str:
    """A size as XLA's HumanReadableNumBytes prints it."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size < 1024:
        return f"{sign}{size}B"
    unit = 1
    while size >= 1024 * 1024:
        size //= 1024
        unit += 1
    return f"{sign}{size / 1024:.{1 if unit == 1 else 2}f}{_UNITS[unit]}"
