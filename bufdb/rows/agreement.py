"""Whether an HLO text is of the same compilation as the buffer assignment next to it."""

from __future__ import annotations

import re

import numpy as np

from bufdb.columnar.scan import Columns, Text
from bufdb.read.shape import elements_of
from bufdb.rows.context import Context, Observer

_NO_SHAPE = re.compile(r"\{[^{}]*\}|/\*.*?\*/| ")
"""Layouts, comments and blanks."""


class EntryShapes(Observer):
    """Shapes of parameters and of the result, in HLO texts and in allocations."""

    def __init__(self, context: Context) -> None:
        """Take what the first lines of the HLO texts have."""
        self.context = context
        self._entries: dict[int, tuple[tuple[str, ...], str]] = {}
        """Shapes of the parameters and of the result, by module."""
        for module, header in context.source.headers.items():
            entry = _entry(header.entry_computation_layout or "")
            if entry is not None:
                self._entries[module] = entry
        self._odd: dict[int, str] = {}
        """What first differs, by module."""

    def see_allocations(self, rows: Columns) -> None:
        """Compare the shapes that allocations are printed with; those of parts are left out."""
        if not self._entries:
            return
        modules = rows["module"]
        has_entry = np.isin(modules, list(self._entries))
        shape, index, result = (
            _texts(rows[name], has_entry)
            for name in ("parameter_shape", "parameter_shape_index", "output_shape")
        )
        numbers = rows["parameter_number"].filled(-1)[has_entry].tolist()
        for row, module in enumerate(modules[has_entry].tolist()):
            if module in self._odd:
                continue
            parameters, whole = self._entries[module]
            if shape[row] is not None and index[row] == "{}" and numbers[row] >= 0:
                number = numbers[row]
                in_header = parameters[number] if number < len(parameters) else "absent"
                self._compare(module, f"parameter {number}", in_header, shape[row])
            if result[row] is not None:
                self._compare(module, "the result", whole, result[row])

    def _compare(self, module: int, what: str, in_header: str, in_allocations: str | None) -> None:
        if in_allocations is not None and _bare(in_header) != _bare(in_allocations):
            self._odd[module] = f"{what} is {in_header[:80]} in it, {in_allocations[:80]}"

    def others(self) -> list[int]:
        """Report, and return, the modules whose HLO text is of another compilation."""
        source = self.context.source
        for module, what in self._odd.items():
            where = source.path_of(module, "buffer_assignment") or "the buffer assignment"
            message = f"{what} in {where.rpartition('/')[2]}; it is skipped"
            path = source.path_of(module, "hlo")
            self.context.account.find(module, "error", "other_hlo_text", message, path)
        return list(self._odd)


def _texts(column: Text, rows: np.ndarray) -> list[str | None]:
    texts = column.take(np.flatnonzero(rows)).tolist()
    return [None if text is None else text.decode(errors="replace") for text in texts]


def _entry(layout: str) -> tuple[tuple[str, ...], str] | None:
    """Split `(f32[8]{0}, s32[])->f32[8]{0}`; None if it is not of this form."""
    parameters, arrow, result = layout.partition(")->")
    elements = elements_of(parameters + ")") if arrow and layout.startswith("(") else None
    return None if elements is None else (elements, result)


def _bare(shape: str) -> str:
    """Return a shape without its layout, as allocations have it."""
    while (less := _NO_SHAPE.sub("", shape)) != shape:
        shape = less
    return shape
