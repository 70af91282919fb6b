"""Places in loops: elements of tuples, operands, and the lines of a scan."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bufdb.read import jax_names
from bufdb.read.hlo import Frame, HloHeader, unescape
from bufdb.read.hlo_graph import At, Caller, HloGraph, Index, Instruction, at_shape
from bufdb.read.instruction import metadata_of
from bufdb.read.own import NOTHING_MORE, Own

# -- Operands of instructions, and the sources of moves of data ------------------------------------

MOVES = (
    *("add-dependency", "bitcast", "bitcast-convert", "broadcast", "convert", "copy", "copy-done"),
    *("copy-start", "domain", "dynamic-slice", "opt-barrier", "pad", "reduce-precision"),
    *("reshape", "slice", "transpose"),
)
"""They move data and make none; their metadata is often that of their user."""
MAX_MOVES = 20
"""Limit on the moves to a constant, or to the carry of a loop."""

Callers = dict[int, Caller]
"""The instruction through which a walk entered each computation."""


class Operands:
    """The operands in one module's text."""

    def __init__(self, graph: HloGraph) -> None:
        self.graph = graph
        self._largest: dict[int, At | None] = {}

    def all(self, ins: Instruction) -> list[At]:
        """Return the operands that are there, each as a whole."""
        operands = (self.graph.operand(ins, number, ()) for number in range(len(ins.operands)))
        return [at for at in operands if at is not None]

    def caller(self, callers: Callers, computation: int) -> Caller | None:
        """Return the caller of a computation: the way that the walk came in, if it did."""
        return callers.get(computation) or self.graph.caller(computation)

    def largest(self, callers: Callers, ins: Instruction) -> At | None:
        """Return the largest operand, of those not made of a constant if there are others."""
        if ins.position not in self._largest:
            operands = self.all(ins)
            changing = [at for at in operands if not self._is_constant(callers, at)]
            self._largest[ins.position] = max(changing or operands, key=_size, default=None)
        return self._largest[ins.position]

    def is_carried(self, callers: Callers, at: At) -> bool:
        """Return whether moves lead to what the body of a loop is given."""
        end = self._after_moves(callers, at)
        if end is None or end.opcode != "parameter":
            return False
        caller = self.caller(callers, end.computation)
        return caller is not None and caller[1] == "body"

    def branches(self, callers: Callers, ins: Instruction, index: Index) -> list[int]:
        """Return the branches of a conditional that make data; all, if each gives a constant.

        For what one branch leaves for the backward pass, the others give zeros.
        """
        called = ins.called.get("branch", [])
        roots = [(number, self.graph.root(name)) for number, name in enumerate(called)]
        there = [(number, root) for number, root in roots if root is not None]
        making = [number for number, root in there if not self._fills(callers, (root, index))]
        return making or [number for number, _ in there]

    def _fills(self, callers: Callers, at: At | None) -> bool:
        """Return whether an element of a result is a constant, broadcast in a fusion perhaps."""
        for _ in range(MAX_MOVES):
            if at is None:
                return False
            ins, index = at
            if ins.opcode == "tuple":
                at = self.graph.operand(ins, index[0], index[1:]) if index else None
            elif ins.opcode == "fusion" and ins.fused is not None:
                root = self.graph.root(ins.fused)
                if root is None:
                    return False
                callers, at = {**callers, root.computation: (ins, "calls", 0)}, (root, index)
            elif ins.opcode == "get-tuple-element" and ins.number is not None:
                at = self.graph.operand(ins, 0, (ins.number, *index))
            else:
                end = self._after_moves(callers, at)
                if end is ins or end is None:
                    return ins.opcode in ("constant", "iota")
                at = end, ()
        return False

    def _is_constant(self, callers: Callers, at: At) -> bool:
        end = self._after_moves(callers, at)
        return end is not None and end.opcode in ("constant", "iota")

    def _after_moves(self, callers: Callers, at: At | None) -> Instruction | None:
        """Return the source of moves and of parameters of fusions."""
        for _ in range(MAX_MOVES):
            if at is None:
                return None
            ins = at[0]
            caller = self.caller(callers, ins.computation) if ins.opcode == "parameter" else None
            if caller is not None and caller[1] == "calls" and ins.number is not None:
                at = self.graph.operand(caller[0], ins.number, ())
            elif ins.opcode in MOVES or ins.opcode == "get-tuple-element":
                at = self.graph.operand(ins, 0, ())
            else:
                return ins
        return None


