"""File systems of URLs, through fsspec (extra `bufdb[remote]`), and their errors on one line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bufdb.errors import BufdbError, UsageError

_TIMES = ("LastModified", "mtime", "updated", "created", "last_modified")
_FAULTS = (AssertionError, AttributeError, NameError, TypeError)
"""Faults of a program; every service has its own errors, most of them without a common base."""


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there.

    Raises:
        UsageError: it is not installed, or there is none of that name.
    """
    try:
        fsspec = importlib.import_module("fsspec")
    except ImportError as error:
        raise UsageError(f"{url}: URLs need: pip install 'bufdb[remote]'") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {error}; pip install 'bufdb[remote]'") from error
    except Exception as error:
        raise failure(error, url, UsageError) from error
    return system, path


def words(error: BaseException) -> str:
    """Return what an error of a file system says, on one line.

    Raises:
        Exception: the error itself, if it is a fault of a program.
    """
    if isinstance(error, _FAULTS):
        raise error
    return " ".join(str(error).split())[:200] or type(error).__name__


def failure(error: Exception, what: str, kind: type[BufdbError]) -> BufdbError:
    """Return an error of a file system as one of bufdb's; raises as `words` does."""
    return kind(f"{what}: {words(error)}")


def written_s(info: Mapping[str, Any]) -> float | None:
    """Return when an object was written [s since 1970]; None if its listing has no time."""
    for key in _TIMES:
        value = info.get(key)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
