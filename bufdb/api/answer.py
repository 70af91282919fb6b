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

from bufdb.errors import BufdbError
from bufdb.query.execute import ANSWER
from bufdb.query.result import Result
from bufdb.render import formats

# -- What a question of `Database` gives where the command line prints text ------------------------


@dataclass(frozen=True, repr=False)
class Answer:
    """An answer to read and to compute with."""

    text: str
    """What the command prints, without colours."""
    data: Any
    """What the command writes as json: one dict of a summary, else a list of dicts, one per row."""
    notes: tuple[str, ...] = ()
    """What the command says besides, on standard error."""

    def __str__(self) -> str:
        return "\n".join([self.text.rstrip("\n"), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the text as a notebook shows it: in columns, nothing of it taken for markup."""
        style = "line-height:1.25;overflow-x:auto;white-space:pre"
        return f'<pre style="{style}">{html.escape(str(self))}</pre>'


def dicts(result: Result) -> list[dict[str, Any]]:
    """Rows with their columns' names."""
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


# -- `Rows`: the answer of a query, a DuckDB relation that shows itself as the command line does ---

MOST_ROWS = 40
"""Rows that are shown."""
WIDTH = 100
"""Columns of a line where no terminal says how many it has."""


class Rows:
    """What a query answers: a relation, whose methods and attributes it has.

    `.fetchall()`, `.df()`, `.pl()` and `.arrow()` have exact figures; what is shown has units, and
    what is alike in all rows in a line above them.
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation) -> None:
        """Show this relation."""
        self.relation = relation
        """The relation itself, for what wants one."""

    def __getattr__(self, name: str) -> Any:
        """Return what the relation has; relations that it makes show themselves in the same way."""
        if name == "relation":  # of a copy that is being made
            raise AttributeError(name)
        found = getattr(self.relation, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            made = found(*args, **options)
            return Rows(made) if isinstance(made, type(self.relation)) else made

        return call

    def __getitem__(self, name: Any) -> Any:
        """Return a column, as the relation gives it."""
        return Rows(self.relation[name])

    def __len__(self) -> int:
        """How many rows there are."""
        ((count,),) = self.relation.aggregate("count(*)").fetchall()
        return int(count)

    def __str__(self) -> str:
        """Return the first rows as a table of the terminal's width."""
        return self._text(shutil.get_terminal_size((WIDTH, 0)).columns)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same in a notebook, with nothing shortened and nothing taken for markup."""
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
# HUGEINT, which neither has, is DECIMAL(38, 0), and ENUM is text. Nothing here takes pyarrow.

FORMATS = ("arrow", "parquet")


def as_bytes(con: duckdb.DuckDBPyConnection, format_name: str) -> bytes:
    """Return the table ANSWER of `con` (see `execute.query_as_table`) in one of FORMATS.

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
