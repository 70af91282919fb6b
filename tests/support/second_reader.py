"""A second, deliberately simple reader of XLA's buffer-assignment dumps.

It exists to disagree with the fast reader: written from the description of the format and the
comments of the schema alone, one line after the other, without arrays. ``read_module`` takes the
files of one module and returns rows with the column names of ``schema/tables/``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import second_calls
import second_savings

Row = dict[str, Any]

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
INDEX = r"\{[0-9,]*\}"
SHORT = rf"<(?P<id>\d+) (?P<name>{NAME})(?P<index>{INDEX})?(?P<phi> \(phi\))?( @(?P<color>\d+))?>"
LARGEST = 2**63 - 1
DIMENSION = r"(?:(?:<=)?\d+|\?)"

ELEMENT_BYTES = {
    **dict.fromkeys(["pred", "s1", "s2", "s4", "s8", "u1", "u2", "u4", "u8"], 1),
    **dict.fromkeys(["f4e2m1fn", "f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz"], 1),
    **dict.fromkeys(["f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"], 1),
    **dict.fromkeys(["s16", "u16", "f16", "bf16"], 2),
    **dict.fromkeys(["s32", "u32", "f32"], 4),
    **dict.fromkeys(["s64", "u64", "f64", "c64", "opaque"], 8),
    "c128": 16,
    "token": 0,
}

SOURCE_COLUMNS = (
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
)
PLACE = ("stack_frame_id", "source_file", "source_line", "source_column")


def read_module(files: dict[str, bytes]) -> dict[str, list[Row]]:
    """Read the files of one module, keyed by file kind, into rows per table."""
    text = {kind: content.decode("utf-8", "replace") for kind, content in files.items()}
    main = text.get("buffer_assignment", "")
    allocation_text, used_text, live_text = cut(main)
    used_text = text.get("values", used_text)
    live_text = text.get("live_range", live_text)

    allocations, values, positions, uses = read_allocations(allocation_text)
    total, has_list, described = None, bool(positions), {}
    if used_text is not None:
        total = first_integer(r"^Total bytes used: (-?\d+)", used_text.partition("Used values:")[0])
        has_list = "Used values:" in used_text
        more_positions, more_uses, described = read_used_values(used_text, values)
        positions += more_positions
        uses += more_uses
    live = read_live_ranges(live_text)
    hlo = read_hlo(text.get("hlo"))
    before = read_before(text.get("before_optimizations"))

    by_definition = {}
    for value in values:
        key = (value["instruction_name"], value["shape_index"])
        by_definition.setdefault(key, value["value_id"])
    for row in live["live_ranges"]:
        row["value_id"] = by_definition.get((row["instruction_name"], row["shape_index"]))
    tell_contributors(live, by_definition)

    length = live["module"]["schedule_length"]
    peaks, steps = occupancy(allocations, values, live["live_ranges"], length)
    module = {
        "reported_total_bytes": total,
        **live["module"],
        **hlo["module"],
        **({} if hlo["module"]["hlo_module_name"] else before["module"]),
        "has_used_values": has_list,
        "has_live_ranges": length is not None,
        "has_hlo_text": "hlo" in files,
        "entry_hash": entry_hash(allocations),
        "format_era": era(files, allocation_text, used_text, bool(described), length is not None),
    }
    held = peak_values(allocations, values, live["live_ranges"], peaks)
    calls = {}
    if text.get("before_optimizations") and hlo["stack_frames"] and fits(hlo, before):
        early_frames = read_hlo(text["before_optimizations"])["stack_frames"]
        same = {tuple(row[name] for name in PLACE) for row in early_frames}
        known = {
            row["stack_frame_id"]
            for row in hlo["stack_frames"]
            if tuple(row[name] for name in PLACE) in same
        }
        calls = second_calls.call_ops(text["before_optimizations"], text["hlo"], known)
    defined = instructions(described, live["sequence"], values, hlo, calls)
    tables = {
        "modules": [module],
        "allocations": allocations,
        "values": [without(value, "short") for value in values],
        "shapes": [read_shape(shape) for shape in dict.fromkeys(v["shape"] for v in values)],
        "positions": positions,
        "uses": uses,
        "instructions": defined,
        "live_ranges": live["live_ranges"],
        "peak_contributors": live["peak_contributors"],
        "peak_stack_nodes": live["peak_stack_nodes"],
        "stack_frames": hlo["stack_frames"],
        "input_output_aliases": hlo["input_output_aliases"],
        "entry_parameters": before["entry_parameters"],
        "compiler_options": read_options(text.get("debug_options", "")),
        "reported_sums": read_report(text.get("memory_report", "")),
        "memory_sums": memory_sums(allocations),
        "occupied_peaks": peaks,
        "occupancy_steps": steps,
        "peak_values": held,
    }
    tables["value_users"] = value_users(tables)
    tables["peaks"] = second_savings.peaks(steps, peaks)
    tables["peak_savings"] = second_savings.peak_savings(tables)
    return tables


def fits(hlo: dict[str, Any], before: dict[str, Any]) -> bool:
    """Return whether both texts are of one compilation."""
    names = ("hlo_module_name", "partition_count", "replica_count")
    return all(hlo["module"][name] == before["module"][name] for name in names)


def read_report(text: str) -> list[Row]:
    """The totals of a memory-usage report, of all or by memory space."""
    rows = []
    lines = text.split("\n")
    for above, line in zip(["", *lines], lines, strict=False):
        if line.startswith("Total bytes used: "):
            rows.append({"color": None, "total_bytes": int(line.split()[3])})
        elif line.startswith("Total bytes: "):
            color = int(above.rpartition("(color=")[2].rstrip(")"))
            rows.append({"color": color, "total_bytes": int(line.split()[2])})
    return rows


def without(row: Row, column: str) -> Row:
    """The row without one column."""
    return {name: content for name, content in row.items() if name != column}


def first_integer(pattern: str, text: str) -> int | None:
    """The integer that the first match of a pattern with one group holds."""
    match = re.search(pattern, text, re.M)
    return int(match[1]) if match else None


def cut(text: str) -> tuple[str, str | None, str | None]:
    """Cut a -buffer-assignment.txt into allocations, used values and live ranges."""
    start = re.search(r"^(Total bytes used: |Used values:$)", text, re.M)
    used_start = start.start() if start else len(text)
    live_start = len(text)
    for match in re.finditer(r"^HloLiveRange \(max \d+\):$", text, re.M):
        live_start = match.start()
    if live_start == len(text):
        missing = re.search(r"^HloLiveRange not available \([^()\n]*\)\s*\Z", text, re.M)
        live_start = missing.start() if missing else live_start
    used_start = min(used_start, live_start)
    used = text[used_start:live_start] if start else None
    live = text[live_start:] if live_start < len(text) else None
    return text[:used_start], used, live


def era(
    files: dict[str, bytes], allocations: str, used: str | None, described: bool, live: bool
) -> str:
    """Return the generation of the files' format."""
    if "values" in files or "live_range" in files:
        return "C"
    if live or described:
        return "B"
    if re.search(r"^allocation \d+: 0x", allocations, re.M):
        return "A"
    if re.search(r"^  .*(, positions:|\) \[\d+,\d+\]: .*)$", allocations, re.M):
        return "A"
    return "C" if used is None else "B"


