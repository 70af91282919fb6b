"""The layer of a scan, and what it saves instead once a line is computed again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bufdb.read.hlo_graph import HloGraph, Instruction
from bufdb.read.shape import elements_of, shape_of
from bufdb.rows.loop_places import Places

# -- The body of a loop as one graph: fusions inlined, and equal instructions once -----------------
#
# XLA computes in each fusion again what several of them need, so what a layer saves and what reads
# it are mostly copies of one instruction in different fusions. Instructions are equal here if
# opcode, shape without layout, operands and attributes are.

LAYOUT = frozenset(
    (
        *("bitcast", "bitcast-convert", "convert", "copy", "copy-done", "copy-start"),
        *("opt-barrier", "reduce-precision", "reshape", "transpose"),
    )
)
"""They hold the data of their operand: in another order, of another type, at another place."""
MAX_NODES = 2000
"""Limit on the nodes examined for one stack; a layer of a transformer has some hundreds."""
MAX_DEPTH = 20
"""Limit on the nesting of computations; XLA's go three deep."""
LINE_BYTES = 40
"""No line of an instruction with operands is shorter, which limits a text's instructions."""
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
    """A body, with what it calls, is larger than any text of its size could describe."""


@dataclass(slots=True)
class Node:
    """One instruction, or several equal ones."""

    opcode: str
    shape_text: bytes
    """Without layout."""
    operands: list[int]
    makers: list[Instruction]
    users: list[int] = field(default_factory=list)
    """Users that lead to what the body returns."""


