"""Walk from what a loop carries to the instruction that made the data."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bufdb.read import jax_names
from bufdb.read.hlo_graph import At, Caller, HloGraph, Index, Instruction, at_shape
from bufdb.read.shape import Shape, shape_of
from bufdb.rows.loop_places import MOVES, Callers, Operands, Places

# -- Collectives merged by XLA, and the operand that a part of the result comes from ---------------
#
# Where the result is a tuple, it has an operand for each element, and the metadata of the first. On
# GPUs the arrays are first put into a flat one, and each takes its part of the result again. What
# the user asked for (lax.all_gather) makes data; what XLA adds sums up or moves its operand.

_COLLECTIVES = frozenset(
    ("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute")
)
_COLLECTIVES |= {"ragged-all-to-all", "reduce-scatter"}
_REDUCING = frozenset(("all-reduce-start", "reduce-scatter-start"))
"""Asynchronous opcodes that make data; others move data, unless the user asked for them."""
_ASKED_FOR = tuple(f"/{name}".encode() for name in jax_names.COLLECTIVES)
"""Ends of the op_names of collectives that the user wrote; XLA's own have their user's."""
_FLAT = re.compile(rb"slice=\{\[(\d{1,18}):(\d{1,18})\]\}")
_STAYS = frozenset(("all-reduce", "all-reduce-start", "bitcast", "copy", "copy-done", "copy-start"))

Part = tuple[int, int, int]
"""Begin and end of what is taken from a flat array, and that array's number of elements."""


def is_collective(ins: Instruction) -> bool:
    """Return whether it computes between devices, or starts to."""
    return ins.opcode.removesuffix("-start") in _COLLECTIVES


def offloaded(graph: HloGraph, ins: Instruction) -> Instruction | None:
    """Return the call that replaced a collective which runs elsewhere, as on SparseCore.

    It has no line; its start has the name and the line of the collective.
    """
    if (
        not ins.opcode.endswith("-start")
        or ins.name.partition(b".")[0].decode() not in _COLLECTIVES
    ):
        return None
    called = ins.called.get("calls")
    root = graph.root(called[0]) if called else None
    is_call = root is not None and root.opcode == "custom-call" and root.op_name is None
    return root if is_call else None


def is_asked_for(ins: Instruction) -> bool:
    """Return whether it has the op_name of a collective that the user wrote."""
    return (ins.op_name or b"").endswith(_ASKED_FOR)


def only_moves(ins: Instruction) -> bool:
    """Return whether it is asynchronous and makes no data."""
    if ins.opcode in _REDUCING or (ins.opcode.endswith("-start") and is_asked_for(ins)):
        return False
    return ins.opcode.endswith(("-start", "-done", "-update"))


def operand(
    graph: HloGraph, ins: Instruction, index: Index, places: Places, part: Part | None
) -> At | None:
    """Return the operand that an element of a collective comes from, unless its line says more."""
    call = offloaded(graph, ins) or ins
    is_one = call is not ins or is_collective(ins)
    if not is_one or (part is None and is_asked_for(ins) and places.is_users(ins)):
        return None
    if len(call.operands) > 1:
        return graph.operand(ins, index[-1], ()) if index else None
    return graph.operand(ins, 0, ()) if part is not None or not places.is_users(ins) else None


def is_of_several(ins: Instruction) -> bool:
    """Return whether XLA, and no line, puts arrays together: each has its own line."""
    return ins.opcode == "concatenate" and ins.op_name is None


def named(ins: Instruction, index: Index, element: Instruction | None) -> tuple[Instruction, bool]:
    """Return the instruction whose line an element of a result has, and whether it is known.

    A collective of several has that of the first; from jaxlib 0.11 on the elements, each with its
    own, are not in the text.
    """
    if not index or not is_collective(ins) or len(ins.operands) == 1:
        return ins, True
    return (ins, index[-1] == 0) if element is None else (element, True)


