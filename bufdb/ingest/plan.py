"""What to read: modules in groups, what a process is given to read them, progress."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bufdb.dumps.discover import NOT_A_DUMP, Source, base_of, discover
from bufdb.dumps.files import ModuleFiles, Oddity, as_text
from bufdb.dumps.load import BLOCK_BYTES
from bufdb.dumps.modules import NO_BUFFERS
from bufdb.errors import UsageError
from bufdb.read.hlo import NOTHING_MORE, Own

if TYPE_CHECKING:
    from bufdb.columnar.rows import Rows
    from bufdb.read.shape import Shape


# -- What to read: the modules of every run, and whether their files are still those found ---------

Stamp = tuple[int, int, int]
"""A file's number on the device, when it was written [ns since 1970], its size [bytes]."""


@dataclass
class Job:
    """A module to be read, with the run and the key it is stored under."""

    run: str
    module_id: int
    files: ModuleFiles
    stamps: tuple[Stamp, ...] = ()
    """Stamps of its files, taken before they were read."""

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes in its files by kind; none if one is gone, which is reported when it is read."""
        try:
            return {kind: file.size() for kind, file in self.files.files.items()}
        except OSError:
            return {}


@dataclass
class PlannedRun:
    """What is planned for one run."""

    path: Source
    """The path that the run was named by."""
    jobs: list[Job] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)
    """What is left out or could not be read."""


def module_id_of(run: str, key: str) -> int:
    """Return the 63-bit hash of a run and a module key: modules.module_id."""
    digest = hashlib.blake2b(f"{run}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def plan(paths: Sequence[Source], run: str | None) -> dict[str, PlannedRun]:
    """Return the modules of every run, by its name."""
    plan: dict[str, PlannedRun] = {}
    taken: dict[int, Path] = {}
    for path in paths:
        oddities: list[Oddity] = []
        modules = discover(path, oddities)
        if not modules and not any(oddity.severity == "error" for oddity in oddities):
            raise UsageError(_nothing_in(path, oddities))
        base = Path(os.path.abspath(base_of(path)))  # noqa: PTH100 - a link keeps its own name
        name = as_text(run or base.name or "dumps")
        planned = plan.setdefault(name, PlannedRun(path))
        planned.oddities += oddities
        for files in modules:
            module_id = module_id_of(name, files.key)
            first = taken.get(module_id)
            if first is None:
                planned.jobs.append(Job(name, module_id, files))
                taken[module_id] = base
            elif first != base:
                raise UsageError(
                    f"run {name}: {files.key} is in {first} and in {base}; give the directories "
                    "different --run names, or ingest the directory above both"
                )
    return plan


def _nothing_in(path: Source, oddities: Sequence[Oddity]) -> str:
    """Return the message about a path without dumps."""
    reasons = [o.message for o in oddities if o.code in (NO_BUFFERS, NOT_A_DUMP)]
    if reasons:
        return f"no buffer assignment in {path}: {reasons[0]}"
    odd = [f"{oddity.name} {oddity.message}" for oddity in oddities]
    return (
        f"no buffer assignment in {path}; dumps are made with "
        "XLA_FLAGS=--xla_dump_to=DIR (text, which is the default)"
        + (f"; of {len(odd)} entries left out the first: {odd[0]}" if odd else "")
    )


def stamps_of(files: ModuleFiles) -> tuple[Stamp, ...]:
    """Return what changes when one of a module's files does.

    Raises:
        OSError: a file is gone.
    """
    stamps = []
    for file in files.files.values():
        found = file.path.stat()
        # A captured output may grow below the frames that were found in it.
        whole = file.stop < 0
        stamps.append((found.st_ino, *((found.st_mtime_ns, found.st_size) if whole else (0, 0))))
    return tuple(stamps)


def check_unchanged(job: Job) -> None:
    """Check that the files of a module are those that were found.

    Raises:
        OSError: one has changed since, or is gone.
    """
    if stamps_of(job.files) != job.stamps:
        raise OSError(errno.ESTALE, "it changed while it was read; ingest again when it is whole")


# -- What is given to the reader of modules, and what it gives to the store ------------------------
#
# The two may be processes, and the store need not import what reading takes.

Content = frozenset[tuple[str, str]]
"""What the rows of a module are made of: name and hash of each of its files, and `--own`."""

Event = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of `Sink`, and its arguments."""


@dataclass(frozen=True)
class Group:
    """Modules of one run that are read together."""

    jobs: Sequence[Job]
    own: Own = NOTHING_MORE
    block_bytes: int = BLOCK_BYTES
    """Text read at a time; changes no row."""
    stored: Mapping[int, Content] = field(default_factory=dict)
    """By module_id, what modules that were stored before were made of; those that are still made of
    the same are left alone."""


@dataclass
class Done:
    """The facts about a batch whose rows were emitted."""

    ids: list[int]
    """modules.module_id of its modules, in order."""
    text_bytes: int
    """Size of their files."""
    dumped_at: float
    """Earliest time of a dump [s since 1970]; inf if no file has one."""
    shapes: list[Shape]
    """The different shapes in it, each once."""
    problem_counts: Counter[str]
    """Number of diagnostics by severity."""


class Sink(Protocol):
    """Takes what is found in a group; modules are named by module_id."""

    def unchanged(self, module_id: int, dumped: float) -> None:
        """Report a module that has not changed, and when it was dumped [s since 1970, or inf]."""

    def unreadable(self, module_id: int, error: OSError) -> None:
        """Report a module with a file that cannot be read; nothing else of it was reported."""

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        """Begin the rows of these modules. A large one is alone, and read while they come."""

    def add(self, table: str, rows: Rows) -> None:
        """Add some rows of a table, at least one."""

    def part(self, size: int) -> None:
        """Report that so many more bytes of a large module were read."""

    def end(self, done: Done) -> None:
        """End the rows of these modules."""

    def lost(self, module_id: int, error: OSError) -> None:
        """Report a large module that cannot be read to its end: its rows since `begin` are void."""


class Store(Sink, Protocol):
    """A sink that stores what it is given."""

    def idle(self) -> None:
        """Store some of what waits, as nothing more has been read yet."""


def made_with(own_pattern: str | None) -> tuple[str, str]:
    """Return an entry among the files of a module for what else its rows depend on."""
    return "--own", own_pattern or ""


# -- Progress of an ingest, as it is reported ------------------------------------------------------

Progress = Callable[[int, int], None]
"""Is given the bytes done and the bytes in total."""


class Reporter:
    """The bytes of the files that were dealt with: read, unchanged or skipped."""

    def __init__(self, jobs: Iterable[Job], progress: Progress | None) -> None:
        self.sizes = {job.module_id: sum(job.sizes.values()) for job in jobs}
        self.progress = progress
        self.done_bytes, self.total_bytes = 0, sum(self.sizes.values())
        self.part_bytes = 0
        """Bytes read of the large module that is being read."""

    def done(self, ids: Iterable[int]) -> None:
        """Report these modules, by module_id, as done."""
        self.done_bytes += sum(self.sizes[module_id] for module_id in ids)
        self.part_bytes = 0
        if self.progress is not None:
            self.progress(self.done_bytes, self.total_bytes)

    def part(self, module_id: int, size: int) -> None:
        """Report bytes read of a large module, which is not done before all of it is read."""
        self.part_bytes = min(self.part_bytes + size, max(0, self.sizes[module_id] - 1))
        if self.progress is not None:
            self.progress(self.done_bytes + self.part_bytes, self.total_bytes)
