"""Dumps into a dataset: read as into a database, which is in memory here and emptied as it fills.

Many hosts may do so at once. What was committed stays when one of them is stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import duckdb

from bufdb.database import memory, spill, store
from bufdb.database.quoting import sql_text
from bufdb.database.runs import LIVE_TABLES
from bufdb.dataset import layout
from bufdb.dataset.delta import DeltaWriter
from bufdb.dataset.snapshot import Owners, Snapshot, table_sql
from bufdb.dataset.storage import Storage, storage_of
from bufdb.dataset.writer import OF_RUNS, Owner, Writer
from bufdb.dumps.discover import Source
from bufdb.dumps.files import as_text
from bufdb.dumps.load import dumped_at
from bufdb.errors import UsageError
from bufdb.ingest import own
from bufdb.ingest import writer as run_rows
from bufdb.ingest.ingest import require_one
from bufdb.ingest.plan import PlannedRun, Request, Summary, plan
from bufdb.ingest.processes import readers
from bufdb.ingest.reader import Reader
from bufdb.ingest.rows import MODULE_TABLES
from bufdb.ingest.stored import NOT_READ_AGAIN
from bufdb.ingest.storing import Ingest
from bufdb.ingest.work import Done, Group
from bufdb.read.own import Own, parse_own
from bufdb.render.notes import merged

FORMATS = ("parquet", "delta")
"""Plain files, or Delta tables through delta-rs."""
DAY_LABEL = "dt"
"""Label or metadata of a run that says its day."""
TRANSACTION_BYTES = 256 << 20
"""Text per transaction, whose rows wait in memory for the files that are made of them."""
_CHECKSUM = "(sum(hash(stored)) % 9223372036854775808)::BIGINT"
_PRELOADED = ("run_labels", "modules", "files")
"""Tables that show an ingest what of a run is stored."""


class Elsewhere(Reader, Protocol):
    """Other processes that read groups of modules and store them in the dataset by themselves."""

    def take(self, groups: Iterable[Group], day: str, versions: Mapping[int, int]) -> None:
        """Take groups of a run, the day it is stored under, and the versions of stored owners."""

    def finish(self) -> None:
        """Read and store all groups; afterwards each can be read here, which gives no rows."""


def ingest(
    url: str, paths: Sequence[Source], *, file_format: str | None = None, **options: Any
) -> Summary:
    """Read dumps and store them in the dataset at a folder or URL.

    Args:
        url: the folder or URL.
        paths: dump directories (with all below them) and single files.
        file_format: one of FORMATS; None leaves it as it is, plain Parquet at first.
        options: fields of `bufdb.ingest.plan.Request`; `prune` removes all modules from the runs
            that are not among these paths, wherever they were ingested.

    Raises:
        UsageError: a path does not exist or holds no dump, a label dt is no day, the dataset has
            another format, or delta-rs is not installed.
        DatabaseError: the dataset cannot be read, or is of another schema version.
        BufdbError: an object cannot be written.
    """
    began = time.perf_counter()
    request = Request(**options)
    with readers(request.jobs) as reader:
        planned = plan(paths, request.run)
        if request.profile is not None:
            require_one(planned)
        # Before a database is opened, since that begins threads.
        reading = reader([job for one in planned.values() for job in one.jobs])
        summary = store_planned(url, planned, request, reading, file_format=file_format)
    summary.seconds = time.perf_counter() - began
    summary.notes = merged(summary.notes)
    return summary


def store_planned(
    url: str,
    planned: Mapping[str, PlannedRun],
    request: Request,
    reading: Reader | None = None,
    *,
    elsewhere: Elsewhere | None = None,
    file_format: str | None = None,
) -> Summary:
    """Read the modules of a plan, or of a part of one, and store them.

    Errors are those of `ingest`. Several may have parts of one plan at once. `reading` reads the
    dumps, if not this process; with `elsewhere` others read and store modules, and only rows of
    runs are stored here.
    """
    place = storage_of(url)
    config = {"threads": "1", "memory_limit": request.memory_limit or memory.ingest_memory()}
    con = store.open_writable(":memory:", config)
    try:
        con.execute(f"SET temp_directory = {sql_text(spill.spill_folder())}")
        place.attach(con)
        jobs = (job.module_id for one in planned.values() for job in one.jobs)
        dataset = _Dataset(con, place, None if request.prune else set(jobs))
        if request.own_globs is None and dataset.keep_own(planned):
            dataset.look_up(None)  # modules of another place say which
        objects = _writer(con, dataset, file_format)

        def begun(name: str) -> _Ingest:
            dataset.load(name, planned[name], {**request.metadata, **request.labels_of(name)})
            if request.profile is not None:
                # Times are stored with the rows of their module: read each again.
                con.execute("UPDATE files SET content_hash = '', source_stamp = NULL")
            one = {name: planned[name]}
            return _Ingest(con, one, request, dataset, elsewhere or reading, objects)

        if elsewhere is not None:
            for name in planned:
                work = begun(name)
                elsewhere.take(work.groups(name), dataset.day, dataset.versions)
                work.announce(name)
                work.end_run(name)
            elsewhere.finish()
        total = Summary()
        for name in planned:
            work = begun(name)
            _add(total, work.run())
            work.end_run(name)
        total.run_names = list(planned)
    finally:
        con.close()
    return total


def _writer(con: duckdb.DuckDBPyConnection, dataset: _Dataset, file_format: str | None) -> Writer:
    """Return a writer for the format that is asked for, or else that the dataset has.

    Raises:
        UsageError: the two differ, or delta-rs is not installed.
    """
    snapshot = dataset.snapshot
    has = ("delta" if snapshot.is_delta else "parquet") if snapshot.has_markers else None
    if has is not None and file_format not in (None, has):
        raise UsageError(f"{dataset.place.root} has format {has}, not {file_format}; take another")
    if (file_format or has) == "delta":
        return DeltaWriter(con, dataset.place, dataset.columns)
    return Writer(con, dataset.place, dataset.columns)


class _Dataset:
    """What the dataset holds, as far as an ingest needs it."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, place: Storage, module_ids: set[int] | None
    ) -> None:
        """Look up all modules, or those that are to be ingested."""
        self.con, self.place = con, place
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        self.columns = layout.columns(con, catalog)
        con.execute("CREATE SCHEMA stored")
        self.owners = "stored.owners"
        self.own_elsewhere: dict[str, Own] = {}
        """By run, what other places have given as the user's own, if there are any, at first."""
        self.look_up(module_ids)

    def look_up(self, module_ids: set[int] | None) -> None:
        """Take a snapshot in which all modules are, or at least these."""
        self.has_all = module_ids is None
        self.snapshot = Snapshot(self.con, self.place, self.owners, module_ids)
        rows = self.con.execute(
            f"SELECT owner_id, owner_version, filename FROM {self.owners}"
        ).fetchall()
        self.versions: dict[int, int] = {key: version for key, version, _ in rows}
        self.days = {key: layout.day_in(filename) for key, _, filename in rows}

    def keep_own(self, runs: Iterable[str]) -> bool:
        """Return whether any of these runs may have been given an --own, from wherever.

        A label of the user's own of that name hides what was given.
        """
        some = f"SELECT unnest([{', '.join(map(sql_text, runs))}]::VARCHAR[])"
        relation = self.snapshot.relation("run_labels", self.snapshot.owners_of(some))
        labels = table_sql("run_labels", self.columns["run_labels"], relation, self.owners)
        return bool(
            self.con.execute(
                f"SELECT 1 FROM ({labels}) WHERE run_name IN ({some}) "
                f"AND label = {sql_text(own.OWN_LABEL)} LIMIT 1"
            ).fetchall()
        )

    def load(self, run: str, planned: PlannedRun, labels: Mapping[str, str]) -> None:
        """Put what the dataset has of a run where an ingest looks for it."""
        self.key = layout.run_key(run, as_text(str(planned.path)))
        some = f"SELECT {sql_text(run)}"
        of_run = f"{self.owners}_of_run"
        self.con.execute(
            f"CREATE OR REPLACE TABLE {of_run} AS FROM {self.owners} WHERE run_name IN ({some})"
        )
        of = self.snapshot.owners_of(some)
        for table in _PRELOADED:
            self._insert(table, of, of_run)
        # What an upgrade has copied is read again, as if its files had changed.
        self.con.execute(
            "UPDATE files SET content_hash = '', source_stamp = NULL WHERE module_id IN "
            f"(SELECT module_id FROM ({self._select('diagnostics', of, of_run)}) WHERE code = ?)",
            [NOT_READ_AGAIN],
        )
        self._note_elsewhere(run, of_run)
        # Of this place alone: what another place has stored of the run is not repeated here.
        self.con.execute(f"DELETE FROM {of_run} WHERE marker = 'runs' AND owner_id <> {self.key}")
        for table in (*LIVE_TABLES, "runs"):
            self._insert(table, of, of_run)
        rows = self.con.execute("SELECT module_id FROM modules").fetchall()
        self.module_ids = {key for (key,) in rows}
        self.day = self._day(run, planned, labels)

    def _insert(self, table: str, of: Owners, owners: str) -> None:
        self.con.execute(f"INSERT INTO {table} {self._select(table, of, owners)}")

    def _select(self, table: str, of: Owners, owners: str) -> str:
        relation = self.snapshot.relation(table, of)
        return table_sql(table, self.columns[table], relation, owners)

    def _note_elsewhere(self, run: str, of_run: str) -> None:
        """Keep what labels say about --own, before this ingest writes its own."""
        is_other = f"marker = 'runs' AND owner_id <> {self.key} AND NOT is_removed"
        if self.con.execute(f"SELECT 1 FROM {of_run} WHERE {is_other} LIMIT 1").fetchall():
            rows = self.con.execute(
                "SELECT label_value FROM run_labels WHERE run_name = ? AND label = ?",
                [run, own.OWN_LABEL],
            ).fetchall()
            self.own_elsewhere.setdefault(run, parse_own(rows[0][0].split() if rows else []))

    def _day(self, run: str, planned: PlannedRun, labels: Mapping[str, str]) -> str:
        """Return the day under which a run is stored: by a label, its place, or its dump time.

        Raises:
            UsageError: a label says something other than a day.
        """
        day = labels.get(DAY_LABEL)
        if day is not None:
            if not layout.is_day(day):
                raise UsageError(f"{DAY_LABEL} of run {run} is a day as 2026-01-31, got {day!r}")
            return day
        days = [self.days[key] for key in (self.key, *sorted(self.module_ids)) if key in self.days]
        if days:
            return days[0]
        times = []
        for job in planned.jobs:
            try:
                times.append(dumped_at(job.files))
            except OSError:  # gone; reported when it is to be read
                continue
        return layout.day_of(min(times, default=None))