# Allocations


def read_allocations(text: str) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """Allocations and values; in 2019's blocks of several lines also positions and uses."""
    allocations: list[Row] = []
    values: list[Row] = []
    positions: list[Row] = []
    uses: list[Row] = []
    block: Row = {}
    for line in text.split("\n"):
        if line.startswith("allocation "):
            allocations.append(read_head(line))
        elif match := re.fullmatch(rf" value: ({SHORT}) \(size=(\d+),offset=(\d+)\): (.*)", line):
            size, offset, shape = match.groups()[-3:]
            values.append(new_value(match, allocations, int(offset), int(size), shape))
        elif match := re.fullmatch(  # 2019-07: the first line of a block
            rf"  (?P<id>\d+) (?P<phi>PHI )?(?P<name>{NAME})(?P<index>{INDEX})?"
            r"( @(?P<color>\d+))?, positions:",
            line,
        ):
            block = new_value(match, allocations, 0, 0, "")
        elif block and (match := re.fullmatch(r" \[(\d+),(\d+)\]: (.*)", line)):
            block["offset_bytes"], block["size_bytes"] = int(match[1]), int(match[2])
            block["shape"], block["logical_bytes"] = match[3], logical_bytes(match[3])
            values.append(block)
            block = {}
        elif block and (use := read_use(line)):
            uses.append({**keyed(uses, "use_ordinal", block["value_id"]), **use})
        elif block and (position := read_position(line)):
            key = keyed(positions, "position_ordinal", block["value_id"])
            positions.append({**key, **position, "is_defining": key["position_ordinal"] == 0})
        elif match := re.fullmatch(  # 2019-04
            rf"  (?P<name>{NAME})\[(?P<list>[0-9,]*)\]\(#(?P<id>\d+) @(?P<color>\d+)\)"
            r" \[(\d+),(\d+)\]: (.*)",
            line,
        ):
            offset, size, shape = match.groups()[-3:]
            values.append(new_value(match, allocations, int(offset), int(size), shape))
    return allocations, values, positions, uses


def keyed(rows: list[Row], ordinal: str, value_id: int) -> Row:
    """The key of the next row of a value, in a table of rows grouped by value."""
    if rows and rows[-1]["value_id"] == value_id:
        return {"value_id": value_id, ordinal: rows[-1][ordinal] + 1}
    return {"value_id": value_id, ordinal: 0}


def new_value(
    match: re.Match[str], allocations: list[Row], offset: int, size: int, shape: str
) -> Row:
    """A row of values from a match with groups id, name, index or list, phi, color."""
    groups = match.groupdict()
    index = "{" + groups["list"] + "}" if "list" in groups else groups["index"]
    return {
        "value_id": int(groups["id"]),
        "allocation_index": allocations[-1]["allocation_index"] if allocations else None,
        "offset_bytes": offset,
        "size_bytes": size,
        "color": int(groups["color"] or 0),
        "instruction_name": groups["name"],
        "shape_index": index or "{}",
        "is_phi": bool(groups.get("phi")),
        "shape": shape,
        "logical_bytes": logical_bytes(shape),
        "short": match[1],
    }


