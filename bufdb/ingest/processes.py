"""Choose the processes that read the groups of an ingest: this one, or a pool."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bufdb.dumps.files import BLOCK_BYTES
from bufdb.ingest.reader import Here, Reader
from bufdb.ingest.work import size_of

if TYPE_CHECKING:
    from bufdb.ingest.plan import Job

FEW_BYTES = 16 << 20
"""Text that one process has read before others have begun."""
ENOUGH = 4
"""Processes that read as fast as one can store, which takes a third of the work."""


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def readers(jobs: int | None) -> Iterator[Callable[[Sequence[Job]], Reader]]:
    """Provide the maker of a reader of all modules; its processes end with the block.

    Args:
        jobs: processes at the most; None for as many as this machine has use for.
    """
    count = min(cores(), ENOUGH) if jobs is None else jobs
    with contextlib.ExitStack() as ends:

        def reader(modules: Sequence[Job]) -> Reader:
            sizes = [size for job in modules if (size := size_of(job)) <= BLOCK_BYTES]
            if count == 1 or sum(sizes) < FEW_BYTES:
                return Here()

            try:
                from bufdb.ingest.pool import Pool  # which a small ingest need not import

                pool = Pool(min(count, len(sizes)))
            except OSError:  # no more processes or files may be had
                return Here()
            ends.callback(pool.close)
            return pool

        yield reader