def _size(at: At) -> int:
    shape = at_shape(at)
    return 0 if shape.is_tuple else shape.logical_bytes or 0


# -- Lines in a scan that are those of another one -------------------------------------------------
#
# JAX traces what a scan inserts into its stacks, and takes from them, once for each shape, and
# keeps that (`jit(dynamic_update_index_in_dim)`). From then on all scans of a process have the line
# of the first one, in whatever program that was. They are directly in the body, next to the user's
# step, which is a call (`closed_call`). The body of a `while_loop` has none: there the user may
# have written the same.
#
# A step whose name is that of a newer JAX is recognized by what is not in the body: nothing of the
# user's but what is inside of a call. So is a function that takes or inserts slices: a scan calls
# no other one.

Fields = Mapping[str, Any]
"""Metadata of an instruction (`metadata_of`)."""
Kept = tuple[bytes, bytes]
"""A jitted function directly in a body, as in the op_name, and what follows in the metadata."""

_KEPT = re.compile(rb'/body/(jit\([^()/"\n]{1,200}\))([/"][^}\n]{0,4095})\}')
_STEP = re.compile(rf"/body/(?:{'|'.join(jax_names.SCAN_STEPS)})[/\"]".encode())
_SCAN_BODY = len(b"/body/")
_LONGEST = 1 << 12
"""An op_name is shorter; its beginning is not searched for farther away."""
_WORD = re.compile(rb"\w+")
_KNOWN_WORDS = {
    word.encode()
    for word in (
        *(jax_names.LOOP, jax_names.CHOICE, *jax_names.CHECKPOINTS),
        *(*jax_names.CALLS, *jax_names.SCAN_STEPS),
    )
}


def kept_steps(text: bytes) -> list[tuple[Kept, Fields]]:
    """Return what JAX may have kept from another scan, each once.

    Of 16,464 such in 13 MB four differ, which takes 16 ms; parsing each one takes 70.

    Returns:
        Each with the fields of its metadata, where the line is.
    """
    steps = dict.fromkeys(_KEPT.findall(text))
    return [(kept, _fields_after(kept[1])) for kept in steps]


def bodies_of(text: bytes, wanted: Collection[Kept]) -> set[tuple[Kept, bytes]]:
    """Return what may be kept again, with the op_names of the bodies in which it occurs."""
    marks = _KEPT.finditer(text) if wanted else ()
    bodies = {((mark[1], mark[2]), _body(text, mark)) for mark in marks}
    return {(kept, body) for kept, body in bodies if body is not None and kept in wanted}


def bodies_of_scans(text: bytes, bodies: Iterable[bytes]) -> set[bytes]:
    """Return which of these bodies, by their op_name, have a step of a known name."""
    wanted, of_scans = set(bodies), set()
    for mark in _STEP.finditer(text) if wanted else ():
        body = _body(text, mark)
        if body in wanted:
            of_scans.add(body)
            wanted.remove(body)
            if not wanted:
                break
    return of_scans


def _body(text: bytes, mark: re.Match[bytes]) -> bytes | None:
    """Return the op_name of the body that a place in an op_name is in."""
    quote = text.rfind(b'"', max(0, mark.start() - _LONGEST), mark.start())
    return None if quote < 0 else text[quote + 1 : mark.start() + _SCAN_BODY]


def _inside(text: bytes, body: bytes) -> tuple[set[bytes], list[Fields]]:
    """Return the words with more after them in a body, and the fields of what is directly in it."""
    of_body = re.compile(rb'"%b([^"/;]*)(/)?[^"]*"([^}\n]{0,4095})\}' % re.escape(body))
    longer = set(of_body.findall(text))
    words = {name for name, divider, _ in longer if divider and _WORD.fullmatch(name)}
    return words - _KNOWN_WORDS, [
        _fields_after(b'"' + rest)
        for name, divider, rest in longer
        if not divider and MACHINERY.fullmatch(name) is None
    ]


def _fields_after(end: bytes) -> Fields:
    """Return the fields of metadata from the end of its op_name on."""
    return metadata_of(b', metadata={op_name="%b}' % end)


