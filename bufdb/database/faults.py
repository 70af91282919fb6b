"""Faults that come from outside: the disk, the memory, the database file. One line for each.

DuckDB's exceptions are known by their words, since their classes do not say enough: a damaged block
is a plain `duckdb.Error`, and a full disk one of four. Nothing here imports DuckDB.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from bufdb.errors import BufdbError, DatabaseError

_KIND = r"^(?:\w+ ){1,4}Error: "
_ORIGINAL = r'(?s)Original error: "(.+)"'
_NUMBERS = r"computed checksum \d+ does not match stored checksum \d+ in"
NOT_UTF8 = BufdbError("a name or an argument holds bytes that are not UTF-8; write it in UTF-8")


def as_known(error: BaseException, db: str | None = None) -> BufdbError | None:
    """Return what to say to the user of an error that reached the top; None for what must be a bug.

    Args:
        error: of bufdb, of DuckDB or of Python.
        db: the database of the command, if it has one.
    """
    if isinstance(error, BufdbError):
        cause = error.__cause__
        # A failed query: the fault was not the query's.
        if type(error) is BufdbError and cause is not None and is_outside(cause):
            return _of_duckdb(str(cause), db)
        return error
    if isinstance(error, RecursionError):
        return BufdbError(
            "the input is nested too deeply; please report it with the command and the file"
        )
    if isinstance(error, MemoryError):
        return _no_memory("", db)
    if isinstance(error, UnicodeError):
        return NOT_UTF8
    if isinstance(error, OSError):
        return _of_system(error, db)
    if is_duckdb(error):
        return _of_duckdb(str(error), db)
    return None


def is_duckdb(error: BaseException) -> bool:
    """Return whether it is an exception of DuckDB."""
    return any(kind.__module__.lstrip("_").startswith("duckdb") for kind in type(error).__mro__)


def is_interrupt(error: BaseException) -> bool:
    """Return whether it comes of Ctrl-C, also where cleaning up or importing failed by it.

    While DuckDB is at work it makes a RuntimeError or an exception of its own of Ctrl-C, after
    which a DETACH fails, and of one while it is imported an ImportError.
    """
    cause: BaseException | None = error
    while cause is not None:
        is_plain = type(cause) is RuntimeError and str(cause) == "Query interrupted"
        if is_plain or type(cause).__name__ in ("InterruptException", "KeyboardInterrupt"):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def is_full(error: BaseException) -> bool:
    """Return whether DuckDB could write no more."""
    return is_duckdb(error) and any(re.search(_MEANINGS[i][0], str(error)) for i in (0, 1))


def is_memory(error: BaseException) -> bool:
    """Return whether DuckDB needed more memory than it may take."""
    return is_duckdb(error) and re.search(_MEMORY, str(error)) is not None


def is_outside(error: BaseException) -> bool:
    """Return whether DuckDB failed by something outside, and not by what it was asked."""
    return is_duckdb(error) and any(re.search(pattern, str(error)) for pattern, _ in _MEANINGS)


def _of_system(error: OSError, db: str | None) -> BufdbError:
    name = f"{error.filename}: " if error.filename else ""
    reason = f"{name}{error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full(reason, db)
    if error.errno == errno.EFBIG:
        return _too_large(reason, db)
    if db is not None and error.filename == db:
        return DatabaseError(f"cannot open {reason}; name another file with --db")
    return BufdbError(f"{reason}; fix it and run the same command again")


def _of_duckdb(message: str, db: str | None) -> BufdbError:
    original = re.search(_ORIGINAL, message)
    reason = " ".join((original[1] if original else message).split())
    reason = re.sub(_NUMBERS, "a wrong checksum in", re.sub(_KIND, "", reason))
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, message):
            return meaning(reason, db)
    return BufdbError(f"DuckDB failed: {reason}; if it happens again, please report it")


def _disk_full(reason: str, db: str | None) -> BufdbError:
    return BufdbError(
        f"the disk is full ({reason}); free space and run the same command again: "
        "what was stored before is intact"
    )


def _too_large(reason: str, db: str | None) -> BufdbError:
    return BufdbError(
        f"the file size limit is reached ({reason}); raise the limit (ulimit -f) and run the same "
        "command again: what was stored before is intact"
    )


def _damaged(reason: str, db: str | None) -> BufdbError:
    return DatabaseError(
        f"{db or 'the database'} is damaged ({reason}); "
        "remove it and run 'bufdb ingest' on the dumps again"
    )


def _no_memory(reason: str, db: str | None) -> BufdbError:
    why = f" ({reason.partition(' Possible solutions:')[0]})" if reason else ""
    return BufdbError(
        f"not enough memory{why}; --memory-limit SIZE gives DuckDB more, "
        "and a question about fewer runs needs less"
    )


def _read_only(reason: str, db: str | None) -> BufdbError:
    return DatabaseError(
        f"{db or 'the database'} cannot be written ({reason}); name another file with --db, or "
        "check the permissions of the file and its directory"
    )


def _disk_error(reason: str, db: str | None) -> BufdbError:
    return DatabaseError(
        f"the disk of {db or 'the database'} fails ({reason}); "
        "name a file on another disk with --db"
    )


_MEMORY = r"Out of Memory|failed to (?:allocate|pin|offload)|bad_alloc"
_MEANINGS: tuple[tuple[str, Callable[[str, str | None], BufdbError]], ...] = (
    (r"No space left|Disk quota exceeded", _disk_full),
    (r"File too large", _too_large),
    (
        r"Corrupt|Data Corruption|not a valid DuckDB|Could not read enough bytes|"
        r"Failure while replaying WAL|Serialization Error",
        _damaged,
    ),
    (_MEMORY, _no_memory),
    (r"Permission denied|Read-only file system|read-only mode", _read_only),
    (r"Input/output error", _disk_error),
)
"""The meaning of DuckDB's words; the first match counts."""
