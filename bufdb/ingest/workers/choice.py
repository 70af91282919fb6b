"""Who reads the groups of an ingest: this process, or others beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source
    from bufdb.ingest.plan import Job
    from bufdb.ingest.workers.start import Forerunner
    from bufdb.ingest.workers.work import Group, Store

FEW_BYTES = 16 << 20
"""Text that one process has read before others have begun."""
ENOUGH = 4
"""Processes that read as fast as one can store, which takes a third of the work."""
_LOOKED_NAMES = 10_000
"""Names of files that are looked at to see whether there is much to read."""


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
        # 50 ms, which a process that only stores need not spend.
        from bufdb.ingest import group as groups_of_modules

        groups_of_modules.read(group, sink)

    def end(self) -> None:
        """Nobody is there to go."""


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def readers(
    paths: Sequence[Source], jobs: int | None, *, may_copy: bool
) -> Iterator[Callable[[Sequence[Job]], Reader]]:
    """Gives whoever reads some modules, all that there are; processes end with the block.

    Args:
        paths: where the modules will be found: if there seems to be much, others get ready to read
            while they are looked for.
        jobs: processes at the most; None for as many as this machine has use for.
        may_copy: whether they may be copies of this process; see `bufdb.ingest.workers.start`.
    """
    count = min(cores(), ENOUGH) if jobs is None else jobs
    with contextlib.ExitStack() as ends:
        early = count > 1 and may_copy and _seem_many(paths)
        forerunner = _forerunner(count, ends) if early else None

        def reader(modules: Sequence[Job]) -> Reader:
            size = sum(sum(job.sizes.values()) for job in modules)
            if count == 1 or size < FEW_BYTES:
                return Here()
            from bufdb.ingest.workers.pool import Pool  # which a small ingest need not import

            late = may_copy and not early
            try:
                who = _forerunner(count, ends) if late else forerunner
                pool = Pool(min(count, len(modules)), who)
            except OSError:  # no more processes or files may be had
                return Here()
            ends.callback(pool.close)
            return pool

        yield reader


def _forerunner(count: int, ends: contextlib.ExitStack) -> Forerunner | None:
    """A process that others will be copies of, until the end; None if that cannot be."""
    from bufdb.ingest.workers import start

    if not start.may_copy():
        return None
    try:
        forerunner = start.Forerunner(count)
    except OSError:
        return None
    ends.callback(forerunner.close)
    return forerunner


def _seem_many(paths: Iterable[Source]) -> bool:
    """Whether there seems to be enough for others to read, by names and sizes; no promise.

    It takes 3 ms where the first 640 of 2,000 small modules are enough.
    """
    left, names_left = FEW_BYTES, _LOOKED_NAMES
    folders = [str(path) for path in paths if isinstance(path, Path)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif "_optimizations" in entry.name and entry.name.endswith(".txt"):
                    left -= entry.stat().st_size
                names_left -= 1
                if left <= 0 or names_left <= 0:
                    return left <= 0
    return left <= 0
