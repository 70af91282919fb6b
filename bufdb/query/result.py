"""An answer, as passed from the database to the renderers."""

from collections.abc import Set
from typing import Any, NamedTuple


class Result(NamedTuple):
    """An answer."""

    columns: list[tuple[str, str]]
    """(name, DuckDB type) of each column."""
    rows: list[tuple[Any, ...]]

    def without_empty(self, names: Set[str]) -> "Result":
        """Return the answer without those of the columns that are NULL in all rows."""
        kept = [
            place
            for place, (name, _) in enumerate(self.columns)
            if name not in names or any(row[place] is not None for row in self.rows)
        ]
        rows = [tuple(row[place] for place in kept) for row in self.rows]
        return Result([self.columns[place] for place in kept], rows)
