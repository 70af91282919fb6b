"""How long to wait for a database that another process holds, and who goes first.

The request is a context variable, so that every way to open a database (a query, an ingest, the
pytest plugin) waits alike without each function on the way passing the number on.

DuckDB lets one process write or several read, and knows no order: readers that come one after the
other would keep a writer out for good. So a writer that waits holds a lock on a file next to the
database, and readers that come while it does wait as if it had the database.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from bufdb.errors import one_line

DEFAULT_WAIT_S = 10.0
"""A reader waits so long [s], as a question or a short command takes."""
INGEST_WAIT_S = 60.0
"""The same while an ingest holds the database, which takes seconds and says how far it is."""
_MOST_BYTES = 500
"""Of what an ingest says."""


def _silent(text: str) -> None:
    """Drop a note: a library has no reader for it."""


class Patience(NamedTuple):
    """How to wait for a database that another process holds."""

    seconds: float | None = None
    """Time after which waiting ends with an error [s]; 0 does not wait. By default DEFAULT_WAIT_S
    to read, INGEST_WAIT_S while an ingest writes, and to write as long as it takes."""
    note: Callable[[str], None] = _silent
    """Takes one line for the user."""

    def of(self, *, is_writer: bool, is_ingest: bool = False) -> float:
        """Return the seconds to wait; `is_ingest` if one holds the database."""
        if self.seconds is not None:
            return self.seconds
        if is_writer:
            return float("inf")
        return INGEST_WAIT_S if is_ingest else DEFAULT_WAIT_S


PATIENCE: ContextVar[Patience] = ContextVar("patience", default=Patience())  # noqa: B039


class Turn:
    """The place in front of readers, which a writer takes while it waits for a database."""

    def __init__(self, path: str) -> None:
        """Name the file of a database; nothing is taken yet."""
        self.name = _name(path)
        self.file: int | None = None

    def take(self) -> None:
        """Hold the lock from now on, unless another writer has it or no file can be made."""
        if self.file is not None and os.fstat(self.file).st_nlink:
            return
        self.leave()
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self.name, flags, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            self.file = file

    def leave(self) -> None:
        """Let readers in."""
        if self.file is None:
            return
        with contextlib.suppress(OSError):
            if os.fstat(self.file).st_nlink:
                Path(self.name).unlink()
        os.close(self.file)
        self.file = None


class Account(Turn):
    """What an ingest that holds a database says of itself, in a file next to it."""

    def __init__(self, path: str) -> None:
        """Name the file of a database; nothing is said yet."""
        super().__init__(path)
        self.name = _account_name(path)

    def say(self, text: str) -> None:
        """Replace what is said."""
        self.take()
        if self.file is not None:
            with contextlib.suppress(OSError):
                data = text.encode(errors="replace")[:_MOST_BYTES]
                os.pwrite(self.file, data, 0)
                os.ftruncate(self.file, len(data))


def is_awaited(path: str) -> bool:
    """Return whether a writer waits for a database. A file that a killed one left says nothing."""
    return _locked(_name(path)) is not None


def account_of(path: str) -> str | None:
    """Return what the ingest that holds a database says of itself, if one does."""
    text = _locked(_account_name(path))
    return one_line(text.decode(errors="replace")) if text else None


def _locked(name: str) -> bytes | None:
    """Return what is in a file that another process has locked; None if none has."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(file, _MOST_BYTES)
    except OSError:  # a file system without such locks
        return None
    finally:
        os.close(file)
    return None


@contextlib.contextmanager
def turn(path: str) -> Iterator[Turn]:
    """Hold a writer's turn within the block."""
    own_turn = Turn(path)
    try:
        yield own_turn
    finally:
        own_turn.leave()


@contextlib.contextmanager
def account(path: str) -> Iterator[Account]:
    """Hold the file in which an ingest says how far it is within the block."""
    own_account = Account(path)
    try:
        yield own_account
    finally:
        own_account.leave()


def _name(path: str) -> str:
    return f"{os.path.realpath(path)}.waiting"


def _account_name(path: str) -> str:
    return f"{os.path.realpath(path)}.ingest"
