"""What is given to the reader of modules, and what it gives to the store.

The two may be processes, and the store need not import what reading takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bufdb.dumps.archives import Member
from bufdb.dumps.files import BLOCK_BYTES
from bufdb.ingest.plan import Job
from bufdb.read.own import NOTHING_MORE, Own

if TYPE_CHECKING:
    from bufdb.columnar.rows import Rows
    from bufdb.dumps.contents import Part
    from bufdb.read.shape import Shape

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
    keeps_sources: bool = False
    """Whether the bytes of files are stored with what is read from them."""


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

    def content(self, part: Part) -> None:
        """Add a part of a file of these modules; the parts of a file are in order and together."""

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


def is_for_others(group: Group) -> bool:
    """Return whether another process can read a group, and give it back as a whole.

    URLs are open in this process. A large module is read in rounds; each is stored
    before the next is read.
    """
    return all(
        size_of(job) <= group.block_bytes
        and all(isinstance(file.path, Path | Member) for file in job.files.files.values())
        for job in group.jobs
    )


def size_of(job: Job) -> int:
    """Return the size of a module's files [bytes]."""
    return sum(job.sizes.values())