def read_head(line: str) -> Row:
    """One line "allocation N: …:"."""
    number, _, rest = line.removeprefix("allocation ").removesuffix(":").partition(": ")
    row: Row = {
        "allocation_index": int(number),
        "size_bytes": None,
        "color": 0,
        "page": None,
        "kind": None,
        "is_constant": False,
        "is_thread_local": False,
        "is_maybe_live_out": False,
        "is_preallocated_temp": False,
        "parameter_number": None,
        "parameter_shape": None,
        "parameter_shape_index": None,
        "output_shape": None,
        "other_attributes": None,
    }
    others = []
    for piece in head_pieces(rest):
        if match := re.fullmatch(r"size (\d+)", piece):
            row["size_bytes"] = int(match[1])
        elif match := re.fullmatch(r"color (\d+)", piece):
            row["color"] = int(match[1])
        elif match := re.fullmatch(r"page (-?\d+)", piece):
            row["page"] = int(match[1])
        elif match := re.fullmatch(r"parameter (\d+)", piece):
            row["parameter_number"] = int(match[1])
        elif match := re.fullmatch(rf"parameter (\d+) at ShapeIndex ({INDEX})", piece):
            row["parameter_number"], row["parameter_shape_index"] = int(match[1]), match[2]
        elif match := re.fullmatch(rf"shape \|(.*)\| at ShapeIndex ({INDEX})", piece):
            row["parameter_shape"], row["parameter_shape_index"] = match[1], match[2]
        elif match := re.fullmatch(r"output shape is \|(.*)\|", piece):
            row["output_shape"] = match[1]
        elif piece in ("constant", "thread-local", "maybe-live-out", "preallocated-temp"):
            row["is_" + piece.replace("-", "_")] = True
        elif not re.fullmatch(r"0x[0-9a-f]+", piece):
            others.append(piece)
    row["other_attributes"] = ", ".join(others) if others else None
    row["kind"] = kind(row)
    return row


def head_pieces(text: str) -> Iterator[str]:
    """Split at ", ", but not between bars or inside brackets."""
    piece, depth, barred = "", 0, False
    for character in text:
        if character == "|":
            barred = not barred
        elif not barred and character in "([{":
            depth += 1
        elif not barred and character in ")]}":
            depth -= 1
        piece += character
        if piece.endswith(", ") and depth == 0 and not barred:
            yield piece[:-2]
            piece = ""
    yield piece


def kind(row: Row) -> str:
    """The role of an allocation, from its flags."""
    if row["parameter_number"] is not None:
        return "donated_parameter" if row["is_maybe_live_out"] else "parameter"
    if row["is_thread_local"]:
        return "thread_local"
    if row["is_constant"]:
        return "constant"
    return "output" if row["is_maybe_live_out"] else "temp"


# Used values


def read_used_values(text: str, values: list[Row]) -> tuple[list[Row], list[Row], dict[str, Row]]:
    """Read positions, uses and the described instructions, by name."""
    shorts = {value["value_id"]: value["short"] for value in values}
    start = text.find("Used values:\n")
    headers = []
    last = -1
    for match in re.finditer(SHORT + "\n positions:\n", text[start:] if start >= 0 else ""):
        number = int(match["id"])
        if number > last and shorts.get(number) == match[0].partition("\n")[0]:
            headers.append((number, start + match.start(), start + match.end()))
            last = number
    positions: list[Row] = []
    uses: list[Row] = []
    described: dict[str, Row] = {}
    for place, (number, _, begin) in enumerate(headers):
        end = headers[place + 1][1] if place + 1 < len(headers) else len(text)
        lists, _, instruction = ("\n" + text[begin:end]).partition("\n from instruction:")
        for line in lists.split("\n"):
            if use := read_use(line):
                uses.append({**keyed(uses, "use_ordinal", number), **use})
            elif position := read_position(line):
                key = keyed(positions, "position_ordinal", number)
                positions.append({**key, **position, "is_defining": key["position_ordinal"] == 0})
        instruction = instruction.lstrip(" ").rstrip("\n")
        name = instruction_name(instruction)
        if name and name not in described:
            described[name] = read_instruction(instruction)
    return positions, uses, described


def read_position(line: str) -> Row | None:
    """One line "  NAME {…}" below "positions:"."""
    match = re.fullmatch(rf"  ({NAME})(?: ({INDEX}))?", line)
    return match and {"instruction_name": match[1], "shape_index": match[2] or "{}"}


def read_use(line: str) -> Row | None:
    """One line "  NAME, operand N {…}" below "uses:"."""
    match = re.fullmatch(rf"  ({NAME}), operand (\d+)(?: ({INDEX}))?", line)
    return match and {
        "instruction_name": match[1],
        "operand_number": int(match[2]),
        "operand_index": match[3] or "{}",
    }


# Instructions

QUOTED = r'"(?:[^"\\]|\\.)*"'


def instruction_name(text: str) -> str | None:
    """The name in "%NAME = …"."""
    match = re.match(rf"%?({NAME}) = ", text)
    return match[1] if match else None


def closing(text: str, start: int) -> int:
    """The place after the bracket that closes the one at start; quoted strings are skipped."""
    depth = 0
    for match in re.compile(rf"{QUOTED}|[\[\](){{}}]", re.S).finditer(text, start):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text)


def read_instruction(text: str) -> Row:
    """Read the text "%NAME = SHAPE OPCODE(…), …" of an instruction."""
    row: Row = {"text": text, "opcode": None, "fusion_kind": None, "shape": None, "metadata": {}}
    start = text.index(" = ") + 3
    end = start
    while end < len(text) and text[end] != " ":
        end = closing(text, end) if text[end] in "([{" else end + 1
    match = re.compile(r" ([A-Za-z][A-Za-z0-9_-]*)\(").match(text, end)
    if not match:
        return row
    row["shape"], row["opcode"] = text[start:end], match[1]
    if match[1] == "fusion":
        kind = re.compile(r"\), kind=(\w+)(?=[, }]|\Z)", re.ASCII)
        place = text.find("), kind=", match.end())
        kind_match = kind.match(text, place) if place >= 0 else None
        row["fusion_kind"] = (
            kind_match[1] if kind_match and '"' not in text[match.end() : place] else None
        )
    row["metadata"] = read_metadata(metadata_text(text, match.end() - 1))
    return row