def part_after(graph: HloGraph, ins: Instruction, part: Part | None) -> Part | None:
    """Return which part of its operand a part of a result is, where that is flat."""
    if ins.opcode != "slice":
        return part if ins.opcode in _STAYS else None
    match, whole = _FLAT.search(ins.attributes), graph.operand_shape(ins, 0)
    if match is None or whole is None or part is not None:
        return None
    return int(match[1]), int(match[2]), whole.element_count or 0


def part_operand(operands: Operands, ins: Instruction, part: Part | None) -> At | None:
    """Return the operand of a concatenation in which a part of its result lies."""
    if part is None or ins.opcode != "concatenate":
        return None
    every_operand = operands.all(ins)
    sizes = [at_shape(at).element_count or 0 for at in every_operand]
    begin, end, whole = part
    if sum(sizes) != whole:
        return None
    for at, size in zip(every_operand, sizes, strict=True):
        if begin < size:
            return at if end <= size else None
        begin, end = begin - size, end - size
    return None


# -- From a buffer back to the instruction that made its data, through loops, fusions and moves ----
#
# The steps are those of the text: a fusion leads to the root of what it calls, a parameter back to
# the operand of the call, a loop to what its body wrote last. The rule was settled on
# programs whose lines are all known (tests/rows/test_loops.py).
#
# What a walk finds from an element of a loop, or from a slice that a loop inserts, does not
# depend on the way there; it is remembered, so that the many values of one buffer cost one walk.

MAX_STEPS = 400
"""A walk has a median length of 10 steps and at most 38 in the programs measured."""
MAX_GUESSES = 8
"""Limit on crossed computations without a line of the user's; 6 led to a line at most."""
_MOVES_OF_USERS = frozenset(
    ("broadcast", "convert", "dynamic-slice", "pad", "reshape", "slice", "transpose")
)
"""The metadata of these counts if it is the user's: `x.astype(…)` is what is saved."""
_EXPANDING = frozenset(("broadcast", "pad"))
"""Their result may have more elements than the operand."""
_NAMED = f"/{jax_names.NAMED}".encode()
_CALLING = {"fusion": "calls", "custom-call": "calls", "async": "calls", "call": "to_apply"}
"""In which role opcodes, with or without `-start`, call the computation that gives their result."""


@dataclass(slots=True)
class Origin:
    """Where the data of a value come from."""

    kind: str = "self"
    """stacked, slice, carry, invariant, parameter; self if it has nothing to do with a loop."""
    instruction: Instruction | None = None
    loop: Instruction | None = None
    written_by: Instruction | None = None
    slice_shape: Shape | None = None
    slice_count: int | None = None
    """Slices of the stack that was met; `Slices` counts those in the value."""
    slice_bytes: int | None = None
    is_layer_input: bool = False
    is_exact: bool = True
    step_count: int = 0


@dataclass(slots=True)
class _Path:
    """What a walk has seen."""

    origin: Origin = field(default_factory=Origin)
    rounds: set[tuple[int, Index]] = field(default_factory=set)
    """Elements of loops that were looked up in the body: a second visit goes in."""
    open: list[tuple[Instruction, Index]] = field(default_factory=list)
    """Those of them that the walk has not left through the initial value."""
    callers: Callers = field(default_factory=dict)
    passed: list[tuple[Instruction, bool]] = field(default_factory=list)
    """Moves, and what makes data (True), whose line is used if the end has none."""
    end: Instruction | None = None
    library: tuple[Origin, bool] | None = None
    """Had the walk ended where a line of a library's, and none of the user's, first made data: the
    origin, and whether one slice is read back. It is used if nothing of the user's comes."""
    is_slice: bool = False
    part: Part | None = None
    """Which part of a flat array the walk is after, where it came from that."""
    element: Instruction | None = None
    """The last element that has the line of a collective that the user asked for."""
    guess_count: int = 0
    element_count: int = 0
    """Steps through elements of tuples: newer texts leave these instructions out."""
    is_changed: bool = False
    """Whether something was computed on the way; XLA selects the first step's zeros, or a carry,
    and an unrolled scan puts together what several layers are given."""


