"""Origins as columns of `value_origins`, and the names of lines and ops that they give.

Many values have one origin: of each origin all is said once, however many have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bufdb.assemble.loops.places import Places
from bufdb.assemble.loops.walk import Origin
from bufdb.assemble.op_names import is_backward
from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Columns, Numbers
from bufdb.link.op_paths import op_path, strip_op_path

Names = tuple[str | None, str | None, str | None]
"""The line of the user's, else that of a library, and the op that values are attributed to; None
where their own stand."""


def columns_of(origins: Sequence[Origin], places: Places) -> Columns:
    """The columns of the table that do not depend on the value, a row for each origin."""
    ends = [origin.instruction for origin in origins]
    loops = [origin.loop for origin in origins]
    shapes = [origin.slice_shape for origin in origins]
    found = [(None, None, None) if end is None else places.innermost(end) for end in ends]
    distinct = {loop.position: loop for loop in loops if loop is not None}
    trips = {position: loop.trip_count for position, loop in distinct.items()}
    return {
        "origin_kind": _texts([origin.kind for origin in origins]),
        "opcode": _texts([None if end is None else end.opcode for end in ends]),
        "op_name": _texts([None if end is None else end.op_name for end in ends]),
        "source_file": _texts([file for file, _, _ in found]),
        "source_line": _numbers([line for _, line, _ in found]),
        "stack_frame_id": _numbers([frame for _, _, frame in found]),
        "instruction_name": _texts([None if end is None else end.name for end in ends]),
        "loop_instruction_name": _texts([None if loop is None else loop.name for loop in loops]),
        "written_by": _texts(
            [None if origin.written_by is None else origin.written_by.name for origin in origins]
        ),
        "slice_shape": _texts([None if shape is None else shape.text for shape in shapes]),
        "slice_bytes": _numbers([origin.slice_bytes for origin in origins]),
        "slice_count": _numbers([origin.slice_count for origin in origins]),
        "trip_count": _numbers([None if loop is None else trips[loop.position] for loop in loops]),
        "step_count": np.array([origin.step_count for origin in origins], np.int64),
        "is_layer_input": np.array([origin.is_layer_input for origin in origins], np.bool_),
        "is_exact": np.array([origin.is_exact for origin in origins], np.bool_),
    }


def names_of(origins: Sequence[Origin], places: Places) -> list[Names]:
    """Names of lines and ops as value_origin_details in `schema/` has them."""
    known: dict[bytes, tuple[str, str]] = {}
    return [_names(origin, places, known) for origin in origins]


def are_backward(origins: Sequence[Origin]) -> list[bool | None]:
    """Whether the backward pass makes their data; None of what has no op_name."""
    ends = [origin.instruction for origin in origins]
    names = [None if end is None else end.op_name for end in ends]
    return [None if name is None else is_backward(name) for name in names]


def _names(origin: Origin, places: Places, known: dict[bytes, tuple[str, str]]) -> Names:
    end = origin.instruction
    if end is None:
        return None, None, None
    relation = "saved " if origin.kind in ("stacked", "slice") else ""
    if end.opcode == "parameter":
        relation = {"stacked": "saved ", "slice": "slice of "}.get(origin.kind, "copy of ")
    place, op_name = places.own(end) if places.has_own else None, end.op_name
    op = name = None
    if op_name is not None:
        if op_name not in known:
            text = op_name.decode(errors="replace")
            known[op_name] = text, strip_op_path(op_path(text))
        name, op = known[op_name]
    line = name if end.opcode == "parameter" else None
    if place is not None:
        line = f"{place[0]}:{place[1]}"
    library = places.library_source(end) if line is None else None
    line, library, op = (None if name is None else relation + name for name in (line, library, op))
    return line, library, op


def _texts(cells: Sequence[str | bytes | None]) -> Labels:
    labels = {text: number for number, text in enumerate(dict.fromkeys(cells))}
    return Labels(np.array([labels[text] for text in cells], np.int64), list(labels))


def _numbers(cells: list[int | None]) -> Numbers:
    """None is NULL; what is read of a line has 64 bits at most."""
    valid = np.array([cell is not None for cell in cells], np.bool_)
    return Numbers(np.array([cell or 0 for cell in cells], np.int64), valid)
