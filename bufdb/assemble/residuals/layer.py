"""The body of a loop as one graph: fusions inlined, and equal instructions once.

XLA computes in each fusion again what several of them need, so what a layer saves and what reads it
are mostly copies of one instruction in different fusions. Instructions are equal here if opcode,
shape without layout, operands and attributes are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bufdb.assemble.loops.places import Places
from bufdb.read.hlo_graph import HloGraph, Instruction
from bufdb.read.shape import elements_of, shape_of

LAYOUT = frozenset(
    (
        *("bitcast", "bitcast-convert", "convert", "copy", "copy-done", "copy-start"),
        *("opt-barrier", "reduce-precision", "reshape", "transpose"),
    )
)
"""They hold the data of their operand: in another order, of another type, at another place."""
MAX_NODES = 2000
"""So many are looked at for one stack; a layer of a transformer has some hundreds."""
MAX_DEPTH = 20
"""So deep computations call each other; XLA's go three deep."""
LINE_BYTES = 40
"""No line of an instruction with operands is shorter: so many instructions a text can have."""
_PARTS = ("dynamic-slice", "slice", "broadcast")
_FREE = ("parameter", "constant", "iota", "partition-id")
_UNIQUE = frozenset(
    ("parameter", "custom-call", "while", "conditional", "rng-bit-generator", "rng", "infeed")
)
"""They are not equal to others, whatever they are given."""
_NOT_COMPARED = re.compile(
    rb",? ?(?:metadata|backend_config|frontend_attributes|sharding|origin)=\{.*", re.DOTALL
)


class TooLargeError(Exception):
    """A body, with what it calls, is larger than a text of its size describes."""


@dataclass(slots=True)
class Node:
    """One instruction, or several equal ones."""

    opcode: str
    shape_text: bytes
    """Without layout."""
    operands: list[int]
    makers: list[Instruction]
    users: list[int] = field(default_factory=list)
    """Those that lead to what the body gives."""


