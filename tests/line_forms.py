"""Columns of the readers as plain rows, for tests of single line forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from bufdb.read.section import Piece, Section
from bufdb.scan import Columns, Numbers, Text

PATH = "m.txt"


def section(text: str | bytes, before: int = 0) -> Section:
    """A section of one module that stands below `before` lines of its file."""
    data = text.encode() if isinstance(text, str) else text
    return Section([Piece(0, PATH, data, lambda: before)])


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


def told(columns: Columns, row: int = 0) -> dict[str, Any]:
    """What one row holds, without what is absent, false, 0 or {}."""
    found = {name: listed(column)[row] for name, column in columns.items()}
    return {name: value for name, value in found.items() if value not in (None, False, 0, "{}")}


def problems(found: Section) -> list[tuple[str, str | None, int | None, str]]:
    """Findings as (code, path, line number, message)."""
    return [(f.code, f.path, f.line_number, f.message) for f in found.findings]
