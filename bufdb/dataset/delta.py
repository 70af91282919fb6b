"""Delta tables: the log that lists their files, and commits through delta-rs."""

from __future__ import annotations

import importlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

import duckdb

from bufdb.database.memory import memory_limit
from bufdb.database.quoting import sql_text
from bufdb.dataset import layout
from bufdb.dataset.storage import Listed, Storage
from bufdb.dataset.writer import Owner, Writer, marker_cells, typed
from bufdb.errors import BufdbError, DatabaseError, UsageError

# -- The log of a Delta table, from which it is known which files it has: read without delta-rs ----
#
# Source: the Delta transaction log protocol (PROTOCOL.md of delta-io/delta), readers of version 1,
# and of version 3 with features that change no row. What is not known to be such is refused.

FOLDER = "_delta_log"
_FEATURES = frozenset(["timestampNtz", "vacuumProtocolCheck"])
"""Features with which a file still has exactly the rows of the table that it appears to have."""
_COMMIT = re.compile(r"(\d{20})\.json")
_LONGEST_NAME = 5_000
"""Characters of a name; no file system has longer ones."""
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass
class Log:
    """A Delta table as of its last commit."""

    version: int
    files: set[str] = field(default_factory=set)
    """Names below the table."""
    lost_version: int = -1
    """The last commit that may have removed rows; one that only moves them does not count."""
    has_protocol: bool = False


def is_log(names: Mapping[str, Listed], table: str) -> bool:
    """Return whether among the objects of a table is a Delta log."""
    return any(name.startswith(f"{table}/{FOLDER}/") for name in names)


def version(names: Mapping[str, Listed], table: str) -> int:
    """Return the last commit of a table; -1 if it has none."""
    commits, checkpoint = _parts(names, table)
    return max([checkpoint, *commits])


def read(con: duckdb.DuckDBPyConnection, root: str, table: str, names: Mapping[str, Listed]) -> Log:
    """Return what the log of a table says.

    Args:
        con: reads the log.
        root: of the dataset, as `con` reads it.
        table: its name.
        names: its objects, those of the log among them.

    Raises:
        DatabaseError: the log is damaged, or asks for more than a list of files.
        BufdbError: it needs too much memory.
    """
    commits, checkpoint = _parts(names, table)
    where = f"{root}/{table}"
    last = max([checkpoint, *commits])
    if any(number not in commits for number in range(checkpoint + 1, last + 1)):
        raise DatabaseError(f"{where}: a commit of its Delta log is missing")
    log = Log(last, lost_version=checkpoint)
    # Rows that are missing elsewhere are missed: `Snapshot` knows how many there are.
    is_compared = table in (*layout.MARKERS, "run_labels") and commits >= set(range(checkpoint + 1))
    first = 0 if is_compared else checkpoint + 1
    _require_small(names, f"{table}/{FOLDER}", range(first, last + 1), where)
    try:
        if checkpoint >= 0:
            _apply_checkpoint(con, log, checkpoint, where)
        if checkpoint >= 0 and is_compared:
            replayed = Log(checkpoint)
            _apply_commits(con, replayed, range(checkpoint + 1), where)
            if replayed.files != log.files:
                raise DatabaseError(f"{where}: a checkpoint of its Delta log contradicts it")
        _apply_commits(con, log, range(checkpoint + 1, last + 1), where)
        if not log.has_protocol:
            raise ValueError("no protocol")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatabaseError(f"{where}: its Delta log is damaged") from error
    return log


def _require_small(
    names: Mapping[str, Listed], folder: str, wanted: Sequence[int], where: str
) -> None:
    """Check that commits fit in memory, where Python holds several times their size.

    Raises:
        BufdbError: they do not.
    """
    size = sum(names[f"{folder}/{number:020}.json"].size_bytes for number in wanted)
    if size > memory_limit() // 4:
        raise BufdbError(
            f"{where}: {size} bytes of its Delta log need more memory than --memory-limit gives"
        )


def _apply_checkpoint(con: duckdb.DuckDBPyConnection, log: Log, number: int, where: str) -> None:
    """Apply what is needed of a checkpoint: a name or statistics can be of any size."""
    path = f"{where}/{FOLDER}/{number:020}.checkpoint.parquet"
    schema = con.execute("SELECT name FROM parquet_schema(?)", [path]).fetchall()
    vector = "add.deletionVector IS NOT NULL" if ("deletionVector",) in schema else "FALSE"
    features = "protocol.readerFeatures" if ("readerFeatures",) in schema else "NULL"
    rows = con.execute(
        f"SELECT add IS NOT NULL, left(add.path, {_LONGEST_NAME}), {vector}, "
        f"protocol IS NOT NULL, protocol.minReaderVersion, {features} "
        f"FROM read_parquet({sql_text(path)}) WHERE add IS NOT NULL OR protocol IS NOT NULL"
    )
    for is_added, name, has_vector, is_protocol, needed, known in _fetched(rows):
        action: dict[str, Any] = {}
        if is_added:
            action["add"] = {"path": name, "deletionVector": has_vector or None}
        if is_protocol:
            action["protocol"] = {"minReaderVersion": needed, "readerFeatures": known}
        _apply(log, number, action, where)


