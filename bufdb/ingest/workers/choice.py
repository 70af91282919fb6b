"""Who reads the groups of an ingest: this process, or others beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from bufdb.ingest import group as groups_of_modules
from bufdb.ingest.group import Group, Sink
from bufdb.ingest.plan import Job

FEW_BYTES = 16 << 20
"""Text that one process has read before others have begun."""
ENOUGH = 4
"""Processes that read as fast as one can store, which takes a third of the work."""


class Store(Sink, Protocol):
    """A sink that stores what it is told."""

    def settle(self) -> None:
        """Store all that waits for it, so that nothing refers to it any longer."""


class Reader(Protocol):
    """Reads groups in order."""

    count: int
    """Of the processes that read."""

    def begin(self, groups: Iterator[Group]) -> None:
        """Take groups, some ahead of what is asked for."""

    def read(self, group: Group, sink: Store) -> None:
        """Tell a sink what is found in the next of the groups, which is this one."""

    def end(self) -> None:
        """Nothing more is to be read, and of what was told all is stored."""


class Here:
    """Reads in this process."""

    count = 1

    def begin(self, groups: Iterator[Group]) -> None:
        """Nothing is read ahead."""

    def read(self, group: Group, sink: Store) -> None:
        """Tell what is found in a group."""
        groups_of_modules.read(group, sink)

    def end(self) -> None:
        """Nobody is there to go."""


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def reader(modules: Sequence[Job], jobs: int | None, *, may_copy: bool) -> Iterator[Reader]:
    """Whoever reads these modules; processes end with the block.

    Args:
        modules: all of them.
        jobs: processes at the most; None for as many as this machine has use for.
        may_copy: whether they may be copies of this process; see `bufdb.ingest.workers.start`.
    """
    size = sum(sum(job.sizes.values()) for job in modules)
    count = min(cores(), ENOUGH) if jobs is None else jobs
    if count == 1 or size < FEW_BYTES:
        yield Here()
        return
    from bufdb.ingest.workers.pool import Pool  # 10 ms that a small ingest need not spend

    try:
        pool = Pool(min(count, len(modules)), may_copy=may_copy)
    except OSError:  # no more processes or files may be had
        yield Here()
        return
    try:
        yield pool
    finally:
        pool.close()
