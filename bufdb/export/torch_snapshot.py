"""A module as a memory snapshot of PyTorch, for the viewer at pytorch.org/memory_viz.

The format is that of torch.cuda.memory._snapshot() ("Snapshot API Reference" in PyTorch's page
Understanding CUDA Memory Usage): a pickle of segments and of a trace of alloc and free for each
device. A segment is an allocation of XLA. An allocation that is not temp exists from the first step
to the last; a value of a temp allocation is at its offset as long as it has the bytes.

Each function in a memory space is a device, because the viewer never adds up devices.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from bufdb.database.engine import duckdb
from bufdb.export.shown import Function
from bufdb.export.tenancy import Tenancy, tenancies
from bufdb.export.values import Frame, HloValue, values

ALLOCATIONS = """
SELECT allocation_index, kind, size_bytes
FROM allocations
WHERE module_id = $module_id
  AND color = $color
  AND kind <> 'thread_local'
ORDER BY allocation_index
"""
PICKLE_PROTOCOL = 4
"""The newest version that the viewer reads."""
_ALIGNMENT = 2**20
"""Segment addresses are multiples of it, so that offsets are readable in addresses."""

Event = dict[str, Any]


def snapshot(
    con: duckdb.DuckDBPyConnection, functions: Sequence[Function], *, all_frames: bool = False
) -> bytes:
    """Return a pickled snapshot with a device for each function, in this order."""
    writer = _Writer()
    for device, function in enumerate(functions):
        hlo_values = values(con, function, all_frames=all_frames)
        parameters = {"module_id": function.module_id, "color": function.color}
        allocations = con.execute(ALLOCATIONS, parameters).fetchall()
        writer.add(device, function, allocations, hlo_values)
    document = {"segments": writer.segments, "device_traces": writer.traces}
    return pickle.dumps(document, protocol=PICKLE_PROTOCOL)


class _Writer:
    """Segments and traces of the devices added so far."""

    def __init__(self) -> None:
        self.segments: list[dict[str, Any]] = []
        self.traces: list[list[Event]] = []
        self.frames: dict[tuple[Frame, ...], list[dict[str, Any]]] = {}

    def add(
        self,
        device: int,
        function: Function,
        allocations: Iterable[tuple[int, str, int]],
        hlo_values: Sequence[HloValue],
    ) -> None:
        """Add a device: its allocations (index, kind, size) and values."""
        tenants = tenancies(hlo_values, function.schedule_length)
        ends: dict[int, int] = defaultdict(int)  # past the allocation's end in a damaged dump
        for part in tenants:
            index = part.value.allocation_index
            ends[index] = max(ends[index], part.offset_bytes + part.size_bytes)
        address = _ALIGNMENT
        starts: dict[int, int] = {}
        trace: list[Event] = []
        for index, kind, size in allocations:
            starts[index] = address
            if kind == "temp":
                total = max(size, ends[index])
                blocks = [self._block(address, total, "inactive", [])]
            else:
                total = size
                frames = self._frames(_fixed(hlo_values, index, kind))
                trace.append(_event("alloc", address, size, 0, frames))
                blocks = [self._block(address, size, "active_allocated", frames)]
            if total:
                self.segments.append(_segment(device, address, total, blocks))
            address += -(-max(total, 1) // _ALIGNMENT) * _ALIGNMENT
        self.traces.append(
            [event for event in trace if event["size"]] + self._trace(tenants, starts)
        )

    def _trace(self, tenants: Iterable[Tenancy], starts: dict[int, int]) -> list[Event]:
        """Return the events of temp values; at each instant frees come first."""
        events: list[tuple[int, int, Event]] = []
        for part in tenants:
            address = starts[part.value.allocation_index] + part.offset_bytes
            frames = self._frames(_value_frames(part.value))
            size, free_time = part.size_bytes, part.end_time + 1
            events.append(
                (part.start_time, 1, _event("alloc", address, size, part.start_time, frames))
            )
            for action in ("free_requested", "free_completed"):
                events.append((free_time, 0, _event(action, address, size, free_time, frames)))
        return [event for _, _, event in sorted(events, key=lambda item: item[:2])]

    def _frames(self, frames: tuple[Frame, ...]) -> list[dict[str, Any]]:
        """Return frames in PyTorch's form; equal stacks share one object, pickled once."""
        if frames not in self.frames:
            self.frames[frames] = [
                {"name": frame.name, "filename": frame.file, "line": frame.line} for frame in frames
            ]
        return self.frames[frames]

    def _block(self, address: int, size: int, state: str, frames: list[Any]) -> dict[str, Any]:
        return {
            "address": address,
            "size": size,
            "requested_size": size,
            "state": state,
            "frames": frames,
        }


def _segment(device: int, address: int, size: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large",
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _event(action: str, address: int, size: int, time: int, frames: list[Any]) -> Event:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": time,
        "frames": frames,
    }


def _fixed(hlo_values: Iterable[HloValue], index: int, kind: str) -> tuple[Frame, ...]:
    """Return the frames of a non-temp allocation: those of its largest value, else its kind."""
    at_start = [
        value for value in hlo_values if value.allocation_index == index and not value.offset_bytes
    ]
    if not at_start:
        return (Frame(f"({kind})"),)
    return _value_frames(max(at_start, key=lambda value: (value.size_bytes, -value.value_id)))


def _value_frames(value: HloValue) -> tuple[Frame, ...]:
    """Return the value itself as a frame, and the stack that made it."""
    return (Frame(f"{value.name} {value.shape}"), *value.frames)
