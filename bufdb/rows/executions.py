"""Rows of `instruction_executions`: how often instructions run, and what they do not touch.

Of an operand that is sliced, and of an array that is updated in place, an instruction touches a
part only, also within its fusion: as XLA's `HloCostAnalysis::FusionParameterReadBytes` counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.read.hlo_graph import LOOP, HloGraph, Instruction
from bufdb.read.shape import Shape, shape_at, shape_of
from bufdb.rows.costs import MAX_DEPTH
from bufdb.rows.instruction_costs import Trips

_READS = frozenset(("dynamic-slice", "gather", "slice"))
"""They read no more of their first operand than they return."""
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""They write no more of their first operand than another one has: its number."""
_PARTIAL = tuple(f" {opcode}(".encode() for opcode in (*_READS, *_UPDATES))
_BRANCH = b" conditional("
_UNMOVED = frozenset(("bitcast", "constant", "get-tuple-element", "parameter", "tuple"))


def has_rows(text: bytes) -> bool:
    """Return whether a text may have rows."""
    return any(what in text for what in (LOOP, _BRANCH, *_PARTIAL))


def columns_of(graph: HloGraph) -> Columns:
    """Return the columns of a module, without the module; none if there are no rows."""
    rows = sorted(rows_of(graph))
    if not rows:
        return {}
    names, executions, spared, why = zip(*rows, strict=True)
    return {
        "instruction_name": strings(names),
        "execution_count": objects(executions),
        "spared_bytes": objects(spared),
        "unknown_reason": strings(why),
    }


def rows_of(graph: HloGraph) -> Iterator[tuple[bytes, int | None, int, str | None]]:
    """Yield a row for what does not run once, or touches a part of its operands or results."""
    trips, parts = Trips(graph), _Parts(graph)
    spared = {}
    for pattern in _PARTIAL:
        for ins in graph.having(pattern):
            owner = graph.executed(ins)
            if owner is not None and owner.name not in spared:
                spared[owner.name] = (owner.computation, parts.spared(owner))
    for computation in graph.entered():
        count, why = trips.executions(computation)
        if count == 1:
            continue
        for one in graph.instructions_in(computation):
            if one is not None and one.opcode not in _UNMOVED:
                _, size = spared.pop(one.name, (0, 0))
                yield one.name, count, size, why
    for name, (computation, size) in spared.items():
        if size:
            count, why = trips.executions(computation)
            yield name, count, size, why


class _Parts:
    """What instructions touch of their operands and results, each computation read once."""

    def __init__(self, graph: HloGraph) -> None:
        self.graph = graph
        self._users: dict[bytes, dict[bytes, list[tuple[Instruction, int]]]] = {}
        self._parameters: dict[bytes, dict[int, bytes]] = {}
        self._touched: dict[tuple[bytes, int], int | None] = {}

    def spared(self, ins: Instruction) -> int:
        """Return the bytes of operands and results in device memory that it does not touch."""
        total = 0
        for number in range(len(ins.operands)):
            whole = self.graph.operand_shape(ins, number)
            total += _rest(whole, self.read(ins, number))
        for shape, size in self._results(ins):
            total += _rest(shape, size)
        return total

    def read(self, ins: Instruction, number: int, depth: int = 0) -> int | None:
        """Return the bytes of an operand that an instruction touches; None: all of it."""
        if ins.opcode == "fusion":
            name = ins.fused
            return None if name is None else self._of_parameter(name, number, depth)
        if number:
            return None
        if ins.opcode in _READS:
            return shape_of(ins.shape).logical_bytes
        if ins.opcode == "scatter":
            return self._update(ins)
        return 0 if ins.opcode in _UPDATES else None

    def _of_parameter(self, name: bytes, number: int, depth: int) -> int | None:
        """Return the bytes of a parameter that a fused computation touches; None: all of it."""
        key = name, number
        if key not in self._touched:
            self._touched[key] = None  # a computation that calls itself touches all
            if depth < MAX_DEPTH:
                self._touched[key] = self._of_users(name, number, depth)
        return self._touched[key]

    def _of_users(self, name: bytes, number: int, depth: int) -> int | None:
        users = self._users_in(name)
        parameter = self._parameters[name].get(number)
        outputs = {id(one) for one in self._outputs(name)}
        left, sizes = [parameter] if parameter is not None else [], []
        while left:
            for user, operand in users.get(left.pop(), ()):
                if user.opcode == "bitcast":
                    left.append(user.name)
                    continue
                size = self.read(user, operand, depth + 1)
                if size is None or (user.opcode in _UPDATES and id(user) not in outputs):
                    return None
                sizes.append(size)
        return sum(sizes) if sizes else None

    def _users_in(self, name: bytes) -> dict[bytes, list[tuple[Instruction, int]]]:
        """Return the users of each instruction of a computation, with the operand's number."""
        if name not in self._users:
            users: dict[bytes, list[tuple[Instruction, int]]] = {}
            parameters: dict[int, bytes] = {}
            for ins in self.graph.instructions(name):
                if ins is None:
                    continue
                if ins.opcode == "parameter":
                    if ins.number is not None:
                        parameters[ins.number] = ins.name
                    continue
                for number, (operand, _) in enumerate(ins.operands):
                    users.setdefault(operand, []).append((ins, number))
            self._users[name], self._parameters[name] = users, parameters
        return self._users[name]

    def _results(self, ins: Instruction) -> Iterator[tuple[Shape, int | None]]:
        """Yield the shape of each result with the bytes of it that are written; None: all."""
        outputs = self._outputs(ins.fused) if ins.opcode == "fusion" and ins.fused else [ins]
        for number, one in enumerate(outputs):
            if one is None or one.opcode not in _UPDATES:
                continue
            if one is ins or self._is_in_place(one):
                index = (number,) if ins.shape.startswith("(") else ()
                yield shape_at(ins.shape, index), self._update(one)

    def _outputs(self, name: bytes, depth: int = 0) -> list[Instruction | None]:
        """Return what makes each result of a fused computation, before changes of their form."""
        root = self.graph.root(name)
        if root is None:
            return []
        if root.opcode == "tuple":
            made = [self._origin(root, number) for number in range(len(root.operands))]
        else:
            made = [self._origin(root, 0) if root.opcode == "bitcast" else root]
        for number, one in enumerate(made):
            if one is not None and one.opcode == "fusion" and one.fused and depth < MAX_DEPTH:
                inner = self._outputs(one.fused, depth + 1)
                made[number] = inner[0] if len(inner) == 1 else one
        return made

    def _origin(self, ins: Instruction, number: int) -> Instruction | None:
        """Return what makes an operand, before changes of its form."""
        at = self.graph.operand(ins, number, ())
        for _ in range(MAX_DEPTH):
            if at is None or at[0].opcode != "bitcast":
                break
            at = self.graph.operand(at[0], 0, ())
        return None if at is None else at[0]

    def _is_in_place(self, update: Instruction) -> bool:
        """Return whether what is updated is given to the fusion, not made in it."""
        origin = self._origin(update, 0)
        return origin is not None and origin.opcode == "parameter"

    def _update(self, ins: Instruction) -> int | None:
        shape = self.graph.operand_shape(ins, _UPDATES[ins.opcode])
        return None if shape is None else shape.logical_bytes


def _rest(whole: Shape | None, part: int | None) -> int:
    """Return what is left of an array in device memory; 0 if that is unknown."""
    if whole is None or part is None or whole.memory_space or whole.logical_bytes is None:
        return 0
    return max(0, whole.logical_bytes - part)
