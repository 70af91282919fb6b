"""What the rows of modules in a transaction come to, for their checksums.

DuckDB hashes each row, as `bufdb check` will. The hashes are summed by module here: DuckDB would
make a table of groups for it in each statement. A sum of 64 bits that has wrapped around is the
same modulo 2**63 as one that has not.
"""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np

from bufdb.columnar.arrow import Batches, TableSchema
from bufdb.columnar.rows import Labels, rows_of
from bufdb.database import checksums

NO_MODULE = -1
"""Stands for the module of rows that belong to none: ids of modules are hashes of 63 bits."""
_SCHEMA = TableSchema.of(
    {"module_id": "BIGINT", "table_name": "VARCHAR", "row_count": "BIGINT", "row_sum": "BIGINT"}
)


class Sums:
    """Numbers of rows and sums of their hashes, by table and module."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.parts: list[tuple[Any, Any, Any]] = []
        """Of each entry of `tables`: modules, their numbers of rows and sums (mod 2**63), int64."""

    def add(self, table: str, module_ids: Any, hashes: Any) -> None:
        """Count rows of a table.

        Args:
            table: the table.
            module_ids: the module of each row or NO_MODULE, int64 (rows,); those of one together.
            hashes: hash() of each row, uint64 (rows,).
        """
        if not len(hashes):
            return
        starts = np.concatenate([[0], np.flatnonzero(np.diff(module_ids)) + 1])
        counts = np.diff(starts, append=len(module_ids))
        sums = np.add.reduceat(hashes, starts) % np.uint64(checksums.MODULUS)
        of_modules = module_ids[starts] != NO_MODULE
        columns = module_ids[starts], counts, sums.astype(np.int64)
        self.tables.append(table)
        self.parts.append(tuple(column[of_modules] for column in columns))

    def store(self, con: duckdb.DuckDBPyConnection) -> None:
        """Store the checksums of all that was counted, which is all that its modules have."""
        if not self.parts:
            return
        module_ids, counts, sums = map(np.concatenate, zip(*self.parts, strict=True))
        lengths = [len(part) for part, _, _ in self.parts]
        columns = {
            "module_id": module_ids,
            "table_name": Labels(np.repeat(np.arange(len(lengths)), lengths), self.tables),
            "row_count": counts,
            "row_sum": sums,
        }
        rows, _ = rows_of(columns, _SCHEMA.types)
        arrow_batches = Batches([_SCHEMA.batch(rows)])  # noqa: F841
        con.execute(checksums.of_sums("arrow_batches")).fetchall()
