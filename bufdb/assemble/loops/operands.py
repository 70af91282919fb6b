"""Operands of instructions, and what stands behind moves of data."""

from __future__ import annotations

from bufdb.read.hlo_graph import At, Caller, HloGraph, Index, Instruction, at_shape

MOVES = (
    *("add-dependency", "bitcast", "bitcast-convert", "broadcast", "convert", "copy", "copy-done"),
    *("copy-start", "domain", "dynamic-slice", "opt-barrier", "pad", "reduce-precision"),
    *("reshape", "slice", "transpose"),
)
"""They move data and make none; what they bear as metadata is often that of their user."""
MAX_MOVES = 20
"""So far a constant, or the carry of a loop, is looked for."""

Callers = dict[int, Caller]
"""By computation the instruction through which a walk came in."""


class Operands:
    """The operands in one module's text."""

    def __init__(self, graph: HloGraph) -> None:
        self.graph = graph
        self._largest: dict[int, At | None] = {}

    def all(self, ins: Instruction) -> list[At]:
        """Those that are there, each as a whole."""
        found = (self.graph.operand(ins, number, ()) for number in range(len(ins.operands)))
        return [at for at in found if at is not None]

    def caller(self, callers: Callers, computation: int) -> Caller | None:
        """Who calls a computation: where the walk has come in, that way."""
        return callers.get(computation) or self.graph.caller(computation)

    def largest(self, callers: Callers, ins: Instruction) -> At | None:
        """The largest; of those that are not made of a constant, where there are others."""
        if ins.position not in self._largest:
            found = self.all(ins)
            changing = [at for at in found if not self._is_constant(callers, at)]
            self._largest[ins.position] = max(changing or found, key=_size, default=None)
        return self._largest[ins.position]

    def is_carried(self, callers: Callers, at: At) -> bool:
        """Whether moves lead to what the body of a loop is given."""
        end = self._behind_moves(callers, at)
        if end is None or end.opcode != "parameter":
            return False
        found = self.caller(callers, end.computation)
        return found is not None and found[1] == "body"

    def branches(self, callers: Callers, ins: Instruction, index: Index) -> list[int]:
        """The branches of a conditional that make data; all, where each gives a constant.

        Of what one branch leaves for the backward pass the others give zeros.
        """
        called = ins.called.get("branch", [])
        roots = [(number, self.graph.root(name)) for number, name in enumerate(called)]
        there = [(number, root) for number, root in roots if root is not None]
        making = [number for number, root in there if not self._fills(callers, (root, index))]
        return making or [number for number, _ in there]

    def _fills(self, callers: Callers, at: At | None) -> bool:
        """Whether an element of a result is a constant, broadcast in a fusion perhaps."""
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
                end = self._behind_moves(callers, at)
                if end is ins or end is None:
                    return ins.opcode in ("constant", "iota")
                at = end, ()
        return False

    def _is_constant(self, callers: Callers, at: At) -> bool:
        end = self._behind_moves(callers, at)
        return end is not None and end.opcode in ("constant", "iota")

    def _behind_moves(self, callers: Callers, at: At | None) -> Instruction | None:
        """What stands behind moves and the parameters of fusions."""
        for _ in range(MAX_MOVES):
            if at is None:
                return None
            ins = at[0]
            found = self.caller(callers, ins.computation) if ins.opcode == "parameter" else None
            if found is not None and found[1] == "calls" and ins.number is not None:
                at = self.graph.operand(found[0], ins.number, ())
            elif ins.opcode in MOVES or ins.opcode == "get-tuple-element":
                at = self.graph.operand(ins, 0, ())
            else:
                return ins
        return None


def _size(at: At) -> int:
    shape = at_shape(at)
    return 0 if shape.is_tuple else shape.logical_bytes or 0
