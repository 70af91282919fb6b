"""Rows of `instruction_costs`: products, convolutions and estimates, through loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.read.hlo_graph import HloGraph, Instruction
from bufdb.rows.costs import MAX_DEPTH, Operations

_WORK = (b" dot(", b" convolution(", b" ragged-dot(")
_LIBRARY = b'custom_call_target="'
_PRODUCTS = re.compile(
    rb'custom_call_target="(?=[^"]*(?:matmul|gemm|conv|fmha|attention|mosaic|triton|tpu_custom|'
    rb'ragged|dot))([^"]*)"',
    re.IGNORECASE,
)
"""Targets of calls that may be products; others sort, copy, or call back."""
_CYCLES = re.compile(rb'estimated_cycles\\?":\\?"?(\d{1,20})')
_MOST_CYCLES = 1 << 53
"""No estimate is as large; 2^63 - 1 is what the compiler prints where it has none."""
_MOST = 1 << 63
_CONSTANT = re.compile(rb"\s*(-?\d{1,18})\s*\)")
_DIRECTION = re.compile(rb"direction=(LT|LE|GT|GE|NE)")
_PASSING = frozenset(("bitcast", "copy", "convert", "opt-barrier", "reshape"))


def has_costs(text: bytes) -> bool:
    """Return whether a text has anything that is counted here."""
    return any(what in text for what in (*_WORK, b"estimated_cycles")) or (
        _LIBRARY in text and _PRODUCTS.search(text) is not None
    )


@dataclass
class _Cost:
    """An instruction outside of fusions."""

    executions: int | None
    why: str | None
    """Why `executions` is None."""
    operations: int | None = None
    operations_why: str | None = None
    cycles: int | None = None
    cycles_why: str | None = None

    def add_operations(self, count: int | None, why: str) -> None:
        """Add the products of one instruction, in one execution."""
        if count is None:
            self.operations_why = self.operations_why or why
        else:
            self.operations = (self.operations or 0) + count


Row = tuple[bytes, int | None, int | None, int | None, str | None, str | None]
"""The columns of the table, in order."""


def columns_of(graph: HloGraph) -> Columns:
    """Return the columns of a module, without the module; none if there are no rows."""
    rows = rows_of(graph)
    if not rows:
        return {}
    names, executions, operations, cycles, why_operations, why_cycles = zip(*rows, strict=True)
    return {
        "instruction_name": strings(names),
        "execution_count": objects(executions),
        "operation_count": objects(operations),
        "estimated_cycles": objects(cycles),
        "operation_unknown_reason": strings(why_operations),
        "estimate_unknown_reason": strings(why_cycles),
    }


def rows_of(graph: HloGraph) -> list[Row]:
    """Return the rows of a module, in order of the names."""
    operations, trips = Operations(graph), Trips(graph)
    costs: dict[bytes, _Cost] = {}

    def of(ins: Instruction) -> _Cost:
        cost = costs.get(ins.name)
        if cost is None:
            count, why = trips.executions(ins.computation)
            cost = costs[ins.name] = _Cost(count, why)
        return cost

    for ins in _work(graph):
        owner = graph.executed(ins)
        if owner is not None:
            of(owner).add_operations(*_products(operations, ins))
    for ins in graph.having(b"estimated_cycles"):
        match = _CYCLES.search(ins.attributes)
        if match is None or graph.is_fused(ins.computation):
            continue
        cost, cycles = of(ins), int(match[1])
        if cycles < _MOST_CYCLES:
            cost.cycles = cycles
        else:
            cost.cycles_why = f"the compiler prints {cycles}, which is not an estimate"
    return [_row(name, cost) for name, cost in sorted(costs.items())]


def _products(operations: Operations, ins: Instruction) -> tuple[int | None, str]:
    if ins.opcode == "custom-call":
        match = _PRODUCTS.search(ins.attributes)
        target = match[1].decode(errors="replace") if match else "a library"
        why = f"it calls {target}, whose operations its shapes do not tell"
    else:
        why = f"the shapes of its {ins.opcode} are not understood"
    return operations.alone(ins), why


def _work(graph: HloGraph) -> Iterator[Instruction]:
    """Yield products, convolutions and calls of libraries that may be."""
    for pattern in _WORK:
        for ins in graph.having(pattern):
            if f" {ins.opcode}(".encode() == pattern:
                yield ins
    for ins in graph.having(_LIBRARY):
        if ins.opcode == "custom-call" and _PRODUCTS.search(ins.attributes):
            yield ins


def _row(name: bytes, cost: _Cost) -> Row:
    once = cost.operations if cost.operations_why is None else None
    operations, operations_why = _in_all(cost, once, cost.operations_why)
    cycles, cycles_why = _in_all(cost, cost.cycles, cost.cycles_why)
    return name, cost.executions, operations, cycles, operations_why, cycles_why


def _in_all(cost: _Cost, once: int | None, why: str | None) -> tuple[int | None, str | None]:
    """Return what one execution has times all, or why it is unknown."""
    if once is None:
        return None, why
    if cost.executions is None:
        return None, cost.why
    total = once * cost.executions
    return (total, None) if total < _MOST else (None, "it is too large to be true")


class Trips:
    """How often the computations of a module are executed in one run."""

    def __init__(self, graph: HloGraph) -> None:
        self.graph = graph
        self._known: dict[int, tuple[int | None, str | None]] = {}

    def executions(self, computation: int, depth: int = 0) -> tuple[int | None, str | None]:
        """Return the executions of a computation, or why they are unknown."""
        if computation not in self._known:
            self._known[computation] = self._executions(computation, depth)
        return self._known[computation]

    def _executions(self, computation: int, depth: int) -> tuple[int | None, str | None]:
        if self.graph.is_entry(computation):
            return 1, None
        caller = self.graph.caller(computation)
        if caller is None or depth > MAX_DEPTH:
            return None, "no caller of its computation was found"
        ins, role, _ = caller
        outer, why = self.executions(ins.computation, depth + 1)
        name = ins.name.decode(errors="replace")
        if role == "branch":
            return None, f"{name} decides which branch runs"
        if ins.opcode != "while" or outer is None:
            return outer, why
        count = self.of_loop(ins)
        if count is None:
            return None, f"{name} does not say how often it loops"
        return outer * (count + (role == "condition")), None

    def of_loop(self, loop: Instruction) -> int | None:
        """Return the trips of a loop: as XLA prints them, else as its counter goes."""
        if loop.trip_count is not None:
            return loop.trip_count
        condition, body = (loop.called.get(role) for role in ("condition", "body"))
        test = self.graph.root(condition[0]) if condition else None
        match = None if test is None else _DIRECTION.search(test.attributes)
        if test is None or not body or test.opcode != "compare" or match is None:
            return None
        element, limit = self._element(test, 0), self._constant(test, 1)
        if element is None or limit is None:
            return None
        begin, step = self._begin(loop, element), self._step(body[0], element)
        return None if begin is None or step is None else _count(begin, limit, step, match[1])

    def _operand(self, ins: Instruction, number: int) -> Instruction | None:
        """Return what makes an operand, before changes of its form."""
        at = self.graph.operand(ins, number, ())
        for _ in range(MAX_DEPTH):
            if at is None or at[1] or at[0].opcode not in _PASSING:
                break
            at = self.graph.operand(at[0], 0, ())
        return None if at is None or at[1] else at[0]

    def _constant(self, ins: Instruction, number: int) -> int | None:
        made = self._operand(ins, number)
        if made is None or made.opcode != "constant":
            return None
        match = _CONSTANT.match(self.graph.text, made.paren + 1)
        return int(match[1]) if match else None

    def _element(self, ins: Instruction, number: int) -> int | None:
        """Return which element of its computation's one parameter an operand is."""
        at = self.graph.operand(ins, number, ())
        for _ in range(MAX_DEPTH):
            if at is None:
                return None
            made, index = at
            if made.opcode == "parameter":
                return index[0] if len(index) == 1 else None
            if made.opcode == "get-tuple-element" and made.number is not None:
                at = self.graph.operand(made, 0, (made.number, *index))
            elif made.opcode in _PASSING:
                at = self.graph.operand(made, 0, index)
            else:
                return None
        return None

    def _begin(self, loop: Instruction, element: int) -> int | None:
        """Return what a loop's element is at first."""
        initial = self.graph.operand(loop, 0, ())
        if initial is None or initial[0].opcode != "tuple":
            return None
        return self._constant(initial[0], element)

    def _step(self, body: bytes, element: int) -> int | None:
        """Return what a trip adds to an element."""
        root = self.graph.root(body)
        made = None if root is None or root.opcode != "tuple" else self._operand(root, element)
        if made is None or made.opcode != "add":
            return None
        for number in (0, 1):
            step = self._constant(made, number)
            if step is not None and self._element(made, 1 - number) == element:
                return step
        return None


def _count(begin: int, limit: int, step: int, direction: bytes) -> int | None:
    """Return how often a counter steps before its test fails; None if it never does."""
    if direction in (b"GT", b"GE"):
        begin, limit, step = -begin, -limit, -step
    if direction == b"NE":
        count, rest = divmod(limit - begin, step) if step else (-1, 0)
        return count if rest == 0 and count >= 0 else None
    last = limit if direction in (b"LE", b"GE") else limit - 1
    if begin > last:
        return 0
    return (last - begin) // step + 1 if step > 0 else None
