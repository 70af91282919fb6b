"""What a dataset holds at one moment: its objects, and the owners that count.

Markers are listed first and the other tables after them. An owner's rows are all there before its
marker is, and nothing that counted a while ago is removed; so whatever a snapshot commits to it
can read, whoever writes meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb

from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout, views
from bufdb.dataset.delta import log
from bufdb.dataset.layout import MARKERS, Name
from bufdb.dataset.places import Listed, Place
from bufdb.errors import DatabaseError

_ATTEMPTS = 20
FREE_ROWS, MOST_ROWS = 1_000_000, 30
"""Rows of an object, and beyond them rows for each of its bytes: five million that are the same
take four kilobytes, and each joined with each they have no end. Of the same run 300 times there
are 4 to a byte."""


@dataclass(frozen=True)
class Owners:
    """Some of the owners that count, by what names of objects say."""

    loose: set[tuple[int, int]] = field(default_factory=set)
    """Key and version of those with objects of their own."""
    parts: set[int] = field(default_factory=set)

    def have(self, name: Name) -> bool:
        """Whether an object has rows of any of them."""
        if name.owner_id is None:
            return name.part_id is None or name.part_id in self.parts
        return (name.owner_id, name.owner_version) in self.loose


class Snapshot:
    """A dataset as it was when this was made."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        place: Place,
        owners: str,
        module_ids: set[int] | None = None,
    ) -> None:
        """List the markers and read them.

        Args:
            con: where they are read.
            place: where the dataset lies.
            owners: the table to make in `con`, of the columns `views.COMMITTED_COLUMNS`.
            module_ids: modules that are looked for, if not all are; others may be left out.

        Raises:
            DatabaseError: the dataset cannot be read, or was written by a bufdb of another schema.
        """
        self.con, self.place, self.owners = con, place, owners
        self.paths: set[str] = set()
        """Objects from which rows are read."""
        self._listed: dict[str, dict[str, tuple[Name, Listed]]] = {}
        self._lost: dict[str, int] = {}
        self.is_delta = any(log.is_log(place.names(table), table) for table in MARKERS)
        attempt = 0
        while not self._is_taken(module_ids):
            attempt += 1
            if attempt == _ATTEMPTS:
                raise DatabaseError(f"{place.root} is being written again and again; try later")
        ((odd,),) = con.execute(
            f"SELECT min(schema_version) FILTER (schema_version <> {SCHEMA_VERSION}) FROM {owners}"
        ).fetchall()
        if odd is not None:
            raise DatabaseError(
                f"{place.root} holds rows of schema version {odd}, this bufdb needs "
                f"{SCHEMA_VERSION}; ingest the dumps again, into another folder"
            )

    def _is_taken(self, module_ids: set[int] | None) -> bool:
        """Read the markers; whether what they commit is there still.

        In a plain dataset it is. In a Delta table rows are deleted as soon as others have taken
        their place, so there the other tables are listed at once, and the last commit of each from
        before the markers were read tells whether it has lost any since.
        """
        self._listed.clear()
        self.paths.clear()
        before = self._versions() if self.is_delta else {}
        self._commit(module_ids)
        for table in before:
            self.objects(table)
        return all(self._lost.get(table, -1) <= version for table, version in before.items())

    def _versions(self) -> dict[str, int]:
        return {table: log.version(self.place.names(table), table) for table in layout.tables()}

    def _commit(self, module_ids: set[int] | None) -> None:
        """Read the markers into the table of owners."""
        # Modules before runs: a run's row is there before its first module.
        found: dict[str, str] = {}
        for table in reversed(MARKERS):
            ids = module_ids if table == "modules" else None
            names = [
                text
                for text, (name, _) in self.objects(table).items()
                if ids is None or name.owner_id is None or name.owner_id in ids
            ]
            if names:
                self.require_sound(table)
                found[table] = self._rows(names)
        self.has_markers = bool(found)
        try:
            self.con.execute(f"CREATE OR REPLACE TABLE {self.owners} AS {views.committed(found)}")
        except duckdb.Error as error:
            raise unreadable(self.place, error) from error

    def objects(self, table: str) -> dict[str, tuple[Name, Listed]]:
        """The objects of a table by their names."""
        if table not in self._listed and self.is_delta:
            self._listed[table] = self._of_log(table)
        if table not in self._listed:
            listed = self.place.names(table)
            named = ((text, layout.parse(text), entry) for text, entry in sorted(listed.items()))
            self._listed[table] = {
                text: (name, entry) for text, name, entry in named if name is not None
            }
        return self._listed[table]

    def _of_log(self, table: str) -> dict[str, tuple[Name, Listed]]:
        """The objects of a Delta table.

        Raises:
            DatabaseError: one is not there, or its name leads elsewhere.
        """
        listed = self.place.names(table)
        if not log.is_log(listed, table):
            return {}
        found = log.read(self.con, self.place.root, table, listed)
        self._lost[table] = found.lost_version
        names = sorted(f"{table}/{name}" for name in found.files)
        for name in names:
            if name not in listed:
                raise DatabaseError(f"{self.place.root}/{name[:200]}: its Delta log names it, gone")
        return {
            name: (Name(table, layout.day_in(name), None, None, None), listed[name])
            for name in names
        }

    def relation(self, table: str, of: Owners | None = None) -> str | None:
        """The rows of a table's objects, or of those with rows of some owners; None if none has."""
        chosen = self.chosen(table, of)
        return self._rows(list(chosen)) if chosen else None

    def require_sound(self, table: str, of: Owners | None = None) -> None:
        """Nothing if the objects of a table have no more rows than bufdb can have written.

        Raises:
            DatabaseError: one has.
        """
        paths = [f"{self.place.root}/{name}" for name in self.chosen(table, of)]
        if not paths:
            return
        odd = self.con.execute(
            "SELECT file_name, num_rows, file_size_bytes FROM parquet_file_metadata(?) "
            f"WHERE num_rows > greatest({FREE_ROWS}, {MOST_ROWS} * file_size_bytes) LIMIT 1",
            [paths],
        ).fetchone()
        if odd is not None:
            name, rows, size = odd
            raise DatabaseError(f"{name}: {rows} rows in {size} bytes; no bufdb has written that")

    def size(self, table: str, of: Owners) -> int:
        """Bytes in the objects of a table that have rows of some owners."""
        return sum(entry.size_bytes for entry in self.chosen(table, of).values())

    def chosen(self, table: str, of: Owners | None) -> dict[str, Listed]:
        """The objects of a table, or those that have rows of some owners, by name."""
        listed = self.objects(table).items()
        return {text: entry for text, (name, entry) in listed if of is None or of.have(name)}

    def _rows(self, names: list[str]) -> str:
        paths = [f"{self.place.root}/{name}" for name in names]
        self.paths.update(paths)
        return views.objects(paths)

    def owners_of(self, runs: str | None = None, *, with_removed: bool = False) -> Owners:
        """The owners that count.

        Args:
            runs: a SELECT of the names of runs, if only their owners are wanted.
            with_removed: also those of which a marker says that they are gone.
        """
        where = "TRUE" if with_removed else "NOT is_removed"
        if runs is not None:
            where += f" AND run_name IN ({runs})"
        # Of a compacted dataset a million owners are in a hundred parts.
        loose = self.con.execute(
            f"SELECT owner_id, owner_version FROM {self.owners} "
            f"WHERE part_id = {layout.LOOSE} AND {where}"
        ).fetchall()
        parts = self.con.execute(
            f"SELECT DISTINCT part_id FROM {self.owners} "
            f"WHERE part_id <> {layout.LOOSE} AND {where}"
        ).fetchall()
        return Owners({(key, version) for key, version in loose}, {part for (part,) in parts})


def unreadable(place: Place, error: duckdb.Error) -> DatabaseError:
    """What DuckDB says of a dataset that it cannot read, on one line."""
    reason = " ".join(str(error).split())[:300]
    return DatabaseError(f"{place.root} cannot be read: {reason}")


def require_rows(snapshot: Snapshot) -> None:
    """Nothing if a dataset is there.

    Raises:
        DatabaseError: there is none.
    """
    if not snapshot.has_markers:
        root = snapshot.place.root
        raise DatabaseError(f"no dataset {root}; make one with 'bufdb ingest DUMPS --out {root}'")
