"""What is given to who reads modules, and what it tells to who stores them.

The two may be processes, and who stores need not import what reading takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bufdb.dumps.blocks import BLOCK_BYTES
from bufdb.ingest.plan import Job
from bufdb.read.hlo import NOTHING_MORE, Own

if TYPE_CHECKING:
    from bufdb.columnar.rows import Rows
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
    """By module_id what modules that were stored before were made of; such as still are made of
    the same are left alone."""


@dataclass
class Done:
    """What there is to say of a batch whose rows were told."""

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
        """It is made of what it was made of before; when it was dumped [s since 1970, or inf]."""

    def unreadable(self, module_id: int, error: OSError) -> None:
        """A file of it cannot be read; nothing of it was told."""

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        """Rows of these modules follow. A large one is alone, and read while its rows are told."""

    def add(self, table: str, rows: Rows) -> None:
        """Some rows of a table, at least one."""

    def part(self, size: int) -> None:
        """So many bytes more of a large module were read."""

    def end(self, done: Done) -> None:
        """All rows of these modules were told."""

    def lost(self, module_id: int, error: OSError) -> None:
        """A large module cannot be read to its end: what was told of it since `begin` is void."""


class Store(Sink, Protocol):
    """A sink that stores what it is told."""

    def idle(self) -> None:
        """Store some of what waits for it: nothing is read yet that could be."""


def made_with(own_pattern: str | None) -> tuple[str, str]:
    """Stands among the files of a module for what else its rows depend on."""
    return "--own", own_pattern or ""
