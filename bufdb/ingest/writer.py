"""Insert rows into the tables, through Arrow; the rows of runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import nanoarrow as na
from nanoarrow.c_array_stream import CArrayStream

from bufdb import __version__
from bufdb.columnar.rows import Rows, column_of, rows_of
from bufdb.dumps.discover import Source
from bufdb.dumps.files import as_text
from bufdb.ingest.rows import LARGE, column_types

# -- The rows of a run itself: `runs` and `run_labels` ---------------------------------------------


def add_run(
    con: duckdb.DuckDBPyConnection,
    run: str,
    path: Source,
    labels: Mapping[str, str],
    metadata: Mapping[str, str],
    *,
    keeps_findings: bool = False,
) -> None:
    """Add the run, if it is not there, and its labels; drop findings about its files.

    For a name in both, the label is the user's.
    """
    con.execute(
        "INSERT INTO runs VALUES (?, ?, NULL, ?, ?) ON CONFLICT DO NOTHING",
        [run, as_text(str(path)), _now(), __version__],
    )
    if not keeps_findings:
        con.execute("DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NULL", [run])
    for label, value in {**metadata, **labels}.items():
        con.execute(
            "DELETE FROM run_labels WHERE run_name = ? AND label = ?", [run, as_text(label)]
        )
        con.execute(
            "INSERT INTO run_labels VALUES (?, ?, ?, ?)",
            [run, as_text(label), as_text(value), label not in labels],
        )


def update_run(con: duckdb.DuckDBPyConnection, run: str, path: Source, dumped_at: float) -> None:
    """Note that the run was changed now, by dumps of a time [s since 1970, inf if unknown]."""
    dumped = None
    if dumped_at < math.inf:
        dumped = datetime.fromtimestamp(dumped_at, UTC).replace(tzinfo=None)
    con.execute(
        "UPDATE runs SET source_path = ?, dumped_at = least(dumped_at, ?), ingested_at = ?, "
        "bufdb_version = ? WHERE run_name = ?",
        [as_text(str(path)), dumped, _now(), __version__, run],
    )


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


# -- Rows to Arrow: what DuckDB reads without a Python object per cell, and without a copy ---------


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
    "BLOB": na.binary_view(),
}
"""Arrow type of each DuckDB type that the tables of modules have."""
_C_SCHEMAS = {name: na.c_schema(kind) for name, kind in _TYPES.items()}


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table as the database has them; every batch must match it."""

    types: dict[str, str]
    """DuckDB type of each column, in order."""
    arrow: Any

    @classmethod
    def of(cls, types: dict[str, str]) -> TableSchema:
        """Return the schema of a table whose columns have types of `bufdb.columnar.rows.TYPES`."""
        fields = {name: _TYPES[data_type] for name, data_type in types.items()}
        return cls(types, na.c_schema(na.struct(fields)))

    def batch(self, rows: Rows) -> Any:
        """Return one struct array over the buffers of rows of the table, which it keeps."""
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


# -- Rows into the tables of an open database, in a transaction, a few rounds at a time ------------
#
# The only code that inserts rows of modules.

INSERT_ROWS = 450_000
"""Rows that wait for an insert, which costs some milliseconds per table however few they are."""
FEW_INSERT_ROWS = 100_000
"""The same with a large module, whose keys need the memory."""
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
        """Rows given so far, without contents of files, which modules share."""
        self.is_open = False
        self.schemas = {table: TableSchema.of(types) for table, types in column_types().items()}
        """The schema of each table, which all its batches have."""

    def add(self, table: str, rows: Rows) -> None:
        """Take rows of a table."""
        self.batches.setdefault(table, []).append(rows)
        self.row_count += rows.length if table != "file_contents" else 0
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

    def flush(self, table: str) -> None:
        """Insert what waits for a table."""
        if table in self.batches:
            waiting = self.new_rows - self.waiting_rows[table]
            self._flush([table])
            self.new_rows = max(0, waiting)

    def settle(self) -> None:
        """Insert everything that waits, so that the connection is free for other statements."""
        self._flush(list(self.batches))

    def commit(self, *, is_packed: bool = False) -> None:
        """Insert what waits and commit: all into the file, or a little to the log next to it."""
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
        self._flush([t for t in self.batches if t in LARGE or counts[t] >= MANY_ROWS])

    def _flush(self, some: Collection[str]) -> None:
        """Insert what waits for these tables."""
        waiting = {table: self.batches.pop(table) for table in some}
        self.new_rows = 0
        for table in waiting:
            del self.waiting_rows[table]
        self._insert(waiting)

    def _insert(self, waiting: dict[str, list[Rows]]) -> None:
        for table in list(waiting):
            batches = waiting.pop(table)  # given up before the next table's are inserted
            schema = self.schemas[table]
            # DuckDB finds the variable by its name. Registering it would make a view, which the
            # transaction keeps, with all the text that it refers to, until it ends.
            arrow_batches = Batches([schema.batch(rows) for rows in batches])  # noqa: F841
            cast = _CASTS.get(table, "*")
            # Until its answer is fetched, a statement keeps the batches.
            insert = f'INSERT INTO "{table}" BY NAME SELECT {cast} FROM arrow_batches'
            self.con.execute(insert).fetchall()
