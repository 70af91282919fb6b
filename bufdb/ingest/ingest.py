"""Dump directories into the database: discover, skip what is unchanged, read, store.

A module is stored whole or not at all. Modules go in their order by key, many in one transaction
(a transaction each would cost more than reading them), so that the rows of a module lie together.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import hashlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np

from bufdb import __version__
from bufdb.assemble.assembly import assemble
from bufdb.columnar.account import Finding
from bufdb.columnar.scan import Columns
from bufdb.database import checksums, faults, runs, store
from bufdb.dumps.batch import BLOCK_BYTES, Batch, LargeModule, Loaded, dumped_at, load
from bufdb.dumps.discover import NO_BUFFERS, ModuleFiles, Oddity, as_text, base_of, discover
from bufdb.errors import DatabaseError, UsageError
from bufdb.ingest.missing import missing
from bufdb.ingest.module_rows import (
    Row,
    companion_rows,
    diagnostic_row,
    file_rows,
    module_row,
    shape_row,
)
from bufdb.ingest.writer import FEW_INSERT_ROWS, INSERT_ROWS, TableWriter
from bufdb.read.shape import Shape

TRANSACTION_BYTES = 256 << 20
"""Text per transaction: what an interrupted ingest loses at the most, large modules apart."""
MEMORY_LIMIT = "512MB"
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
    "occupied_peaks",
    "occupancy_steps",
    "peak_contributors",
    "peak_stack_nodes",
    "stack_frames",
    "input_output_aliases",
    "compiler_options",
    "diagnostics",
    "row_checksums",
)
"""Every table that holds rows of a module, by module_id."""
Progress = Callable[[int, int], None]
Stamp = tuple[int, int, int]
"""Of a file: its number on the device, when it was written [ns since 1970], its size [bytes]."""


@dataclass
class Summary:
    """What an ingest did."""

    module_count: int = 0
    """Modules stored, replaced ones included."""
    replaced_count: int = 0
    unchanged_count: int = 0
    skipped_count: int = 0
    """Modules, and directories and files that might hold some, that could not be read."""
    row_count: int = 0
    text_bytes: int = 0
    """Size of the files that were read."""
    seconds: float = 0.0
    problem_counts: dict[str, int] = field(default_factory=dict)
    """Number of diagnostics by severity."""
    removed_count: int = 0
    """Modules that the run had before, when it was to be replaced as a whole."""
    notes: list[str] = field(default_factory=list)
    """What people should be told beside the summary."""

    @property
    def exit_code(self) -> int:
        """0, or 4 if something could not be read or contradicts itself."""
        return 4 if any(self.problem_counts.get(s) for s in ("data_loss", "error")) else 0

    def line(self) -> str:
        """One line for people."""
        parts = [
            f"ingested {self.module_count} modules ({self.replaced_count} replaced)",
            f"{self.row_count} rows",
            f"{self.text_bytes / 1e6:.1f} MB in {self.seconds:.2f} s",
            f"unchanged {self.unchanged_count}",
            f"skipped {self.skipped_count}",
        ]
        problems = [f"{n} {severity}" for severity, n in sorted(self.problem_counts.items()) if n]
        if problems:
            parts.append("diagnostics: " + ", ".join(problems))
        return ", ".join(parts)


@dataclass
class _Job:
    """A module to be looked at, with the run and the key it is stored under."""

    run: str
    module_id: int
    files: ModuleFiles
    stamps: tuple[Stamp, ...] = ()
    """Of its files, taken before they were read."""


@dataclass
class _Run:
    """What is planned for one run."""

    path: Path
    """The path that the run was named by."""
    jobs: list[_Job] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)
    """What is left out or could not be looked into."""


def module_id_of(run: str, key: str) -> int:
    """63-bit hash of a run and a module key: modules.module_id."""
    digest = hashlib.blake2b(f"{run}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def ingest(
    db: str,
    paths: list[Path],
    run: str | None = None,
    labels: Mapping[str, str] | None = None,
    jobs: int | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
    labels_by_run: Mapping[str, Mapping[str, str]] | None = None,
    replace: bool = False,
) -> Summary:
    """Read dumps and store them.

    Args:
        db: the database file, made if it is not there.
        paths: dump directories (with all below them) and single files.
        run: name of the run; by default each path makes a run named after its directory.
        labels: labels of the run or runs, added to those they have.
        jobs: 1 to read and store in turn; more to store in a thread of its own meanwhile.
        memory_limit: DuckDB's memory limit, such as "512MB".
        progress: is told the bytes done and the bytes in all.
        block_bytes: text read at a time; changes nothing in the result.
        labels_by_run: further labels of single runs.
        replace: what the runs had before goes, in the one transaction then that stores the new.

    Raises:
        UsageError: a path does not exist, holds no dump, or two paths hold one module.
        DatabaseError: the database cannot be opened or is of another version.
    """
    began = time.perf_counter()
    plan = _plan(paths, run)
    con = _open(db, {"threads": "1", "memory_limit": memory_limit or MEMORY_LIMIT})
    # Nothing here makes cycles, and the collector's visits cost 5 % of a gigabyte's ingest.
    collects = gc.isenabled()
    gc.disable()
    try:
        work = _Ingest(con, plan, block_bytes, progress, jobs or 1, replace)
        summary = work.run(labels or {}, labels_by_run or {})
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


def ingest_into(
    con: duckdb.DuckDBPyConnection, path: Path, run: str, block_bytes: int = BLOCK_BYTES
) -> Summary:
    """Read the dumps of one path into an open database; see `ingest`."""
    return _Ingest(con, _plan([path], run), block_bytes, None, 1).run({}, {})


def _plan(paths: list[Path], run: str | None) -> dict[str, _Run]:
    """The modules of every run, by its name."""
    plan: dict[str, _Run] = {}
    taken: dict[int, Path] = {}
    for path in paths:
        oddities: list[Oddity] = []
        modules = discover(path, oddities)
        if not modules and not any(oddity.severity == "error" for oddity in oddities):
            raise UsageError(_nothing_in(path, oddities))
        base = Path(os.path.abspath(base_of(path)))  # noqa: PTH100 - a link keeps its own name
        name = as_text(run or base.name or "dumps")
        planned = plan.setdefault(name, _Run(path))
        planned.oddities += oddities
        for files in modules:
            module_id = module_id_of(name, files.key)
            if module_id not in taken:
                planned.jobs.append(_Job(name, module_id, files))
            first = taken.setdefault(module_id, base)
            if first != base:
                raise UsageError(
                    f"run {name}: {files.key} is in {first} and in {base}; give the directories "
                    "different --run names, or ingest the directory above both"
                )
    return plan


def _nothing_in(path: Path, oddities: Sequence[Oddity]) -> str:
    """What to say of a path without dumps."""
    told = [oddity.message for oddity in oddities if oddity.code == NO_BUFFERS]
    if told:
        return f"no buffer assignment in {path}: {told[0]}"
    odd = [f"{oddity.name} {oddity.message}" for oddity in oddities]
    return (
        f"no buffer assignment in {path}; dumps are made with "
        "XLA_FLAGS=--xla_dump_to=DIR (text, which is the default)"
        + (f"; of {len(odd)} entries left out the first: {odd[0]}" if odd else "")
    )


def _stamps(files: ModuleFiles) -> tuple[Stamp, ...]:
    """What changes when one of a module's files does.

    Raises:
        OSError: a file is gone.
    """
    stamps = []
    for file in files.files.values():
        found = file.path.stat()
        # A captured output may grow below the frames that were found in it.
        whole = file.stop < 0
        stamps.append((found.st_ino, *((found.st_mtime_ns, found.st_size) if whole else (0, 0))))
    return tuple(stamps)


def _check_unchanged(job: _Job) -> None:
    """Nothing if the files of a module are those that were found.

    Raises:
        OSError: one has changed since, or is gone.
    """
    if _stamps(job.files) != job.stamps:
        raise OSError(errno.ESTALE, "it changed while it was read; ingest again when it is whole")


def _size_of(files: ModuleFiles) -> int:
    """Bytes in a module's files; 0 if one is gone, which is told when it is read."""
    try:
        return sum(file.size() for file in files.files.values())
    except OSError:
        return 0


