"""Open a database for a question: the command line and Python do it in their own ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from bufdb.database import faults, runs, store
from bufdb.database.memory import MEMORY_LIMIT
from bufdb.database.patience import PATIENCE, Patience
from bufdb.errors import DatabaseError
from bufdb.query.parameters import read_categories

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
        """Return a connection for one question; the caller of this closes it."""


def open_readable(
    place: str,
    sql: str | None = None,
    *,
    is_dataset: bool = False,
    categories: Path | None = None,
    **how: Any,
) -> duckdb.DuckDBPyConnection:
    """Open a file, or a dataset's folder or URL, as `bufdb.database.store.open_readable` does.

    `categories` is a file with rules that go before those of the database.

    Raises:
        UsageError: one of `runs` selects no run.
    """
    opened: Callable[..., duckdb.DuckDBPyConnection] = store.open_readable
    if is_dataset:
        from bufdb.dataset import snapshot

        opened = snapshot.open_readable
    before = None if categories is None else read_categories(categories)
    selections = how.get("runs") or ()
    if sql is not None and selections:
        sql = f"{sql}\n{runs.SELECTED}"  # of a dataset only views that this names are there
    con = opened(place, sql, before=before, **how)
    try:
        runs.require_selected(con, selections)
    except BaseException:
        con.close()
        raise
    return con


class Opener:
    """Opens a file for one question at a time, with the settings of a `Database`."""

    def __init__(
        self,
        path: str,
        categories: Path | None,
        patience: Patience,
        memory_limit: int | None = None,
        *,
        is_dataset: bool = False,
    ) -> None:
        """See `bufdb.connect`.

        Args:
            path: the file, or the folder or URL of a dataset.
            categories: a file with rules.
            patience: how long to wait for a file.
            memory_limit: bytes for DuckDB; None leaves the choice to the operation.
            is_dataset: whether it is a dataset.
        """
        self.is_dataset = is_dataset
        self.path, self.categories, self.patience = path, categories, patience
        self.memory_limit = memory_limit
        self.is_closed = False
        self.makes_file = False
        """Whether the file is made by the first question, if not by an ingest before it."""

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Apply patience and memory limit within the block, and raise DuckDB's errors as bufdb's.

        Raises:
            DatabaseError: the database was closed.
        """
        if self.is_closed:
            raise DatabaseError("this database is closed; bufdb.connect opens one")
        token = PATIENCE.set(self.patience)
        limited = MEMORY_LIMIT.set(self.memory_limit or MEMORY_LIMIT.get())
        try:
            yield
        except Exception as error:  # raised unchanged unless it is known to come from outside
            known = faults.as_known(error, self.path)
            if known is None or known is error:
                raise
            raise known from error
        finally:
            MEMORY_LIMIT.reset(limited)
            PATIENCE.reset(token)

    @contextmanager
    def one(self, sql: str | None = None, **how: Any) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection for one question; it outlives the block if its answer does."""
        with self.faults():
            con = self._open(sql, **how)
            try:
                yield con
            except KeyboardInterrupt:
                con.interrupt()
                raise

    @contextmanager
    def several(self) -> Iterator[Open]:
        """Yield an opener of connections for several questions; they are closed after the block."""
        with self.faults(), ExitStack() as stack:

            def opened(sql: str | None = None, **how: Any) -> duckdb.DuckDBPyConnection:
                con = self._open(sql, **how)
                stack.push(partial(_leave, con))
                return con

            yield opened

    def _open(self, sql: str | None = None, **how: Any) -> duckdb.DuckDBPyConnection:
        if self.makes_file and not Path(self.path).exists():
            store.open_writable(self.path).close()
        return open_readable(
            self.path, sql, is_dataset=self.is_dataset, categories=self.categories, **how
        )


def _leave(
    con: duckdb.DuckDBPyConnection,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    """Close a connection; an interrupted one is still busy and cannot be closed."""
    if isinstance(error, KeyboardInterrupt):
        con.interrupt()
    else:
        con.close()
