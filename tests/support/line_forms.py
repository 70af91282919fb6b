"""Columns of the readers as plain rows, for tests of single line forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.columnar.scan import Columns, Numbers, Text
from bufdb.columnar.section import Piece, Section
from bufdb.read import used_values
from bufdb.rows.value_index import ValueIndex

PATH = "m.txt"


def section(text: str | bytes, before: int = 0, begins: bool = False) -> Section:
    """Return part of a section of one module, after `before` lines of its file."""
    data = text.encode() if isinstance(text, str) else text
    return Section([Piece(0, PATH, data, lambda: before, begins=begins)])


NOTHING = used_values.NothingAssigned()
"""Known values where the allocations are missing: none."""


def assigned(columns: Columns) -> used_values.Assigned:
    """Return the values of module 0 in an allocation section."""
    keys = ValueIndex()
    hashes = np.arange(len(columns["value_id"])).astype(np.uint64)
    places = ("allocation_index", "offset_bytes", "size_bytes", "is_phi")
    check = used_values.check_of(columns, np.ones(len(hashes), np.uint64))
    some = {name: columns[name] for name in ("module", "value_id", *places)}
    some["logical_bytes"] = columns["size_bytes"]
    keys.add(**some, name_key=hashes, key=hashes, extra=check ^ hashes)
    keys.finish()
    return keys


def listed(column: Any) -> list[Any]:
    """A column as Python values: str, int, bool, None."""
    if isinstance(column, Text):
        return [None if text is None else text.decode() for text in column.tolist()]
    if isinstance(column, Numbers):
        valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
        pairs = zip(column.values.tolist(), valid.tolist(), strict=True)
        return [number if there else None for number, there in pairs]
    return column.tolist()


def rows(columns: Columns, names: str = "") -> list[Any]:
    """The rows: tuples of the named columns, or what one column holds if one is named."""
    chosen = [listed(columns[name]) for name in names.split()]
    return chosen[0] if len(chosen) == 1 else list(zip(*chosen, strict=True))


def row_of(columns: Columns, row: int = 0) -> dict[str, Any]:
    """Return the cells of one row, except those that are absent, false, 0 or {}."""
    cells = {name: listed(column)[row] for name, column in columns.items()}
    return {name: value for name, value in cells.items() if value not in (None, False, 0, "{}")}


def problems(text_section: Section) -> list[tuple[str, str | None, int | None, str]]:
    """Return findings as (code, path, line number, message)."""
    text_section.close()
    return [(f.code, f.path, f.line_number, f.message) for f in text_section.account.findings()]
