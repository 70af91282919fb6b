"""A dataset of this version from one of earlier ones, while others read it.

Modules and runs of earlier schema versions are made a database of that version, which is upgraded
as any other, and stored as later versions of the same owners. Their markers come last, all at once:
until then the dataset is, to the bufdb that wrote it, what it was. An upgrade that ends earlier is
begun again by the next one; one that ends among the markers is finished by it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from bufdb.database import ready, spill, store
from bufdb.database.quoting import sql_text
from bufdb.database.runs import LIVE_TABLES
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout
from bufdb.dataset.delta import DeltaWriter
from bufdb.dataset.dump_ingest import contents, run_content
from bufdb.dataset.snapshot import Owners, Snapshot, require_rows, table_sql, unreadable
from bufdb.dataset.storage import Storage, storage_of
from bufdb.dataset.writer import Owner, Writer
from bufdb.ingest import upgrade as database
from bufdb.ingest.plan import Progress
from bufdb.ingest.upgrade import Upgraded
from bufdb.render.notes import merged

BATCH_BYTES = 1 << 30
"""Text of whole runs whose rows are in temporary databases at once."""
BATCH_OWNERS = 2_000
_SINCE = dict.fromkeys(
    [*LIVE_TABLES, "instruction_costs", "instruction_times", "recompute_instructions"], 7
) | dict.fromkeys(["instruction_executions", "scheduled_limits", "file_contents", "live_totals"], 9)
"""Schema versions from which on there are tables that those before 7 lack: where a dataset has no
object of a table, it lacks the table or has no row."""
_OWNERS = """
CREATE TABLE to_upgrade AS
SELECT *, regexp_extract(filename, '/dt=([^/]*)/[^/]*$', 1) AS dt,
  row_number() OVER (PARTITION BY run_name, marker ORDER BY ingested_at DESC, owner_id) AS place
FROM owners
"""
_WORK = f"""
SELECT schema_version, run_name, owner_id, owner_version, dt, marker = 'runs' AS is_run,
  CASE WHEN marker = 'runs' THEN place ELSE 1 END AS place, coalesce(text_bytes, 0)
FROM to_upgrade LEFT JOIN text_sizes USING (owner_id)
WHERE NOT is_removed AND schema_version < {SCHEMA_VERSION}
ORDER BY place, schema_version, run_name, owner_id
"""
_REMOVED = f"""
SELECT run_name, owner_id, owner_version, dt FROM to_upgrade
WHERE is_removed AND schema_version < {SCHEMA_VERSION} ORDER BY run_name, owner_id
"""


@dataclass
class _Batch:
    """Runs of one schema version, each as it was ingested from one place, and their modules."""

    version: int
    place: int
    """Which of the places of its run; modules are with the first."""
    runs: list[str] = field(default_factory=list)
    before: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Versions and days of the owners to replace, by owner_id."""
    run_owners: dict[str, int] = field(default_factory=dict)
    size: int = 0