# -- Whether an instruction is the user's, with a line, or the machinery of a loop -----------------
#
# JAX gives everything that a scan adds to its body (the counter, the slices of what is scanned, the
# stacks of what is saved) the line of the call, or of another scan, for which it was traced first
# (`scans`). An instruction with another line is the user's. With this line it is the user's if
# its op_name has something after the last `while/body/` that no loop writes: a scan of a lambda on
# one line, the body of a `while_loop`; outside the loop, too, if it makes data:
# `relu(scan(…)[0] @ w)`.
#
# Where everything that was compiled is installed, as in a server, no line is the user's. Then the
# innermost line of a library is taken, or every walk would end at the arguments of the program.

Place = tuple[str, int]
"""File and line."""

_SOURCE_FILE = re.compile(rb' source_file="((?:[^"\\]|\\.)*)"')
_BODY = re.compile(rf"{jax_names.LOOP}\)*/body/".encode())


def _machinery(calls: Collection[bytes], steps: Collection[bytes] = ()) -> re.Pattern[bytes]:
    """Return what follows the last body in the op_name of something that no user wrote.

    Args:
        calls: jitted functions of a scan, as in op_names.
        steps: names of steps besides the known ones.
    """
    known = (*jax_names.SCAN_STEPS, *jax_names.CHECKPOINTS)
    words = b"|".join([*(name.encode() for name in known), *sorted(steps)])
    functions = b"|".join(rb"%b(?:/.*)?" % re.escape(call) for call in sorted(calls))
    return re.compile(
        rb"(?:(?:%b)(?:/|$))*(?:%b"
        rb"|dynamic_(?:update_)?slice|broadcast_in_dim|squeeze|reshape|concatenate|slice"
        rb"|(?:\w+\()*%b\)*)?" % (words, functions, jax_names.LOOP.encode())
    )


_SLICED = frozenset(f"jit({name})".encode() for name in jax_names.SLICED)
MACHINERY = _machinery(_SLICED)
_SUM, _TURNED = f"/{jax_names.SUM}".encode(), f"/{jax_names.TURNED}".encode()
_SCALAR = re.compile(rb"(?:pred|[su]\d+)\[\]")
_BEARS_CONSUMERS_LINE = frozenset({"while", "conditional", "call", "get-tuple-element", "tuple"})


