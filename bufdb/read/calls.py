"""Op and frame of what JAX lowers once for all its calls: functions of jnp, such as cumsum.

Such a function has no line of its own in the text as received: its ops have a bare op_name and no
frame, and only the instruction that calls it has both (format section 7.1). XLA passes them on to
what it inlines, but not to what it makes of a reducer, such as a rewritten reduce-window. Two names
outlive that: the reducer's, perhaps with `.clone` added, and the bare op_name.

Invariant: an instruction gets the one frame, and the one op_name, that all calls of its function
have. Where they do not agree it has none, not even the bare op_name, which is no path: it is named
for what uses it, as what XLA makes itself.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bufdb.read import hlo
from bufdb.read.hlo import HloHeader
from bufdb.read.hlo_graph import HloGraph, Instruction, loops_in
from bufdb.read.instruction import metadata_of

_COMPUTATION = re.compile(rb"\n\n(ENTRY )?%?([\w.\-]+) [({]")
_BARE = re.compile(rb'metadata=\{op_name="([^"/]++)"\}')
_ROLES = (
    b" to_apply=", b" calls=", b" body=", b" condition=", b" branch_computations={",
    b" true_computation=", b" false_computation=",
)  # fmt: skip
_CALLED = re.compile(rb"%?[\w.\-]+(?:, ?%?[\w.\-]+)*")
_CLONE = re.compile(rb"(?:\.clone(?:\.\d+)?)+\Z")
_ENTRY = b""
"""The entry computation, which nothing calls."""
_DEEPEST = 64
"""Limit on functions within functions."""


class CallOp(NamedTuple):
    """What an instruction has of the calls of its function."""

    frame_id: int
    """0 if the calls have several."""
    op_name: bytes | None
    """None if the calls have several, or several frames."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Return both as metadata of an instruction, what is not known left out."""
        fields = {"stack_frame_id": self.frame_id or None, "op_name": self.op_name}
        return {name: value for name, value in fields.items() if value is not None}


class _Call(NamedTuple):
    """An instruction that calls a computation."""

    frame_id: int
    """0 if it has none."""
    op_name: bytes
    computation: bytes


@dataclass
class Calls:
    """Who calls which computation of a text, and in which computations bare op_names are."""

    _calls: dict[bytes, set[_Call]] = field(default_factory=dict)
    _bare: dict[bytes, set[bytes]] = field(default_factory=dict)
    _above: bytes = b""
    """The text above the first computation."""
    _current: bytes | None = None
    """The computation in which the text so far ends."""
    _tail: bytes = b"\n"

    def feed(self, text: bytes) -> None:
        """Scan the next part, of whole lines."""
        before, text = len(self._tail), self._tail + text
        self._tail = b"\n\n" if text.endswith(b"\n\n") else b"\n"
        heads = list(_COMPUTATION.finditer(text))
        if self._current is None:
            self._above += text[before : heads[0].start() + 2 if heads else len(text)]
        names = [self._current, *(_ENTRY if head[1] else head[2] for head in heads)]
        starts = [head.start() for head in heads]
        for match in _BARE.finditer(text):
            home = names[bisect_right(starts, match.start())]
            if home is not None:
                self._bare.setdefault(match[1], set()).add(home)
        for role in _ROLES:
            at = text.find(role)
            while at >= 0:
                home = names[bisect_right(starts, at)]
                callees = _CALLED.match(text, at + len(role))
                if home is not None and callees is not None:
                    end = text.find(b"\n", at)
                    metadata = metadata_of(text[at : len(text) if end < 0 else end])
                    frame, op_name = metadata.get("stack_frame_id"), metadata.get("op_name")
                    call = _Call(frame or 0, op_name or b"", home)
                    for name in callees[0].split(b","):
                        self._calls.setdefault(name.strip(b" %"), set()).add(call)
                at = text.find(role, at + 1)
        self._current = names[-1]

    def found_in(self, text: bytes, header: HloHeader) -> dict[bytes, CallOp]:
        """Return what instructions of the optimized text have of calls, by name.

        Args:
            text: its computations.
            header: what is above them.
        """
        if not self._bare or not header.frames:
            return {}
        known = {frame.stack_frame_id: frame for frame in header.frames}
        frames_before = hlo.read(self._above).frames
        # The numbers are those of the optimized text, unless its tables were made again.
        same = {
            frame.stack_frame_id
            for frame in frames_before
            if (other := known.get(frame.stack_frame_id)) is not None
            and (frame.source_file, frame.source_line, frame.source_column)
            == (other.source_file, other.source_line, other.source_column)
        }
        functions = _Functions(self._calls, same)
        of_op = {
            name: op
            for name, homes in self._bare.items()
            if (op := _agreed(_within(functions.op(home), name) for home in homes))
        }
        return _Finder(text, functions, of_op).find()


