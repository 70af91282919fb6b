"""Rows of a database in memory as commits of Delta tables, through delta-rs (`bufdb[delta]`).

A table is committed at a time, markers last, as the files of a plain dataset are written. Rows that
something took the place of are deleted after that, so that whoever else reads a table finds each
module once; a reader of bufdb's begins again if a table lost rows while it looked (`Snapshot`).
"""

from __future__ import annotations

import importlib
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import duckdb

from bufdb.dataset import layout
from bufdb.dataset.layout import quoted
from bufdb.dataset.places import Place
from bufdb.dataset.writer import Owner, Writer, marker_cells, typed
from bufdb.errors import BufdbError, UsageError

_ATTEMPTS = 30
"""How often a commit is tried that others come before."""
_ODD = re.compile(r"[\[\]%^|\\]")
"""What delta-rs 1.6 panics at in a path, or takes for something else."""
_AT_ONCE = 50
"""Owners that one predicate names."""


def delta_rs() -> Any:
    """The package deltalake.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise UsageError(f"Delta tables need: pip install 'bufdb[delta]' ({error})") from error


class DeltaWriter(Writer):
    """Commits the rows of owners that stand in the tables of `con`, markers last."""

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
            raise UsageError(f"{place.root}: delta-rs writes to no path with {odd[0]!r} in it")
        self.delta = delta_rs()
        self.properties = self.delta.WriterProperties(compression="ZSTD")

    def remove_modules(self, owners: Sequence[Owner], run: str) -> None:
        """Let modules be gone: by markers without rows, which a later version may follow."""
        for start in range(0, len(owners), self.at_once):
            some = owners[start : start + self.at_once]
            cells = f"owners.owner_id AS module_id, {quoted(run)} AS run_name"
            source = f"SELECT {cells}, {_own_cells('modules', _part())} FROM {_listed(some)}"
            self._append("modules", source)
            self._forget(
                some, [name for name, types in self.columns.items() if "module_id" in types]
            )

    def _store(
        self, owners: Sequence[Owner], sources: Mapping[str, str], key: str, marker: str
    ) -> None:
        # A part of its own: what a writer that was killed has left of the same owners, and what
        # another writes at this moment, is not counted beside these rows.
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
        self.object_count += 1

    def _forget(self, owners: Sequence[Owner], tables: Sequence[str]) -> None:
        """Delete rows in whose place others have come."""
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
    """Do what commits to a table, again as long as others come before it.

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
"""What delta-rs says to the second of two that make a table at once."""


def _part() -> int:
    return layout.next_part(0)


def _listed(owners: Sequence[Owner]) -> str:
    values = ", ".join(
        f"({owner.owner_id}::BIGINT, {owner.version}::BIGINT, {owner.is_removed}, "
        f"{quoted(owner.day)})"
        for owner in owners
    )
    return f"(VALUES {values}) AS owners(owner_id, owner_version, is_removed, dt)"


def _own_cells(table: str, part_id: int) -> str:
    cells = f"owners.owner_id, owners.owner_version, {part_id}::BIGINT AS part_id"
    if table in layout.MARKERS:
        cells += f", {marker_cells('owners.is_removed')}"
    return f"{cells}, owners.dt"