def upgrade(url: str, /, *, jobs: int | None = 1, progress: Progress | None = None) -> Upgraded:
    """Make everything in a dataset of this schema version.

    Args:
        url: folder or URL of the dataset.
        jobs: processes that read, as for `bufdb.ingest.plan.Request`.
        progress: is given the bytes done and the bytes in total.

    Raises:
        UsageError: what the URL or its format needs is not installed.
        DatabaseError: there is no dataset, it is of a later version, or it cannot be read.
        BufdbError: an object cannot be written; the dataset is as it was.
    """
    place = storage_of(url)
    con = store.open_memory()
    try:
        place.attach(con)
        with ready.attached_schema(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.READY)
        snapshot = Snapshot(con, place, "owners", of_earlier=True)
        require_rows(snapshot)
        upgraded = Upgraded(min(snapshot.versions))
        upgraded.is_current = upgraded.version_before == SCHEMA_VERSION
        con.execute(_OWNERS)
        _measure(snapshot, columns)
        batches = list(_batches(con.execute(_WORK).fetchall()))
        total, done = sum(batch.size for batch in batches), 0
        with place.staging() as folder:
            kind = _DeltaMarkersLast if snapshot.is_delta else _MarkersLast
            writer = kind(con, place, columns, folder)
            for batch in batches:
                report = None if progress is None else _after(progress, done, total)
                _upgrade(snapshot, columns, batch, writer, jobs, report, upgraded)
                done += batch.size
            writer.con = con
            for run, group in itertools.groupby(
                con.execute(_REMOVED).fetchall(), key=lambda row: row[0]
            ):
                gone = [
                    Owner(key, layout.later_version([day, "removed"], before), day, is_removed=True)
                    for _, key, before, day in group
                ]
                writer.remove_modules(gone, run)
            writer.finish()
    except duckdb.Error as error:
        raise unreadable(place, error) from error
    finally:
        con.close()
    upgraded.notes = merged(upgraded.notes)
    return upgraded


def _after(progress: Progress, done: int, total: int) -> Progress:
    return lambda part, _: progress(done + part, total)


def _measure(snapshot: Snapshot, columns: layout.Columns) -> None:
    """Make a table of the bytes of text of each module."""
    files = table_sql("files", columns["files"], snapshot.relation("files"), "owners")
    snapshot.con.execute(
        "CREATE TABLE text_sizes AS SELECT module_id AS owner_id, sum(size_bytes)::BIGINT AS "
        f"text_bytes FROM ({files}) GROUP BY module_id"
    )


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[_Batch]:
    """Yield batches of whole runs."""
    batch: _Batch | None = None
    for (place, version, run), group in itertools.groupby(
        rows, key=lambda row: (row[6], row[0], row[1])
    ):
        some = list(group)
        size = sum(row[7] for row in some)
        if batch is not None and (
            (batch.place, batch.version) != (place, version)
            or batch.size + size > BATCH_BYTES
            or len(batch.before) + len(some) > BATCH_OWNERS
        ):
            yield batch
            batch = None
        batch = batch or _Batch(version, place)
        batch.runs.append(run)
        batch.size += size
        for _, _, key, before, day, is_run, _, _ in some:
            batch.before[key] = (before, day)
            if is_run:
                batch.run_owners[run] = key
    if batch is not None:
        yield batch


def _upgrade(
    snapshot: Snapshot,
    columns: layout.Columns,
    batch: _Batch,
    writer: _MarkersLast | _DeltaMarkersLast,
    jobs: int | None,
    progress: Progress | None,
    upgraded: Upgraded,
) -> None:
    """Upgrade the rows of a batch in a database of their own, and store them."""
    folder = spill.make_folder()
    try:
        file = folder / "dataset.duckdb"
        _fill(snapshot, columns, batch, file)
        one = database.upgrade(str(file), jobs=jobs, progress=progress)
        upgraded.module_count += one.module_count
        upgraded.read_count += one.read_count
        upgraded.notes += one.notes
        with closing(store.open_writable(str(file))) as con:
            writer.con = con
            for run, key in batch.run_owners.items():
                writer.store_run(run, _owner(batch, key, run_content(con, run)))
            ids = [key for key in batch.before if key not in batch.run_owners.values()]
            writer.store_modules([_owner(batch, *one) for one in contents(con, ids)])
    finally:
        spill.remove_folder(folder)


def _owner(batch: _Batch, key: int, content: Sequence[object]) -> Owner:
    before, day = batch.before[key]
    return Owner(key, layout.later_version([day, *content], before), day)


