"""How many slices are in a value whose data a loop stacks, and how large they are there.

The walk to a stack leads through conversions, tables of tuples and computations of XLA's own, such
as what puts the gradients of several stacks into one buffer for one all-reduce. So the slices are
counted by the shape of the value: one that is not the stack has none. Where a loop inserts f32 into
what is kept as bf16, the slices are those of the bf16.
"""

from __future__ import annotations

from dataclasses import replace

from bufdb.assemble.loops.walk import Origin
from bufdb.read.hlo_graph import Index, Instruction
from bufdb.read.shape import elements_of, shape_of


class Slices:
    """The slices in the values of one module."""

    def __init__(self) -> None:
        self._elements: dict[tuple[int, Index], tuple[str, ...]] = {}
        """By tuple, which is split once: the shapes of its elements."""
        self._counted: dict[tuple[int, str | None], Origin] = {}

    def counted(self, origin: Origin, ins: Instruction, index: Index) -> Origin:
        """The origin of what an instruction defines at an index, with the slices in that value."""
        if origin.slice_count is None:
            return origin
        text = self._shape(ins, index) if origin.kind == "stacked" else None
        key = id(origin), text
        if key not in self._counted:
            count, size = _slices(origin, text)
            self._counted[key] = replace(origin, slice_count=count, slice_bytes=size)
        return self._counted[key]

    def _shape(self, ins: Instruction, index: Index) -> str | None:
        """The text of the shape at an index."""
        if not index:
            return ins.shape
        key = ins.position, index[:-1]
        if key not in self._elements:
            whole = self._shape(ins, index[:-1]) or ""
            self._elements[key] = (elements_of(whole) if whole.startswith("(") else None) or ()
        elements = self._elements[key]
        return elements[index[-1]] if index[-1] < len(elements) else None


def _slices(origin: Origin, text: str | None) -> tuple[int | None, int | None]:
    """How many slices fill a value of this shape, and the bytes of one in it."""
    value, slice_shape, count = shape_of(text or ""), origin.slice_shape, origin.slice_count
    if not count or slice_shape is None or not slice_shape.element_count:
        return None, None
    if value.is_tuple or value.element_count != count * slice_shape.element_count:
        return None, None
    size, rest = divmod(value.logical_bytes or 0, count)
    return (count, size) if size and not rest else (None, None)
