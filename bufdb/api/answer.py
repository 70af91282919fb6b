"""Answers for Python: text, data and rows, whole or as a stream."""

from __future__ import annotations

import html
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import nanoarrow
from nanoarrow import ipc

from bufdb.database.faults import is_interrupt
from bufdb.database.quoting import sql_name
from bufdb.errors import BufdbError
from bufdb.query.execute import ANSWER
from bufdb.query.result import Result
from bufdb.render import formats

# -- The answer of a method of `Database`, where the command line prints text ----------------------


@dataclass(frozen=True, repr=False)
class Answer:
    """An answer to read and to compute with."""

    text: str
    """The text that the command prints, without colors."""
    data: Any
    """The data that the command writes as json: one dict for a summary, else a dict per row."""
    notes: tuple[str, ...] = ()
    """Notes that the command prints on standard error."""

    def __str__(self) -> str:
        return "\n".join([self.text.rstrip("\n"), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the text for a notebook: in columns, with all markup escaped."""
        style = "line-height:1.25;overflow-x:auto;white-space:pre"
        return f'<pre style="{style}">{html.escape(str(self))}</pre>'


def dicts(result: Result) -> list[dict[str, Any]]:
    """Return rows as dicts by column name."""
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


# -- `Rows`: the answer of a query, a DuckDB relation that shows itself as the command line does ---

MOST_ROWS = 40
"""Rows that are shown."""
WIDTH = 100
"""Columns of a line where there is no terminal to ask."""


class Rows:
    """The answer of a query: wraps a relation, and has its methods and attributes.

    `.fetchall()`, `.df()`, `.pl()` and `.arrow()` have exact figures; the printed table has units,
    and shows columns that are equal in all rows in a line above.
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        """Show this relation."""
        self.relation = relation
        """The relation itself, for code that needs one."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the relation; relations that it returns are wrapped as well."""
        if name == "relation":  # of a copy under construction
            raise AttributeError(name)
        attribute = getattr(self.relation, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            made = attribute(*args, **options)
            return Rows(made) if isinstance(made, type(self.relation)) else made

        return call

    def __getitem__(self, name: Any) -> Any:
        """Return a column as the relation returns it."""
        return Rows(self.relation[name])

    def __len__(self) -> int:
        """Return the number of rows."""
        ((count,),) = self.relation.aggregate("count(*)").fetchall()
        return int(count)

    def __str__(self) -> str:
        """Return the first rows as a table of the terminal's width."""
        return self._text(shutil.get_terminal_size((WIDTH, 0)).columns)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same for a notebook, with nothing shortened and all markup escaped."""
        style = "line-height:1.25;overflow-x:auto;white-space:pre"
        return f'<pre style="{style}">{html.escape(self._text(None))}</pre>'

    def _text(self, width: int | None) -> str:
        relation = self.relation
        columns = [
            (name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)
        ]
        rows = relation.limit(MOST_ROWS).fetchall()
        text, _ = formats.render(Result(columns, rows), "table", width, has_titles=True)
        more = len(self) - len(rows)
        return text.rstrip("\n") + (f"\n… {more} more rows" if more > 0 else "")


# -- An answer as bytes for programs: an Arrow IPC stream, or a Parquet file, with exact types -----
#
# HUGEINT, which neither format has, is DECIMAL(38, 0), and ENUM is text. pyarrow is not needed.

FORMATS = ("arrow", "parquet")


def as_bytes(con: duckdb.DuckDBPyConnection, format_name: str) -> bytes:
    """Return the table ANSWER of `con` (see `execute.query_as_table`) in one of FORMATS.

    Raises:
        BufdbError: a column has a type that Arrow does not support.
    """
    table = con.table(f"temp.main.{ANSWER}")
    cells = [
        f"{name}::VARCHAR AS {name}" if type_.id == "enum" else name
        for name, type_ in zip(map(sql_name, table.columns), table.types, strict=True)
    ]
    rows = con.sql(f"SELECT {', '.join(cells)} FROM temp.main.{ANSWER}")
    try:
        return _arrow(rows) if format_name == "arrow" else _parquet(rows)
    except (RuntimeError, duckdb.Error) as error:  # nanoarrow raises the former
        if is_interrupt(error):
            raise
        reason = str(error).splitlines()[0]
        raise BufdbError(f"the answer cannot be written as {format_name}: {reason}") from error


def _arrow(rows: duckdb.DuckDBPyRelation) -> bytes:
    out = io.BytesIO()
    with ipc.StreamWriter.from_writable(out) as writer:
        writer.write_stream(nanoarrow.ArrayStream(rows))
    return out.getvalue()


def _parquet(rows: duckdb.DuckDBPyRelation) -> bytes:
    """Return the rows as Parquet, by a separate connection: the answer's cannot access files."""
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder, duckdb.connect() as con:
        path = Path(folder) / "answer.parquet"
        con.from_arrow(nanoarrow.ArrayStream(rows)).write_parquet(str(path), compression="zstd")
        return path.read_bytes()