def _fill(snapshot: Snapshot, columns: layout.Columns, batch: _Batch, file: Path) -> None:
    """Write the rows of a batch into a database file as its version of bufdb has them.

    Tables and columns that it lacks are left out.
    """
    con = snapshot.con
    con.execute("CREATE OR REPLACE TABLE batch_keys (owner_id BIGINT, run_name VARCHAR)")
    # The row of a run is there for its modules, even if it is of this version already.
    con.execute(
        "INSERT INTO batch_keys SELECT owner_id, run_name FROM to_upgrade "
        "WHERE run_name IN (SELECT unnest(?)) AND NOT is_removed "
        "AND if(marker = 'runs', place = ?, ? = 1 AND schema_version = ?)",
        [batch.runs, batch.place, batch.place, batch.version],
    )
    con.execute(
        "CREATE OR REPLACE TABLE batch_owners AS FROM owners "
        "SEMI JOIN batch_keys ON batch_keys.owner_id = owners.owner_id"
    )
    keys = con.execute("SELECT owner_id, owner_version, part_id FROM batch_owners").fetchall()
    of = Owners(
        {(key, version) for key, version, part in keys if part == layout.LOOSE},
        {part for _, _, part in keys if part != layout.LOOSE},
    )
    con.execute(f"ATTACH {sql_text(str(file))} AS made")
    try:
        con.execute(f"CREATE TABLE made.schema_info AS SELECT {batch.version} AS schema_version")
        snapshot.require_sound(layout.tables(), of)
        for table in layout.tables():
            types, relation = columns[table], snapshot.relation(table, of)
            if relation is not None:
                stored = {row[0] for row in con.execute(f"DESCRIBE FROM {relation}").fetchall()}
                types = {name: kind for name, kind in types.items() if name in stored}
            elif batch.version < _SINCE.get(table, 0):
                continue
            select = table_sql(table, types, relation, "batch_owners")
            order = " ORDER BY content_hash, part_ordinal" if table == "file_contents" else ""
            con.execute(f'CREATE TABLE made."{table}" AS FROM ({select}){order}')
    finally:
        con.execute("DETACH made")


class _MarkersLast(Writer):
    """Stores all rows but markers, which `finish` stores."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, columns: layout.Columns, folder: Path
    ) -> None:
        """Keep markers in a folder meanwhile, on the disk of the dataset if it is on one."""
        super().__init__(con, place, columns)
        self.folder = folder
        self.markers: list[tuple[Path, str, Owner]] = []

    def _put(self, made: Path, table: str, owner: Owner) -> None:
        if table in layout.MARKERS:
            kept = self.folder / f"{len(self.markers)}.parquet"
            shutil.move(made, kept)
            self.markers.append((kept, table, owner))
        else:
            super()._put(made, table, owner)

    def finish(self) -> None:
        """Make everything that was stored count: runs before their modules."""
        self.markers.sort(key=lambda marker: layout.MARKERS.index(marker[1]))
        for made, table, owner in self.markers:
            super()._put(made, table, owner)


class _DeltaMarkersLast(DeltaWriter):
    """The same for Delta tables; the rows that it replaces are deleted after that."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, columns: layout.Columns, _: Path
    ) -> None:
        """Keep markers in memory meanwhile."""
        super().__init__(con, place, columns)
        self.markers: list[tuple[str, Any]] = []
        self.replaced: list[tuple[Sequence[Owner], Sequence[str]]] = []

    def _append(self, table: str, select: str) -> None:
        if table in layout.MARKERS:
            self.markers.append((table, self.con.sql(select).to_arrow_table()))
        else:
            super()._append(table, select)

    def _forget(self, owners: Sequence[Owner], tables: Sequence[str]) -> None:
        self.replaced.append((owners, tables))

    def finish(self) -> None:
        """Make everything that was stored count: runs before their modules."""
        self.markers.sort(key=lambda marker: layout.MARKERS.index(marker[0]))
        for table, rows in self.markers:
            self._add(table, partial(_itself, rows))
        for owners, tables in self.replaced:
            super()._forget(owners, tables)


def _itself(rows: Any) -> Any:
    return rows
