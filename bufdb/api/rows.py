"""`Rows`: the answer of a query, a DuckDB relation that shows itself as the command line does."""

from __future__ import annotations

import html
import shutil
from typing import TYPE_CHECKING, Any

from bufdb.query.result import Result
from bufdb.report import formats

if TYPE_CHECKING:
    import duckdb

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
        """What the relation has; relations that it makes show themselves in the same way."""
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
        """A column, as the relation gives it."""
        return Rows(self.relation[name])

    def __len__(self) -> int:
        """How many rows there are."""
        ((count,),) = self.relation.aggregate("count(*)").fetchall()
        return int(count)

    def __str__(self) -> str:
        """The first rows as a table of the terminal's width."""
        return self._text(shutil.get_terminal_size((WIDTH, 0)).columns)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same in a notebook, with nothing shortened and nothing taken for markup."""
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
