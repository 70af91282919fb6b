"""A serialized module in lists: its instructions, their callers and their users.

Everything except what is inside fusions: most instructions are there, and no value is. An
instruction is its place in the proto, from 0; computations go by their ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from bufdb.proto import messages, reader
from bufdb.proto.messages import checked_names, parted
from bufdb.proto.reader import NotUnderstood
from bufdb.proto.shapes import TUPLE, Index, bytes_of, part_of, subindices

WAITING = frozenset(("while", "conditional", "call"))
"""They take their result from a called computation."""
ASYNC = frozenset(("async-start", "async-update", "async-done"))
_BEHIND_START = frozenset(("async-update", "async-done"))
_CALLING = WAITING | ASYNC


class Module:
    """One module."""

    def __init__(self, proto: Any) -> None:
        """Take the module of an HloProto.

        Raises:
            KeyError: an id leads to nothing.
            UnreadableProto: names or computations in it make no sense.
        """
        self.proto = proto.hlo_module
        self.entry: int = self.proto.entry_computation_id
        self.computations: dict[int, bytes] = {}
        """Serialized, by id; fused ones too."""
        self.titles: dict[int, str] = {}
        """Names of computations."""
        self.order: list[int] = []
        """Computations that are not fused, in the order of the proto."""
        self.members: dict[int, range] = {}
        """The instructions of each of these."""
        self.root: dict[int, int] = {}
        self.home: list[int] = []
        """The computation of each instruction."""
        serialized: list[bytes] = []
        roots = self._read_computations(serialized)
        self.payloads: Sequence[bytes] = self.proto.payloads
        self.instructions = messages.read_instructions(serialized, self.payloads)
        del serialized
        self.names, self.opcode, self.ids = (
            self.instructions.names,
            self.instructions.opcodes,
            self.instructions.ids,
        )
        at = self.at = dict(zip(self.ids, range(len(self.ids)), strict=True))
        """Instructions by their ids."""
        self.flat_operands = list(map(at.__getitem__, self.instructions.operand_ids))
        """Operands of all instructions, end to end."""
        self.operands = parted(self.flat_operands, self.instructions.operand_counts)
        self.calls = {
            i: tuple(called)
            for i, called in self.instructions.called.items()
            if self.opcode[i] in _CALLING
        }
        """Computations of those that pass control on."""
        self.root = {c: at[i] for c, i in roots.items() if i in at}
        self.is_root = set(self.root.values())
        self.schedule: dict[int, list[int]] = {
            s.computation: list(map(at.__getitem__, s.instructions.instruction_ids[:]))
            for s in self.proto.schedule.sequences
            if s.computation in self.members
        }
        self.callers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Callers that pass control into a computation, and its place among their calls."""
        for i, called in self.calls.items():
            for number, computation_id in enumerate(called):
                self.callers[computation_id].append((i, number))
        self._read_shapes()
        aliases = self.proto.input_output_alias.entries
        self.kept_inputs = {(e.parameter_number, tuple(e.parameter_shape_index)) for e in aliases}
        """Parameters that are donated, by number and index."""

    def _read_computations(self, serialized: list[bytes]) -> dict[int, int]:
        """Put the serialized instructions end to end; return the ids of the roots."""
        roots: dict[int, int] = {}
        names: list[bytes] = []
        ids: list[int] = []
        every = list(self.proto.computations)
        for data, head in zip(every, reader.computations_of(every), strict=True):
            names.append(head.name)
            ids.append(c := head.id)
            self.computations[c] = data
            if not head.is_fusion_computation:
                self.order.append(c)
                roots[c] = head.root_id
                members = head.instructions
                start = len(self.home)
                self.home += [c] * len(members)
                self.members[c] = range(start, len(self.home))
                serialized += members
        self.titles = dict(zip(ids, checked_names(names), strict=True))
        return roots

    def _read_shapes(self) -> None:
        self.shapes = self.instructions.shapes
        """Serialized, of each instruction."""
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
        first: dict[int, int] = {}
        for i, opcode in enumerate(self.opcode):
            if opcode == "parameter":
                first.setdefault(self.home[i], i)
        return first

    def shape_of(self, data: bytes) -> Any:
        """Parse a serialized shape, once."""
        shape = self._shapes.get(data)
        if shape is None:
            shape = self._shapes[data] = reader.shape_of(data)
        return shape

    def shape(self, i: int) -> Any:
        """Return the shape of an instruction."""
        return self.shape_of(self.shapes[i])

    def not_understood(self, i: int, error: Exception) -> NotUnderstood:
        """Return what to raise where reading an instruction failed."""
        return NotUnderstood(self.names[i], self.opcode[i], error)

    def begin(self, i: int) -> int:
        """Return the start of the asynchronous chain that an update or done belongs to."""
        for _ in range(len(self.operands)):
            if i in self.calls or self.opcode[i] not in _BEHIND_START or not self.operands[i]:
                break
            i = self.operands[i][0]
        return i

    def chain(self, i: int) -> int | None:
        """Return the computation that an asynchronous start, update or done wraps."""
        i = self.begin(i)
        return self.calls[i][0] if i in self.calls and self.opcode[i] in ASYNC else None

    @cached_property
    def arguments(self) -> dict[int, list[int]]:
        """The operands of asynchronous chains, by their starts: an update can take some or all."""
        operands_by_start: dict[int, list[int]] = defaultdict(list)
        for i, opcode in enumerate(self.opcode):
            if opcode in ASYNC:
                operands_by_start[self.begin(i)] += self.operands[i][opcode in _BEHIND_START :]
        return operands_by_start

    @cached_property
    def entered(self) -> set[int]:
        """Parts of asynchronous chains that enter what they wrap: the last that takes operands.

        A chain without operands enters at its start.
        """
        last = {self.begin(i): i for i, opcode in enumerate(self.opcode) if opcode == "async-start"}
        for i, opcode in enumerate(self.opcode):
            if opcode in _BEHIND_START and len(self.operands[i]) > 1:
                last[self.begin(i)] = i
        return set(last.values())

    def writes_in_place(self, computation: int | None) -> int | None:
        """Return which operand a wrapped dynamic-update-slice writes into, by number: TPU only."""
        root = None if computation is None else self.root.get(computation)
        if root is None or not self.is_tiled or self.opcode[root] != "dynamic-update-slice":
            return None
        into = self.operands[root][0]
        is_parameter = self.opcode[into] == "parameter"
        return self.instructions.parameter_numbers[into] if is_parameter else None

    def part(self, i: int, index: Index) -> Any:
        """Return the shape at a place.

        Raises:
            NotUnderstood: the shape has no such place.
        """
        try:
            return part_of(self.shape(i), index)
        except IndexError as error:
            raise self.not_understood(i, error) from error

    @cached_property
    def sizes(self) -> list[int]:
        """Logical size of the whole shape of each instruction [bytes]."""
        known = {data: bytes_of(self.shape_of(data)) for data in set(self.shapes)}
        return [known[data] for data in self.shapes]

    def indices(self, i: int) -> list[Index]:
        """Return every place in the shape of an instruction."""
        return list(subindices(self.shape(i))) if i in self.tuples else [()]
