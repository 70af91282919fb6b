"""What XLA makes one collective of several, and which operand a part of its result comes from.

Where the result is a tuple it has an operand for each element, and the metadata of the first. On
GPUs the arrays are put into a flat one first, and each takes its part of the result again. What the
user asked for (lax.all_gather) makes data; what XLA adds sums up or moves what its operand is.
"""

from __future__ import annotations

import re

from bufdb.assemble.loops.operands import Operands
from bufdb.assemble.loops.places import Places
from bufdb.read.hlo_graph import At, HloGraph, Index, Instruction, at_shape

_COLLECTIVES = frozenset(
    ("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute")
)
_COLLECTIVES |= {"ragged-all-to-all", "reduce-scatter"}
_REDUCING = frozenset(("all-reduce-start", "reduce-scatter-start"))
"""What is asynchronous and makes data; the rest moves them, unless the user asked for it."""
_ASKED_FOR: tuple[bytes, ...] = (b"/all_gather", b"/all_gather_invariant", b"/all_to_all")
_ASKED_FOR += (b"/ppermute", b"/psum", b"/psum_invariant", b"/reduce_scatter")
"""How the op_name of a collective ends that the user wrote; what XLA adds bears its user's."""
_FLAT = re.compile(rb"slice=\{\[(\d{1,18}):(\d{1,18})\]\}")
_STAYS = frozenset(("all-reduce", "all-reduce-start", "bitcast", "copy", "copy-done", "copy-start"))

Part = tuple[int, int, int]
"""Begin and end of what is taken of a flat array, and how many elements that has."""


def is_collective(ins: Instruction) -> bool:
    """Whether it computes between devices, or starts to."""
    return ins.opcode.removesuffix("-start") in _COLLECTIVES


def offloaded(graph: HloGraph, ins: Instruction) -> Instruction | None:
    """The call that a collective has become that runs elsewhere, as on SparseCore.

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
    """Whether it bears the op_name of a collective that the user wrote."""
    return (ins.op_name or b"").endswith(_ASKED_FOR)


def only_moves(ins: Instruction) -> bool:
    """Whether it is asynchronous and makes no data."""
    if ins.opcode in _REDUCING or (ins.opcode.endswith("-start") and is_asked_for(ins)):
        return False
    return ins.opcode.endswith(("-start", "-done", "-update"))


def operand(
    graph: HloGraph, ins: Instruction, index: Index, places: Places, part: Part | None
) -> At | None:
    """The operand that an element of a collective comes from, unless its line says more."""
    call = offloaded(graph, ins) or ins
    is_one = call is not ins or is_collective(ins)
    if not is_one or (part is None and is_asked_for(ins) and places.is_users(ins)):
        return None
    if len(call.operands) > 1:
        return graph.operand(ins, index[-1], ()) if index else None
    return graph.operand(ins, 0, ()) if part is not None or not places.is_users(ins) else None


def is_of_several(ins: Instruction) -> bool:
    """Whether XLA puts arrays together that no line puts together: of which each has its own."""
    return ins.opcode == "concatenate" and ins.op_name is None


def named(ins: Instruction, index: Index, element: Instruction | None) -> tuple[Instruction, bool]:
    """Whose line an element of what an instruction makes bears, and whether that is known.

    A collective of several bears that of the first; from jaxlib 0.11 on the elements, each with its
    own, are not in the text.
    """
    if not index or not is_collective(ins) or len(ins.operands) == 1:
        return ins, True
    return (ins, index[-1] == 0) if element is None else (element, True)


def part_behind(graph: HloGraph, ins: Instruction, part: Part | None) -> Part | None:
    """Which part of its operand a part of what an instruction makes is, where that is flat."""
    if ins.opcode != "slice":
        return part if ins.opcode in _STAYS else None
    found, whole = _FLAT.search(ins.attributes), graph.operand_shape(ins, 0)
    if found is None or whole is None or part is not None:
        return None
    return int(found[1]), int(found[2]), whole.element_count or 0


def part_operand(operands: Operands, ins: Instruction, part: Part | None) -> At | None:
    """The operand of a concatenation in which a part of its result lies."""
    if part is None or ins.opcode != "concatenate":
        return None
    found = operands.all(ins)
    sizes = [at_shape(at).element_count or 0 for at in found]
    begin, end, whole = part
    if sum(sizes) != whole:
        return None
    for at, size in zip(found, sizes, strict=True):
        if begin < size:
            return at if end <= size else None
        begin, end = begin - size, end - size
    return None