def metadata_text(text: str, operands: int) -> str:
    """Return the contents of the braces of the instruction's own metadata={…}."""
    at = closing(text, operands)
    pattern = re.compile(rf"{QUOTED}|[\[({{]|, metadata=\{{|, backend_config=", re.S)
    while match := pattern.search(text, at):
        if match[0] == ", backend_config=":
            break
        if match[0] == ", metadata={":
            return text[match.end() : closing(text, match.end() - 1) - 1]
        at = closing(text, match.start()) if match[0] in "([{" else match.end()
    return ""


def read_metadata(text: str) -> Row:
    """The fields of metadata={…}, as they are needed."""
    fields: Row = {}
    at = 0
    while match := re.compile(r" *(\w+)=").match(text, at):
        at = match.end()
        if quoted := re.compile(QUOTED, re.S).match(text, at):
            fields[match[1]], at = unescape(quoted[0][1:-1]), quoted.end()
        else:
            end = closing(text, at) if text[at : at + 1] == "{" else at
            while end < len(text) and text[end] != " ":
                end += 1
            fields[match[1]], at = text[at:end], end
    return fields


def unescape(text: str) -> str:
    """Undo C escapes."""

    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if len(code) == 3:
            return bytes([int(code, 8) & 255])
        return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(code, code)

    return re.sub(rb"\\([0-7]{3}|.)", one, text.encode(), flags=re.S).decode("utf-8", "replace")


def instructions(
    described: dict[str, Row],
    sequence: list[str],
    values: list[Row],
    hlo: dict[str, Any],
    calls: dict[str, tuple[int | None, str | None]],
) -> list[Row]:
    """Return one row per name that is described, is scheduled or defines a value."""
    names = dict.fromkeys([*described, *sequence, *(value["instruction_name"] for value in values)])
    from_hlo = {
        name: read_instruction(hlo["instructions"][name])
        for name in names
        if name not in described and name in hlo["instructions"]
    }
    described = {**from_hlo, **described}
    order: dict[str, int] = {}
    for place, name in enumerate(sequence):
        order.setdefault(name, place)
    frames = {frame["stack_frame_id"]: frame for frame in hlo["stack_frames"]}
    rows = []
    for name in names:
        description = described.get(name, {})
        metadata = dict(description.get("metadata", {}))
        frame_id = int(metadata.get("stack_frame_id", 0)) or None
        if name in calls and frame_id is None:
            frame_id, metadata["op_name"] = calls[name]
        rows.append(
            {
                "instruction_name": name,
                "program_order": order.get(name),
                "opcode": description.get("opcode"),
                "fusion_kind": description.get("fusion_kind"),
                "shape": description.get("shape"),
                "op_type": metadata.get("op_type"),
                "op_name": metadata.get("op_name"),
                **source(metadata, frames.get(frame_id, {})),
                "stack_frame_id": frame_id,
                "text": description.get("text"),
            }
        )
    return rows


def source(metadata: Row, frame: Row) -> Row:
    """Return the source of an instruction: from its metadata, else from the frame."""
    if "source_file" not in metadata:
        return {column: frame.get(column) for column in SOURCE_COLUMNS}
    numbers = {
        column: int(metadata[column]) if column in metadata else None
        for column in SOURCE_COLUMNS[1:]
    }
    return {"source_file": metadata["source_file"], **numbers}


# Shapes


def logical_bytes(shape: str) -> int | None:
    """Size of the bare shape."""
    return read_shape(shape)["logical_bytes"]


