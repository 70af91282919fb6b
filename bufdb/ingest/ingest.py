"""Dump directories into the database: discover, skip what is unchanged, read, store.

A module is stored whole or not at all. Modules go in their order by key, many in one transaction
(a transaction each would cost more than reading them), so that the rows of a module lie together.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np

from bufdb.assemble.assembly import assemble
from bufdb.columnar.account import Finding
from bufdb.columnar.scan import Columns
from bufdb.database import checksums, faults, runs, store
from bufdb.database.memory import MEMORY_LIMIT
from bufdb.dumps.batch import Batch
from bufdb.dumps.discover import Source
from bufdb.dumps.files import Oddity
from bufdb.dumps.large import LargeModule
from bufdb.dumps.load import BLOCK_BYTES, Loaded, dumped_at, load
from bufdb.dumps.modules import NO_BUFFERS
from bufdb.errors import DatabaseError
from bufdb.ingest import own
from bufdb.ingest.plan import Job, PlannedRun, check_unchanged, plan, stamps_of
from bufdb.ingest.progress import Progress, Told
from bufdb.ingest.rows import runs as run_rows
from bufdb.ingest.rows.missing import missing
from bufdb.ingest.rows.modules import (
    Row,
    companion_rows,
    diagnostic_row,
    file_rows,
    module_row,
    shape_row,
)
from bufdb.ingest.stored import Stored
from bufdb.ingest.summary import Summary
from bufdb.ingest.writer import FEW_INSERT_ROWS, INSERT_ROWS, TableWriter
from bufdb.read.shape import Shape

TRANSACTION_BYTES = 256 << 20
"""Text per transaction: what an interrupted ingest loses at the most, large modules apart."""
DEFAULT_MEMORY_LIMIT = "512MB"
"""DuckDB's memory limit unless another is asked for."""
MODULE_TABLES = (
    "modules",
    "files",
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "memory_sums",
    "occupied_peaks",
    "occupancy_steps",
    "peaks",
    "peak_values",
    "value_users",
    "value_origins",
    "recompute_costs",
    "peak_savings",
    "peak_contributors",
    "peak_stack_nodes",
    "stack_frames",
    "input_output_aliases",
    "compiler_options",
    "entry_parameters",
    "reported_sums",
    "diagnostics",
    "row_checksums",
)
"""Every table that holds rows of a module, by module_id."""


def ingest(
    db: str,
    paths: Sequence[Source],
    run: str | None = None,
    labels: Mapping[str, str] | None = None,
    jobs: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
    labels_by_run: Mapping[str, Mapping[str, str]] | None = None,
    replace: bool = False,
    metadata: Mapping[str, str] | None = None,
    own_globs: Sequence[str] | None = None,
    source_path: str | None = None,
    prune: bool = False,
) -> Summary:
    """Read dumps and store them.

    Args:
        db: the database file, made if it is not there.
        paths: dump directories (with all below them) and single files.
        run: name of the run; by default each path makes a run named after its directory.
        labels: labels of the run or runs, added to those they have.
        jobs: 1 to read and store in turn; more to store in a thread of its own meanwhile.
        memory_limit: DuckDB's memory limit, such as "512MB"; by default that of the context
            variable `MEMORY_LIMIT`, else 512 MB.
        progress: is given the bytes done and the bytes in all.
        block_bytes: text read at a time; changes nothing in the result.
        labels_by_run: further labels of single runs.
        metadata: labels that say how the runs were made and keep none apart; `labels` of the
            same names go before them.
        own_globs: paths and packages that count as the user's own although they are installed
            (`bufdb.ingest.own.parse`); by default what the run was read with before.
        source_path: what runs.source_path says, if not the path.
        prune: modules of the runs that are not among these paths go.
        replace: what the runs had before goes, in the one transaction then that stores the new.

    Raises:
        UsageError: a path does not exist, holds no dump, or two paths hold one module.
        DatabaseError: the database cannot be opened or is of another version.
    """
    began = time.perf_counter()
    planned = plan(paths, run)
    if source_path is not None:
        for one in planned.values():
            one.path = Path(source_path)
    asked = MEMORY_LIMIT.get()
    limit = memory_limit or (f"{asked}B" if asked else DEFAULT_MEMORY_LIMIT)
    con = _open(db, {"threads": "1", "memory_limit": limit})
    # Nothing here makes cycles, and the collector's visits cost 5 % of a gigabyte's ingest.
    collects = gc.isenabled()
    gc.disable()
    try:
        work = Ingest(con, planned, block_bytes, progress, jobs or 1, replace, own_globs, prune)
        summary = work.run(labels or {}, labels_by_run or {}, metadata)
        summary.run_names = list(planned)
    finally:
        if collects:
            gc.enable()
        con.close()
    if Path(f"{db}.wal").exists():
        # DuckDB says nothing of a disk too full for it; all is stored, in two files.
        summary.notes.append(
            f"part of the database is in {db}.wal, which belongs to {db}; the next command that "
            "writes puts them together if the disk has room"
        )
    summary.seconds = time.perf_counter() - began
    return summary


