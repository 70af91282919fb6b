"""Positions of values and the buffer assignment of a serialized module."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columnar.scan import Columns, Ints
from bufdb.proto.graph import ASYNC, WAITING, Module
from bufdb.proto.messages import chunks, parted
from bufdb.proto.reader import NO_PROTO
from bufdb.proto.shapes import Index

# -- A serialized buffer assignment: lists of its values, allocations and traces -------------------

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
        """Return these places."""
        return Locations(
            [self.instructions[row] for row in rows],
            [self.names[row] for row in rows],
            [self.indexes[row] for row in rows],
        )


@dataclass
class Assignment:
    """What a buffer assignment gives, in its order."""

    numbers: list[int] = field(default_factory=list)
    """Numbers of logical buffers; the next two are theirs, too."""
    colors: list[int] = field(default_factory=list)
    defined_at: Locations = field(default_factory=Locations)
    allocations: Columns = field(default_factory=dict)
    """Integers, by the names of the fields."""
    parameter_indexes: list[Index] = field(default_factory=list)
    """Shape indexes of the allocations' parameters."""
    slice_counts: list[int] = field(default_factory=list)
    """How many slices are in each."""
    slices: Columns = field(default_factory=dict)
    """Slices of all allocations: logical_buffer_id, size, offset."""
    alias_sources: list[int] = field(default_factory=list)
    """Numbers of logical buffers that share theirs with what is at these places."""
    aliases: Locations = field(default_factory=Locations)
    traces: list[tuple[Ints, Ints]] = field(default_factory=list)
    """Numbers and kinds of the events in the heap simulator's traces of the whole module."""


def read_assignment(assignment: Any) -> Assignment:
    """Read a BufferAssignmentParts.

    Raises:
        UnreadableProto: a part of it cannot be parsed.
    """
    result = Assignment()
    parts: list[bytes] = []
    for some in chunks("LogicalBufferParts", list(assignment.logical_buffers), NO_PROTO):
        result.numbers += some.numbers("id").tolist()
        result.colors += some.numbers("color").tolist()
        parts += some.joined("defined_at")
    result.defined_at = _locations(parts)
    parts = []
    for some in chunks("BufferAliasParts", list(assignment.buffer_aliases), NO_PROTO):
        result.alias_sources += some.numbers("source_buffer_id").tolist()
        parts += some.joined("location")
    result.aliases = _locations(parts)
    _read_allocations(result, list(assignment.buffer_allocations))
    for trace in assignment.heap_simulator_traces:
        events = _numbers("HeapSimulatorTrace.Event", list(trace.events), ("buffer_id", "kind"))
        if trace.whole_module_simulation:
            result.traces.append((events["buffer_id"], events["kind"]))
    return result


def _read_allocations(assignment: Assignment, every: Sequence[bytes]) -> None:
    slices: list[bytes] = []
    columns: list[Columns] = []
    for some in chunks("BufferAllocationParts", every, NO_PROTO):
        columns.append({name: some.numbers(name) for name in _ALLOCATION})
        assignment.parameter_indexes += _indexes(*some.all_numbers("parameter_shape_index"))
        inside, counts = some.all_texts("assigned")
        slices += inside
        assignment.slice_counts += counts
    assignment.allocations = _joined(columns, _ALLOCATION)
    names = ("logical_buffer_id", "size", "offset")
    assignment.slices = _numbers("BufferAllocationProto.Assigned", slices, names)


def _locations(parts: Sequence[bytes]) -> Locations:
    locations = Locations()
    for some in chunks("Location", parts, NO_PROTO):
        locations.instructions += some.numbers("instruction_id").tolist()
        locations.names += some.texts("instruction_name")
        locations.indexes += _indexes(*some.all_numbers("shape_index"))
    return locations


def _indexes(numbers: list[int], counts: list[int]) -> list[Index]:
    return list(map(tuple, parted(numbers, counts))) if numbers else [()] * len(counts)


def _numbers(kind: str, parts: Sequence[bytes], names: Sequence[str]) -> Columns:
    """Return the fields of messages that have nothing but numbers."""
    columns = [
        {name: some.numbers(name) for name in names} for some in chunks(kind, parts, NO_PROTO)
    ]
    return _joined(columns, names)


def _joined(columns: list[Columns], names: Sequence[str]) -> Columns:
    none = np.empty(0, np.int64)
    return {name: np.concatenate([none, *[some[name] for some in columns]]) for name in names}


# --------------------------------------------------------------------------------------------------
# Which value shows where, who uses it, which values share a buffer (format sections 8.2 and 10.1).
#
# A place is an instruction and an index in its shape. Definitions are given; what another place
# shows is followed to its source until there is one. A phi is a definition too, so no loop is
# followed round. Values go by their places among all, in the order of their numbers.

