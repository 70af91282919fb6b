"""Rows to Arrow: what DuckDB reads without a Python object per cell, and without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nanoarrow as na
from nanoarrow.c_array_stream import CArrayStream

from bufdb.columnar.rows import Rows


class Batches:
    """Batches of one table as an Arrow stream that can be read more than once."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        stream = CArrayStream.from_c_arrays(self.batches, self.batches[0].schema, validate=False)
        return stream.__arrow_c_stream__(requested_schema)


_TYPES = {
    "BIGINT": na.int64(),
    # DuckDB takes whole decimals of 38 digits for integers of 128 bits, as they are in memory.
    "HUGEINT": na.decimal128(38, 0),
    "BOOLEAN": na.bool_(),
    "VARCHAR": na.string_view(),
    # As text, which DuckDB casts: a list has no column here.
    "BIGINT[]": na.string_view(),
}
"""Arrow type of each DuckDB type that the tables of modules have."""
_C_SCHEMAS = {name: na.c_schema(kind) for name, kind in _TYPES.items()}


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table as the database has them; every batch is held to it."""

    types: dict[str, str]
    """DuckDB type of each column, in order."""
    arrow: Any

    @classmethod
    def of(cls, types: dict[str, str]) -> TableSchema:
        """The schema of a table whose columns have types of `bufdb.columnar.rows.TYPES`."""
        fields = {name: _TYPES[data_type] for name, data_type in types.items()}
        return cls(types, na.c_schema(na.struct(fields)))

    def batch(self, rows: Rows) -> Any:
        """One struct array over the buffers of rows of the table, which it keeps."""
        children = [
            na.c_array_from_buffers(
                _C_SCHEMAS[kind],
                rows.length,
                [validity, values] if data is None else [validity, values, data],
            )
            for kind, (validity, values, data) in zip(
                self.types.values(), rows.columns, strict=True
            )
        ]
        return na.c_array_from_buffers(
            self.arrow, rows.length, [None], children=children, move=True
        )
