"""Columns to Arrow: what DuckDB reads without a Python object per cell.

Text columns become string views over the block's own bytes, so a block must outlive the insert;
the Arrow arrays made here keep it alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import nanoarrow as na
import numpy as np
from nanoarrow.c_array_stream import CArrayStream

from bufdb.scan import PAD, Bools, Columns, Ints, Numbers, Text


@dataclass
class Labels:
    """A column of strings out of a short list: a code per row; None in the list is NULL."""

    codes: Ints
    labels: Sequence[str | bytes | None]

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Labels:
        """The column of these rows (positions or a mask)."""
        return Labels(self.codes[rows], self.labels)


def strings(values: Sequence[str | bytes | None]) -> Labels:
    """A column of any strings, one label a row: for tables with few rows."""
    return Labels(np.arange(len(values)), values)


def integers(values: Sequence[int | None]) -> Numbers:
    """A column of integers with None for NULL: for tables with few rows."""
    valid = np.array([value is not None for value in values], np.bool_)
    return Numbers(np.array([value or 0 for value in values], np.int64), valid)


class Batches:
    """Batches of one table as an Arrow stream that can be read more than once."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        stream = CArrayStream.from_c_arrays(self.batches, self.batches[0].schema, validate=False)
        return stream.__arrow_c_stream__(requested_schema)


def to_arrow(columns: Columns) -> Any:
    """One struct array with a field per column."""
    kinds, children, length = [], [], 0
    for name, column in columns.items():
        kind, array = _array(column)
        kinds.append((name, kind))
        children.append(array)
        length = len(column)
    schema = _struct(tuple(kinds))
    return na.c_array_from_buffers(schema, length, [None], children=children, move=True)


@lru_cache(maxsize=256)
def _struct(kinds: tuple[tuple[str, str], ...]) -> Any:
    return na.c_schema(na.struct({name: _SCHEMAS[kind] for name, kind in kinds}))


_SCHEMAS = {"int64": na.int64(), "bool": na.bool_(), "string": na.string_view()}
_C_SCHEMAS = {kind: na.c_schema(schema) for kind, schema in _SCHEMAS.items()}


def _array(column: Any) -> tuple[str, Any]:
    length = len(column)
    if isinstance(column, Text):
        views, data = column.views()
        return _text(length, column.is_null(), views, data)
    if isinstance(column, Labels):
        views, data, nulls = _label_views(column)
        return _text(length, nulls, views, data)
    if isinstance(column, Numbers):
        nulls = None if column.valid is None else ~column.valid
        return _fixed("int64", length, nulls, column.values)
    if column.dtype == np.bool_:
        return _fixed("bool", length, None, np.packbits(column, bitorder="little"))
    return _fixed("int64", length, None, column)


def _fixed(kind: str, length: int, nulls: Bools | None, values: Any) -> tuple[str, Any]:
    buffers = [_validity(nulls), np.ascontiguousarray(values)]
    return kind, na.c_array_from_buffers(_C_SCHEMAS[kind], length, buffers)


def _text(length: int, nulls: Bools | None, views: Any, data: bytes) -> tuple[str, Any]:
    buffers = [_validity(nulls), views, data]
    return "string", na.c_array_from_buffers(_C_SCHEMAS["string"], length, buffers)


def _validity(nulls: Bools | None) -> Any:
    if nulls is None or not nulls.any():
        return None
    return np.packbits(~nulls, bitorder="little")


def _label_views(column: Labels) -> tuple[Any, bytes, Bools | None]:
    data, spans = bytearray(), []
    for label in column.labels:
        text = label.encode() if isinstance(label, str) else label or b""
        spans.append((len(data), len(text)))
        data += text
    table = np.zeros((max(1, len(spans)), 2), np.uint64)
    block = bytes(data) + PAD
    for row, (start, size) in enumerate(spans):
        head = size.to_bytes(4, "little")
        if size <= 12:
            view = head + block[start : start + size].ljust(12, b"\0")
        else:
            view = head + block[start : start + 4] + bytes(4) + start.to_bytes(4, "little")
        table[row] = np.frombuffer(view, np.uint64)
    nulls = None
    if any(label is None for label in column.labels):
        nulls = np.array([label is None for label in column.labels])[column.codes]
    return np.ascontiguousarray(table[column.codes]), block, nulls
