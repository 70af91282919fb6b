"""A serialised module in dictionaries: its instructions, who calls and who reads whom.

All but what is inside fusions: most instructions are there, and no value is. Ids are those of the
proto, which from jaxlib 0.7 on hold the computation's in their high half.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from bufdb.proto import reader
from bufdb.proto.reader import UnreadableProto
from bufdb.proto.shapes import TUPLE, Index, bytes_of, subindices

WAITING = frozenset(("while", "conditional", "call"))
"""They take their result from a called computation."""
ASYNC = frozenset(("async-start", "async-update", "async-done"))
_BEHIND_START = frozenset(("async-update", "async-done"))
_CALLING = WAITING | ASYNC | {"fusion"}
_ALONE = frozenset(("tuple", "domain"))
"""They read neither an operand nor what is in it."""
_TOP = frozenset(("get-tuple-element", "copy"))
"""They read the top of an operand, and pass on what is in it."""
_NAME = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_NAMES = re.compile(r"(?:[A-Za-z_][\w.\-]*+\n)*+", re.ASCII)

User = tuple[int, int]
"""An instruction and the number of one of its operands."""


class Module:
    """One module; whatever an id leads to that is not there raises LookupError."""

    def __init__(self, proto: Any) -> None:
        """Take the module of an HloProto.

        Raises:
            UnreadableProto: names or computations in it make no sense.
        """
        self.proto = proto.hlo_module
        self.entry: int = self.proto.entry_computation_id
        self.computations: dict[int, bytes] = {}
        """Serialised, by id; fused ones too."""
        self.titles: dict[int, str] = {}
        """Names of computations."""
        self.root: dict[int, int] = {}
        self.order: list[int] = []
        """Computations that are not fused, in the order of the proto."""
        self.instructions: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.opcode: dict[int, str] = {}
        self.operands: dict[int, Sequence[int]] = {}
        self.home: dict[int, int] = {}
        """The computation of each instruction."""
        self.calls: dict[int, tuple[int, ...]] = {}
        """Computations of those that pass control on, and of fusions."""
        self.parameters: dict[int, int] = {}
        """The first parameter of each computation."""
        self.is_tiled = False
        """Whether layouts have tiles, as only the TPU's have."""
        self.tuples: set[int] = set()
        """Instructions whose result is a tuple."""
        self.shapes: dict[int, bytes] = {}
        """Serialised, of each instruction."""
        self._shapes: dict[bytes, Any] = {}
        """By their bytes: a module has some hundreds of different ones."""
        self._sizes: dict[bytes, int] = {}
        self._read()
        self.is_root = set(self.root.values())
        self.schedule: dict[int, tuple[int, ...]] = {
            s.computation: tuple(s.instructions.instruction_ids)
            for s in self.proto.schedule.sequences
        }
        self.callers: dict[int, list[User]] = defaultdict(list)
        """Who passes control into a computation, as which of those that it calls."""
        for i, called in self.calls.items():
            if self.opcode[i] != "fusion":
                for number, computation_id in enumerate(called):
                    self.callers[computation_id].append((i, number))
        self._find_users()
        aliases = self.proto.input_output_alias.entries
        self.kept_inputs = {(e.parameter_number, tuple(e.parameter_shape_index)) for e in aliases}
        """Parameters that are donated, by number and index."""

    def _read(self) -> None:
        """Computations and instructions, a field of all instructions at a time."""
        found: list[Any] = []
        for computation in self.proto.computations:
            head = reader.head_of(computation)
            c = head.id
            self.computations[c], self.titles[c] = computation, _text(head.name)
            if head.is_fusion_computation:
                continue
            self.order.append(c)
            self.root[c] = head.root_id
            members = list(reader.instructions_of(computation))
            self.home.update(dict.fromkeys([x.id for x in members], c))
            found += members
        ids = [x.id for x in found]
        self.instructions = dict(zip(ids, found, strict=True))
        self.names = dict(zip(ids, [_text(x.name) for x in found], strict=True))
        words = [x.opcode for x in found]
        opcodes = {word: _text(word) for word in set(words)}
        # Names and opcodes are what they are in the text: nothing in them can end a line.
        check_names((*self.names.values(), *self.titles.values(), *opcodes.values()))
        self.opcode = {i: opcodes[word] for i, word in zip(ids, words, strict=True)}
        self.operands = {i: x.operand_ids[:] for i, x in zip(ids, found, strict=True)}
        for i, opcode in self.opcode.items():
            if opcode in _CALLING:
                called = self.instructions[i].called_computation_ids
                if called:
                    self.calls[i] = tuple(called)
            elif opcode == "parameter":
                self.parameters.setdefault(self.home[i], i)
        self.shapes = {i: x.shape for i, x in zip(ids, found, strict=True)}
        parsed = {data: self.shape_of(data) for data in set(self.shapes.values())}
        self.is_tiled = any(shape.layout.tiles for shape in parsed.values())
        tuples = {data for data, shape in parsed.items() if shape.element_type == TUPLE}
        self.tuples = {i for i, data in self.shapes.items() if data in tuples}

    @cached_property
    def named(self) -> dict[str, int]:
        """Instructions by their names, which are unique in a module."""
        return {name: i for i, name in self.names.items()}

    def shape_of(self, data: bytes) -> Any:
        """A serialised shape, parsed once."""
        shape = self._shapes.get(data)
        if shape is None:
            shape = self._shapes[data] = reader.shape_of(data)
        return shape

    def shape(self, i: int) -> Any:
        """The shape of an instruction."""
        return self.shape_of(self.shapes[i])

    def _find_users(self) -> None:
        """Who reads an operand's top, who reads inside it, and roots that only pass it on.

        Apart, because a loop's tuple has thousands of users and each element would ask them all.
        """
        self.top: dict[int, list[User]] = defaultdict(list)
        self.inside: dict[int, list[User]] = defaultdict(list)
        self.roots: dict[int, list[User]] = defaultdict(list)
        for i, operands in self.operands.items():
            opcode = self.opcode[i]
            is_alone = opcode in _ALONE
            is_top = opcode in _TOP
            passes_on = (is_alone or is_top) and i in self.is_root
            for number, operand in enumerate(operands):
                user = i, number
                if not is_alone:
                    self.top[operand].append(user)
                    if not is_top:
                        self.inside[operand].append(user)
                if passes_on:
                    self.roots[operand].append(user)

    def chain(self, i: int) -> int | None:
        """The computation that an asynchronous start, update or done wraps."""
        for _ in range(len(self.operands)):
            if i in self.calls or self.opcode[i] not in _BEHIND_START or not self.operands[i]:
                break
            i = self.operands[i][0]
        return self.calls[i][0] if i in self.calls and self.opcode[i] in ASYNC else None

    def writes_in_place(self, computation: int | None) -> int | None:
        """Number of the operand that a wrapped dynamic-update-slice writes into: TPU only."""
        root = None if computation is None else self.root.get(computation)
        if root is None or not self.is_tiled or self.opcode[root] != "dynamic-update-slice":
            return None
        into = self.operands[root][0]
        is_parameter = self.opcode[into] == "parameter"
        return self.instructions[into].parameter_number if is_parameter else None

    def size(self, i: int) -> int:
        """Logical size of the whole shape of an instruction [bytes]."""
        data = self.shapes[i]
        size = self._sizes.get(data)
        if size is None:
            size = self._sizes[data] = bytes_of(self.shape_of(data))
        return size

    def indices(self, i: int) -> list[Index]:
        """Every place in the shape of an instruction."""
        return list(subindices(self.shape(i))) if i in self.tuples else [()]


def check_names(names: Collection[str]) -> None:
    """Nothing if all are names, with nothing in them that could end a line.

    Raises:
        UnreadableProto: one is none.
    """
    if _NAMES.fullmatch("".join([f"{name}\n" for name in names])):
        return
    for name in names:
        if not _NAME.fullmatch(name):
            raise UnreadableProto(f"it is damaged: {name[:80]!r} is no name")


def _text(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace")
