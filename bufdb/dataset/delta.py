"""Delta tables through delta-rs (extra `bufdb[delta]`): the files in their logs, and commits."""

from __future__ import annotations

import importlib
import random
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb

from bufdb.database.memory import memory_limit
from bufdb.database.quoting import sql_text
from bufdb.dataset import layout
from bufdb.dataset.storage import Listed, Storage
from bufdb.dataset.writer import Owner, Writer, marker_cells, typed
from bufdb.errors import BufdbError, DatabaseError, UsageError

# -- The files of a Delta table, which its log lists -----------------------------------------------
#
# delta-rs reads a copy of the log, so that it follows no link, needs no settings of its own for a
# bucket, and sees what was examined: it has no limit of memory, and overflows the stack at nested
# JSON.

FOLDER = "_delta_log"
_FEATURES = frozenset(["timestampNtz", "vacuumProtocolCheck"])
"""Features with which a file still has exactly the rows of the table that it appears to have."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MOST_BRACKETS = 1_000
"""In an action, outside of texts; an action has some twenty."""
_CURE = "ingest the dumps again, into another folder"


@dataclass
class Log:
    """A Delta table as of its last commit."""

    files: set[str]
    """Names below the table."""
    lost_version: int
    """The last commit that may have removed rows; one that only moves them does not count."""


def is_log(names: Mapping[str, Listed], table: str) -> bool:
    """Return whether among the objects of a table is a Delta log."""
    return any(name.startswith(f"{table}/{FOLDER}/") for name in names)


def version(names: Mapping[str, Listed], table: str) -> int:
    """Return the last commit of a table; -1 if it has none."""
    commits, checkpoint = _parts(names, table)
    return max([checkpoint, *commits])


def read(
    con: duckdb.DuckDBPyConnection, place: Storage, table: str, names: Mapping[str, Listed]
) -> Log:
    """Return the files of a table.

    Args:
        con: examines a checkpoint.
        place: where the dataset lies.
        table: its name.
        names: its objects, those of the log among them.

    Raises:
        UsageError: delta-rs is not installed.
        DatabaseError: the log is damaged, or asks for more than a list of files.
        BufdbError: it needs too much memory.
    """
    commits, checkpoint = _parts(names, table)
    where, last = f"{place.root}/{table}", max([checkpoint, *commits])
    # Rows that are missing elsewhere are missed: `Snapshot` knows how many there are.
    if table in (*layout.MARKERS, "run_labels") and commits >= set(range(checkpoint + 1)):
        checkpoint = -1  # it repeats the commits, or contradicts them
    if not commits >= set(range(checkpoint + 1, last + 1)):
        raise DatabaseError(f"{where}: a commit of its Delta log is missing")
    parts = [f"{number:020}.json" for number in range(checkpoint + 1, last + 1)]
    if checkpoint >= 0:
        parts.append(f"{checkpoint:020}.checkpoint.parquet")
    sizes = [names[f"{table}/{FOLDER}/{part}"].size_bytes for part in parts]
    if 0 in sizes:
        raise DatabaseError(f"{where}: its Delta log is damaged: a commit is empty")
    _require_room(sum(sizes), where)
    delta = delta_rs()
    with tempfile.TemporaryDirectory(prefix="bufdb-delta-") as folder:
        copy = Path(folder) / FOLDER
        copy.mkdir()
        for part in parts:
            place.fetch(f"{table}/{FOLDER}/{part}", copy / part)
            _require_sound(con, copy / part, where)
        return _listed_files(delta, folder, checkpoint, last, where)


def _parts(names: Mapping[str, Listed], table: str) -> tuple[set[int], int]:
    """Return the numbers of the commits, and of the last checkpoint; -1 if there is none."""
    texts = [name.rpartition("/")[2] for name in names if name.startswith(f"{table}/{FOLDER}/")]
    commits = {int(match[1]) for text in texts if (match := _COMMIT.fullmatch(text))}
    checkpoints = [int(match[1]) for text in texts if (match := _CHECKPOINT.fullmatch(text))]
    return commits, max(checkpoints, default=-1)


def _require_room(size: int, where: str) -> None:
    """Check that a log fits in memory, where several times its size are needed.

    Raises:
        BufdbError: it does not.
    """
    if size > memory_limit() // 4:
        raise BufdbError(
            f"{where}: {size} bytes of its Delta log need more memory than --memory-limit gives"
        )


def _require_sound(con: duckdb.DuckDBPyConnection, part: Path, where: str) -> None:
    """Check a part of a log: a checkpoint's size unpacked, the depth of a commit's actions.

    Raises:
        DatabaseError: an action is nested without need; delta-rs would overflow the stack.
        BufdbError: the checkpoint is too large.
    """
    if part.suffix == ".parquet":
        (size,) = con.execute(
            f"SELECT sum(strlen(to_json(entry))) FROM read_parquet({sql_text(part)}) AS entry"
        ).fetchall()[0]
        return _require_room(size or 0, where)
    with part.open("rb") as lines:
        for line in lines:
            bare = _TEXT.sub(b"", line)
            if bare.count(b"[") + bare.count(b"{") > _MOST_BRACKETS:
                raise DatabaseError(f"{where}: its Delta log is damaged: an action is nested")
    return None


def _listed_files(delta: Any, folder: str, checkpoint: int, last: int, where: str) -> Log:
    try:
        table = delta.DeltaTable(folder)
        protocol, history = table.protocol(), table.history()
        paths = set(map(unquote, table.get_add_actions().column("path").to_pylist()))
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        words = str(error).partition("\n")[0][:200]
        raise DatabaseError(f"{where}: its Delta log is damaged: {words}") from error
    features = set(protocol.reader_features or ())
    if "deletionVectors" in features:
        raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
    if features - _FEATURES or protocol.min_reader_version not in (1, 3):
        needed = f"readers of version {protocol.min_reader_version}"
        what = ", ".join(sorted(features - _FEATURES))[:200] or needed
        raise DatabaseError(f"{where} is a Delta table for {what}, which bufdb does not support")
    if any(path.startswith(f"{FOLDER}/") for path in paths):
        raise DatabaseError(f"{where}: its Delta log is damaged: it lists files of the log")
    whole = {commit.get("version") for commit in history if _has_all_rows(commit)}
    lost = [number for number in range(checkpoint + 1, last + 1) if number not in whole]
    return Log(paths, max([checkpoint, *lost]))


def _has_all_rows(commit: Mapping[str, Any]) -> bool:
    """Return whether a commit, by what it says of itself, removes no row."""
    mode = (commit.get("operationParameters") or {}).get("mode")
    return commit.get("operation") == "OPTIMIZE" or mode == "Append"


# -- Rows of a database in memory as commits of Delta tables ---------------------------------------
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
        self._add(table, lambda: self.con.sql(select))

    def _add(self, table: str, rows: Callable[[], Any]) -> None:
        def append(uri: str) -> None:
            self.delta.write_deltalake(
                uri,
                rows(),
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
