"""The part of an ingest that a worker reads, and how parts are spread over a cluster."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from bufdb import __version__
from bufdb.columnar.rows import Rows
from bufdb.database import spill, store
from bufdb.database.faults import as_known
from bufdb.database.quoting import sql_text
from bufdb.dataset import layout
from bufdb.dataset.dump_ingest import contents
from bufdb.dataset.storage import Storage, storage_of
from bufdb.dataset.writer import Owner, Writer
from bufdb.dumps.contents import Part as Content
from bufdb.errors import BufdbError
from bufdb.ingest.group import read
from bufdb.ingest.rows import MODULE_TABLES, shape_row
from bufdb.ingest.work import Done, Event, Group
from bufdb.ingest.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# -- What a worker does with a group of modules: read it and store its objects in a dataset --------
#
# The function is the same wherever it runs, and needs neither Spark nor a database. What it stores
# depends on the part alone, names of objects included: a part that is stored twice, also by two
# workers at once, is there once.

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
        """Check that this process can store parts there.

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
    """The day under which the run is stored."""
    versions: Mapping[int, int]
    """Versions of those modules that the dataset has, by module_id."""


@dataclass
class Outcome:
    """What became of a part."""

    host: str
    events: list[Event] = field(default_factory=list)
    """What a sink is given, except for rows."""


def store_pickled(part: bytes) -> bytes:
    """Run `store_part` from a pickled `Part` to a pickled `Outcome`."""
    return pickle.dumps(store_part(pickle.loads(part)))


def store_part(part: Part) -> Outcome:
    """Read and store the modules of a part.

    Raises:
        BufdbError: they cannot be stored; a module that cannot be read is in the outcome.
    """
    part.target.require()
    outcome = Outcome(host())
    place = storage_of(part.target.url)
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
    """Return those of these files that this process does not see."""
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110


def host() -> str:
    """Return the name of this machine, for people."""
    return socket.gethostname()


def is_gone(error: OSError) -> bool:
    """Return whether a file or a folder above it is not there."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR)


@contextlib.contextmanager
def _memory(target: Target) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database in memory within the block."""
    config = {"threads": "1", "memory_limit": target.memory_limit}
    con = store.open_writable(":memory:", config)
    try:
        con.execute(f"SET temp_directory = {sql_text(spill.spill_folder())}")
        yield con
    finally:
        con.close()


class _Storing:
    """A sink that stores what it is given, a batch at a time."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, part: Part, outcome: Outcome
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

    def content(self, part: Content) -> None:
        self.rows.add_rows("file_contents", [part.row()])

    def part(self, size: int) -> None:
        pass

    def end(self, done: Done) -> None:
        self._tell(_STORED, done.ids, self.rows.row_count - self.before)
        self.rows.add_rows("shapes", [shape_row(shape) for shape in done.shapes])
        self.rows.commit()
        self.objects.store_modules(self._owners(done.ids))
        for table in (*MODULE_TABLES, "shapes", "file_contents"):
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

    def _tell(self, word: str, *arguments: Any, **named: Any) -> None:
        self.outcome.events.append((word, arguments, named))


# -- Parts of an ingest as tasks of Spark: one `mapInArrow` over their numbers ---------------------
#
# A number is a task and a partition, in the order in which Spark begins them; the parts travel with
# the function. Nothing is shuffled, so that a worker that is lost takes nothing with it but what it
# was about to do.

WATCH_S = 0.2
"""Time between two checks of a job's progress [s]."""
_SLOTS = 64
"""What is assumed of a server that does not report its number."""
_OURS = re.compile(r"bufdb\.errors\.\w+: (.+)")
_MISSING = re.compile(r"No module named '([\w.]+)'")
_LAST = re.compile(r"^\s*(?:\w+\.)*(\w*(?:Error|Exception): .+)$", re.MULTILINE)


class SparkScatter:
    """The workers of a session."""

    def __init__(self, session: SparkSession) -> None:
        from pyspark import cloudpickle

        self.session = session
        self.pickled: Callable[[Part], bytes] = cloudpickle.dumps
        try:
            self.slots: int = session.sparkContext.defaultParallelism
        except Exception:  # a client of Spark Connect has no context; pyspark and Sail each say so
            self.slots = _SLOTS  # by another error, and the number only sizes the groups

    def check(self, target: Target, paths: Sequence[str]) -> list[str]:
        """Return which of these files a worker does not see.

        Raises:
            BufdbError: it cannot store parts: bufdb is missing or another one, or the folder is.
        """
        wanted = list(paths)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for _ in batches:
                target.require()
                missing = unseen(wanted)
                yield pa.RecordBatch.from_pydict({"path": pa.array(missing, pa.string())})

        frame = self.session.range(0, 1, 1, 1).mapInArrow(run, "path STRING")
        return [row.path for row in self._collect(frame, None)]

    def store(self, parts: Sequence[bytes], watch: Callable[[], None] | None) -> list[bytes]:
        """Return the outcomes of parts, in order.

        Raises:
            BufdbError: one cannot be stored.
        """
        numbered = list(parts)

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            for batch in batches:
                numbers = batch.column(0).to_pylist()
                outcomes = [store_pickled(numbered[number]) for number in numbers]
                columns = {"number": batch.column(0), "outcome": pa.array(outcomes, pa.binary())}
                yield pa.RecordBatch.from_pydict(columns)

        numbers = self.session.range(0, len(numbered), 1, len(numbered))
        frame = numbers.mapInArrow(run, "number BIGINT, outcome BINARY")
        by_part = {row.number: bytes(row.outcome) for row in self._collect(frame, watch)}
        return [by_part[number] for number in range(len(numbered))]

    def _collect(self, frame: Any, watch: Callable[[], None] | None) -> list[Any]:
        """Return the rows of a frame; its job is ended when this process is interrupted."""
        try:
            return _watched(frame.collect, watch)
        except BaseException as error:
            self._cancel()
            if isinstance(error, Exception) and not isinstance(error, BufdbError):
                raise BufdbError(reason(str(error))) from error
            raise

    def _cancel(self) -> None:
        try:
            if hasattr(self.session, "_jsc") or not hasattr(self.session, "client"):
                self.session.sparkContext.cancelAllJobs()
            else:
                self.session.interruptAll()
        except Exception:  # the server is gone, or (Sail) knows no such request
            return


def reason(text: str) -> str:
    """Return what to say of a job that failed: the words of the worker, if any came through."""
    if match := _OURS.search(text):
        return match[1].strip()
    if (match := _MISSING.search(text)) and match[1].partition(".")[0] == "bufdb":
        return (
            "bufdb is not installed where Spark's workers run; install it in their image, or "
            "in the environment that PYSPARK_PYTHON or spark.archives names"
        )
    match = _LAST.search(text)
    words = match[1] if match else text.strip().partition("\n")[0]
    return f"Spark: {' '.join(words.split())[:300]}"


def _watched(work: Callable[[], list[Any]], watch: Callable[[], None] | None) -> list[Any]:
    """Return what `work` returns, in a thread of its own, while this one watches.

    Also without a `watch`: Spark's answer to Ctrl-C is a call of its server by this thread, which
    must not be in the middle of another.
    """
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.extend(work())
        except BaseException as error:  # raised where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(WATCH_S)
        if watch is not None:
            watch()
    if errors:
        raise errors[0]
    return result
