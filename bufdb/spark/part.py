"""What a worker does with a group of modules: read it and store its objects in a dataset.

The function is the same wherever it runs, and needs neither Spark nor a database. What it stores
depends on the part alone, names of objects included: a part that is stored twice, also by two
workers at once, is there once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bufdb import __version__
from bufdb.columnar.rows import Rows
from bufdb.database import store
from bufdb.database.faults import as_known
from bufdb.dataset import layout
from bufdb.dataset.ingest import contents
from bufdb.dataset.places import Place, place_of
from bufdb.dataset.writer import Owner, Writer
from bufdb.errors import BufdbError
from bufdb.ingest.group import read
from bufdb.ingest.rows.modules import shape_row
from bufdb.ingest.rows.writer import TableWriter
from bufdb.ingest.tables import MODULE_TABLES
from bufdb.ingest.workers.work import Done, Event, Group

_STORED = "stored_elsewhere"
"""A word besides those of a sink: modules, by module_id, whose rows are stored, and how many."""


@dataclass(frozen=True)
class Target:
    """Where parts are stored, and what a worker needs in order to store them there."""

    url: str
    mark: str | None
    """A file in the folder of the dataset, which a worker on the same disk sees; None for URLs."""
    memory_limit: str
    bufdb_version: str = __version__

    def require(self) -> None:
        """Nothing if this process can store parts there.

        Raises:
            BufdbError: it is of another version, or does not see the folder.
        """
        if self.bufdb_version != __version__:
            raise BufdbError(
                f"worker {host()} has bufdb {__version__}, this is {self.bufdb_version}; "
                "install the same version on both"
            )
        if self.mark is not None and not os.path.exists(self.mark):  # noqa: PTH110
            raise BufdbError(
                f"worker {host()} does not see the folder {self.url}; a dataset of several hosts "
                "is on a disk that they share, under the same name, or at a URL such as s3://"
            )


@dataclass(frozen=True)
class Part:
    """A group of modules of one run."""

    target: Target
    group: Group
    day: str
    """Under which the run is stored."""
    versions: Mapping[int, int]
    """Versions of those modules that the dataset has, by module_id."""


@dataclass
class Outcome:
    """What became of a part."""

    host: str
    events: list[Event] = field(default_factory=list)
    """What a sink is told, but for rows."""


def store_pickled(part: bytes) -> bytes:
    """`store`, from a pickled `Part` to a pickled `Outcome`."""
    return pickle.dumps(store_part(pickle.loads(part)))


def store_part(part: Part) -> Outcome:
    """Read and store the modules of a part.

    Raises:
        BufdbError: they cannot be stored; a module that cannot be read is in the outcome.
    """
    part.target.require()
    outcome = Outcome(host())
    place = place_of(part.target.url)
    with _memory(part.target) as con:
        sink = _Storing(con, place, part, outcome)
        try:
            read(part.group, sink)
        except Exception as error:  # raised as it is unless it is known to come from outside
            known = as_known(error)
            if known is None:
                raise
            raise BufdbError(f"worker {outcome.host}: {known}") from error
    return outcome


def unseen(paths: list[str]) -> list[str]:
    """Those of these files that are not there for this process."""
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110


def host() -> str:
    """The name of this machine, for people."""
    return socket.gethostname()


def is_gone(error: OSError) -> bool:
    """Whether a file or a folder above it is not there."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR)


@contextlib.contextmanager
def _memory(target: Target) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory."""
    config = {"threads": "1", "memory_limit": target.memory_limit}
    con = store.open_writable(":memory:", config)
    try:
        con.execute(f"SET temp_directory = '{store.spill_folder()}'")
        yield con
    finally:
        con.close()


class _Storing:
    """A sink that stores what it is told, a batch at a time."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Place, part: Part, outcome: Outcome
    ) -> None:
        self.con, self.work, self.outcome = con, part, outcome
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        self.rows, self.objects = TableWriter(con), Writer(con, place, layout.columns(con, catalog))

    def unchanged(self, module_id: int, dumped: float) -> None:
        self._tell("unchanged", module_id, dumped)

    def unreadable(self, module_id: int, error: OSError) -> None:
        self._tell("unreadable", module_id, error)

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        self.rows.begin()
        self.before = self.rows.row_count
        self._tell("begin", ids, is_large=is_large)

    def add(self, table: str, rows: Rows) -> None:
        self.rows.add(table, rows)

    def part(self, size: int) -> None:
        pass

    def end(self, done: Done) -> None:
        self._tell(_STORED, done.ids, self.rows.row_count - self.before)
        self.rows.add_rows("shapes", [shape_row(shape) for shape in done.shapes])
        self.rows.commit()
        self.objects.store_modules(self._owners(done.ids))
        for table in (*MODULE_TABLES, "shapes"):
            self.con.execute(f'DELETE FROM "{table}"')
        self._tell("end", done)

    def lost(self, module_id: int, error: OSError) -> None:
        self.rows.settle()
        self.con.execute("ROLLBACK")
        self._tell("lost", module_id, error)

    def _owners(self, ids: list[int]) -> list[Owner]:
        day, versions = self.work.day, self.work.versions
        return [
            Owner(key, layout.version_of([day, *content], versions.get(key)), day)
            for key, content in contents(self.con, ids)
        ]

    def _tell(self, word: str, *given: Any, **named: Any) -> None:
        self.outcome.events.append((word, given, named))
