"""Rows of the tables about the peak: what is occupied when, and who holds it at the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.assemble.peak.savings import Temps
from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers
from bufdb.link.context import Context
from bufdb.link.lifetimes import Lifetimes
from bufdb.memory.hills import hills
from bufdb.memory.holders import own_bytes
from bufdb.memory.occupancy import Occupancy, live_at, occupancy
from bufdb.memory.ranges import Ranges
from bufdb.memory.sums import sums_by_kind
from bufdb.read.allocations import KINDS

FIXED = [kind for kind in KINDS if kind not in ("temp", "thread_local")]
"""Allocations that are held all the time."""


@dataclass(frozen=True)
class Live:
    """What is live when in a batch, of modules whose peak is known.

    It is made before the index gives up where values lie, and asked after that: both together are
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
    """For each of these the value that stands for it, as a row of the index, or -1."""

    def occupied(self, context: Context, lifetimes: Lifetimes) -> tuple[dict[str, Columns], Temps]:
        """Rows of the tables about the peak, and the temp values."""
        groups, table = self.groups, self.table
        lengths = [f.live.schedule_length or 0 for f in context.facts]
        last = np.array(lengths, np.int64)[groups[:, 0]]
        found = occupancy(self.ranges, len(groups), last)
        self._check_peaks(context, found.peak)
        held, held_by = self._held(lifetimes, found.peak_time)
        tables = {
            "occupied_peaks": {
                "module": groups[:, 0],
                "color": groups[:, 1],
                "peak_time": found.peak_time,
                "occupied_temp_bytes": found.peak,
                "naive_live_bytes": np.array(self.naive, object),
            },
            "occupancy_steps": {
                "module": groups[found.group, 0],
                "color": groups[found.group, 1],
                "start_time": found.time,
                "occupied_temp_bytes": found.occupied,
            },
            "peaks": _peaks(groups, found),
            "peak_values": held,
        }
        totals = sums_by_kind(
            self.number, table["kind"], table["size_bytes"], len(groups), len(KINDS)
        )
        fixed = totals[:, [KINDS.index(kind) for kind in FIXED]].sum(axis=1)
        return tables, Temps(groups, fixed, self.ranges, found, self.rows, self.is_phi, held_by)

    def _held(self, lifetimes: Lifetimes, peak_time: Ints) -> tuple[Columns, Ints]:
        """Rows of `peak_values`, and for each temp value its bytes in them.

        Args:
            lifetimes: knows the numbers of values.
            peak_time: the instant of the peak of each memory space.
        """
        table, fixed = self.table, self.fixed
        live = np.concatenate([np.empty(0, np.int64), *live_at(self.ranges, peak_time)])
        # Values are in order of their numbers, by which equal ones are told apart.
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
        """Temp allocations hold no more than they are large, so a peak is within the total."""
        table, groups = self.table, self.groups
        temps = table["kind"] == KINDS.index("temp")
        room = np.zeros(len(groups))
        np.add.at(room, self.number[temps], table["size_bytes"][temps].astype(np.float64))
        # Doubles are enough to know a wrong peak wherever sizes are below 2^53.
        for group in np.flatnonzero(peaks.astype(np.float64) > room * (1 + 1e-15)).tolist():
            message = f"{peaks[group]} bytes are occupied in temp allocations of {room[group]:.0f}"
            context.find(int(groups[group, 0]), "error", "peak_exceeds_total", message)


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