def read_shape(shape: str) -> Row:
    """A row of shapes."""
    row: Row = {
        "shape": shape,
        "dtype": None,
        "dimensions": None,
        "dimensions_text": None,
        "layout": None,
        "memory_space": None,
        "element_count": None,
        "logical_bytes": None,
        "is_tuple": False,
    }
    if shape.startswith("b(") and shape.endswith(")"):
        return {**read_shape(shape[2:-1]), "shape": shape}
    if shape.startswith("(") and closing(shape, 0) == len(shape) and shape.endswith(")"):
        count = len(list(tuple_elements(shape)))
        row.update(dtype="tuple", element_count=count, logical_bytes=8 * count, is_tuple=True)
        return row
    match = re.fullmatch(rf"([a-z][a-z0-9]*)\[({DIMENSION}(?:,{DIMENSION})*)?\](\{{.*\}})?", shape)
    if not match or match[1] not in ELEMENT_BYTES:
        return row
    dtype, dimensions_text, layout = match[1], match[2] or "", match[3]
    if layout and closing(layout, 0) != len(layout):
        return row
    dimensions = [
        None if text == "?" else int(text.removeprefix("<="))
        for text in dimensions_text.split(",")
        if text
    ]
    bits = 8 * ELEMENT_BYTES[dtype]
    memory_space = 0
    for attribute, argument in layout_attributes(layout or "{}"):
        if attribute == "E":
            bits = int(argument)
        elif attribute == "S":
            memory_space = int(argument)
    count = product(dimensions)
    size = None if count is None else -(-count * bits // 8)
    row.update(
        dtype=dtype,
        dimensions=None if dtype in ("token", "opaque") else dimensions,
        dimensions_text=dimensions_text,
        layout=layout,
        memory_space=memory_space,
        element_count=fitting(count),
        logical_bytes=fitting(size),
    )
    return row


def tuple_elements(shape: str) -> Iterator[str]:
    """The shapes of the elements of a tuple shape."""
    at = 1
    while at < len(shape) - 1:
        if comment := re.compile(r"/\*index=\d+\*/").match(shape, at):
            at = comment.end()
        start = at
        while at < len(shape) - 1 and shape[at] != ",":
            at = closing(shape, at) if shape[at] in "([{" else at + 1
        yield shape[start:at]
        at += 2


def layout_attributes(layout: str) -> Iterator[tuple[str, str]]:
    """Name and argument of T(…), S(…), E(…), … after the colon of a layout."""
    at = layout.find(":") + 1
    while at and at < len(layout) - 1:
        start = layout.find("(", at)
        if start < 0:
            return
        end = closing(layout, start)
        yield layout[at:start], layout[start + 1 : end - 1]
        at = end


def product(numbers: Iterable[int | None]) -> int | None:
    """The product, None if a factor is None."""
    result = 1
    for number in numbers:
        if number is None:
            return None
        result *= number
    return result


def fitting(number: int | None) -> int | None:
    """The number if a signed 64-bit integer holds it."""
    return number if number is not None and number <= LARGEST else None


# Live ranges


def read_live_ranges(text: str | None) -> dict[str, Any]:
    """Everything from "HloLiveRange (max N):" on."""
    module: Row = {
        "schedule_length": None,
        "reported_peak_time": None,
        "reported_peak_status": None,
        "reported_peak_tree_bytes": None,
    }
    result: dict[str, Any] = {
        "module": module,
        "sequence": [],
        "live_ranges": [],
        "peak_contributors": [],
        "peak_stack_nodes": [],
    }
    if text is None:
        return result
    if text.startswith("HloLiveRange not available"):
        module["reported_peak_status"] = "unavailable"
        return result
    section = ""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if match := re.fullmatch(r"HloLiveRange \(max (\d+)\):", line):
            module["schedule_length"] = int(match[1])
        elif re.fullmatch(r"  (InstructionSequence|BufferLiveRange):", line):
            section = line.strip()
        elif match := re.fullmatch(r"  Live ranges at (-?\d+) \(peak\):", line):
            section = "peak"
            module["reported_peak_time"] = int(match[1])
            module["reported_peak_status"] = "printed"
        elif line.startswith("  Peak memory could not be determined"):
            module["reported_peak_status"] = "undetermined"
        elif match := re.fullmatch(
            r"  Stack trace breakdown for peak usage: (-?[\d ]+) bytes", line
        ):
            module["reported_peak_tree_bytes"] = spaced(match[1])
            result["peak_stack_nodes"] = read_tree(lines[number + 1 :])
            break
        elif section == "InstructionSequence:":
            if match := re.fullmatch(rf"    \d+:({NAME})", line):
                result["sequence"].append(match[1])
        elif section == "BufferLiveRange:":
            if match := re.fullmatch(rf"    ({NAME})({INDEX}):(-?\d+)-(-?\d+)", line):
                result["live_ranges"].append(
                    {
                        "value_id": None,
                        "instruction_name": match[1],
                        "shape_index": match[2],
                        "start_time": int(match[3]),
                        "end_time": int(match[4]),
                    }
                )
        elif section == "peak" and (
            match := re.fullmatch(
                rf"    ({NAME})({INDEX})?: (-?\d+) bytes(?: \(cumulative: (-?\d+) bytes\))?", line
            )
        ):
            result["peak_contributors"].append(
                {
                    "contributor_ordinal": len(result["peak_contributors"]),
                    "value_id": None,
                    "instruction_name": match[1],
                    "shape_index": match[2],
                    "logical_bytes": int(match[3]),
                    "cumulative_bytes": int(match[4]) if match[4] else None,
                }
            )
    return result


def spaced(text: str) -> int:
    """A number with its digits in groups of three."""
    return int(text.replace(" ", ""))


TAIL = re.compile(
    r" \([^() ]+%, total: (-?[\d ]+) bytes, current: (-?[\d ]+) bytes,"
    r" remaining: (-?[\d ]+) bytes\)\Z"
)


def read_tree(lines: list[str]) -> list[Row]:
    """The nodes of the stack trace breakdown; a label may hold line breaks."""
    nodes: list[Row] = []
    path: list[int] = []
    pending: str | None = None
    for line in lines:
        pending = line if pending is None else pending + "\n" + line
        tail = TAIL.search(pending)
        if not tail:
            continue
        branch = re.match("  ((?:    |│   )+)(?:├── |└── )", pending)
        if nodes and branch:
            depth, label = len(branch[1]) // 4, pending[branch.end() : tail.start()]
        else:
            depth, label = 0, pending[4 : tail.start()]
        del path[depth:]
        nodes.append(
            {
                "node_ordinal": len(nodes),
                "parent_ordinal": path[-1] if path else None,
                "depth": depth,
                "label": label,
                "total_bytes": spaced(tail[1]),
                "current_bytes": spaced(tail[2]),
                "remaining_bytes": spaced(tail[3]),
            }
        )
        path.append(nodes[-1]["node_ordinal"])
        pending = None
    return nodes


def tell_contributors(live: dict[str, Any], by_definition: dict[tuple[str, str], int]) -> None:
    """Set value_id of the lines of the peak listing."""
    instant = live["module"]["reported_peak_time"]
    at_peak = (
        sorted(
            (row["value_id"], row["instruction_name"])
            for row in live["live_ranges"]
            if row["value_id"] is not None and row["start_time"] <= instant <= row["end_time"]
        )
        if instant is not None
        else []
    )
    for row in live["peak_contributors"]:
        if row["shape_index"] is not None:
            row["value_id"] = by_definition.get((row["instruction_name"], row["shape_index"]))
        elif row["contributor_ordinal"] < len(at_peak):
            number, name = at_peak[row["contributor_ordinal"]]
            row["value_id"] = number if name == row["instruction_name"] else None


# Memory


def memory_sums(allocations: list[Row]) -> list[Row]:
    """Rows of memory_sums, from what the lines say of each allocation."""
    rows = []
    for color in sorted({row["color"] for row in allocations}):
        sums = dict.fromkeys(
            ("argument", "output", "alias", "temp", "constant", "thread_local", "total", "fixed"), 0
        )
        for row in allocations:
            if row["color"] != color:
                continue
            kind, size = row["kind"], row["size_bytes"]
            sums["total"] += size
            if kind not in ("temp", "thread_local"):
                sums["fixed"] += size
            if kind == "donated_parameter":
                counted = ["argument", "output", "alias"]
            else:
                counted = ["argument" if kind == "parameter" else kind]
            for name in counted:
                sums[name] += size
        rows.append({"color": color, **{f"{name}_bytes": size for name, size in sums.items()}})
    return rows


def occupancy(
    allocations: list[Row], values: list[Row], ranges: list[Row], length: int | None
) -> tuple[list[Row], list[Row]]:
    """Rows of occupied_peaks and occupancy_steps."""
    if length is None:
        return [], []
    by_id = {value["value_id"]: value for value in values}
    by_index = {row["allocation_index"]: row for row in allocations}
    for index, allocation in by_index.items():
        ends = [
            v["offset_bytes"] + v["size_bytes"] for v in values if v["allocation_index"] == index
        ]
        is_scratch = allocation["color"] > 0 and not ends  # of a kernel, which is no value
        is_filled = max(ends, default=0) >= allocation["size_bytes"] or is_scratch
        if allocation["kind"] == "temp" and not is_filled:
            return [], []  # values of a temp allocation are missing: the peak is unknown
    peaks: list[Row] = []
    steps: list[Row] = []
    for color in sorted({row["color"] for row in allocations}):
        ranged = [
            (row["start_time"], row["end_time"], by_id[row["value_id"]])
            for row in ranges
            if row["value_id"] is not None
            and by_index[by_id[row["value_id"]]["allocation_index"]]["color"] == color
            and row["start_time"] <= row["end_time"]
        ]
        in_temp = [one for one in ranged if by_index[one[2]["allocation_index"]]["kind"] == "temp"]
        occupied, peak_time, peak_bytes = 0, 0, 0
        for instant, live in live_sets(in_temp, length):
            now = union_bytes(live)
            if now != occupied:
                steps.append({"color": color, "start_time": instant, "occupied_temp_bytes": now})
            occupied = now
            if now > peak_bytes:
                peak_time, peak_bytes = instant, now
        naive = 0
        for _, live in live_sets(ranged, length):
            naive = max(naive, sum(value["size_bytes"] for value in live))
        peaks.append(
            {
                "color": color,
                "peak_time": peak_time,
                "occupied_temp_bytes": peak_bytes,
                "naive_live_bytes": naive,
            }
        )
    return peaks, steps


def peak_values(
    allocations: list[Row], values: list[Row], ranges: list[Row], peaks: list[Row]
) -> list[Row]:
    """Rows of peak_values: values take their bytes in turn, and what is taken is gone."""
    times = {peak["color"]: peak["peak_time"] for peak in peaks}
    rows: list[Row] = []
    for allocation in allocations:
        if allocation["color"] not in times or allocation["kind"] == "thread_local":
            continue
        index, time = allocation["allocation_index"], times[allocation["color"]]
        placed = [value for value in values if value["allocation_index"] == index]
        if allocation["kind"] == "temp":
            live = {
                row["value_id"] for row in ranges if row["start_time"] <= time <= row["end_time"]
            }
            placed = [value for value in placed if value["value_id"] in live]
            placed.sort(key=lambda v: (v["offset_bytes"], -v["size_bytes"], v["value_id"]))
            unions = [union_bytes(placed[:count]) for count in range(len(placed) + 1)]
            held = [
                (value["value_id"], unions[place + 1] - unions[place])
                for place, value in enumerate(placed)
            ]
        else:
            whole = [value for value in placed if value["offset_bytes"] == 0]
            whole.sort(key=lambda v: (-v["size_bytes"], v["value_id"]))
            held = [(whole[0]["value_id"] if whole else None, allocation["size_bytes"])]
        rows += [
            {
                "color": allocation["color"],
                "allocation_index": index,
                "allocation_kind": allocation["kind"],
                "value_id": value_id,
                "held_bytes": size,
            }
            for value_id, size in held
            if size > 0
        ]
    return rows


def value_users(tables: dict[str, list[Row]]) -> list[Row]:
    """Rows of value_users: from use to use until an instruction has an op_name."""
    values, uses, defined = tables["values"], tables["uses"], tables["instructions"]
    kinds = {row["allocation_index"]: row["kind"] for row in tables["allocations"]}
    lived = {
        row["value_id"] for row in tables["live_ranges"] if row["start_time"] <= row["end_time"]
    }
    held = {row["value_id"] for row in tables["peak_values"] if row["allocation_kind"] == "output"}
    if tables["occupied_peaks"]:
        held |= {
            row["value_id"]
            for row in values
            if kinds.get(row["allocation_index"]) == "temp"
            and row["size_bytes"] > 0
            and row["value_id"] in lived
        }
    by_name = {row["instruction_name"]: row for row in defined}
    by_id = {value["value_id"]: value for value in values}
    firsts: dict[str, int] = {}
    for value in sorted(values, key=lambda value: value["value_id"]):
        firsts.setdefault(value["instruction_name"], value["value_id"])
    users: dict[int | str, list[Row]] = {}
    for use in uses:
        user = by_name.get(use["instruction_name"])
        value = by_id.get(use["value_id"])
        if (
            value
            and user
            and user["program_order"] is not None
            and user["instruction_name"] in firsts
        ):
            users.setdefault(use["value_id"], []).append(user)
            users.setdefault(value["instruction_name"], []).append(user)
    rows = []
    for number in held:
        value = by_id.get(number)
        if value is None or by_name[value["instruction_name"]]["op_name"] is not None:
            continue
        at: int | str = number
        for step in range(1, 9):
            if at not in users:
                break
            user = min(users[at], key=lambda user: (user["op_name"] is None, user["program_order"]))
            at = user["instruction_name"]
            if user["op_name"] is not None:
                rows.append(
                    {
                        "value_id": number,
                        "user_value_id": firsts[at],
                        "step_count": step,
                    }
                )
                break
    return rows


def live_sets(ranged: list[tuple[int, int, Row]], length: int) -> Iterator[tuple[int, list[Row]]]:
    """At each instant at which something begins or ends: the values live then."""
    begins: dict[int, list[Row]] = {}
    ends: dict[int, list[Row]] = {}
    for start, end, value in ranged:
        begins.setdefault(start, []).append(value)
        ends.setdefault(end + 1, []).append(value)
    live: dict[int, Row] = {}
    for instant in sorted({*begins, *ends}):
        for value in ends.get(instant, []):
            del live[value["value_id"]]
        for value in begins.get(instant, []):
            live[value["value_id"]] = value
        if instant <= length:
            yield instant, list(live.values())


def union_bytes(live: list[Row]) -> int:
    """Bytes that the values hold together; a byte that several hold counts once."""
    slices = sorted(
        (value["allocation_index"], value["offset_bytes"], value["size_bytes"]) for value in live
    )
    total, current, reached = 0, None, 0
    for allocation, offset, size in slices:
        if allocation != current:
            current, reached = allocation, 0
        total += max(0, offset + size - max(offset, reached))
        reached = max(reached, offset + size)
    return total


def entry_hash(allocations: list[Row]) -> int | None:
    """63 bits of the MD5 of parameters and result as text; None if a shape is not printed."""
    parameters = [row for row in allocations if row["parameter_shape_index"] == "{}"]
    parameters.sort(key=lambda row: row["parameter_number"])
    shapes = [row["parameter_shape"] for row in parameters]
    results = {row["output_shape"] for row in allocations} - {None}
    if not results or None in shapes:
        return None
    text = re.sub(r"/\*index=\d+\*/", "", f"({', '.join(shapes)}) -> {min(results)}")
    low = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[16:]
    return sum(int(low[2 * place : 2 * place + 2], 16) << 8 * place for place in range(8)) // 2


# HLO text and flags


def read_hlo(text: str | None) -> dict[str, Any]:
    """Read the head line, stack-frame tables and instruction lines of the optimized HLO text."""
    module: Row = {
        "hlo_module_name": None,
        "entry_computation_layout": None,
        "partition_count": None,
        "replica_count": None,
    }
    result: dict[str, Any] = {
        "module": module,
        "stack_frames": [],
        "input_output_aliases": [],
        "instructions": {},
    }
    if text is None:
        return result
    lines = text.split("\n")
    head = next((line for line in lines if line.startswith("HloModule ")), None)
    if head is not None:
        module["hlo_module_name"] = re.split(r"[, ]", head.removeprefix("HloModule "))[0]
        module["entry_computation_layout"] = head_attribute(head, "entry_computation_layout")
        module["partition_count"] = first_integer(r", num_partitions=(\d+)", head) or 1
        module["replica_count"] = first_integer(r", replica_count=(\d+)", head) or 1
        result["input_output_aliases"] = read_aliases(head_attribute(head, "input_output_alias"))
    result["stack_frames"] = read_frames(lines)
    name_calls(result["stack_frames"], lines)
    for line in lines:
        if match := re.match(rf" +(?:ROOT )?(%?({NAME}) = .*)", line):
            result["instructions"].setdefault(match[2], match[1])
    return result


def read_before(text: str | None) -> dict[str, Any]:
    """Read the head line and entry parameters of the HLO text before optimizations."""
    if text is None:
        return {"module": {}, "entry_parameters": []}
    entry = re.search(r"^ENTRY .*?^\}$", text, re.M | re.S)
    line = r'^  (?:ROOT )?(%?\S+ = ([^\s"]+|\([^"]*\)) parameter\((\d+)\).*)$'
    parameters = re.findall(line, entry[0] if entry else "", re.M)
    module = read_hlo(text)["module"]
    del module["entry_computation_layout"]  # of whole shapes
    rows = [
        {"parameter_number": int(number), "shape": shape, "text": text}
        for text, shape, number in parameters
    ]
    return {"module": module, "entry_parameters": rows}


def head_attribute(head: str, name: str) -> str | None:
    """Return the contents of the braces of ", NAME={…}"."""
    start = head.find(f", {name}={{")
    if start < 0:
        return None
    start += len(f", {name}=")
    return head[start + 1 : closing(head, start) - 1]


def read_aliases(text: str | None) -> list[Row]:
    """The entries "{0}: (1, {}, may-alias)" of input_output_alias."""
    return [
        {
            "output_index": "{" + match[1].replace(" ", "") + "}",
            "parameter_number": int(match[2]),
            "parameter_index": "{" + match[3].replace(" ", "") + "}",
            "alias_kind": match[4] or "may-alias",
        }
        for match in re.finditer(
            r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}(?:, ([a-z-]+))?\)", text or ""
        )
    ]


