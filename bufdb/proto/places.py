"""Which value shows where, who uses it, which values share a buffer (format sections 8.2 and 10.1).

A place is an instruction and an index in its shape. Definitions are given; what another place shows
is followed to its source until there is one. A phi is a definition too, so no loop is followed
round.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from bufdb.proto.graph import ASYNC, WAITING, Module
from bufdb.proto.shapes import Index

Place = tuple[int, Index]
Use = tuple[int, int, int, Index]
"""The user, the number of its operand, the operand, and the index in it that is used."""

Slice = tuple[int, int, int]
"""A value, its size [bytes] and its offset in the allocation [bytes]."""

_WHOLE = frozenset(
    (
        *("bitcast", "add-dependency", "opt-barrier", "optimization-barrier", "domain"),
        *("all-reduce-done", "async-update"),
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
class Values:
    """The values of a module, by number."""

    defined: dict[Place, int] = field(default_factory=dict)
    """The value that a place defines."""
    place_of: dict[int, Place] = field(default_factory=dict)
    color: dict[int, int] = field(default_factory=dict)
    phi: set[int] = field(default_factory=set)
    """Values that merge definitions."""
    assigned: list[list[Slice]] = field(default_factory=list)
    """What is in each allocation, by their order in the assignment."""


def definitions(module: Module, assignment: Any) -> Values:
    """The values that a buffer assignment lists.

    Raises:
        LookupError: one is defined by an instruction that is not there.
    """
    values, callers = Values(), module.callers
    merging = {
        c
        for c, some in callers.items()
        if any(module.opcode[caller] in _MERGING for caller, _ in some)
    }
    home, opcode, place_of, defined = module.home, module.opcode, values.place_of, values.defined
    for value in assignment.logical_buffers:
        v, at = value.id, value.defined_at
        i = at.instruction_id
        if i in home:
            index = at.shape_index
            place = (i, tuple(index)) if index else (i, ())
        else:
            place = _located(module, at)
            i = place[0]
        place_of[v], defined[place] = place, v
        values.color[v] = value.color
        if opcode[i] in _MERGING or (merging and opcode[i] == "parameter" and home[i] in merging):
            values.phi.add(v)
    values.assigned = [
        [(one.logical_buffer_id, one.size, one.offset) for one in a.assigned]
        for a in assignment.buffer_allocations
    ]
    return values


def _located(module: Module, location: Any) -> Place:
    """The place of a location: of an instruction by its id, in old protos by its name."""
    i: int = location.instruction_id
    if i not in module.home:
        i = module.named[location.instruction_name.decode("ascii", "backslashreplace")]
    index = location.shape_index
    return i, tuple(index) if index else ()


def find_positions(module: Module, values: Values) -> dict[int, list[Place]]:
    """Where each value shows: its definition, then the places of other instructions.

    In the order in which XLA lists them: computations by their ids (TPU: as the proto has them),
    instructions by theirs.
    """
    at: dict[Place, tuple[int, ...]] = {place: (v,) for place, v in values.defined.items()}
    positions = {v: [place] for v, place in values.place_of.items()}
    rank = {c: n if module.is_tiled else c for n, c in enumerate(module.order)}
    home, opcode, place_of = module.home, module.opcode, values.place_of
    forwarding = [
        i
        for i in module.instructions
        if opcode[i] in _FORWARDING or (opcode[i] == "parameter" and home[i] in module.callers)
    ]
    for i in sorted(forwarding, key=lambda i: (rank[home[i]], i)):
        for index in module.indices(i):
            place = i, index
            found = at.get(place)
            if found is None:
                found = _values_at(module, at, place)
            for v in found:
                if place_of[v][0] != i:
                    positions[v].append(place)
    return positions


def _values_at(module: Module, at: dict[Place, tuple[int, ...]], place: Place) -> tuple[int, ...]:
    """The values that a place shows; what leads round in a circle shows nothing."""
    path: list[Place] = []
    while place not in at:
        at[place] = ()
        path.append(place)
        found = _sources(module, place)
        if len(found) != 1:
            at[place] = tuple(sorted({v for p in found for v in _values_at(module, at, p)}))
            break
        place = found[0]
    result = at[place]
    for passed in path:
        at[passed] = result
    return result


def _sources(m: Module, place: Place) -> list[Place]:
    """The places whose value shows at a place that defines none itself."""
    i, index = place
    opcode, operands = m.opcode[i], m.operands[i]
    if opcode == "get-tuple-element":
        return [(operands[0], (m.instructions[i].tuple_index, *index))]
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
    """What callers give to a parameter."""
    number, found = m.instructions[i].parameter_number, []
    for caller, called in m.callers.get(m.home[i], ()):
        how, operands = m.opcode[caller], m.operands[caller]
        place = {"call": number, "async-start": number, "while": 0, "conditional": called + 1}
        at = place.get(how, -1)
        if 0 <= at < len(operands):
            found.append((operands[at], index))
    return found


def _asynchronous(m: Module, i: int, index: Index) -> list[Place]:
    """What starts and dones show."""
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
    if opcode == "async-start":
        if first == (0,) and rest:
            return [(operands[rest[0]], rest[1:])]
        if first == (1,) and i in m.calls:
            into = m.writes_in_place(m.calls[i][0])
            return [(m.root[m.calls[i][0]] if into is None else operands[into], rest)]
    if opcode == "async-done":
        wrapped = m.chain(i)
        if wrapped is not None and m.writes_in_place(wrapped) is not None:
            return [(m.root[wrapped], index)]
        return [(operands[0], (1, *index))]
    return []


def uses_of(m: Module, positions: list[Place]) -> list[Use]:
    """Uses of the value that shows at these places, by place, then by user.

    XLA lists the users of one place in the order in which they came to be, which no proto has.
    """
    shown: set[int] | None = None
    found: list[Use] = []
    for i, index in positions:
        users = (m.inside if index else m.top).get(i, [])
        if i in m.roots:
            # A root that shows the value is a use of it, even if it only passes it on.
            if shown is None:
                shown = {p for p, _ in positions if p in m.is_root}
            more = [user for user in m.roots[i] if user[0] in shown]
            users = sorted({*users, *more}) if more else users
        found += [(user, number, i, index) for user, number in users]
    return found


def sharing(module: Module, values: Values, assignment: Any) -> list[list[int]]:
    """Sets of values that have one buffer, by `buffer_aliases`."""
    parent: dict[int, int] = {}
    for alias in assignment.buffer_aliases:
        other = values.defined[_located(module, alias.location)]
        parent[_first(parent, alias.source_buffer_id)] = _first(parent, other)
    sets: dict[int, list[int]] = defaultdict(list)
    for v in list(parent):
        sets[_first(parent, v)].append(v)
    return list(sets.values())


def _first(parent: dict[int, int], v: int) -> int:
    """The value that stands for all that are known to share a buffer with one."""
    while parent.setdefault(v, v) != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v
