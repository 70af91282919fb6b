"""A serialised module in lists: its instructions, who calls and who reads whom.

All but what is inside fusions: most instructions are there, and no value is. An instruction is its
place in the proto, from 0; computations go by their ids. Fields are gathered from all messages one
field at a time, which takes a third of the time of one message after the other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from bufdb.proto import reader
from bufdb.proto.reader import UnreadableProto
from bufdb.proto.shapes import TUPLE, Index, bytes_of, subindices

WAITING = frozenset(("while", "conditional", "call"))
"""They take their result from a called computation."""
ASYNC = frozenset(("async-start", "async-update", "async-done"))
_BEHIND_START = frozenset(("async-update", "async-done"))
_CALLING = WAITING | ASYNC
_ALONE = frozenset(("tuple", "domain"))
"""They read neither an operand nor what is in it."""
_TOP = frozenset(("get-tuple-element", "copy"))
"""They read the top of an operand, and pass on what is in it."""
_NAME = re.compile(rb"[A-Za-z_][\w.\-]*")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_FIRST = frozenset(_LETTERS[at : at + 1] for at in range(len(_LETTERS)))
_OTHERS = _LETTERS + b"0123456789.-"

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
        self.order: list[int] = []
        """Computations that are not fused, in the order of the proto."""
        self.members: dict[int, range] = {}
        """The instructions of each of these."""
        self.root: dict[int, int] = {}
        self.instructions: list[Any] = []
        self.home: list[int] = []
        """The computation of each instruction."""
        roots = self._read_computations()
        found = self.instructions
        self.ids: list[int] = [x.id for x in found]
        """As the proto has them: from jaxlib 0.7 on the computation's is in the high half."""
        at = self.at = dict(zip(self.ids, range(len(found)), strict=True))
        self.names = checked_names([x.name for x in found])
        self.opcode = opcodes_of(found)
        raw = [x.operand_ids[:] for x in found]
        self.operands: list[Sequence[int]] = [[at[o] for o in ids] if ids else () for ids in raw]
        self.calls = {
            i: tuple(found[i].called_computation_ids)
            for i, opcode in enumerate(self.opcode)
            if opcode in _CALLING and found[i].called_computation_ids
        }
        """Computations of those that pass control on."""
        self.root = {c: at[i] for c, i in roots.items() if i in at}
        self.is_root = set(self.root.values())
        self.schedule: dict[int, list[int]] = {
            s.computation: [at[i] for i in s.instructions.instruction_ids]
            for s in self.proto.schedule.sequences
            if s.computation in self.members
        }
        self.callers: dict[int, list[User]] = defaultdict(list)
        """Who passes control into a computation, as which of those that it calls."""
        for i, called in self.calls.items():
            for number, computation_id in enumerate(called):
                self.callers[computation_id].append((i, number))
        self._read_shapes()
        self._find_users()
        aliases = self.proto.input_output_alias.entries
        self.kept_inputs = {(e.parameter_number, tuple(e.parameter_shape_index)) for e in aliases}
        """Parameters that are donated, by number and index."""

    def _read_computations(self) -> dict[int, int]:
        """Put the instructions end to end; the ids of the roots."""
        found = list(self.proto.computations)
        heads = reader.heads_of(found)
        names = checked_names([name for name, _, _, _ in heads])
        roots = {}
        for data, name, (_, c, root, is_fused) in zip(found, names, heads, strict=True):
            self.computations[c], self.titles[c] = data, name
            if not is_fused:
                self.order.append(c)
                roots[c] = root
                members = reader.instructions_of(data)
                start = len(self.home)
                self.instructions += members
                self.home += [c] * len(members)
                self.members[c] = range(start, len(self.home))
        return roots

    def _read_shapes(self) -> None:
        self.shapes: list[bytes] = [x.shape for x in self.instructions]
        """Serialised, of each instruction."""
        self._sizes: dict[bytes, int] = {}
        parsed = {data: reader.shape_of(data) for data in set(self.shapes)}
        self._shapes: dict[bytes, Any] = parsed
        """By their bytes: a module has some hundreds of different ones."""
        self.is_tiled = any(shape.layout.tiles for shape in parsed.values())
        """Whether layouts have tiles, as only the TPU's have."""
        tuples = {data for data, shape in parsed.items() if shape.element_type == TUPLE}
        self.tuples = {i for i, data in enumerate(self.shapes) if data in tuples}
        """Instructions whose result is a tuple."""

    @cached_property
    def named(self) -> dict[str, int]:
        """Instructions by their names, which are unique in a module."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def parameters(self) -> dict[int, int]:
        """The first parameter of each computation."""
        found: dict[int, int] = {}
        for i, opcode in enumerate(self.opcode):
            if opcode == "parameter":
                found.setdefault(self.home[i], i)
        return found

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
        """Of operands whose result is a tuple."""
        self.roots: dict[int, list[User]] = defaultdict(list)
        top, inside, tuples = self.top, self.inside, self.tuples
        for i, (opcode, operands) in enumerate(zip(self.opcode, self.operands, strict=True)):
            is_alone = opcode in _ALONE
            is_top = opcode in _TOP
            passes_on = (is_alone or is_top) and i in self.is_root
            for number, operand in enumerate(operands):
                user = i, number
                if not is_alone:
                    top[operand].append(user)
                    if operand in tuples and not is_top:
                        inside[operand].append(user)
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


def opcodes_of(instructions: Sequence[Any]) -> list[str]:
    """Opcodes, held to what names are: nothing in them can end a line either."""
    words = [x.opcode for x in instructions]
    different = list(set(words))
    texts = dict(zip(different, checked_names(different), strict=True))
    return [texts[word] for word in words]


def checked_names(names: Sequence[bytes]) -> list[str]:
    """The same as text, if all are names, with nothing in them that could end a line.

    Raises:
        UnreadableProto: one is none.
    """
    together = b"\n".join(names)
    # All at once: what is left without the letters of names are the ends between them.
    ends = together.translate(None, _OTHERS)
    if not names:
        return []
    if len(ends) == ends.count(b"\n") == len(names) - 1 and _FIRST.issuperset(
        [name[:1] for name in names]
    ):
        return together.decode("ascii").split("\n")
    for name in names:
        if not _NAME.fullmatch(name):
            found = name[:80].decode("ascii", "backslashreplace")
            raise UnreadableProto(f"it is damaged: {found!r} is no name")
    return []