class _Ingest:
    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: dict[str, _Run],
        block_bytes: int,
        progress: Progress | None,
        jobs: int,
        replace: bool = False,
    ) -> None:
        self.con, self.plan, self.block_bytes, self.progress = con, plan, block_bytes, progress
        self.writer = TableWriter(con, jobs)
        self.replace = replace
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.shapes: dict[bytes, Shape] = {}
        self.in_transaction = 0

    def run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        """Read and store the plan; what was committed stays when this fails or is interrupted."""
        try:
            summary = self._run(labels, labels_by_run)
        except BaseException:
            # What went wrong may have ended the transaction, or the database with it; to hear that
            # it cannot be rolled back would hide the reason.
            with contextlib.suppress(duckdb.Error):
                self.writer.close()
            raise
        self.writer.close()
        return summary

    def _run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        total = sum(_size_of(job.files) for run in self.plan.values() for job in run.jobs)
        done = 0
        for name, planned in self.plan.items():
            path, jobs = planned.path, planned.jobs
            self.writer.begin()
            if self.replace:
                self.summary.removed_count += runs.delete(self.con, name).module_count
            self._look_up_shapes()
            self.known = self._known(name)
            self.run_changed, self.dumped_at = not self.known, math.inf
            self._add_run(name, path, {**labels, **labels_by_run.get(name, {})})
            for oddity in planned.oddities:
                self._odd(name, oddity)
            for batch in self._grouped(jobs):
                if batch[0][1].is_large:
                    self._store_large(*batch[0])
                else:
                    self._replace([job.module_id for job, _ in batch])
                    self._store(batch)
                done += sum(loaded.size for _, loaded in batch)
                if self.progress is not None:
                    self.progress(done, total)
                if self.in_transaction >= TRANSACTION_BYTES:
                    self._begin_anew(name)
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

    def _known(self, run: str) -> dict[int, set[tuple[str, str]]]:
        rows = self.con.execute(
            "SELECT files.module_id, files.path, files.content_hash FROM files "
            "JOIN modules ON modules.module_id = files.module_id WHERE modules.run_name = ?",
            [run],
        ).fetchall()
        known: dict[int, set[tuple[str, str]]] = {}
        for module_id, path, content_hash in rows:
            known.setdefault(module_id, set()).add((path, content_hash))
        return known

    def _grouped(self, jobs: list[_Job]) -> Iterator[list[tuple[_Job, Loaded]]]:
        """Batches of changed modules: small ones up to a block of text, large ones alone."""
        batch: list[tuple[_Job, Loaded]] = []
        size = 0
        for job in jobs:
            try:
                job.stamps = _stamps(job.files)
                loaded = load(job.files, self.block_bytes)
                _check_unchanged(job)
                self.dumped_at = min(self.dumped_at, dumped_at(job.files))
            except OSError as error:
                self._unreadable(job, error)
                continue
            hashes = {
                (job.files.files[kind].name, content) for kind, content in loaded.hashes.items()
            }
            if self.known.get(job.module_id) == hashes:
                self.summary.unchanged_count += 1
                continue
            if loaded.is_large or size + loaded.size > self.block_bytes:
                if batch:
                    yield batch
                batch, size = [], 0
            if loaded.is_large:
                yield [(job, loaded)]
                continue
            batch.append((job, loaded))
            size += loaded.size
        if batch:
            yield batch

    def _unreadable(self, job: _Job, error: OSError) -> None:
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
        stale = [module_id for module_id in ids if module_id in self.known]
        if not stale:
            return
        self.writer.settle()
        for table in MODULE_TABLES:
            self.con.execute(
                f'DELETE FROM "{table}" WHERE module_id IN (SELECT unnest(?::BIGINT[]))', [stale]
            )
        self.summary.replaced_count += len(stale)

    # -- reading and storing ---------------------------------------------------------------

    def _store_large(self, job: _Job, loaded: Loaded) -> None:
        """Store a module whose files are read meanwhile: all of it, or what was there stays."""
        self._begin_anew(job.run)
        summary, problems = copy.copy(self.summary), Counter(self.problems)
        row_count = self.writer.row_count
        try:
            self._replace([job.module_id])
            self._store([(job, loaded)])
            _check_unchanged(job)
        except OSError as error:
            if self.replace:
                raise
            self.writer.settle()
            self.con.execute("ROLLBACK")
            self.writer.begin()
            self.summary, self.problems, self.writer.row_count = summary, problems, row_count
            self._look_up_shapes()
            self._unreadable(job, error)

    def _store(self, batch: list[tuple[_Job, Loaded]]) -> None:
        self.run_changed = True
        modules = [loaded for _, loaded in batch]
        is_large = len(modules) == 1 and modules[0].is_large
        source = LargeModule(modules[0], self.block_bytes) if is_large else Batch(modules)
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

    def _add_run(self, name: str, path: Path, labels: dict[str, str]) -> None:
        now = datetime.now(UTC).replace(tzinfo=None)
        self.con.execute(
            "INSERT INTO runs VALUES (?, ?, NULL, ?, ?) ON CONFLICT DO NOTHING",
            [name, as_text(str(path)), now, __version__],
        )
        self.con.execute("DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NULL", [name])
        for label, value in labels.items():
            self.con.execute(
                "DELETE FROM run_labels WHERE run_name = ? AND label = ?", [name, as_text(label)]
            )
            self.con.execute(
                "INSERT INTO run_labels VALUES (?, ?, ?)", [name, as_text(label), as_text(value)]
            )

    def _finish_run(self, name: str, path: Path) -> None:
        self.writer.settle()
        if not self.run_changed:
            return
        if self.summary.replaced_count:
            runs.delete_unused_shapes(self.con)
        is_known = self.dumped_at < math.inf
        dumped = datetime.fromtimestamp(self.dumped_at, UTC) if is_known else None
        self.con.execute(
            "UPDATE runs SET source_path = ?, dumped_at = least(dumped_at, ?), ingested_at = ?, "
            "bufdb_version = ? WHERE run_name = ?",
            [
                as_text(str(path)),
                None if dumped is None else dumped.replace(tzinfo=None),
                datetime.now(UTC).replace(tzinfo=None),
                __version__,
                name,
            ],
        )
