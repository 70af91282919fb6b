"""An answer as bytes for programs: an Arrow IPC stream, or a Parquet file, with exact types.

HUGEINT, which neither has, is DECIMAL(38, 0), and ENUM is text. Nothing here takes pyarrow.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import duckdb
import nanoarrow
from nanoarrow import ipc

from bufdb.errors import BufdbError
from bufdb.query.execute import ANSWER

FORMATS = ("arrow", "parquet")


def as_bytes(con: duckdb.DuckDBPyConnection, format_name: str) -> bytes:
    """The table ANSWER of `con` (see `execute.query_as_table`) in one of FORMATS.

    Raises:
        BufdbError: a column is of a type that Arrow has not.
    """
    table = con.table(f"temp.main.{ANSWER}")
    cells = [
        f"{name}::VARCHAR AS {name}" if type_.id == "enum" else name
        for name, type_ in zip(map(_quoted, table.columns), table.types, strict=True)
    ]
    rows = con.sql(f"SELECT {', '.join(cells)} FROM temp.main.{ANSWER}")
    try:
        return _arrow(rows) if format_name == "arrow" else _parquet(rows)
    except (RuntimeError, duckdb.Error) as error:  # nanoarrow raises the former
        reason = str(error).splitlines()[0]
        raise BufdbError(f"the answer cannot be written as {format_name}: {reason}") from error


def _arrow(rows: duckdb.DuckDBPyRelation) -> bytes:
    out = io.BytesIO()
    with ipc.StreamWriter.from_writable(out) as writer:
        writer.write_stream(nanoarrow.ArrayStream(rows))
    return out.getvalue()


def _parquet(rows: duckdb.DuckDBPyRelation) -> bytes:
    """Written by a connection of its own: that of the answer reaches no files."""
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder, duckdb.connect() as con:
        path = Path(folder) / "answer.parquet"
        con.from_arrow(nanoarrow.ArrayStream(rows)).write_parquet(str(path), compression="zstd")
        return path.read_bytes()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
