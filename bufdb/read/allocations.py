"""Section "allocations": BufferAllocation and the values assigned to it (format section 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bufdb.columnar.scan import (
    Columns,
    Cursor,
    Numbers,
    Text,
    Words,
    runs_of,
    starts_with,
    take,
    word,
)
from bufdb.columnar.section import KNOWN, Section
from bufdb.errors import quote

KINDS = ["parameter", "donated_parameter", "output", "constant", "thread_local", "temp"]


@dataclass
class Allocations:
    """Columns of `allocations` and `values`; `module` holds each row's module ordinal."""

    allocations: Columns = field(default_factory=dict)
    values: Columns = field(default_factory=dict)
    last_index: int = -1
    """The allocation that values at the start of the next block belong to; -1 for none."""


def read(section: Section, last_index: int = -1) -> Allocations:
    """Read the lines of allocation sections; irregular ones become findings.

    Args:
        section: the lines.
        last_index: the allocation that lines before the first head belong to, when the first piece
            continues a section whose earlier lines were read with another block; -1 for none.
    """
    block, heads = section.block, section.block.heads()
    is_head = starts_with(heads, b"allocati")
    is_value = starts_with(heads, b" value: ")
    is_reused = starts_with(heads, b"  value:")
    _titles(section, heads)

    heads_at = np.flatnonzero(is_head)
    c = block.cursor(heads_at)
    allocations = _allocation(c)
    for row in list(c.problems):
        patch = _irregular_allocation(block.line(int(heads_at[row])))
        if patch is not None:
            del c.problems[row]
            _patch(allocations, row, patch)
            if (others := patch["other_attributes"]) is not None:
                text = quote(others.decode(errors="replace"))
                message = f"attributes of an allocation that are not understood: {text}"
                section.finding(int(heads_at[row]), "data_loss", "unknown_attribute", message)
    good = section.good(heads_at, c)
    indexes = allocations["allocation_index"].copy()
    if good is not None:
        indexes[~good] = -1
    allocations["module"] = section.module_of[heads_at]
    add_kind(allocations)

    values_at = np.flatnonzero(is_value)
    c = block.cursor(values_at)
    values = _value(c)
    owner = runs_of(heads_at, len(block))[values_at]
    values["module"] = section.module_of[values_at]
    values["allocation_index"] = np.append(indexes, last_index)[owner]
    # Without a head above it, a value can only belong to the block before: the first piece's.
    owner_piece = np.append(section.piece_of[heads_at], 0)[owner]
    is_mine = (values["allocation_index"] >= 0) & (section.piece_of[values_at] == owner_piece)
    c.require(is_mine, "a readable allocation above it")
    values = take(values, section.good(values_at, c))

    reused_at = np.flatnonzero(is_reused)
    c = block.cursor(reused_at)
    _reused(c)
    section.good(reused_at, c)
    section.settle("an allocation or a value line")
    last = int(indexes[-1]) if len(indexes) else last_index
    return Allocations(take(allocations, good), values, last)


_FIRST = {word(b"allocation"), word(b" value: ")}
"""How a line that is read begins, other than the title."""


_MOST_BLANK = 4096
"""Limit on the empty lines that a paste may have above the title."""


def _after_blank_lines(section: Section, line: int) -> int:
    """Return the title's line if only empty lines separate it from `line`; otherwise `line`."""
    block = section.block
    for at in range(line + 1, min(line + _MOST_BLANK, len(block))):
        if section.piece_of[at] != section.piece_of[line]:
            break
        if block.starts[at] < block.ends[at]:
            return at if block.line(at) == b"BufferAssignment:" else line
    return line


def _titles(section: Section, heads: Words) -> None:
    """Mark the title of the section, at its beginning, and those of reused buffers."""
    block = section.block
    begins = [piece.begins for piece in section.pieces]
    first = section.piece_lines[begins]
    for row in np.flatnonzero(block.starts[first] == block.ends[first]).tolist():
        first[row] = _after_blank_lines(section, int(first[row]))
    is_title = starts_with(heads[first], b"BufferAs")
    lines = [line for line in first[is_title].tolist() if block.line(line) == b"BufferAssignment:"]
    section.mark(np.array(lines, np.int64), KNOWN)
    for line in sorted({*first.tolist()}.difference(lines)):
        if not block.line(line) or heads[line] in _FIRST:
            message = "the section does not begin with 'BufferAssignment:'; lines may be missing"
            section.finding(line, "data_loss", "missing_title", message)
    at = np.flatnonzero(starts_with(heads, b" reused "))
    c = block.cursor(at)
    c.expect(b" reused by buffers of a different color:")
    c.finish()
    section.good(at, c)


def short(c: Cursor) -> Columns:
    """Read `<326 arg_tuple.3{0} (phi) @0>`, written by HloValue::ToShortString."""
    c.expect(b"<")
    columns: Columns = {"value_id": c.integer()}
    c.expect(b" ")
    columns["instruction_name"] = c.until(b"{", b" ", b">")
    columns["shape_index"] = c.braced()
    columns["is_phi"] = c.optional(b" (phi)")
    columns["color"] = c.integer_where(c.optional(b" @"), signed=True).filled(0)
    c.expect(b">")
    return columns


