"""An answer, as it goes from the database to what shows it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """An answer."""

    columns: list[tuple[str, str]]
    """(name, DuckDB type) of each column."""
    rows: list[tuple[Any, ...]]
