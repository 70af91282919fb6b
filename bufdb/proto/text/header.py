"""What stands above the computations of an HLO text (format section 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bufdb.proto.graph import Module
from bufdb.proto.shapes import Index, text_of
from bufdb.proto.text.words import escaped


def header(m: Module) -> Iterator[str]:
    """What stands above the computations: the line of the module, the tables of stack frames."""
    parts = [f"HloModule {escaped(m.proto.name)}", "is_scheduled=true"]
    aliases = [
        f"{_spaced(e.output_shape_index)}: ({e.parameter_number}, "
        f"{_spaced(e.parameter_shape_index)}, {'must-alias' if e.kind == 2 else 'may-alias'})"
        for e in m.proto.input_output_alias.entries
    ]
    if aliases:
        parts.append(f"input_output_alias={{ {', '.join(aliases)} }}")
    if m.proto.HasField("host_program_shape"):
        program = m.proto.host_program_shape
        inputs = ", ".join(
            f"/*index={n}*/{text_of(s)}" if n and n % 5 == 0 else text_of(s)
            for n, s in enumerate(program.parameters)
        )
        parts.append(f"entry_computation_layout={{({inputs})->{text_of(program.result)}}}")
    devices = m.proto.device_assignment
    if devices.replica_count > 1:
        parts.append(f"replica_count={devices.replica_count}")
    if devices.computation_count > 1:
        parts.append(f"num_partitions={devices.computation_count}")
    yield ", ".join(parts)
    yield ""
    yield from _frames(m.proto.stack_frame_index)
    yield ""


def _spaced(index: Index) -> str:
    return f"{{{', '.join(map(str, index))}}}"


def _frames(index: Any) -> Iterator[str]:
    """The tables of section 7.1, in which parents are printed one too high."""
    if not index.stack_frames:
        return
    for title, names in (("FileNames", index.file_names), ("FunctionNames", index.function_names)):
        yield title
        for number, name in enumerate(names, 1):
            yield f'{number} "{escaped(name)}"'
        yield ""
    yield "FileLocations"
    for number, place in enumerate(index.file_locations, 1):
        yield (
            f"{number} {{file_name_id={place.file_name_id} "
            f"function_name_id={place.function_name_id} line={place.line} "
            f"end_line={place.end_line} column={place.column} end_column={place.end_column}}}"
        )
    yield ""
    yield "StackFrames"
    for number, frame in enumerate(index.stack_frames, 1):
        parent = frame.parent_frame_id + 1
        yield f"{number} {{file_location_id={frame.file_location_id} parent_frame_id={parent}}}"
    yield ""