Place = tuple[int, Index]

_WHOLE = frozenset(
    (
        *("bitcast", "add-dependency", "opt-barrier", "optimization-barrier", "domain"),
        "all-reduce-done",
    )
)
"""The whole result is the first operand's."""
_MERGING = ("while", "conditional")
_FORWARDING = (
    _WHOLE
    | WAITING
    | ASYNC
    | {
        *("get-tuple-element", "tuple", "copy", "copy-start", "copy-done", "send", "recv-done"),
        *("all-gather-start", "all-gather-done", "collective-permute-start"),
        *("collective-permute-done",),
    }
)


@dataclass
class Slices:
    """Values in allocations, by their order in the assignment; arrays with a row for each."""

    allocation: Ints
    """Its place in the assignment."""
    value: Ints
    size: Ints
    """[bytes]"""
    offset: Ints
    """In the allocation [bytes]."""


@dataclass
class Values:
    """The values of a module; each list has all of them, in the order of their numbers."""

    numbers: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """What defines each."""
    instruction: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The instruction that defines each."""
    colors: list[int] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    """Values by number."""
    defined: dict[Place, int] = field(default_factory=dict)
    """The value that a place defines."""
    phi: set[int] = field(default_factory=set)
    """Values that merge definitions."""
    assigned: Slices = field(default_factory=lambda: Slices(*[np.empty(0, np.int64)] * 4))


def definitions(module: Module, assignment: Assignment) -> Values:
    """Return the values that a buffer assignment lists.

    Raises:
        KeyError: one is defined by an instruction that is not there.
    """
    numbers, colors, defined_at = assignment.numbers, assignment.colors, assignment.defined_at
    if not (np.diff(np.array(numbers, np.int64)) > 0).all():
        order = [row for _, row in sorted({n: row for row, n in enumerate(numbers)}.items())]
        numbers, colors = [numbers[row] for row in order], [colors[row] for row in order]
        defined_at = defined_at.take(order)
    try:
        where = list(map(module.at.__getitem__, defined_at.instructions))
    except KeyError:
        names = zip(defined_at.instructions, defined_at.names, strict=True)
        where = [_located(module, number, name) for number, name in names]
    places = list(zip(where, defined_at.indexes, strict=True))
    known = dict(zip(numbers, range(len(numbers)), strict=True))
    values = Values(numbers, places, np.array(where, np.int64), colors, known)
    values.defined = dict(zip(places, range(len(places)), strict=True))
    home, opcode, callers = module.home, module.opcode, module.callers
    merging = {
        c for c, some in callers.items() if any(opcode[caller] in _MERGING for caller, _ in some)
    }
    if merging:
        values.phi = {
            v
            for v, i in enumerate(where)
            if opcode[i] in _MERGING or (opcode[i] == "parameter" and home[i] in merging)
        }
    slices = assignment.slices
    inside = np.array([known[number] for number in slices["logical_buffer_id"].tolist()], np.int64)
    holders = np.repeat(np.arange(len(assignment.slice_counts)), assignment.slice_counts)
    values.assigned = Slices(holders, inside, slices["size"], slices["offset"])
    return values


def _located(module: Module, number: int, name: bytes) -> int:
    """Return an instruction by its id, in old protos by its name."""
    i = module.at.get(number)
    return module.named[name.decode("ascii", "backslashreplace")] if i is None else i


def find_shown(module: Module, values: Values) -> dict[int, list[Place]]:
    """Return where values show besides their definitions: places of other instructions.

    In the order in which XLA lists them: computations by their ids (TPU: as the proto has them),
    instructions by theirs. Most values show nowhere else and are left out.
    """
    shown: dict[Place, tuple[int, ...]] = {}
    by_value: dict[int, list[Place]] = defaultdict(list)
    rank = {c: n if module.is_tiled else c for n, c in enumerate(module.order)}
    home, ids, opcode, places = module.home, module.ids, module.opcode, values.places
    called = {c for c in module.callers if c in rank}
    forwarding = [
        i
        for i, word in enumerate(opcode)
        if word in _FORWARDING or (word == "parameter" and home[i] in called)
    ]
    for i in sorted(forwarding, key=lambda i: (rank[home[i]], ids[i])):
        for index in module.indices(i):
            place = i, index
            for v in _values_at(module, values, shown, place):
                if places[v][0] != i:
                    by_value[v].append(place)
    return dict(by_value)


def _values_at(
    module: Module, values: Values, shown: dict[Place, tuple[int, ...]], place: Place
) -> tuple[int, ...]:
    """Return the values that a place shows; what leads around in a circle shows nothing."""
    path: list[Place] = []
    result: tuple[int, ...] | None = None
    while result is None:
        v = values.defined.get(place)
        result = shown.get(place) if v is None else (v,)
        if result is None:
            shown[place] = ()
            path.append(place)
            sources = _sources(module, place)
            if len(sources) == 1:
                place = sources[0]
            else:
                every = [_values_at(module, values, shown, p) for p in sources]
                result = tuple(sorted(set(itertools.chain.from_iterable(every))))
    for passed in path:
        shown[passed] = result
    return result


def _sources(m: Module, place: Place) -> list[Place]:
    """Return the places whose value shows at a place that defines none itself.

    Raises:
        NotUnderstood: the instruction does not have what its opcode is known to have.
    """
    try:
        return _shown_at(m, place)
    except (LookupError, TypeError) as error:
        raise m.not_understood(place[0], error) from error


def _shown_at(m: Module, place: Place) -> list[Place]:
    i, index = place
    opcode, operands = m.opcode[i], m.operands[i]
    if opcode == "get-tuple-element":
        return [(operands[0], (m.instructions.tuple_indexes[i], *index))]
    if opcode in _WHOLE or opcode == "while":
        return [(operands[0], index)]
    if opcode == "tuple":
        return [(operands[index[0]], index[1:])] if index else []
    if opcode == "copy":
        return [(operands[0], index)] if index else []
    if opcode in ("call", "conditional"):
        return [(m.root[m.calls[i][0]], index)]
    if opcode == "parameter":
        return _arguments(m, i, index)
    return _asynchronous(m, i, index)


def _arguments(m: Module, i: int, index: Index) -> list[Place]:
    """Return what callers give to a parameter."""
    number, arguments = m.instructions.parameter_numbers[i], []
    for caller, called in m.callers.get(m.home[i], ()):
        how, operands = m.opcode[caller], m.operands[caller]
        if how == "async-start":
            operands = m.arguments[caller]
        place = {"call": number, "async-start": number, "while": 0, "conditional": called + 1}
        at = place.get(how, -1)
        if 0 <= at < len(operands):
            arguments.append((operands[at], index))
    return arguments


def _asynchronous(m: Module, i: int, index: Index) -> list[Place]:
    """Return what starts and dones show."""
    opcode, operands = m.opcode[i], m.operands[i]
    first, rest = index[:1], index[1:]
    if opcode == "copy-start":
        return [(operands[0], ())] if index == (1,) else []
    if opcode == "copy-done":
        return [(operands[0], (0, *index))]
    if opcode == "send":
        return [(operands[0], rest)] if first == (0,) else []
    if opcode == "recv-done":
        return [(operands[0], index)] if first == (0,) else []
    if opcode in ("all-gather-done", "collective-permute-done"):
        return [(operands[0], (1, *index))]
    if opcode == "all-gather-start" and first == (0,):
        if rest:
            return [(operands[rest[0]], ())]
        return [(operands[0], ())] if len(operands) == 1 else []
    if opcode == "collective-permute-start" and first == (0,):
        if len(operands) > 1 and len(operands) != 4 and rest:
            return [(operands[rest[0]], rest[1:])]
        return [(operands[0], rest)]
    if opcode == "async-start" or (opcode == "async-update" and i in m.entered):
        arguments = m.arguments[m.begin(i)]
        if first == (0,) and rest:
            return [(arguments[rest[0]], rest[1:])]
        wrapped = m.chain(i)
        if first == (1,) and i in m.entered and wrapped is not None:
            into = m.writes_in_place(wrapped)
            return [(m.root[wrapped] if into is None else arguments[into], rest)]
        return []
    if opcode == "async-update":
        return [(operands[0], index)]
    if opcode == "async-done":
        wrapped = m.chain(i)
        if wrapped is not None and m.writes_in_place(wrapped) is not None:
            return [(m.root[wrapped], index)]
        return [(operands[0], (1, *index))]
    return []


def sharing(module: Module, values: Values, assignment: Assignment) -> list[list[int]]:
    """Return sets of values that have one buffer, by `buffer_aliases`."""
    parent: dict[int, int] = {}
    at = assignment.aliases
    places = zip(at.instructions, at.names, at.indexes, strict=True)
    for number, (i, name, index) in zip(assignment.alias_sources, places, strict=True):
        other = values.defined[_located(module, i, name), index]
        # A number below 0 for what is no value, which may still join two that are.
        one = _first(parent, values.known.get(number, -1 - abs(number)))
        parent[one] = _first(parent, other)
    sets: dict[int, list[int]] = defaultdict(list)
    for v in list(parent):
        sets[_first(parent, v)].append(v)
    return list(sets.values())


def _first(parent: dict[int, int], v: int) -> int:
    """Return the value that represents those known to share a buffer with one."""
    while parent.setdefault(v, v) != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v