def _allocation(c: Cursor) -> Columns:
    """Read `allocation 4: size 8192, color 1, …:`, written by BufferAllocation::ToShortString."""
    c.expect(b"allocation ")
    columns: Columns = {"allocation_index": c.integer()}
    c.expect(b": ")
    pointer = c.enclosed(b"0x", b",")
    assert pointer.valid is not None
    columns["has_pointer"] = pointer.valid
    c.expect(b" ", where=pointer.valid)
    c.expect(b"size ")
    columns["size_bytes"] = c.integer(signed=True)
    columns["color"] = c.optional_integer(b", color ").filled(0)
    columns["page"] = c.integer_where(c.optional(b", page "), signed=True)
    columns["parameter_number"] = c.optional_integer(b", parameter ")
    columns["parameter_shape"] = c.enclosed(b", shape |", b"|")
    index = c.enclosed(b" at ShapeIndex {", b"}")
    assert index.valid is not None
    columns["parameter_shape_index"] = Text(
        c.block, index.start - index.valid, index.stop + index.valid, index.valid
    )
    columns["output_shape"] = c.enclosed(b", output shape is |", b"|")
    columns["is_constant"] = c.optional(b", constant")
    columns["is_thread_local"] = c.optional(b", thread-local")
    columns["is_maybe_live_out"] = c.optional(b", maybe-live-out")
    columns["is_preallocated_temp"] = c.optional(b", preallocated-temp")
    nowhere = np.zeros(len(c), np.int64)
    columns["other_attributes"] = Text(c.block, nowhere, nowhere, nowhere.astype(np.bool_))
    c.expect(b":")
    c.finish()
    return columns


def _value(c: Cursor) -> Columns:
    """Read ` value: <12 fusion{0} @0> (size=16,offset=64): f32[4]{0}`."""
    c.expect(b" value: ")
    columns = short(c)
    c.expect(b" (size=")
    columns["size_bytes"] = c.integer(signed=True)
    c.expect(b",offset=")
    columns["offset_bytes"] = c.integer(signed=True)
    c.expect(b"): ")
    columns["shape"] = c.rest()
    return columns


def _reused(c: Cursor) -> None:
    """Read `  value: <12 fusion{0} @2> (color=2)`, a repeated value line: its form is checked."""
    c.expect(b"  value: ")
    short(c)
    c.expect(b" (color=")
    c.integer(signed=True)
    c.expect(b")")
    c.finish()


_HEAD = re.compile(rb"allocation (\d{1,19}): (0x[0-9a-f]+, )?size (-?\d{1,19})((?:, .*)?):")
_ATTRIBUTE = re.compile(
    rb", (?:color (?P<color>\d{1,19})|page (?P<page>-?\d{1,19})"
    rb"|parameter (?P<parameter_number>\d{1,19})"
    rb"(?: at ShapeIndex (?P<index>\{[\d,]*\}))?"
    rb"|shape \|(?P<parameter_shape>[^|]*)\| at ShapeIndex (?P<parameter_shape_index>\{[\d,]*\})"
    rb"|output shape is \|(?P<output_shape>[^|]*)\||(?P<is_constant>constant)"
    rb"|(?P<is_thread_local>thread-local)|(?P<is_maybe_live_out>maybe-live-out)"
    rb"|(?P<is_preallocated_temp>preallocated-temp)|(?P<other>[^,|]++(?:\|[^|]*+\|)?[^,|]*+))(?=,|$)"
)


def _irregular_allocation(line: bytes) -> dict[str, Any] | None:
    """Read a head line with unknown or reordered attributes one by one; None if it is malformed."""
    head = _HEAD.fullmatch(line)
    if head is None:
        return None
    patch: dict[str, Any] = {"allocation_index": int(head[1]), "size_bytes": int(head[3])}
    patch["has_pointer"] = head[2] is not None
    others, rest, at = [], head[4], 0
    while at < len(rest):
        attribute = _ATTRIBUTE.match(rest, at)
        if attribute is None:
            return None
        at = attribute.end()
        for name, text in attribute.groupdict().items():
            if text is None:
                continue
            if name == "other":
                others.append(text)
            elif name in ("color", "page", "parameter_number"):
                patch[name] = int(text)
            elif name == "index":
                patch["parameter_shape_index"] = text
            else:
                patch[name] = True if name.startswith("is_") else text
    if any(type(value) is int and abs(value) >= 2**63 for value in patch.values()):
        return None
    patch["other_attributes"] = b", ".join(others) if others else None
    return patch


def _patch(columns: Columns, row: int, patch: dict[str, Any]) -> None:
    """Replace one row with values read another way; what they lack is absent or false."""
    for name, column in columns.items():
        if isinstance(column, Text):
            column.patches[row] = patch.get(name)
        elif isinstance(column, Numbers):
            column.values[row] = patch.get(name, 0)
            assert column.valid is not None
            column.valid[row] = name in patch
        else:
            column = columns[name] = column.copy()
            column[row] = patch.get(name, 0)


def add_kind(columns: Columns) -> None:
    """Add the one role of each allocation; `temp` has no other (IsPreallocatedTempBuffer)."""
    is_parameter = columns["parameter_number"].valid
    kind = np.full(len(is_parameter), KINDS.index("temp"))
    kind[columns["is_maybe_live_out"]] = KINDS.index("output")
    kind[is_parameter] = KINDS.index("parameter")
    kind[is_parameter & columns["is_maybe_live_out"]] = KINDS.index("donated_parameter")
    kind[columns["is_constant"]] = KINDS.index("constant")
    kind[columns["is_thread_local"]] = KINDS.index("thread_local")
    columns["kind"] = kind