def read_frames(lines: list[str]) -> list[Row]:
    """The four tables of the stack frames, joined."""
    tables: dict[str, dict[int, Any]] = {}
    table: dict[int, Any] | None = None
    frame_lines: dict[str, set[str]] = {}
    title = ""
    for line in lines:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            title, table = line, tables.setdefault(line, {})
        elif table is not None and line:
            frame_lines.setdefault(f"{title} {line.split()[0]}", set()).add(line)
        if table is None or not line:
            table = None
        elif match := re.fullmatch(r'(\d+) "(.*)"', line):
            table[int(match[1])] = unescape(match[2])
        elif match := re.fullmatch(r"(\d+) \{(.*)\}", line):
            table[int(match[1])] = {
                name: int(number) for name, number in re.findall(r"(\w+)=(-?\d+)", match[2])
            }
    for twice in (key for key, lines_of_it in frame_lines.items() if len(lines_of_it) > 1):
        tables[twice.split()[0]].pop(int(twice.split()[1]), None)
    locations = tables.get("FileLocations", {})
    rows = []
    for number, frame in tables.get("StackFrames", {}).items():
        location = locations.get(frame.get("file_location_id"), {})
        rows.append(
            {
                "stack_frame_id": number,
                "parent_frame_id": max(frame.get("parent_frame_id", 0) - 1, 0) or None,
                "own_frame_id": None,
                "depth": 0,
                "source_file": tables.get("FileNames", {}).get(location.get("file_name_id")),
                "function_name": tables.get("FunctionNames", {}).get(
                    location.get("function_name_id")
                ),
                "source_line": location.get("line"),
                "source_end_line": location.get("end_line"),
                "source_column": location.get("column"),
                "source_end_column": location.get("end_column"),
            }
        )
    by_id = {row["stack_frame_id"]: row for row in rows}
    on_cycle = [row for row in rows if row in _callers(by_id, row)]
    for row in rows:
        if row in on_cycle or row["parent_frame_id"] not in by_id:
            row["parent_frame_id"] = None
    paths: dict[int, list[int]] = {}
    for row in rows:
        chain = [row]
        while (above := by_id.get(chain[-1]["parent_frame_id"])) and above not in chain:
            chain.append(above)
        row["depth"] = len(chain) - 1
        paths[row["stack_frame_id"]] = [one["stack_frame_id"] for one in reversed(chain)]
        row["own_frame_id"] = None
        for one in chain:
            if one["source_file"] is None:
                break
            if is_own(one["source_file"]):
                row["own_frame_id"] = one["stack_frame_id"]
                break
    return with_tree_ordinals(rows, paths)


