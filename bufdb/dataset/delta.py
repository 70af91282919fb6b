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
from typing import Any
from urllib.parse import unquote

import duckdb

from bufdb.database.quoting import sql_text
from bufdb.dataset import layout
from bufdb.dataset.places import Listed, Place
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
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass
class Log:
    """A Delta table as of its last commit."""

    version: int
    files: set[str] = field(default_factory=set)
    """Names below the table."""
    lost_version: int = -1
    """The last commit that may have removed rows; one that only moves them does not count."""


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
    """
    commits, checkpoint = _parts(names, table)
    where = f"{root}/{table}"
    last = max([checkpoint, *commits])
    wanted = range(checkpoint + 1, last + 1)
    if any(number not in commits for number in wanted):
        raise DatabaseError(f"{where}: a commit of its Delta log is missing")
    log = Log(last, lost_version=checkpoint)
    try:
        if checkpoint >= 0:
            path = f"{where}/{FOLDER}/{checkpoint:020}.checkpoint.parquet"
            rows = con.execute(
                "SELECT to_json({'add': add, 'protocol': protocol})"
                f"FROM read_parquet({sql_text(path)}) WHERE add IS NOT NULL OR protocol IS NOT NULL"
            )
            for (text,) in _fetched(rows):
                _apply(log, checkpoint, json.loads(text), where)
        if wanted:
            paths = ", ".join(sql_text(f"{where}/{FOLDER}/{number:020}.json") for number in wanted)
            rows = con.execute(
                f"SELECT parse_filename(filename, true), json::VARCHAR FROM read_ndjson_objects("
                f"[{paths}], filename = true) ORDER BY ALL"
            )
            for stem, text in _fetched(rows):
                _apply(log, int(stem), json.loads(text), where)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatabaseError(f"{where}: its Delta log is damaged") from error
    return log


def _parts(names: Mapping[str, Listed], table: str) -> tuple[set[int], int]:
    """Return the numbers of the commits, and of the last checkpoint; -1 if there is none."""
    texts = [name.rpartition("/")[2] for name in names if name.startswith(f"{table}/{FOLDER}/")]
    commits = {int(found[1]) for text in texts if (found := _COMMIT.fullmatch(text))}
    checkpoints = [int(found[1]) for text in texts if (found := _CHECKPOINT.fullmatch(text))]
    return commits, max(checkpoints, default=-1)


def _fetched(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while many := rows.fetchmany(10_000):
        yield from many


def _apply(log: Log, number: int, action: dict[str, Any], where: str) -> None:
    """Apply an action of a commit.

    Within a commit no file is both added and removed, so their order does not matter.
    """
    protocol, added, removed = (action.get(name) for name in ("protocol", "add", "remove"))
    if protocol is not None:
        _require_plain(protocol, where)
    if added is not None:
        if added.get("deletionVector") is not None:
            raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
        log.files.add(unquote(added["path"]))
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
        self, con: duckdb.DuckDBPyConnection, place: Place, columns: layout.Columns
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
