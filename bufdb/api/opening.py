"""How a question gets at a database: the command line and Python open it in their own ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import duckdb


class Open(Protocol):
    """Opens a database as `bufdb.database.store.open_readable` does: read-only and locked."""

    def __call__(
        self,
        sql: str | None = None,
        *,
        allow_files: bool = False,
        runs: Sequence[str] | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """A connection for one question; whoever opened it closes it."""