def _callers(by_id: dict[int, Row], row: Row) -> list[Row]:
    """The frames above one, each once."""
    callers: list[Row] = []
    while (above := by_id.get((callers or [row])[-1]["parent_frame_id"])) and above not in callers:
        callers.append(above)
    return callers


def name_calls(frames: list[Row], lines: list[str]) -> None:
    """The line of the call for a helper of JAX's that was traced elsewhere in the same function."""
    helpers: dict[int, str] = {}
    others: set[int] = set()
    for line in lines:
        for borne in re.finditer(r"stack_frame_id=(\d+)", line):
            scope = re.search(r'[/(]jit\(([^()/";]+)\)+/[^/";]*"[^}]* $', line[: borne.start()])
            if scope:
                helpers[int(borne[1])] = scope[1]
            else:
                others.add(int(borne[1]))
    by_id = {row["stack_frame_id"]: row for row in frames}
    for number in helpers.keys() - others:
        chain = [by_id[number]] if number in by_id else []
        lines_of: dict[tuple[str | None, str | None], int | None] = {}
        while chain:
            at = chain[-1]
            function = at["source_file"], at["function_name"]
            if lines_of.setdefault(function, at["source_line"]) != at["source_line"]:
                break
            above = by_id.get(at["parent_frame_id"])
            if above is None or above in chain:
                chain = []
            else:
                chain.append(above)
        above = by_id.get(chain[-1]["parent_frame_id"]) if chain else None
        for _ in range(100):
            if above is not None:
                if all(above[cell] == chain[-1][cell] for cell in ("function_name", "source_line")):
                    chain.append(above)
                above = by_id.get(above["parent_frame_id"])
        own = [row for row in chain if is_own(row["source_file"])]
        borne_above = [row for row in own if row["stack_frame_id"] in others]
        calls = [row for row in borne_above if row["source_column"]]
        names = [(row["function_name"] or "").split(".")[-1] for row in own]
        if calls and helpers[number] not in names:
            by_id[number]["own_frame_id"] = calls[0]["stack_frame_id"]


def with_tree_ordinals(rows: list[Row], paths: dict[int, list[int]]) -> list[Row]:
    """The frames in the order of their paths from the outermost, which is that of a tree."""
    in_order = sorted(paths.values())
    for row in rows:
        path = paths[row["stack_frame_id"]]
        below = [one for one in in_order if one[: len(path)] == path]
        row["tree_ordinal"] = in_order.index(path)
        row["last_tree_ordinal"] = row["tree_ordinal"] + len(below) - 1
    return rows


def is_own(path: str | None) -> bool:
    """Return whether a source file is known and not library code."""
    library = r"(^|/)(site-packages|dist-packages)/|/lib/python[0-9.]+/|^<frozen"
    return path is not None and not re.search(library, path)


def read_options(text: str) -> list[Row]:
    """One row per line "name: value"."""
    rows: list[Row] = []
    for line in text.split("\n"):
        name, colon, value = line.partition(": ")
        if colon:
            rows.append({"option_ordinal": len(rows), "option_name": name, "option_value": value})
    return rows