class Walker:
    """Walks in one module; each starts where no other one has started."""

    def __init__(self, graph: HloGraph, places: Places) -> None:
        self.graph, self.places = graph, places
        self._known: dict[tuple[int, Index], Origin] = {}
        self._after_slice: dict[int, _Path] = {}
        self._operands = Operands(graph)

    def origin(self, ins: Instruction, index: Index) -> Origin:
        """Return the origin of what an instruction defines at an index; not to be changed."""
        known = self._known.get((ins.position, index))
        if known is None:
            path = _Path()
            self._walk(path, (ins, index))
            known = replace(path.origin, kind="slice") if path.is_slice else path.origin
            self._known[ins.position, index] = known
        return known

    def _walk(self, path: _Path, at: At | None) -> None:
        """Walk to the end, and note in the path's origin where it was."""
        elements: list[tuple[int, Index]] = []
        origin, step_count = path.origin, 0
        step_of, other = _STEPS.get, Walker._other
        while at is not None:
            ins, index = at
            if ins.opcode == "while" and self._is_fresh(path):
                known = self._known.get((ins.position, index))
                if known is not None:
                    path.origin = known
                    break
                elements.append((ins.position, index))
            if step_count == MAX_STEPS:
                origin.is_exact = False
                at = None
                continue
            step_count += 1
            at = step_of(ins.opcode, other)(self, path, ins, index)
        else:
            origin.step_count = step_count - path.element_count
            self._finish(path)
        for element in elements:
            self._known[element] = path.origin

    def _is_fresh(self, path: _Path) -> bool:
        """Return whether nothing seen so far changes what follows."""
        origin = path.origin
        is_plain = origin.kind in ("self", "invariant") and origin.written_by is None
        is_plain = is_plain and origin.is_exact and not path.open and path.part is None
        return is_plain and self._stand_in(path) is None

    def _finish(self, path: _Path) -> None:
        end = path.end
        if end is None or self.places.own(end) is None:
            end = self._stand_in(path)
            if end is None and path.library is not None:
                step_count = path.origin.step_count
                path.origin, path.is_slice = path.library
                path.origin.step_count, path.end = step_count, path.origin.instruction
            end = end or path.end
        if path.origin.instruction is None:
            path.origin.instruction = end
        elif path.origin.instruction is not end:  # of a slice's source, which others share
            path.origin = replace(path.origin, instruction=end)

    def _stand_in(self, path: _Path) -> Instruction | None:
        """Return a user's instruction on the way: the last that makes data, or the first move."""
        last = None
        for ins, makes_data in path.passed:
            if (last is None or makes_data) and self.places.is_users(ins):
                last = ins
        return last

    # -- steps: each says where to go on, or ends the walk with None ---------------------------

    def _enter(self, path: _Path, caller: Caller, name: bytes, index: Index) -> At | None:
        root = self.graph.root(name)
        if root is None:
            return None
        path.callers[root.computation] = caller
        return root, index

    def _loop(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        """Return what the body wrote last; if that is what it was given, the initial value."""
        bodies = ins.called.get("body")
        if (ins.position, index) in path.rounds or not bodies:
            return self._go_in(path, ins, index)
        path.rounds.add((ins.position, index))
        path.open.append((ins, index))
        if path.origin.kind in ("self", "invariant"):
            path.origin.kind, path.origin.loop = "carry", ins
        return self._enter(path, (ins, "body", 0), bodies[0], index)

    def _go_in(self, path: _Path, loop: Instruction, index: Index) -> At | None:
        """Go on with what the loop began with: its body never writes it."""
        origin = path.origin
        if (loop, index) in path.open:
            path.open.remove((loop, index))
        if origin.kind == "carry" and not path.open:
            origin.kind = "invariant"
        if loop is origin.loop:
            origin.is_layer_input = False
        return self.graph.operand(loop, 0, index)

    def _parameter(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        origin = path.origin
        entry = self._operands.caller(path.callers, ins.computation)
        if entry is None:
            if origin.kind in ("self", "invariant"):
                origin.kind = "parameter"
            path.end = ins
            return None
        caller, role, number = entry
        if role in ("body", "condition"):
            if (caller.position, index) in path.rounds:
                return self._go_in(path, caller, index)
            if caller is origin.loop and origin.written_by is not None and not path.is_changed:
                origin.is_layer_input = True
            return caller, index
        if role == "branch":
            return self.graph.operand(caller, number + 1, index)
        place = ins.number
        return None if place is None else self.graph.operand(caller, place, index)

    def _element(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        number = ins.number
        path.element_count += 1
        if is_asked_for(ins) and self.places.own(ins) is not None:
            path.element = ins
        return None if number is None else self.graph.operand(ins, 0, (number, *index))

    def _tuple(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        return self.graph.operand(ins, index[0], index[1:]) if index else None

    def _branch(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        numbers = self._operands.branches(path.callers, ins, index)
        if not numbers:
            return None
        if len(numbers) > 1:
            path.origin.is_exact = False
        last = numbers[-1]
        return self._enter(path, (ins, "branch", last), ins.called["branch"][last], index)

    def _update(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        """Follow the write of one slice: by a loop into its stack, or by the user (a cache)."""
        origin = path.origin
        if self.places.is_users(ins):
            path.end = ins
            return None
        loop = self._loop_around(path, ins) if origin.written_by is None else origin.loop
        if loop is None:
            origin.is_exact = False
            return _unless_larger(path, ins, self.graph.operand(ins, 1, ()))
        if origin.written_by is None:
            after = self._after(path, ins, loop)
            path.origin, path.end = after.origin, after.end
            path.passed += after.passed
            if not origin.is_exact or after.origin.instruction is None:
                # The way to this place adds something.
                path.origin = replace(path.origin, is_exact=origin.is_exact & path.origin.is_exact)
            return None
        return self.graph.operand(ins, 1, ())

    def _after(self, path: _Path, ins: Instruction, loop: Instruction) -> _Path:
        """Return what was found from a slice that a loop inserts on, found once."""
        after = self._after_slice.get(ins.position)
        if after is None:
            update = self.graph.operand(ins, 1, ())
            origin = Origin("stacked", loop=loop, written_by=ins)
            if update is not None:
                origin.slice_shape = at_shape(update)
                origin.slice_count = _times(shape_of(ins.shape), origin.slice_shape)
            after = _Path(origin, callers=dict(path.callers))
            self._after_slice[ins.position] = after
            self._walk(after, update)
        return after

    def _loop_around(self, path: _Path, ins: Instruction) -> Instruction | None:
        """Return the innermost loop in which an instruction is."""
        computation = ins.computation
        for _ in range(MAX_STEPS):
            caller = self._operands.caller(path.callers, computation)
            if caller is None or caller[1] in ("body", "condition"):
                return None if caller is None else caller[0]
            computation = caller[0].computation
        return None

    def _move(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        is_saved = ins.opcode in _MOVES_OF_USERS and not (
            _is_name(ins) or self.places.is_turned(ins)
        )
        if is_saved and self.places.is_users(ins):
            path.end = ins
            return None
        path.passed.append((ins, False))
        path.part = part_after(self.graph, ins, path.part)
        if ins.opcode == "dynamic-slice" and path.origin.kind == "self":
            path.is_slice = True
        at = self.graph.operand(ins, 0, index if ins.opcode == "opt-barrier" else ())
        return _unless_larger(path, ins, at) if ins.opcode in _EXPANDING else at

    def _asynchronous(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        """Return the start of what is done; of a call the results are the second element."""
        at = self.graph.operand(ins, 0, index)
        if at is not None and ins.opcode.endswith("-done") and _body_of(at[0]) is not None:
            return at[0], (1, *index)
        return at

    def _fusion(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        name = ins.fused
        if name is None:
            return self._other(path, ins, index)
        path.passed.append((ins, True))
        return self._enter(path, (ins, "calls", 0), name, index)

    def _other(self, path: _Path, ins: Instruction, index: Index) -> At | None:
        called = _body_of(ins) if offloaded(self.graph, ins) is None else None
        if called is not None:
            if ins.opcode.endswith("-start") and index[:1] == (1,):
                index = index[1:]  # operands, results, context
            path.passed.append((ins, True))
            return self._enter(path, (ins, "calls", 0), called, index)
        at = operand(self.graph, ins, index, self.places, path.part)
        if at is not None:
            path.part = part_after(self.graph, ins, path.part)
            return at
        if only_moves(ins):
            return self._asynchronous(path, ins, index)
        if self.places.is_sum(ins):
            every_operand = self._operands.all(ins)
            own = [at for at in every_operand if not self._operands.is_carried(path.callers, at)]
            if own:
                path.passed.append((ins, True))
                return own[-1]
        if self.places.is_users(ins) or not ins.operands:
            path.end, is_its = named(ins, index, path.element)
            # An instruction that XLA made of that and a product has no line of the product.
            is_its = is_its and not self.places.is_turned(ins)
            path.origin.is_exact = path.origin.is_exact and is_its
            return None
        at, path.part = part_operand(self._operands, ins, path.part), None
        if at is not None or (path.origin.kind == "self" and is_of_several(ins)):
            return at
        if path.library is None and self.places.is_librarys(ins):
            path.library = replace(path.origin, instruction=ins), path.is_slice
        path.origin.is_exact = False
        path.guess_count += 1
        if path.guess_count > MAX_GUESSES:
            return None
        path.is_changed = path.is_changed or ins.opcode not in ("select", "concatenate")
        return _unless_larger(path, ins, self._operands.largest(path.callers, ins))


_STEPS: dict[str, Callable[[Walker, _Path, Instruction, Index], At | None]] = {
    "while": Walker._loop,
    "fusion": Walker._fusion,
    "parameter": Walker._parameter,
    "get-tuple-element": Walker._element,
    "tuple": Walker._tuple,
    "conditional": Walker._branch,
    "dynamic-update-slice": Walker._update,
    **dict.fromkeys(MOVES, Walker._move),
}
"""The steps by opcode; for all other opcodes `_other`."""


def _unless_larger(path: _Path, ins: Instruction, at: At | None) -> At | None:
    """Return the operand, or end the walk: a result with more elements is other data.

    Not in a loop, whose elements are its own whatever its body does for them: there the way on
    is a guess.
    """
    result = shape_of(ins.shape).element_count
    count = None if at is None else at_shape(at).element_count
    if result is None or count is None or result <= count:
        return at
    if path.rounds or path.origin.written_by is not None:
        path.origin.is_exact = False
        return at
    path.origin, path.library, path.is_slice = Origin(is_exact=False), None, False
    path.passed.clear()
    return None


def _body_of(ins: Instruction) -> bytes | None:
    """Return the computation whose root gives the results of a fusion or a call."""
    role = _CALLING.get(ins.opcode.removesuffix("-start"))
    computation = ins.called.get(role) if role is not None else None
    return computation[0] if computation else None


def _is_name(ins: Instruction) -> bool:
    """Return whether checkpoint_name left it, on the line with the name, perhaps a helper's."""
    return (ins.op_name or b"").endswith(_NAMED)


def _times(whole: Shape, part: Shape) -> int | None:
    """Return how many slices a stack holds; None unless they fill it."""
    if not whole.element_count or not part.element_count:
        return None
    count, rest = divmod(whole.element_count, part.element_count)
    return None if rest else count
