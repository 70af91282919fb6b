"""What a command lets the library know about waiting: how long, and where to say that it waits.

A context variable, so that every way to open a database (a query, an ingest, the pytest plugin)
waits alike without each function on the way handing the number on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

DEFAULT_WAIT_S = 10.0
"""An ingest of some hundred modules is done in this time [s]."""


def _silent(text: str) -> None:
    """Notes of a library that nobody listens to."""


@dataclass(frozen=True)
class Patience:
    """How to wait for a database that another process holds."""

    seconds: float = DEFAULT_WAIT_S
    """Time after which waiting ends with an error [s]; 0 does not wait."""
    note: Callable[[str], None] = _silent
    """Takes one line for the user."""


PATIENCE: ContextVar[Patience] = ContextVar("patience", default=Patience())  # noqa: B039