class Layer:
    """The graph of one body."""

    def __init__(self, graph: HloGraph, places: Places, body: bytes, budget: int) -> None:
        """Inline and merge.

        Args:
            graph: the module's text.
            places: lines of its instructions.
            body: name of the computation.
            budget: limit on the instructions that are met.

        Raises:
            TooLargeError: there are more of them.
        """
        self.graph, self.places, self.spent = graph, places, 0
        self._budget = budget
        self.nodes: list[Node] = []
        self.number_of: dict[int, int] = {}
        """The node of each instruction, by its place in the text."""
        self._bare: list[int] = []
        """The source of each node before changes of the layout."""
        self._source: list[int] = []
        """The source before slices and broadcasts, too."""
        self._keys: dict[object, int] = {}
        self._started: set[int] = set()
        """Results of asynchronous computations."""
        self._labels: dict[int, str | None] = {}
        self.root = self._inline(body, None, 0)
        self.reached = self._add_users()
        self.elements = {
            number
            for number, node in enumerate(self.nodes)
            if node.opcode == "get-tuple-element"
            and self.nodes[node.operands[0]].opcode == "parameter"
        }
        """Elements of the body's parameter."""
        self.carried = self._carry()

    def _inline(self, name: bytes, arguments: list[int] | None, depth: int) -> int | None:
        """Add a computation; return the number of its root."""
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
        """Return what distinguishes it from others of its opcode, shape and operands."""
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
        """Note the users of everything that leads to the root's operands, and return all of it."""
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
        """Return the line that an instruction is attributed to; None without one but the loop's."""
        if number not in self._labels:
            if number in self.carried:
                new = self.bare(self.carried[number])
                return None if new in self.carried else self.label(new)
            names = (self._name(ins) for ins in self.nodes[number].makers)
            self._labels[number] = next((name for name in names if name is not None), None)
        return self._labels[number]

    def _name(self, ins: Instruction) -> str | None:
        if ins.opcode == "reduce-precision":  # on the line that gives the name, perhaps a helper's
            return None
        if self.places.is_users(ins):
            place = self.places.own(ins)
            return None if place is None else f"{place[0]}:{place[1]}"
        return self.places.library_source(ins) if self.places.own(ins) is None else None

    def bare(self, number: int) -> int:
        """Return the source before changes of the layout."""
        return self._bare[number]

    def is_free(self, number: int) -> bool:
        """Return whether every step has it anyway: a slice of what is scanned, constants."""
        number = self._source[number]
        return self.nodes[number].opcode in _FREE or number in self.elements - self.carried.keys()

    def is_carried(self, number: int) -> bool:
        """Return whether the step before made it, all of it or a part."""
        return self._source[number] in self.carried

    def _carry(self) -> dict[int, int]:
        """Return elements of the body's parameter that a step changes, with the next values."""
        root = [] if self.root is None else self.nodes[self.root].operands
        changed = {}
        for key, number in self._keys.items():
            if isinstance(key, tuple) and key[0] == "element" and number in self.elements:
                new = root[key[2]] if key[2] < len(root) else number
                is_array = b"[]" not in self.nodes[number].shape_text
                if self.bare(new) != number and is_array:
                    changed[number] = new
        return changed

    def size_bytes(self, number: int, label: str | None) -> int:
        """Return a value's bytes as a line is given it: of the widest type before conversions."""
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
        """Return whether another line reads it, through such opcodes and nodes without a line.

        True also if so many are on the way that it is not known.
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


# --------------------------------------------------------------------------------------------------
# What goes, what stays and what is kept instead where a line is left out of what a scan saves.
#
# Two things that a user can do, known from the body of the forward loop:
#
# - `wrap`: `jax.checkpoint` around what the line computes. What other lines read of it in the
#   forward pass are its results, which stay. The rest is computed again, back to the nearest values
#   of other lines or the carry, and these are kept if they are neither saved already nor free.
# - `policy`: one name less in the checkpoint policy that the body has; what that saves passes a
#   `reduce-precision`. All of the line goes, except what another line holds in another layout.
#
# Of 51 such changes of transformers on the CPU, compiled again, 49 were in the range. In the two
# others XLA had made one instruction of equal ones of two lines (`x - mean` written twice), and
# only one of the lines is known.

_PASSED = LAYOUT | {"slice", "broadcast"}
_NAMED_LAYOUT = (
    *("transpose", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "split"),
    *("slice", "rev", "optimization_barrier"),
)
"""Ends of op_names of operations that hold the data of their operand."""
_CHEAP = ("broadcast", "compare", "iota", "pad")
_CHEAP_TYPES = (b"pred", b"s32", b"u32")
"""Masks and indices are computed again, not kept."""


@dataclass(frozen=True)
class Stack:
    """What a loop stacks of a layer."""

    update: int
    """The node that is inserted, a slice."""
    label: str | None
    """The line that the node is attributed to."""
    slice_count: int
    is_layer_input: bool


@dataclass
class LeftOut:
    """One stack that is not saved; numbers are of nodes."""

    stack: Stack
    form: str
    """wrap or policy."""
    is_gone: bool
    kept: dict[int, int] = field(default_factory=dict)
    """Bytes of a slice of values of other lines that are kept to compute it again."""
    again: set[int] = field(default_factory=set)
    """What is computed again in that case."""
    all_again: set[int] = field(default_factory=set)
    """What is computed again where nothing but other stacks is kept."""


def leave_out(layer: Layer, stacks: Sequence[Stack]) -> list[LeftOut | None]:
    """Leave out each stack by itself; None where too much leads to it. Sets are unions."""
    saved: dict[int, set[str | None]] = {}
    for stack in stacks:
        saved.setdefault(layer.bare(stack.update), set()).add(stack.label)
    nodes = layer.nodes
    form = "wrap"
    if any(nodes[number].opcode == "reduce-precision" for number in layer.reached):
        form = "policy"
    return [_leave_out(layer, stack, form, saved) for stack in stacks]


def _leave_out(
    layer: Layer, stack: Stack, form: str, saved: dict[int, set[str | None]]
) -> LeftOut | None:
    seed = layer.bare(stack.update)
    left_out = LeftOut(stack, form, is_gone=False)
    if not (stack.is_layer_input or layer.is_free(seed) or layer.is_carried(seed)):
        if form == "wrap":
            left_out.is_gone = not layer.is_read(seed, stack.label, _PASSED)
        else:
            left_out.is_gone = not _is_held(layer, seed, stack.label)
    others = {number for number, labels in saved.items() if labels != {stack.label}} - {seed}
    closure = _walk(layer, seed, stack.label, others, None)
    if closure is None:
        return None
    left_out.all_again = closure
    if left_out.is_gone:
        again = _walk(layer, seed, stack.label, others, left_out.kept)
        assert again is not None
        left_out.again = again
    return left_out


def _walk(
    layer: Layer, seed: int, label: str | None, others: set[int], kept: dict[int, int] | None
) -> set[int] | None:
    """Return what is computed to have a value again; `kept` takes values of other lines."""
    again: set[int] = set()
    todo = [seed]
    while todo:
        read = todo.pop()
        number = layer.bare(read)
        if number in again:
            continue
        if number != seed:
            if number in others or layer.is_free(number):
                continue
            if layer.is_carried(number) or (kept is not None and _is_kept(layer, number, label)):
                if kept is not None:
                    kept[number] = max(kept.get(number, 0), layer.size_bytes(read, label))
                continue
        again.add(number)
        if len(again) > MAX_NODES:
            return None
        todo += layer.nodes[number].operands
    return again


def _is_kept(layer: Layer, number: int, label: str | None) -> bool:
    node, of = layer.nodes[number], layer.label(number)
    is_cheap = node.opcode in _CHEAP or node.shape_text.startswith(_CHEAP_TYPES)
    return of is not None and of != label and not is_cheap


def _is_held(layer: Layer, seed: int, label: str | None) -> bool:
    """Return whether another line holds the same data, in another layout."""
    labels: set[str | None] = {None, label}
    number: int | None = seed
    for _ in range(MAX_NODES):
        if number is None:
            break
        labels.add(layer.label(number))
        node = layer.nodes[number]
        is_part = node.opcode in LAYOUT | {"slice"} and node.operands
        number = node.operands[0] if is_part else None
    seen, todo = {seed}, [seed]
    while todo and len(seen) < MAX_NODES:
        for user in layer.nodes[todo.pop()].users:
            node = layer.nodes[user]
            if user in seen or node.opcode not in LAYOUT | {"slice"}:
                continue
            seen.add(user)
            todo.append(user)
            names = [(ins.op_name or b"").split(b";")[0] for ins in node.makers]
            if any(name.rpartition(b"/")[2].decode() in _NAMED_LAYOUT for name in names):
                labels.add(layer.label(user))
    return bool(labels - {None, label})