class _Functions:
    """What all calls of each computation agree on."""

    def __init__(self, calls: Mapping[bytes, set[_Call]], frames: set[int]) -> None:
        self._calls, self._frames = calls, frames
        self._known: dict[bytes, CallOp | None] = {}

    def op(self, name: bytes, depth: int = 0) -> CallOp | None:
        """Return op and frame of the calls of a computation; None if one has no known frame."""
        if name not in self._known:
            self._known[name] = None  # of one that calls itself
            calls = self._calls.get(name)
            if name != _ENTRY and calls and depth < _DEEPEST:
                self._known[name] = _agreed(self._of(call, depth) for call in calls)
        return self._known[name]

    def _of(self, call: _Call, depth: int) -> CallOp | None:
        if call.frame_id:
            op = CallOp(call.frame_id, call.op_name or None)
            return op if call.frame_id in self._frames else None
        return _within(self.op(call.computation, depth + 1), call.op_name)


def _agreed(ops: Iterable[CallOp | None]) -> CallOp | None:
    """Return what all have; None if one of them is not known."""
    different = set(ops)
    if None in different or len(different) == 1:
        return different.pop() if len(different) == 1 else None
    frames = {op.frame_id for op in different if op is not None}
    return CallOp(frames.pop() if len(frames) == 1 else 0, None)


def _within(outer: CallOp | None, name: bytes) -> CallOp | None:
    """Return an op within another; what a reducer computes has mostly the name of what reduces."""
    if outer is None or outer.op_name is None or not name or outer.op_name.endswith(b"/" + name):
        return outer
    return CallOp(outer.frame_id, outer.op_name + b"/" + name)


class _Finder:
    """Instructions of an optimized text whose op and frame are those of a call."""

    def __init__(self, text: bytes, functions: _Functions, of_op: Mapping[bytes, CallOp]) -> None:
        self.functions, self.of_op = functions, of_op
        self.graph = HloGraph(text, loops_in(text))

    def find(self) -> dict[bytes, CallOp]:
        """Return what they have by name: they, and the fusions that execute nothing else."""
        call_ops: dict[bytes, CallOp] = {}
        fusions: dict[bytes, Instruction] = {}
        for ins in self._without_source():
            reducers = ins.called.get("to_apply", ())
            of_reducers = [self.functions.op(_CLONE.sub(b"", name)) for name in reducers]
            own = next(filter(None, of_reducers), None) or self.of_op.get(ins.op_name or b"")
            if own is None:
                continue
            call_ops[ins.name] = own
            fusion = self.graph.executed(ins)
            if fusion is not None and fusion is not ins and not _has_source(fusion):
                fusions[fusion.name] = fusion
        for name, fusion in fusions.items():
            inside = [
                call_ops.get(ins.name)
                or CallOp(ins.metadata.get("stack_frame_id") or 0, ins.op_name)
                for ins in self.graph.instructions(fusion.fused or b"")
                if ins is not None and _says(ins, call_ops)
            ]
            frames, ops = {one.frame_id for one in inside}, {one.op_name for one in inside}
            if len(frames) == 1 and 0 not in frames:
                call_ops[name] = CallOp(frames.pop(), ops.pop() if len(ops) == 1 else None)
        return call_ops

    def _without_source(self) -> Iterator[Instruction]:
        """Yield the instructions without a source that have a reducer or a bare op_name."""
        for pattern in (b" to_apply=", *(b'{op_name="%b"}' % name for name in self.of_op)):
            for ins in self.graph.having(pattern):
                if not _has_source(ins):
                    yield ins


def _says(ins: Instruction, call_ops: Mapping[bytes, CallOp]) -> bool:
    """Return whether an instruction in a fusion says what that is of."""
    is_known = ins.name in call_ops or bool(ins.op_name) or _has_source(ins)
    return is_known and ins.opcode != "parameter"


def _has_source(ins: Instruction) -> bool:
    return bool(ins.metadata.get("stack_frame_id") or ins.metadata.get("source_file"))