def _apply_commits(
    con: duckdb.DuckDBPyConnection, log: Log, wanted: Sequence[int], where: str
) -> None:
    """Apply commits.

    Raises:
        ValueError: one is empty, or both adds and removes a file.
        DatabaseError: one asks for more than a list of files.
    """
    if not wanted:
        return
    paths = ", ".join(sql_text(f"{where}/{FOLDER}/{number:020}.json") for number in wanted)
    rows = con.execute(
        f"SELECT parse_filename(filename, true), json::VARCHAR FROM read_ndjson_objects("
        f"[{paths}], filename = true) ORDER BY ALL"
    )
    count = 0
    for stem, texts in groupby(_fetched(rows), key=itemgetter(0)):
        count += 1
        names: dict[str, set[str]] = {"add": set(), "remove": set()}
        for _, text in texts:
            action = json.loads(text, object_pairs_hook=_object)
            _apply(log, int(stem), action, where)
            for kind, some in names.items():
                if action.get(kind) is not None:
                    some.add(unquote(action[kind]["path"]))
        if names["add"] & names["remove"]:
            raise ValueError(f"commit {stem} adds and removes a file")
    if count < len(wanted):
        raise ValueError("a commit is empty")


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of several values of a name readers take different ones."""
    found = dict(items)
    if len(found) < len(items):
        raise ValueError("a name is repeated")
    return found


def _parts(names: Mapping[str, Listed], table: str) -> tuple[set[int], int]:
    """Return the numbers of the commits, and of the last checkpoint; -1 if there is none."""
    texts = [name.rpartition("/")[2] for name in names if name.startswith(f"{table}/{FOLDER}/")]
    commits = {int(found[1]) for text in texts if (found := _COMMIT.fullmatch(text))}
    checkpoints = [int(found[1]) for text in texts if (found := _CHECKPOINT.fullmatch(text))]
    return commits, max(checkpoints, default=-1)


def _fetched(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while many := rows.fetchmany(1_000):
        yield from many


def _apply(log: Log, number: int, action: dict[str, Any], where: str) -> None:
    """Apply an action; in any order, since no commit both adds and removes a file."""
    protocol, added, removed = (action.get(name) for name in ("protocol", "add", "remove"))
    if protocol is not None:
        _require_plain(protocol, where)
        log.has_protocol = True
    if added is not None:
        if added.get("deletionVector") is not None:
            raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
        path = unquote(added["path"])
        if path.startswith(f"{FOLDER}/"):
            raise ValueError("a file of the log is no file of the table")
        log.files.add(path)
    if removed is not None:
        log.files.discard(unquote(removed["path"]))
        if removed.get("dataChange", True):
            log.lost_version = max(log.lost_version, number)


_CURE = "ingest the dumps again, into another folder"


def _require_plain(protocol: dict[str, Any], where: str) -> None:
    """Check that a list of files is enough for a reader of this protocol.

    Raises:
        DatabaseError: it is not.
    """
    needed, features = protocol["minReaderVersion"], set(protocol.get("readerFeatures") or ())
    if "deletionVectors" in features:
        raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
    unknown = sorted(features - _FEATURES)
    if unknown or needed not in (1, 3):
        what = ", ".join(unknown)[:200] or f"readers of version {needed}"
        raise DatabaseError(f"{where} is a Delta table for {what}, which bufdb does not support")


# -- Rows of a database in memory as commits of Delta tables, through delta-rs (`bufdb[delta]`) ----
#
# A table is committed at a time, markers last, as the files of a plain dataset are written. Rows
# that were replaced are deleted after that, so that other readers of a table find each module once;
# a reader of bufdb's starts over if a table lost rows while it looked (`Snapshot`).

_ATTEMPTS = 30
"""How often a commit is tried when others come first."""
_ODD = re.compile(r"[\[\]%^|\\]")
"""What delta-rs 1.6 panics at in a path, or misunderstands."""
_AT_ONCE = 50
"""Owners that one predicate names."""


def delta_rs() -> Any:
    """Return the package deltalake.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise UsageError(f"Delta tables need: pip install 'bufdb[delta]' ({error})") from error


