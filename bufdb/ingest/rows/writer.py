"""Rows into the tables of an open database, in a transaction, a few rounds at a time.

The only code that inserts rows of modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import duckdb

from bufdb.columnar.arrow import Batches, TableSchema
from bufdb.columnar.rows import Rows, column_of, rows_of
from bufdb.ingest import tables

INSERT_ROWS = 450_000
"""Rows that wait for an insert, which costs some milliseconds per table however few they are."""
FEW_INSERT_ROWS = 100_000
"""The same beside a large module, whose keys need the memory."""
IDLE_INSERT_ROWS = 60_000
"""The same where this process would wait for others to read: of 2,000 small modules half of the
text, and so all but the last insert comes while they do."""
MANY_ROWS = 16_384
"""Rows of one table that are worth an insert before the transaction ends."""
_CASTS = {"shapes": "* REPLACE (dimensions::BIGINT[] AS dimensions)"}


class TableWriter:
    """Collects columns per table and inserts them; one transaction is open at a time."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.batches: dict[str, list[Rows]] = {}
        self.waiting_rows = Counter[str]()
        """Rows in them, by table."""
        self.new_rows = 0
        """Rows that came since the last insert."""
        self.insert_rows = INSERT_ROWS
        """Rows that wait for an insert; may be set at any time."""
        self.row_count = 0
        """Rows given so far."""
        self.is_open = False
        self.schemas = {table: TableSchema.of(types) for table, types in tables.types().items()}
        """The one schema of each table, to which all its batches are held."""

    def add(self, table: str, rows: Rows) -> None:
        """Take rows of a table."""
        self.batches.setdefault(table, []).append(rows)
        self.row_count += rows.length
        self.waiting_rows[table] += rows.length
        self.new_rows += rows.length
        if self.new_rows >= self.insert_rows:
            self._flush_many()

    def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take rows of a table, by column: for a few rows, whose values fit."""
        if not rows:
            return
        types = self.schemas[table].types
        columns = {n: column_of([row.get(n) for row in rows], kind) for n, kind in types.items()}
        self.add(table, rows_of(columns, types)[0])

    def begin(self) -> None:
        """Begin a transaction."""
        self.con.execute("BEGIN")
        self.is_open = True

    def idle(self) -> None:
        """Insert what is worth it; there is time to."""
        if self.new_rows >= IDLE_INSERT_ROWS:
            self._flush_many()

    def settle(self) -> None:
        """Insert all that waits, so that the connection is free for other statements."""
        self._flush(list(self.batches))

    def commit(self, *, is_packed: bool = False) -> None:
        """Insert all that waits and commit: all into the file, or a little to the log beside it."""
        self.settle()
        if is_packed:
            self.con.execute("SET checkpoint_threshold = '1B'")
        self.con.execute("COMMIT")
        if is_packed:
            self.con.execute("RESET checkpoint_threshold")
        self.is_open = False

    def close(self) -> None:
        """Roll back what was not committed."""
        if self.is_open:
            self.con.execute("ROLLBACK")
            self.is_open = False

    def _flush_many(self) -> None:
        """Insert what waits for large tables, and for those with many rows."""
        counts = self.waiting_rows
        self._flush([t for t in self.batches if t in tables.LARGE or counts[t] >= MANY_ROWS])

    def _flush(self, some: Collection[str]) -> None:
        """Insert what waits for these tables."""
        waiting = {table: self.batches.pop(table) for table in some}
        self.new_rows = 0
        for table in waiting:
            del self.waiting_rows[table]
        self._insert(waiting)

    def _insert(self, waiting: dict[str, list[Rows]]) -> None:
        for table in list(waiting):
            batches = waiting.pop(table)  # which are given up before the next table's are inserted
            schema = self.schemas[table]
            # DuckDB finds the variable by its name. To register it would make a view, which the
            # transaction keeps, with all the text behind it, until it ends.
            arrow_batches = Batches([schema.batch(rows) for rows in batches])  # noqa: F841
            cast = _CASTS.get(table, "*")
            # Until its answer is fetched, a statement keeps the batches.
            insert = f'INSERT INTO "{table}" BY NAME SELECT {cast} FROM arrow_batches'
            self.con.execute(insert).fetchall()