class _Ingest(Ingest):
    """Stores what each transaction has brought, and deletes it here."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        planned: dict[str, PlannedRun],
        request: Request,
        dataset: _Dataset,
        reader: Reader | None,
        objects: Writer,
    ) -> None:
        super().__init__(con, planned, request, reader)
        self.dataset, self.objects = dataset, objects
        self.transaction_bytes = TRANSACTION_BYTES
        self.elsewhere: set[int] = set()
        """Modules, by module_id, that others have stored."""
        self.ended_ids: list[int] = []
        """Modules whose rows were stored since the last commit."""

    def end(self, done: Done) -> None:
        """Finish these modules, all of whose rows are given to the writer."""
        self.ended_ids += done.ids
        super().end(done)

    def _add_times(self) -> None:
        """Store times with the modules that this ingest has read: others are not changed."""
        if self.timing is not None:
            self.timing.add(self.con, self.run_name, self.ended_ids)
            self._note_times(self.timing)

    def _commit(self) -> None:
        if self.timing is not None and self.ended_ids:
            self.writer.settle()
            self.timing.add(self.con, self.run_name, self.ended_ids)
        super()._commit()
        self._store_run(self.run_name)  # before its first module, so that no module lacks its run
        modules = self._modules()
        self.objects.store_modules(modules)
        for owner in modules:
            self.dataset.versions[owner.owner_id] = owner.version
        for table in (*MODULE_TABLES, "shapes", "file_contents"):
            if table not in _PRELOADED:
                kept = " WHERE module_id IS NULL" if table == "diagnostics" else ""
                self.con.execute(f'DELETE FROM "{table}"{kept}')
        self._look_up_shapes()
        self._look_up_contents()

    def groups(self, run: str) -> Iterable[Group]:
        """Return what there is to read of a run."""
        return self._to_read(run).groups

    def announce(self, run: str) -> None:
        """Store the rows of a run itself if there are none, so that no module lacks its run."""
        if self.dataset.key not in self.dataset.versions:
            self.run_name = run
            self.writer.begin()
            path, labels = self.plan[run].path, self.request.labels_of(run)
            run_rows.add_run(self.con, run, path, labels, self.request.metadata)
            own.own_note_globs(self.con, run, self.request.own_globs)
            self._commit()
        self.writer.close()

    def stored_elsewhere(self, ids: Iterable[int], row_count: int) -> None:
        """Note that others have stored these modules, of so many rows."""
        self.elsewhere.update(ids)
        self.writer.row_count += row_count

    def _end_reading(self) -> None:
        """Do nothing: the reader of this run reads the next one too."""

    def _finish_run(self, path: Source) -> None:
        # When others store modules and this process is stopped, the next one finds all unchanged.
        rows = self.con.execute("SELECT dumped_at IS NULL FROM runs").fetchall()
        self.run_changed |= rows == [(True,)] and self.dumped_at < math.inf
        super()._finish_run(path)

    def _left(self) -> list[str]:
        """Return a note if modules of other places have another --own.

        They are counted if they were looked up, which takes long where there are many.
        """
        if self.dataset.has_all:
            return super()._left()
        before = self.dataset.own_elsewhere.get(self.run_name, self.of_run.own)
        differs = before.pattern != self.of_run.own.pattern
        return [own.own_note(self.run_name, "modules")] if differs else []

    def end_run(self, run: str) -> None:
        """Remove what was pruned, and forget the run."""
        rows = self.con.execute("SELECT module_id FROM modules").fetchall()
        gone = sorted(self.dataset.module_ids - self.elsewhere - {key for (key,) in rows})
        self.objects.remove_modules(
            [self._owner(key, ["removed"], is_removed=True) for key in gone], run
        )
        for table in (*_PRELOADED, *LIVE_TABLES, "runs", "diagnostics"):
            self.con.execute(f"DELETE FROM {table}")

    def _modules(self) -> list[Owner]:
        """Return the modules with rows that the dataset does not have, as of the last commit."""
        ids, self.ended_ids = self.ended_ids, []
        owners = [self._owner(key, content) for key, content in contents(self.con, ids)]
        return [owner for owner in owners if self._is_new(owner)]

    def _store_run(self, run: str) -> None:
        owner = self._owner(self.dataset.key, run_content(self.con, run))
        if self._is_new(owner):
            self.objects.store_run(run, owner)
            self.dataset.versions[owner.owner_id] = owner.version

    def _owner(self, key: int, content: Sequence[object], *, is_removed: bool = False) -> Owner:
        day, before = self.dataset.day, self.dataset.versions.get(key)
        return Owner(key, layout.version_of([day, *content], before), day, is_removed)

    def _is_new(self, owner: Owner) -> bool:
        return self.dataset.versions.get(owner.owner_id) != owner.version


def run_content(con: duckdb.DuckDBPyConnection, run: str) -> list[tuple[Any, ...]]:
    """Return what the version of a run is made from: rows of its own tables, as of `contents`."""
    rows = [
        con.execute(
            f"SELECT '{table}', count(*), {_CHECKSUM} FROM {table} AS stored "
            f"WHERE run_name = ?{condition}",
            [run],
        ).fetchone()
        for table, condition in sorted(OF_RUNS.items())
    ]
    return [row for row in rows if row and row[1]]


def contents(con: duckdb.DuckDBPyConnection, ids: Sequence[int]) -> list[tuple[int, list[str]]]:
    """Return modules by module_id, each with what its version is made from.

    That is for each table the number of its rows and a sum of their hashes, so that a module with
    the same rows has the same version wherever it is ingested.
    """
    counts = " UNION ALL ".join(
        f"SELECT module_id, '{table}' AS table_name, count(*) AS row_count, "
        f'{_CHECKSUM} AS checksum FROM "{table}" AS stored GROUP BY module_id'
        for table in MODULE_TABLES
    )
    return con.execute(
        "SELECT module_id, list(table_name || ' ' || row_count || ' ' || checksum "
        f"ORDER BY table_name) FROM ({counts}) "
        "SEMI JOIN (SELECT unnest(?::BIGINT[]) AS module_id) USING (module_id) "
        "GROUP BY module_id ORDER BY module_id",
        [ids],
    ).fetchall()


def _add(total: Summary, one: Summary) -> None:
    """Add the summary of one run to that of the others."""
    sums: dict[str, Any] = vars(total)
    for name, value in vars(one).items():
        if isinstance(value, int | float | list):
            sums[name] = sums[name] + value
    for severity, count in one.problem_counts.items():
        total.problem_counts[severity] = total.problem_counts.get(severity, 0) + count
