"""Whether an HLO text is of the same compilation as the buffer assignment next to it."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Text
from bufdb.read.shape import elements_of
from bufdb.rows.context import Context, Observer

_NO_SHAPE = re.compile(r"\{[^{}]*\}|/\*.*?\*/| ")
"""Layouts, comments and blanks."""
_ELEMENT_NUMBER = re.compile(r"/\*index=[0-9]+\*/")
"""Comment that numbers the elements of a long tuple, which not every version of XLA prints."""


class _Entry(NamedTuple):
    """What an allocation is printed with of the entry computation."""

    number: int
    """Of the parameter; -1 without one."""
    is_whole: bool
    """Whether it is a whole parameter, not a part of a tuple."""
    shape: str | None
    """Of the parameter."""
    result: str | None
    """Shape of the result."""


class EntryShapes(Observer):
    """Shapes of parameters and of the result, in HLO texts and in allocations."""

    def __init__(self, context: Context) -> None:
        """Begin without allocations."""
        self.context = context
        self._printed: dict[int, list[_Entry]] = {}
        """In the order of the allocations, by module."""

    def see_allocations(self, rows: Columns) -> None:
        """Take the shapes that allocations are printed with, but those of parts of parameters."""
        index, result = rows["parameter_shape_index"], rows["output_shape"]
        wanted = (index.stop - index.start == len("{}")) | _there(result)
        wanted[[*index.patches, *result.patches]] = True
        texts = (
            _texts(rows[name], wanted)
            for name in ("parameter_shape_index", "parameter_shape", "output_shape")
        )
        numbers = rows["parameter_number"].filled(-1)[wanted].tolist()
        modules = rows["module"][wanted].tolist()
        for module, number, index, *shapes in zip(modules, numbers, *texts, strict=True):
            entry = _Entry(number, index == "{}", *shapes)
            self._printed.setdefault(module, []).append(entry)

    def others(self) -> list[int]:
        """Report, and return, the modules whose HLO text is of another compilation."""
        source, others = self.context.source, []
        for module, header in source.headers.items():
            what = self._difference(module, header.entry_computation_layout or "")
            if what is None:
                continue
            where = source.path_of(module, "buffer_assignment") or "the buffer assignment"
            message = f"{what} in {where.rpartition('/')[2]}; it is skipped"
            path = source.path_of(module, "hlo")
            self.context.account.find(module, "error", "other_hlo_text", message, path)
            others.append(module)
        return others

    def _difference(self, module: int, layout: str) -> str | None:
        """Return the first shape that is another one in the first line of the HLO text."""
        split = _split(layout)
        if split is None:
            return None
        parameters, whole = split
        for entry in self._printed.get(module, []):
            pairs = []
            if entry.is_whole and entry.number >= 0:
                number = entry.number
                in_header = parameters[number] if number < len(parameters) else "absent"
                pairs.append((f"parameter {number}", in_header, entry.shape))
            for what, in_header, shape in (*pairs, ("the result", whole, entry.result)):
                if shape is not None and _bare(in_header) != _bare(shape):
                    return f"{what} is {in_header[:80]} in it, {shape[:80]}"
        return None

    def add_signatures(self) -> None:
        """Add the shapes of each module to its facts, as module_signatures.entry_signature."""
        for module, entries in self._printed.items():
            results = [entry.result for entry in entries if entry.result is not None]
            whole = [entry for entry in entries if entry.is_whole]
            shapes = [
                entry.shape
                # A number that is unknown comes last.
                for entry in sorted(whole, key=lambda one: (one.number < 0, one.number))
                if entry.shape is not None
            ]
            if results and len(shapes) == len(whole):
                text = f"({', '.join(shapes)}) -> {min(results)}"
                self.context.facts[module].entry_signature = _ELEMENT_NUMBER.sub("", text)


def _there(column: Text) -> Bools:
    """Return which rows of a column are a slice of its block."""
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def _texts(column: Text, rows: np.ndarray) -> list[str | None]:
    texts = column.take(np.flatnonzero(rows)).tolist()
    return [None if text is None else text.decode(errors="replace") for text in texts]


def _split(layout: str) -> tuple[tuple[str, ...], str] | None:
    """Split `(f32[8]{0}, s32[])->f32[8]{0}`; None if it is not of this form."""
    parameters, arrow, result = layout.partition(")->")
    elements = elements_of(parameters + ")") if arrow and layout.startswith("(") else None
    return None if elements is None else (elements, result)


def _bare(shape: str) -> str:
    """Return a shape without its layout, as allocations have it."""
    while (less := _NO_SHAPE.sub("", shape)) != shape:
        shape = less
    return shape
