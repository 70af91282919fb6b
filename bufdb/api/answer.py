"""What a question of `Database` gives where the command line prints text."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from bufdb.query.result import Result


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
        """The text as a notebook shows it: in columns, nothing of it taken for markup."""
        style = "line-height:1.25;overflow-x:auto;white-space:pre"
        return f'<pre style="{style}">{html.escape(str(self))}</pre>'


def dicts(result: Result) -> list[dict[str, Any]]:
    """Rows with their columns' names."""
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]