def _open(db: str, config: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """The database, made if it is not there; a full disk leaves no part of a new one behind."""
    is_new = not os.path.lexists(db)
    try:
        return store.open_writable(db, config)
    except (DatabaseError, duckdb.Error) as error:
        if is_new and any(faults.is_full(e) for e in (error, error.__cause__) if e is not None):
            for part in (db, f"{db}.wal"):
                Path(part).unlink(missing_ok=True)
        raise


class Ingest:
    """The plan on its way into the database, one transaction after the other."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: dict[str, PlannedRun],
        block_bytes: int,
        progress: Progress | None,
        jobs: int,
        replace: bool = False,
        own_globs: Sequence[str] | None = None,
        prune: bool = False,
    ) -> None:
        self.con, self.plan, self.block_bytes = con, plan, block_bytes
        self.told = Told((job for planned in plan.values() for job in planned.jobs), progress)
        self.writer = TableWriter(con, jobs)
        self.replace, self.own_globs, self.prune = replace, own_globs, prune
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.shapes: dict[bytes, Shape] = {}
        self.in_transaction = 0

    def run(
        self,
        labels: Mapping[str, str],
        labels_by_run: Mapping[str, Mapping[str, str]],
        metadata: Mapping[str, str] | None = None,
    ) -> Summary:
        """Read and store the plan; what was committed stays when this fails or is interrupted."""
        try:
            summary = self._run(labels, labels_by_run, metadata or {})
        except BaseException:
            # What went wrong may have ended the transaction, or the database with it; to hear that
            # it cannot be rolled back would hide the reason.
            with contextlib.suppress(duckdb.Error):
                self.writer.close()
            raise
        self.writer.close()
        return summary

    def _run(
        self,
        labels: Mapping[str, str],
        labels_by_run: Mapping[str, Mapping[str, str]],
        metadata: Mapping[str, str],
    ) -> Summary:
        for name, planned in self.plan.items():
            path, jobs = planned.path, planned.jobs
            self.writer.begin()
            if self.replace:
                self.summary.removed_count += runs.delete(self.con, name).module_count
            self._look_up_shapes()
            self.own = own.of_run(self.con, name, self.own_globs)
            self.stored = Stored(self.con, name)
            self.run_changed, self.dumped_at = not self.stored.ids, math.inf
            given = {**labels, **labels_by_run.get(name, {})}
            run_rows.add(self.con, name, path, given, metadata)
            own.note_globs(self.con, name, self.own_globs)
            for oddity in planned.oddities:
                self._odd(name, oddity)
            for batch in self._grouped(jobs):
                if batch[0][1].is_large:
                    self._store_large(*batch[0])
                else:
                    self._replace([job.module_id for job, _ in batch])
                    self._store(batch)
                self.told.done(job for job, _ in batch)
                if self.in_transaction >= TRANSACTION_BYTES:
                    self._begin_anew(name)
            if self.prune:
                self._prune(name, planned)
            self._finish_run(name, path)
            self._commit(name)
        self.summary.row_count = self.writer.row_count
        self.summary.problem_counts = dict(self.problems)
        return self.summary

    def _look_up_shapes(self) -> None:
        stored = self.con.execute("SELECT shape FROM shapes").fetchall()
        self.stored_shapes = {shape for (shape,) in stored}

    def _begin_anew(self, run: str) -> None:
        """Commit what was stored so far, unless all must become visible at once."""
        if not self.replace:
            self._commit(run)
            self.writer.begin()

    def _commit(self, run: str) -> None:
        self.writer.settle()
        checksums.store_run(self.con, run)
        self.writer.commit()
        self.in_transaction = 0

    # -- what to read ----------------------------------------------------------------------

    def _grouped(self, jobs: list[Job]) -> Iterator[list[tuple[Job, Loaded]]]:
        """Batches of changed modules: small ones up to a block of text, large ones alone."""
        batch: list[tuple[Job, Loaded]] = []
        size = 0
        for job in jobs:
            try:
                job.stamps = stamps_of(job.files)
                if self.stored.has_same_stamps(job, self.own.pattern):
                    self.summary.unchanged_count += 1
                    continue
                loaded = load(job.files, self.block_bytes)
                check_unchanged(job)
                self.dumped_at = min(self.dumped_at, dumped_at(job.files))
            except OSError as error:
                self._skip(job, error)
                self.told.done([job])
                continue
            if self.stored.has_same_content(job, loaded, self.own.pattern):
                self.summary.unchanged_count += 1
                self.told.done([job])
                continue
            if loaded.is_large or size + loaded.kept_size > self.block_bytes:
                if batch:
                    yield batch
                batch, size = [], 0
            if loaded.is_large:
                yield [(job, loaded)]
                continue
            batch.append((job, loaded))
            size += loaded.kept_size
        if batch:
            yield batch

    def _skip(self, job: Job, error: OSError) -> None:
        name = next(iter(job.files.files.values())).name
        message = f"cannot be read: {error.strerror}"
        self._odd(job.run, Oddity(name, "error", "unreadable_file", message))

    def _odd(self, run: str, oddity: Oddity) -> None:
        if oddity.severity == "error":
            self.summary.skipped_count += 1
        if oddity.code == NO_BUFFERS:
            self.summary.notes.append(f"run {run}: {oddity.message}")
        finding = Finding(0, oddity.severity, oddity.code, oddity.message, oddity.name)
        self._add_findings([diagnostic_row(run, None, finding)])

    def _replace(self, ids: list[int]) -> None:
        """Delete what there is of these modules, in the transaction that stores them anew."""
        self.summary.replaced_count += self._delete(
            [module_id for module_id in ids if module_id in self.stored.ids]
        )

    def _delete(self, ids: list[int]) -> int:
        """Delete all rows of these modules; their number."""
        if ids:
            self.writer.settle()
            for table in MODULE_TABLES:
                self.con.execute(
                    f'DELETE FROM "{table}" WHERE module_id IN (SELECT unnest(?::BIGINT[]))', [ids]
                )
        return len(ids)

    def _prune(self, run: str, planned: PlannedRun) -> None:
        """Delete the modules of a run that are no longer where they were."""
        gone = sorted(self.stored.ids - {job.module_id for job in planned.jobs})
        if gone and any(oddity.severity == "error" for oddity in planned.oddities):
            self.summary.notes.append(
                f"run {run}: {len(gone)} modules were not found and stay, for a part of "
                f"{planned.path} could not be read"
            )
            return
        self.summary.pruned_count += self._delete(gone)
        self.run_changed |= bool(gone)

    # -- reading and storing ---------------------------------------------------------------

    def _store_large(self, job: Job, loaded: Loaded) -> None:
        """Store a module whose files are read meanwhile: all of it, or what was there stays."""
        self._begin_anew(job.run)
        summary, problems = copy.copy(self.summary), Counter(self.problems)
        row_count = self.writer.row_count
        try:
            self._replace([job.module_id])
            self._store([(job, loaded)])
            check_unchanged(job)
        except OSError as error:
            if self.replace:
                raise
            self.writer.settle()
            self.con.execute("ROLLBACK")
            self.writer.begin()
            self.summary, self.problems, self.writer.row_count = summary, problems, row_count
            self._look_up_shapes()
            self._skip(job, error)

    def _store(self, batch: list[tuple[Job, Loaded]]) -> None:
        self.run_changed = True
        modules = [loaded for _, loaded in batch]
        is_large = len(modules) == 1 and modules[0].is_large
        if is_large:
            tell = self.told.part_of(batch[0][0])
            source: Batch = LargeModule(modules[0], self.block_bytes, self.own, tell)
        else:
            source = Batch(modules, self.own)
        self.writer.insert_rows = FEW_INSERT_ROWS if is_large else INSERT_ROWS
        ids = np.array([job.module_id for job, _ in batch], np.int64)

        account = source.account

        def emit(table: str, columns: Columns) -> None:
            misfits = self.writer.add(table, {**columns, "module_id": ids[columns["module"]]})
            for row, column in misfits:
                message = f"{table}.{column} does not fit into its type and is NULL"
                account.find(int(columns["module"][row]), "error", "misfit", message)

        assembled = assemble(source, emit, self.shapes)
        fresh = [shape for shape in assembled.shapes if shape.text not in self.stored_shapes]
        self.stored_shapes.update(shape.text for shape in fresh)
        self.writer.add_rows("shapes", [shape_row(shape) for shape in fresh])
        rows: list[Row] = []
        files: list[Row] = []
        account.close()
        for number, (job, _) in enumerate(batch):
            facts = assembled.facts[number]
            row = module_row(job.run, job.module_id, job.files, facts, source, number)
            rows.append(row)
            files += file_rows(job.module_id, source, number)
            for finding in missing(job.files, facts, row["format_era"], source, number):
                account.add(finding)
        for row_number, column in self.writer.add_rows("modules", rows):
            message = f"modules.{column} does not fit into its type and is NULL"
            account.find(row_number, "error", "misfit", message)
        self.writer.add_rows("files", files)
        for table, some in companion_rows(source, ids.tolist()).items():
            self.writer.add_rows(table, some)
        run = batch[0][0].run
        findings = account.findings()
        self._add_findings([diagnostic_row(run, int(ids[f.module]), f) for f in findings])
        size = sum(loaded.size for loaded in modules)
        self.summary.module_count += len(batch)
        self.summary.text_bytes += size
        self.in_transaction += size

    def _add_findings(self, rows: list[Row]) -> None:
        self.problems.update(row["severity"] for row in rows)
        self.writer.add_rows("diagnostics", rows)

    def _finish_run(self, name: str, path: Source) -> None:
        self.writer.settle()
        self.summary.notes += own.left(self.con, name, self.own)
        if not self.run_changed:
            return
        if self.summary.replaced_count or self.summary.pruned_count:
            runs.delete_unused_shapes(self.con)
        run_rows.update(self.con, name, path, self.dumped_at)