class Layer:
    """The graph of one body."""

    def __init__(self, graph: HloGraph, places: Places, body: bytes, budget: int) -> None:
        """Inline and merge.

        Args:
            graph: the module's text.
            places: lines of its instructions.
            body: name of the computation.
            budget: so many instructions may be met.

        Raises:
            TooLargeError: there are more.
        """
        self.graph, self.places, self.spent = graph, places, 0
        self._budget = budget
        self.nodes: list[Node] = []
        self.number_of: dict[int, int] = {}
        """Nodes by the place of an instruction in the text."""
        self._bare: list[int] = []
        """What is before changes of the layout, by node."""
        self._source: list[int] = []
        """What is before slices and broadcasts, too."""
        self._keys: dict[object, int] = {}
        self._started: set[int] = set()
        """Results of asynchronous computations."""
        self._labels: dict[int, str | None] = {}
        self.root = self._inline(body, None, 0)
        self.reached = self._add_users()
        self.given = {
            number
            for number, node in enumerate(self.nodes)
            if node.opcode == "get-tuple-element"
            and self.nodes[node.operands[0]].opcode == "parameter"
        }
        """Elements of the body's parameter."""
        self.carried = self._carry()

    def _inline(self, name: bytes, arguments: list[int] | None, depth: int) -> int | None:
        """Add a computation; the number of its root."""
        if depth > MAX_DEPTH:
            raise TooLargeError
        known: dict[bytes, int] = {}
        last: int | None = None
        root = self.graph.root(name)
        for ins in self.graph.instructions(name):
            self.spent += 1
            if self.spent > self._budget:
                raise TooLargeError
            if ins is None:
                continue
            number = self._number(ins, known, arguments, depth)
            known[ins.name] = self.number_of[ins.position] = number
            if root is not None and ins.position == root.position:
                last = number
        return last

    def _number(
        self, ins: Instruction, known: dict[bytes, int], arguments: list[int] | None, depth: int
    ) -> int:
        if ins.opcode == "parameter":
            place = ins.number
            if arguments is not None and place is not None and place < len(arguments):
                return arguments[place]
            return self._add(ins, [])
        operands = []
        for name, index in ins.operands:
            number = known.get(name)
            if number is not None:
                for element in index:  # as jaxlib 0.11 and later print it; its line is the tuple's
                    number = self._element(number, element, self.nodes[number].makers[0])
                operands.append(number)
        called = self._called(ins)
        if called is not None:
            number = self._inline(called, operands, depth + 1)
            if number is not None:
                if ins.opcode.endswith("-start"):
                    self._started.add(number)
                return number
        if operands and operands[0] in self._started and ins.opcode.endswith(("-done", "-update")):
            return operands[0]
        if ins.opcode == "get-tuple-element" and operands and ins.number is not None:
            return self._element(operands[0], ins.number, ins)
        return self._add(ins, operands)

    def _called(self, ins: Instruction) -> bytes | None:
        if ins.opcode == "fusion":
            return ins.fused
        role = "to_apply" if ins.opcode == "call" else "calls"
        is_call = ins.opcode == "call" or ins.opcode.endswith("-start")
        names = ins.called.get(role) if is_call else None
        return names[0] if names else None

    def _element(self, of: int, element: int, ins: Instruction) -> int:
        node = self.nodes[of]
        if node.opcode == "tuple" and element < len(node.operands):
            return node.operands[element]
        shape = elements_of(node.shape_text.decode(errors="replace")) or ()
        text = shape[element].partition("{")[0].encode() if element < len(shape) else b""
        return self._keep(("element", of, element), "get-tuple-element", text, [of], ins)

    def _add(self, ins: Instruction, operands: list[int]) -> int:
        shape = ins.shape_text
        shape = shape if shape.startswith(b"(") else shape.partition(b"{")[0]
        opcode = ins.opcode
        rest: object = ins.position if opcode in _UNIQUE else self._attributes(ins)
        return self._keep((opcode, shape, tuple(operands), rest), opcode, shape, operands, ins)

    def _attributes(self, ins: Instruction) -> bytes:
        """What tells it from others of its opcode, shape and operands."""
        if ins.opcode == "constant":
            return self.graph.text[ins.paren : ins.close]
        return _NOT_COMPARED.sub(b"", ins.attributes)

    def _keep(
        self, key: object, opcode: str, shape: bytes, operands: list[int], ins: Instruction
    ) -> int:
        number = self._keys.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(Node(opcode, shape, operands, [ins]))
            is_same = opcode in LAYOUT and bool(operands)
            is_part = is_same or (opcode in _PARTS and bool(operands))
            self._bare.append(self._bare[operands[0]] if is_same else number)
            self._source.append(self._source[operands[0]] if is_part else number)
        else:
            self.nodes[number].makers.append(ins)
        return number

    def _add_users(self) -> set[int]:
        """Note who reads what, of all that leads to the root's operands."""
        start = [] if self.root is None else self.nodes[self.root].operands
        reached, todo = set(start), list(start)
        while todo:
            number = todo.pop()
            for operand in set(self.nodes[number].operands):
                self.nodes[operand].users.append(number)
                if operand not in reached:
                    reached.add(operand)
                    todo.append(operand)
        return reached

    # -- questions -----------------------------------------------------------------------------

    def label(self, number: int) -> str | None:
        """The line that an instruction is attributed to; None if it is the loop's or no one's."""
        if number not in self._labels:
            if number in self.carried:
                new = self.bare(self.carried[number])
                return None if new in self.carried else self.label(new)
            names = (self._name(ins) for ins in self.nodes[number].makers)
            self._labels[number] = next((name for name in names if name is not None), None)
        return self._labels[number]

    def _name(self, ins: Instruction) -> str | None:
        if ins.opcode == "reduce-precision":  # on the line that gives the name, a helper's perhaps
            return None
        if self.places.is_users(ins):
            place = self.places.own(ins)
            return None if place is None else f"{place[0]}:{place[1]}"
        return self.places.library_source(ins) if self.places.own(ins) is None else None

    def bare(self, number: int) -> int:
        """What is before changes of the layout."""
        return self._bare[number]

    def is_free(self, number: int) -> bool:
        """Whether every step has it anyway: a slice of what is scanned, constants."""
        number = self._source[number]
        return self.nodes[number].opcode in _FREE or number in self.given - self.carried.keys()

    def is_carried(self, number: int) -> bool:
        """Whether the step before made it, all of it or a part."""
        return self._source[number] in self.carried

    def _carry(self) -> dict[int, int]:
        """Elements of the body's parameter that a step changes, with what the next one is given."""
        root = [] if self.root is None else self.nodes[self.root].operands
        found = {}
        for key, number in self._keys.items():
            if isinstance(key, tuple) and key[0] == "element" and number in self.given:
                new = root[key[2]] if key[2] < len(root) else number
                is_array = b"[]" not in self.nodes[number].shape_text
                if self.bare(new) != number and is_array:
                    found[number] = new
        return found

    def size_bytes(self, number: int, label: str | None) -> int:
        """Bytes of a value as a line is given it: of the widest type before its own conversions."""
        bare = self.bare(number)
        largest = _bytes(self.nodes[bare])
        for _ in range(MAX_NODES):
            if number == bare:
                break
            if self.label(number) != label:
                largest = max(largest, _bytes(self.nodes[number]))
            number = self.nodes[number].operands[0]
        return largest

    def is_read(self, number: int, label: str | None, passed: frozenset[str]) -> bool:
        """Whether another line reads it, through such opcodes and what has no line.

        Also where so many are on the way that it is not known.
        """
        seen: set[int] = set()
        todo = list(self.nodes[number].users)
        while todo and len(seen) < MAX_NODES:
            user = todo.pop()
            node = self.nodes[user]
            if user in seen or node.opcode in ("dynamic-update-slice", "tuple"):
                continue
            seen.add(user)
            of = self.label(user)
            if node.opcode in passed or of is None:
                todo += node.users
            elif of != label:
                return True
        return bool(todo)


def _bytes(node: Node) -> int:
    return shape_of(node.shape_text.decode(errors="replace")).logical_bytes or 0