class Places:
    """Lines of a module's instructions."""

    def __init__(
        self,
        header: HloHeader | None,
        loops: Iterable[Fields],
        own: Own = NOTHING_MORE,
        text: bytes = b"",
    ) -> None:
        """Take the frames of the HLO text, and the metadata of its loops.

        Args:
            header: the text above the computations, as read.
            loops: metadata of the loops.
            own: which files are the user's own.
            text: the computations, or no text if some line is known to be the user's and all scans
            have their own.
        """
        self._is_library, self._library_source = own.is_library, own.library_source
        self.has_own = not text or self._finds_own(header, text)
        """Whether any line is the user's."""
        self.frames: dict[int, Frame] = {}
        for frame in header.frames if header is not None else ():
            self.frames[frame.stack_frame_id] = frame
        self._of_frames: dict[int, Place | None] = {}
        self._is_step: dict[bytes, tuple[bool, bool]] = {}
        """Whether an op_name on a loop's line says what the user computes, and whether in the body
        of a loop: many have the same."""
        self.unknown_names: list[str] = []
        """What scans of this module call their step, or what they take and insert slices with, if
        JAX is newer than what is known."""
        self._machinery = MACHINERY
        self.of_loops = {place for fields in loops if (place := self._own(fields)) is not None}
        self.of_loops |= self._of_other_scans(text)

    def own(self, ins: Instruction) -> Place | None:
        """Return the innermost place that is not library code."""
        if ins.own is NotImplemented:
            fields, known = ins.metadata, self._of_frames
            number = fields.get("stack_frame_id")
            ins.own = known[number] if number in known else self._own(fields)
        place: Place | None = ins.own
        return place

    def innermost(self, ins: Instruction) -> tuple[str | bytes | None, int | None, int | None]:
        """Return file, line and frame as in the table `instructions`."""
        fields = ins.metadata
        file, number = fields.get("source_file"), fields.get("stack_frame_id")
        frame = self.frames.get(number) if file is None and number is not None else None
        if frame is not None:
            return frame.source_file, frame.source_line, number
        return file, fields.get("source_line"), number

    def _of_other_scans(self, text: bytes) -> set[Place]:
        """Return the lines that loops have for what JAX had traced for another scan."""
        own_lines = {kept: self._own(fields) for kept, fields in kept_steps(text)}
        others = {kept for kept, place in own_lines.items() if place and place not in self.of_loops}
        unnamed = {kept for kept, place in own_lines.items() if place and kept[0] not in _SLICED}
        in_bodies = bodies_of(text, others | unnamed)
        of_scans = bodies_of_scans(text, (body for _, body in in_bodies))
        steps: set[bytes] = set()
        for body in sorted({body for kept, body in in_bodies if kept in others} - of_scans):
            if unknown := self._steps_by_unknown_names(text, body):
                of_scans.add(body)
                steps |= unknown
        kept = {kept for kept, body in in_bodies if body in of_scans}
        calls = {call for call, _ in kept} - _SLICED
        self.unknown_names = sorted(name.decode(errors="replace") for name in calls | steps)
        if self.unknown_names:
            self._machinery = _machinery(calls | _SLICED, steps)
        return {place for one in kept if (place := own_lines[one]) is not None}

    def _steps_by_unknown_names(self, text: bytes, body: bytes) -> set[bytes]:
        """Return the names of what may be the step in a body where nothing else is the user's."""
        words, direct = _inside(text, body)
        lines = {self._own(fields) for fields in direct} - {None}
        return words if lines <= self.of_loops else set()

    def _finds_own(self, header: HloHeader | None, text: bytes) -> bool:
        if header is not None and any(f.own_frame_id is not None for f in header.frames):
            return True
        known: set[bytes] = set()
        for match in _SOURCE_FILE.finditer(text):
            if match[1] not in known:
                known.add(match[1])
                if not self._is_library(unescape(match[1]).decode(errors="replace")):
                    return True
        return False

    def is_nobodys(self, file: str) -> bool:
        """Return whether a file's lines say nothing: a library's, where there are a user's."""
        return self.has_own and self._is_library(file)

    def library_source(self, ins: Instruction) -> str | None:
        """Return the innermost library line, as in value_origin_details; None with a user's."""
        file, line, number = self.innermost(ins)
        frame = None if number is None else self.frames.get(number)
        if frame is not None and frame.own_frame_id is not None:
            return None
        text = file.decode(errors="replace") if isinstance(file, bytes) else file
        return self._library_source(text, line)

    def is_librarys(self, ins: Instruction) -> bool:
        """Return whether an instruction has lines of libraries alone."""
        return self.own(ins) is None and self.library_source(ins) is not None

    def _own(self, fields: Fields) -> Place | None:
        number = fields.get("stack_frame_id")
        if number is not None and number in self.frames:
            self._of_frames[number] = self.of_frame(number)
            return self._of_frames[number]
        file, line = fields.get("source_file"), fields.get("source_line")
        if file is None or line is None or self.is_nobodys(file.decode()):
            return None
        return file.decode(), line

    def of_frame(self, number: int | None) -> Place | None:
        """Return the innermost place that is not library code, at a frame or above it."""
        frame = None if number is None else self.frames.get(number)
        if frame is not None and self.has_own:
            frame = None if frame.own_frame_id is None else self.frames.get(frame.own_frame_id)
        if frame is None or frame.source_file is None or frame.source_line is None:
            return None
        return frame.source_file, frame.source_line

    def is_users(self, ins: Instruction) -> bool:
        """Return whether an instruction's line says what of the user's it computes."""
        if ins.is_users is None:
            ins.is_users = self._judge(ins)
        return ins.is_users

    def is_sum(self, ins: Instruction) -> bool:
        """Return whether a loop sums up, step by step, the gradient of what all steps share."""
        if ins.opcode != "add" or not (ins.op_name or b"").endswith(_SUM):
            return False
        return self.own(ins) in self.of_loops

    def is_turned(self, ins: Instruction) -> bool:
        """Return whether it is vmap's move of its batch axis, named on the line of the loop."""
        return (ins.op_name or b"").endswith(_TURNED) and self.own(ins) in self.of_loops

    def _judge(self, ins: Instruction) -> bool:
        if ins.opcode in _BEARS_CONSUMERS_LINE:
            return False
        place = self.own(ins)
        if place is None or place not in self.of_loops:
            return place is not None
        if _SCALAR.match(ins.shape_text):
            return False
        op_name = ins.op_name or b""
        if op_name not in self._is_step:
            before, *after = _BODY.split(op_name.split(b";")[0])
            last = after[-1] if after else before.rpartition(b"/")[2]
            self._is_step[op_name] = self._machinery.fullmatch(last) is None, bool(after)
        is_step, is_in_body = self._is_step[op_name]
        return is_step and (is_in_body or ins.opcode not in MOVES)
