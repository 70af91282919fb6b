"""Answers of saved queries as tables of text: a header with names of columns, then rows.

    function_name | held_bytes | part
    f             | 12         | NULL

Columns that the header leaves out may hold anything; the order of rows counts. After a blank line
the same rows go on in further columns.
"""

from __future__ import annotations

import operator
from itertools import groupby
from typing import Any

import duckdb
from small_db import derived, rows


def holds(con: duckdb.DuckDBPyConnection, query: str, expected: str, **params: Any) -> None:
    """Assert that the answer of a saved query, in the columns that `expected` names, is that."""
    names, *wanted = parse(expected)
    with derived(con):
        cells = [[text(row[name]) for name in names] for row in rows(con, query, **params)]
    assert render(names, cells) == render(names, wanted)


def parse(table: str) -> list[list[str]]:
    """Cells of the header and of each row."""
    lines = (line.strip() for line in table.splitlines())
    parts = [[*part] for is_blank, part in groupby(lines, key=operator.not_) if not is_blank]
    cells = [
        [cell.strip() for line in row for cell in line.split(" | ")]
        for row in zip(*parts, strict=True)
    ]
    assert {len(line) for line in cells} <= {len(cells[0])}, "a row has other columns"
    return cells


def text(value: Any) -> str:
    """A value as a cell has it."""
    return "NULL" if value is None else str(value)


def render(names: list[str], cells: list[list[str]]) -> str:
    """The table with its columns aligned, so that a failure shows what is elsewhere."""
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [names, *cells]
    )
    return "\n".join(lines)
