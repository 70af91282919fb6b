"""Dump directories into the database: discover, skip what is unchanged, read, store.

A module is stored whole or not at all. Modules go in their order by key, many in one transaction
(a transaction each would cost more than reading them), so that the rows of a module lie together.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np

from bufdb import __version__, store
from bufdb.assemble import assemble
from bufdb.discover import ModuleFiles, base_of, discover
from bufdb.errors import UsageError
from bufdb.missing import missing
from bufdb.module_rows import (
    Row,
    companion_rows,
    diagnostic_row,
    file_rows,
    module_row,
    shape_row,
)
from bufdb.read.account import Finding
from bufdb.read.shape import Shape
from bufdb.scan import Columns
from bufdb.source import BLOCK_BYTES, Batch, LargeModule, Loaded, dumped_at, load
from bufdb.writer import FEW_INSERT_ROWS, INSERT_ROWS, TableWriter

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
)
"""Every table that holds rows of a module, by module_id."""
Progress = Callable[[int, int], None]


@dataclass
class Summary:
    """What an ingest did."""

    module_count: int = 0
    """Modules stored, replaced ones included."""
    replaced_count: int = 0
    unchanged_count: int = 0
    skipped_count: int = 0
    """Modules of which no file could be read."""
    row_count: int = 0
    text_bytes: int = 0
    """Size of the files that were read."""
    seconds: float = 0.0
    problem_counts: dict[str, int] = field(default_factory=dict)
    """Number of diagnostics by severity."""

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


@dataclass
class _Run:
    """What is planned for one run."""

    path: Path
    """The path that the run was named by."""
    jobs: list[_Job] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)
    """Files and directories that could not be looked into."""


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

    Raises:
        UsageError: a path does not exist, holds no dump, or two paths hold one module.
        DatabaseError: the database cannot be opened or is of another version.
    """
    began = time.perf_counter()
    plan = _plan(paths, run)
    con = store.open_writable(db, {"threads": "1", "memory_limit": memory_limit or MEMORY_LIMIT})
    # Nothing here makes cycles, and the collector's visits cost 5 % of a gigabyte's ingest.
    collects = gc.isenabled()
    gc.disable()
    try:
        work = _Ingest(con, plan, block_bytes, progress, jobs or 1)
        summary = work.run(labels or {}, labels_by_run or {})
    finally:
        if collects:
            gc.enable()
        con.close()
    summary.seconds = time.perf_counter() - began
    return summary


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
        errors: list[OSError] = []
        modules = discover(path, errors)
        if not modules and not errors:
            raise UsageError(
                f"no buffer assignment in {path}; dumps are made with "
                "XLA_FLAGS=--xla_dump_to=DIR (text, which is the default)"
            )
        base = Path(os.path.abspath(base_of(path)))  # noqa: PTH100 - a link keeps its own name
        name = run or base.name or "dumps"
        planned = plan.setdefault(name, _Run(path))
        planned.errors += errors
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
    ) -> None:
        self.con, self.plan, self.block_bytes, self.progress = con, plan, block_bytes, progress
        self.writer = TableWriter(con, jobs)
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.shapes: dict[bytes, Shape] = {}
        self.in_transaction = 0

    def run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        """Read and store the plan; what was committed stays when this fails or is interrupted."""
        try:
            return self._run(labels, labels_by_run)
        finally:
            self.writer.close()

    def _run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        total = sum(_size_of(job.files) for run in self.plan.values() for job in run.jobs)
        stored = self.con.execute("SELECT shape FROM shapes").fetchall()
        self.stored_shapes = {shape for (shape,) in stored}
        done = 0
        for name, planned in self.plan.items():
            path, jobs = planned.path, planned.jobs
            known = self._known(name)
            self.writer.begin()
            self.run_changed, self.dumped_at = not known, math.inf
            self._add_run(name, path, {**labels, **labels_by_run.get(name, {})})
            for error in planned.errors:
                self._unreadable(name, os.path.relpath(error.filename, base_of(path)), error)
            for batch in self._grouped(jobs, known):
                self._store(batch)
                done += sum(loaded.size for _, loaded in batch)
                if self.progress is not None:
                    self.progress(done, total)
                if self.in_transaction >= TRANSACTION_BYTES:
                    self.writer.commit()
                    self.writer.begin()
                    self.in_transaction = 0
            self._finish_run(name, path)
            self.writer.commit()
            self.in_transaction = 0
        self.summary.row_count = self.writer.row_count
        self.summary.problem_counts = dict(self.problems)
        return self.summary

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

    def _grouped(
        self, jobs: list[_Job], known: dict[int, set[tuple[str, str]]]
    ) -> Iterator[list[tuple[_Job, Loaded]]]:
        """Batches of changed modules: small ones up to a block of text, large ones alone."""
        batch: list[tuple[_Job, Loaded]] = []
        size = 0
        for job in jobs:
            try:
                loaded = load(job.files, self.block_bytes)
                self.dumped_at = min(self.dumped_at, dumped_at(job.files))
            except OSError as error:
                self._unreadable(job.run, next(iter(job.files.files.values())).name, error)
                continue
            hashes = {
                (job.files.files[kind].name, content) for kind, content in loaded.hashes.items()
            }
            if known.get(job.module_id) == hashes:
                self.summary.unchanged_count += 1
                continue
            if job.module_id in known:
                self._delete(job.module_id)
                self.summary.replaced_count += 1
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

    def _unreadable(self, run: str, path: str, error: OSError) -> None:
        self.summary.skipped_count += 1
        message = f"cannot be read: {error.strerror}"
        finding = Finding(0, "error", "unreadable_file", message, path)
        self._add_findings([diagnostic_row(run, None, finding)])

    def _delete(self, module_id: int) -> None:
        self.writer.settle()
        for table in MODULE_TABLES:
            self.con.execute(f'DELETE FROM "{table}" WHERE module_id = ?', [module_id])

    # -- reading and storing ---------------------------------------------------------------

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
            [name, str(path), now, __version__],
        )
        self.con.execute("DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NULL", [name])
        for label, value in labels.items():
            self.con.execute(
                "DELETE FROM run_labels WHERE run_name = ? AND label = ?", [name, label]
            )
            self.con.execute("INSERT INTO run_labels VALUES (?, ?, ?)", [name, label, value])

    def _finish_run(self, name: str, path: Path) -> None:
        self.writer.settle()
        if not self.run_changed:
            return
        is_known = self.dumped_at < math.inf
        dumped = datetime.fromtimestamp(self.dumped_at, UTC) if is_known else None
        self.con.execute(
            "UPDATE runs SET source_path = ?, dumped_at = least(dumped_at, ?), ingested_at = ?, "
            "bufdb_version = ? WHERE run_name = ?",
            [
                str(path),
                None if dumped is None else dumped.replace(tzinfo=None),
                datetime.now(UTC).replace(tzinfo=None),
                __version__,
                name,
            ],
        )
