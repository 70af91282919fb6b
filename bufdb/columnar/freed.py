"""Memory that nobody holds any more, given back to the system.

Between the sections of a large module columns of millions of rows are given up, and in each of them
what a round took. glibc keeps what lies below anything still held, up to a third of all that ingest
holds. To ask for it back is one call and changes no setting of the process; elsewhere nothing is
done.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

MANY_VALUES = 200_000
"""Below that many values what is kept is not worth the page faults."""


def give_back(value_count: int = MANY_VALUES) -> None:
    """Give free memory back, if so many values are many."""
    if value_count >= MANY_VALUES and (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """That function of glibc; None where the C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
