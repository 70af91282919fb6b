"""Rows of a database in memory as objects of a dataset, an owner at a time or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bufdb.database.quoting import sql_text
from bufdb.database.runs import LIVE_TABLES
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout
from bufdb.dataset.storage import Storage

OPTIONS = "FORMAT parquet, COMPRESSION zstd"
"""zstd takes 0.6 of the bytes of DuckDB's default, and no measurable extra time."""


@dataclass(frozen=True)
class Owner:
    """A module or a run on its way into the dataset."""

    owner_id: int
    version: int
    day: str
    is_removed: bool = False


class Writer:
    """Writes the rows of owners in the tables of `con`, markers last."""

    at_once = 50
    """Owners whose objects DuckDB writes together; it keeps a file open for each."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, columns: layout.Columns
    ) -> None:
        self.con, self.place, self.columns = con, place, columns

    def store_modules(self, owners: Sequence[Owner]) -> None:
        """Make modules with all their rows appear, in place of earlier versions of them."""
        tables = [name for name, types in self.columns.items() if "module_id" in types]
        sources = {table: f'"{table}"' for table in tables}
        sources["shapes"] = (
            "(SELECT shapes.*, used.module_id FROM shapes "
            'JOIN (SELECT DISTINCT module_id, shape FROM "values" UNION '
            "SELECT module_id, shape FROM instructions) AS used ON used.shape = shapes.shape)"
        )
        sources["file_contents"] = (
            "(SELECT DISTINCT ON (used.module_id, file_contents.content_hash, part_ordinal) "
            "file_contents.*, used.module_id FROM file_contents "
            "JOIN (SELECT DISTINCT module_id, content_hash FROM files) AS used "
            "ON used.content_hash = file_contents.content_hash)"
        )
        for start in range(0, len(owners), self.at_once):
            self._store(owners[start : start + self.at_once], sources, "module_id", "modules")

    def store_run(self, run: str, owner: Owner) -> None:
        """Make the rows of a run itself appear, as it was ingested from one place."""
        name = sql_text(run)
        sources = {
            table: f"(SELECT *, {owner.owner_id}::BIGINT AS run_key FROM {table} "
            f"WHERE run_name = {name}{condition})"
            for table, condition in OF_RUNS.items()
        }
        self._store([owner], sources, "run_key", "runs")

    def remove_modules(self, owners: Sequence[Owner], run: str) -> None:
        """Remove modules by a marker without rows, which a later version may follow."""
        with self.place.staging() as folder:
            for owner in owners:
                made = folder / "removed.parquet"
                self.con.execute(
                    f"COPY (SELECT {owner.owner_id}::BIGINT AS module_id, "
                    f"{sql_text(run)} AS run_name, {_own_cells('modules', owner)}) "
                    f"TO {sql_text(made)} ({OPTIONS})"
                )
                self._put(made, "modules", owner)

    def _store(
        self, owners: Sequence[Owner], sources: Mapping[str, str], key: str, marker: str
    ) -> None:
        with self.place.staging() as folder:
            for table in [*(name for name in sources if name != marker), marker]:
                made = self._make(owners, table, sources[table], key, folder)
                for owner, file in made:
                    self._put(file, table, owner)

    def _make(
        self, owners: Sequence[Owner], table: str, source: str, key: str, folder: Path
    ) -> Iterable[tuple[Owner, Path]]:
        """Yield a file for each owner that has rows of a table."""
        types = self.columns[table]
        cells = ", ".join(typed(column, kind) for column, kind in types.items())
        if len(owners) == 1:
            (owner,) = owners
            file = folder / f"{table}.parquet"
            rows = f"{source} AS stored WHERE stored.{key} = {owner.owner_id}"
            ((has_rows,),) = self.con.execute(f"SELECT count(*) > 0 FROM {rows}").fetchall()
            if not has_rows:
                return
            select = f"SELECT {cells}, {_own_cells(table, owner)} FROM {rows}"
            self.con.execute(f"COPY ({select}) TO {sql_text(file)} ({OPTIONS})")
            yield owner, file
            return
        values = ", ".join(f"({owner.owner_id}, {owner.version})" for owner in owners)
        own = _own_cells(table, None)
        self.con.execute(
            f"COPY (SELECT {cells}, {own}, owners.owner_id AS bufdb_file FROM {source} AS stored "
            f"JOIN (VALUES {values}) AS owners(owner_id, owner_version) "
            f"ON owners.owner_id = stored.{key} ORDER BY bufdb_file) "
            f"TO {sql_text(folder / table)} ({OPTIONS}, PARTITION_BY (bufdb_file))"
        )
        by_id = {owner.owner_id: owner for owner in owners}
        for made in sorted((folder / table).glob("bufdb_file=*")):
            (file,) = made.iterdir()
            yield by_id[int(made.name.partition("=")[2])], file

    def _put(self, made: Path, table: str, owner: Owner) -> None:
        name = layout.object_name(table, owner.day, owner.owner_id, owner.version)
        self.place.put(made, name)


OF_RUNS = {
    "run_labels": "",
    "diagnostics": " AND module_id IS NULL",
    **dict.fromkeys(LIVE_TABLES, ""),
    "runs": "",
}
"""Tables with rows of a run itself, and the condition for these rows."""


def typed(column: str, kind: str) -> str:
    """Return a column of `stored` in the type in which Parquet stores it."""
    return f'stored."{column}"::{layout.stored_type(kind)} AS "{column}"'


def _own_cells(table: str, owner: Owner | None) -> str:
    """Return the columns that say whose the rows are: of one owner, or of `owners`."""
    if owner is None:
        cells = "owners.owner_id::BIGINT AS owner_id, owners.owner_version::BIGINT AS owner_version"
    else:
        cells = f"{owner.owner_id}::BIGINT AS owner_id, {owner.version}::BIGINT AS owner_version"
    cells += f", {layout.LOOSE}::BIGINT AS part_id"
    if table in layout.MARKERS:
        is_removed = owner is not None and owner.is_removed
        cells += f", {marker_cells(str(is_removed))}"
    return cells


def marker_cells(is_removed: str) -> str:
    """Return the further columns of rows that commit owners."""
    return f"{is_removed} AS is_removed, {SCHEMA_VERSION}::INTEGER AS schema_version"