class DeltaWriter(Writer):
    """Commits the rows of owners in the tables of `con`, markers last."""

    at_once = 5_000

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, columns: layout.Columns
    ) -> None:
        """Find delta-rs.

        Raises:
            UsageError: it is not installed, or cannot write there.
        """
        super().__init__(con, place, columns)
        if odd := _ODD.search(place.root):
            raise UsageError(f"{place.root}: delta-rs cannot write to a path with {odd[0]!r}")
        self.delta = delta_rs()
        self.properties = self.delta.WriterProperties(compression="ZSTD")

    def remove_modules(self, owners: Sequence[Owner], run: str) -> None:
        """Remove modules by markers without rows, which a later version may follow."""
        for start in range(0, len(owners), self.at_once):
            some = owners[start : start + self.at_once]
            cells = f"owners.owner_id AS module_id, {sql_text(run)} AS run_name"
            source = f"SELECT {cells}, {_own_cells('modules', _part())} FROM {_listed(some)}"
            self._append("modules", source)
            self._forget(
                some, [name for name, types in self.columns.items() if "module_id" in types]
            )

    def _store(
        self, owners: Sequence[Owner], sources: Mapping[str, str], key: str, marker: str
    ) -> None:
        # A part of its own: what a killed writer has left of the same owners, and what another
        # writes at this moment, is not counted along with these rows.
        part_id = _part()
        for table in [*(name for name in sources if name != marker), marker]:
            cells = ", ".join(typed(name, kind) for name, kind in self.columns[table].items())
            rows = (
                f"FROM {sources[table]} AS stored JOIN {_listed(owners)} "
                f"ON owners.owner_id = stored.{key}"
            )
            ((has_rows,),) = self.con.execute(f"SELECT count(*) > 0 {rows}").fetchall()
            if has_rows:
                order = "ORDER BY owners.owner_id"
                self._append(table, f"SELECT {cells}, {_own_cells(table, part_id)} {rows} {order}")
        self._forget(owners, list(sources))

    def _append(self, table: str, select: str) -> None:
        def append(uri: str) -> None:
            self.delta.write_deltalake(
                uri,
                self.con.sql(select),
                mode="append",
                schema_mode="merge",
                partition_by=["dt"],
                writer_properties=self.properties,
            )

        self._committed(table, append)

    def _forget(self, owners: Sequence[Owner], tables: Sequence[str]) -> None:
        """Delete rows that others have replaced."""
        later = [owner for owner in owners if layout.follows(owner.version)]
        for start in range(0, len(later), _AT_ONCE):
            predicate = " OR ".join(
                f"(owner_id = {owner.owner_id} AND owner_version < {owner.version})"
                for owner in later[start : start + _AT_ONCE]
            )
            for table in tables:
                self._committed(table, partial(self._delete, predicate))

    def _delete(self, predicate: str, uri: str) -> None:
        if self.delta.DeltaTable.is_deltatable(uri):
            self.delta.DeltaTable(uri).delete(predicate, writer_properties=self.properties)

    def _committed(self, table: str, commit: Callable[[str], None]) -> None:
        committed(self.delta, f"{self.place.root}/{table}", commit)


def committed(delta: Any, uri: str, commit: Callable[[str], None]) -> None:
    """Do what commits to a table, and repeat it as long as others come first.

    Raises:
        BufdbError: it fails for another reason, or too often.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return commit(uri)
        except delta.exceptions.DeltaError as error:
            is_late = isinstance(error, delta.exceptions.CommitFailedError) or _EXISTS in str(error)
            if not is_late or attempt == _ATTEMPTS - 1:
                words = " ".join(str(error).split())[:300]
                raise BufdbError(f"{uri}: {words}") from error
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
    return None


_EXISTS = "already exists"
"""What delta-rs says to the second of two writers that make a table at once."""


def _part() -> int:
    return layout.next_part(0)


def _listed(owners: Sequence[Owner]) -> str:
    values = ", ".join(
        f"({owner.owner_id}::BIGINT, {owner.version}::BIGINT, {owner.is_removed}, "
        f"{sql_text(owner.day)})"
        for owner in owners
    )
    return f"(VALUES {values}) AS owners(owner_id, owner_version, is_removed, dt)"


def _own_cells(table: str, part_id: int) -> str:
    cells = f"owners.owner_id, owners.owner_version, {part_id}::BIGINT AS part_id"
    if table in layout.MARKERS:
        cells += f", {marker_cells('owners.is_removed')}"
    return f"{cells}, owners.dt"
