"""A serialised buffer assignment: lists of its values, allocations and traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columnar.scan import Columns, Ints
from bufdb.proto.given.columns import chunks, parted
from bufdb.proto.reader import NO_PROTO
from bufdb.proto.shapes import Index

_ALLOCATION = (
    *("index", "size", "color", "parameter_number", "is_entry_computation_parameter"),
    *("is_constant", "is_thread_local", "maybe_live_out"),
)


@dataclass
class Locations:
    """Places in shapes; each list has all."""

    instructions: list[int] = field(default_factory=list)
    """Ids of instructions, 0 in old protos, which have their names."""
    names: list[bytes] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)

    def take(self, rows: Sequence[int]) -> Locations:
        """These places."""
        return Locations(
            [self.instructions[row] for row in rows],
            [self.names[row] for row in rows],
            [self.indexes[row] for row in rows],
        )


@dataclass
class Assignment:
    """What a buffer assignment gives, in its order."""

    numbers: list[int] = field(default_factory=list)
    """Of logical buffers, as are the next two."""
    colors: list[int] = field(default_factory=list)
    defined_at: Locations = field(default_factory=Locations)
    allocations: Columns = field(default_factory=dict)
    """Integers, by the names of the fields."""
    parameter_indexes: list[Index] = field(default_factory=list)
    """Of allocations, as is the next."""
    slice_counts: list[int] = field(default_factory=list)
    """How many slices are in each."""
    slices: Columns = field(default_factory=dict)
    """Of all allocations: logical_buffer_id, size, offset."""
    alias_sources: list[int] = field(default_factory=list)
    """Numbers of logical buffers that share theirs with what is at these places."""
    aliases: Locations = field(default_factory=Locations)
    traces: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Of the heap simulator's traces of the whole module numbers and kinds of their events."""


def read(assignment: Any) -> Assignment:
    """Read a BufferAssignmentParts.

    Raises:
        UnreadableProto: a part of it cannot be parsed.
    """
    found = Assignment()
    parts: list[bytes] = []
    for some in chunks("LogicalBufferParts", list(assignment.logical_buffers), NO_PROTO):
        found.numbers += some.numbers("id").tolist()
        found.colors += some.numbers("color").tolist()
        parts += some.joined("defined_at")
    found.defined_at = _locations(parts)
    parts = []
    for some in chunks("BufferAliasParts", list(assignment.buffer_aliases), NO_PROTO):
        found.alias_sources += some.numbers("source_buffer_id").tolist()
        parts += some.joined("location")
    found.aliases = _locations(parts)
    _read_allocations(found, list(assignment.buffer_allocations))
    for trace in assignment.heap_simulator_traces:
        events = _numbers("HeapSimulatorTrace.Event", list(trace.events), ("buffer_id", "kind"))
        if trace.whole_module_simulation:
            found.traces.append((events["buffer_id"], events["kind"]))
    return found


def _read_allocations(found: Assignment, every: Sequence[bytes]) -> None:
    slices: list[bytes] = []
    columns: list[Columns] = []
    for some in chunks("BufferAllocationParts", every, NO_PROTO):
        columns.append({name: some.numbers(name) for name in _ALLOCATION})
        found.parameter_indexes += _indexes(*some.all_numbers("parameter_shape_index"))
        inside, counts = some.all_texts("assigned")
        slices += inside
        found.slice_counts += counts
    found.allocations = _joined(columns, _ALLOCATION)
    names = ("logical_buffer_id", "size", "offset")
    found.slices = _numbers("BufferAllocationProto.Assigned", slices, names)


def _locations(parts: Sequence[bytes]) -> Locations:
    found = Locations()
    for some in chunks("Location", parts, NO_PROTO):
        found.instructions += some.numbers("instruction_id").tolist()
        found.names += some.texts("instruction_name")
        found.indexes += _indexes(*some.all_numbers("shape_index"))
    return found


def _indexes(numbers: list[int], counts: list[int]) -> list[Index]:
    return list(map(tuple, parted(numbers, counts))) if numbers else [()] * len(counts)


def _numbers(kind: str, parts: Sequence[bytes], names: Sequence[str]) -> Columns:
    """Fields of messages that have nothing but numbers."""
    columns = [
        {name: some.numbers(name) for name in names} for some in chunks(kind, parts, NO_PROTO)
    ]
    return _joined(columns, names)


def _joined(columns: list[Columns], names: Sequence[str]) -> Columns:
    none = np.empty(0, np.int64)
    return {name: np.concatenate([none, *[some[name] for some in columns]]) for name in names}
