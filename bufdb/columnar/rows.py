"""Columns to rows of a table, as the buffers that Arrow has of its columns.

Text columns become string views over the block's own bytes, so a block must outlive the insert; the
buffers keep it alive. Arrow's own types are not needed for it: the writer of the rows, maybe
another process, makes them from the buffers (`bufdb.ingest.writer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Block, Bools, Columns, Ints, Numbers, Text


@dataclass
class Labels:
    """A column of strings out of a short list: a code per row; None in the list is NULL."""

    codes: Ints
    labels: Sequence[str | bytes | None]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Labels:
        """Return the column of these rows (positions or a mask)."""
        return Labels(self.codes[rows], self.labels)


def strings(values: Sequence[str | bytes | None]) -> Labels:
    """Return a column of any strings, one label a row: for tables with few rows."""
    return Labels(np.arange(len(values)), values)


def objects(values: Sequence[int | None]) -> Any:
    """Return a column of integers of any size with None for NULL: for tables with few rows."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


_BYTES = ("VARCHAR", "BIGINT[]", "BLOB")
TYPES = ("BIGINT", "HUGEINT", "BOOLEAN", *_BYTES)
"""DuckDB types that the tables of modules have."""
_RANGES = {"BIGINT": range(-(2**63), 2**63), "HUGEINT": range(1 - 10**38, 10**38)}
Misfits = list[tuple[int, str]]
"""(row, column) of values that do not fit into their column's type; they are NULL."""


Buffers = tuple[Any, Any, Any]
"""Of a column: bits of what is not NULL (None: all), values or views, and what the views point to
(None except for text)."""


@dataclass
class Rows:
    """Rows of one table as the buffers that Arrow has of its columns, in the table's order.

    They pickle, and the text that several columns point to is pickled once.
    """

    length: int
    columns: list[Buffers]

    def numbers(self, place: int) -> Numbers:
        """Return the column of BIGINT at this place."""
        validity, values, _ = self.columns[place]
        valid = None
        if validity is not None:
            bits = np.frombuffer(validity, np.uint8)
            valid = np.unpackbits(bits, count=self.length, bitorder="little").view(np.bool_)
        return Numbers(np.frombuffer(values, np.int64, self.length), valid)


def rows_of(columns: Columns, types: Mapping[str, str]) -> tuple[Rows, Misfits]:
    """Return rows with exactly the columns of a table; a column that is not given is NULL.

    Args:
        columns: by name; those that the table does not have are left out.
        types: DuckDB type of each of the table's columns, in order.

    Raises:
        TypeError: a column is of another kind than its type.
    """
    length = len(next(iter(columns.values())))
    columns_of_table: list[Buffers] = []
    misfits: Misfits = []
    for name, data_type in types.items():
        column = columns.get(name)
        buffers, odd = (
            (_nulls(data_type, length), []) if column is None else _buffers_of(column, data_type)
        )
        columns_of_table.append(buffers)
        misfits += [(row, name) for row in odd]
    return Rows(length, columns_of_table), misfits


def column_of(values: list[Any], data_type: str) -> Any:
    """Return a column of Python values, None for NULL: for tables with few rows."""
    if data_type == "BOOLEAN":
        return np.array(values, np.bool_)
    return objects(values) if data_type in ("BIGINT", "HUGEINT") else strings(values)


def _buffers_of(column: Any, data_type: str) -> tuple[Buffers, list[int]]:
    """Return the buffers of a column, and the rows whose value does not fit into its type."""
    if data_type in _BYTES:
        if isinstance(column, Text):
            views, data = column.views()
            return (_validity(column.there()), views, data), []
        if isinstance(column, Labels):
            views, data, there = _label_views(column)
            return (_validity(there), views, data), []
        raise TypeError(f"a column of {data_type} is {type(column).__name__}")
    if data_type == "BOOLEAN":
        if column.dtype != np.bool_:
            raise TypeError(f"a column of BOOLEAN is of {column.dtype}")
        return (None, np.packbits(column, bitorder="little"), None), []
    there = None
    if isinstance(column, Numbers):
        column, there = column.values, column.valid
    if column.dtype == object:
        return _of_objects(column, data_type)
    if column.dtype != np.int64:
        raise TypeError(f"a column of {data_type} is of {column.dtype}")
    values = np.ascontiguousarray(column)
    if data_type == "HUGEINT":
        values = np.stack([values, values >> 63], axis=1)
    return (_validity(there), values, None), []


def _of_objects(column: Any, data_type: str) -> tuple[Buffers, list[int]]:
    """Return the buffers of Python integers of any size and None, and the misfits' rows."""
    fits = _RANGES[data_type]
    integers = column.tolist()
    odd = [row for row, value in enumerate(integers) if value is not None and value not in fits]
    there = np.array([value is not None for value in integers], np.bool_)
    there[odd] = False
    kept = [value if here else 0 for value, here in zip(integers, there.tolist(), strict=True)]
    if data_type == "HUGEINT":
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in kept)
        return (_validity(there), np.frombuffer(data, np.int64), None), odd
    return (_validity(there), np.array(kept, np.int64), None), odd


def _validity(there: Bools | None) -> Any:
    return None if there is None or there.all() else np.packbits(there, bitorder="little")


def _nulls(data_type: str, length: int) -> Buffers:
    """Return the buffers of a column that has only NULL."""
    bits, is_text = np.zeros(-(-length // 8), np.uint8), data_type in _BYTES
    width = 2 if is_text or data_type == "HUGEINT" else 1
    return bits, np.zeros((length, width), np.int64), np.zeros(1, np.uint8) if is_text else None


def _label_views(column: Labels) -> tuple[Any, bytes, Bools | None]:
    texts = [x.encode() if isinstance(x, str) else x or b"" for x in column.labels]
    stop = np.cumsum([len(text) for text in texts], dtype=np.int64)
    start = np.concatenate([np.zeros(1, np.int64), stop[:-1]])[: len(texts)]
    views, block = Text(Block(*texts), start, stop).views()
    there = None
    if any(label is None for label in column.labels):
        there = np.array([label is not None for label in column.labels])[column.codes]
    # A sixth of the time of `views[codes]`.
    return views.take(column.codes, axis=0), block, there
