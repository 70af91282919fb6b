"""Dump directories into the database: discover, skip what is unchanged, read, store.

A module is stored whole or not at all. Modules go in their order by key, many in one transaction
(a transaction each would cost more than reading them), so that the rows of a module lie together.
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from bufdb import __version__, store
from bufdb.assemble import Assembled, ModuleFacts, assemble
from bufdb.columns import Batches, Labels, integers, strings, to_arrow
from bufdb.discover import ModuleFiles, base_of, discover
from bufdb.errors import UsageError
from bufdb.read.section import Finding
from bufdb.read.shape import Shape
from bufdb.scan import Columns, Ints
from bufdb.source import BLOCK_BYTES, Batch, LargeModule, Loaded, dumped_at, load

TRANSACTION_BYTES = 256 << 20
"""Text per transaction: what an interrupted ingest loses at the most, large modules apart."""
MEMORY_LIMIT = "512MB"
"""DuckDB's memory limit unless another is asked for."""
INSERT_ROWS = 250_000
"""Rows that wait for an insert: enough to make its fixed cost small, few enough to hold."""
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
_TEXT_TABLES = (
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "peak_contributors",
    "peak_stack_nodes",
)
"""Tables whose waiting rows keep blocks of text alive; the others can wait for the commit."""

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


def _plan(paths: list[Path], run: str | None) -> dict[str, tuple[Path, list[_Job]]]:
    """The modules of every run, with the path the run was named by."""
    plan: dict[str, tuple[Path, list[_Job]]] = {}
    taken: dict[int, Path] = {}
    for path in paths:
        modules = discover(path)
        if not modules:
            raise UsageError(
                f"no buffer assignment in {path}; dumps are made with "
                "XLA_FLAGS=--xla_dump_to=DIR (text, which is the default)"
            )
        base = Path(os.path.abspath(base_of(path)))  # noqa: PTH100 - a link keeps its own name
        name = run or base.name or "dumps"
        _, jobs = plan.setdefault(name, (path, []))
        for files in modules:
            module_id = module_id_of(name, files.key)
            first = taken.setdefault(module_id, base)
            if first != base:
                raise UsageError(
                    f"run {name}: {files.key} is in {first} and in {base}; give the directories "
                    "different --run names, or ingest the directory above both"
                )
            if all(job.module_id != module_id for job in jobs[-1:]) and not any(
                job.module_id == module_id for job in (jobs if len(paths) > 1 else [])
            ):
                jobs.append(_Job(name, module_id, files))
    return plan


class _Ingest:
    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: dict[str, tuple[Path, list[_Job]]],
        block_bytes: int,
        progress: Progress | None,
        jobs: int,
    ) -> None:
        self.con, self.plan, self.block_bytes, self.progress = con, plan, block_bytes, progress
        self.loader = ThreadPoolExecutor(1) if jobs > 1 else None
        self.loading: Future[None] | None = None
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.shapes: dict[bytes, Shape] = {}
        self.batches: dict[str, list[Any]] = {}
        self.waiting_rows = 0
        self.in_transaction = 0
        self.is_open = False

    def run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        """Read and store the plan; what was committed stays when this fails or is interrupted."""
        try:
            return self._run(labels, labels_by_run)
        except BaseException:
            self._shut_down()
            if self.is_open:
                self.con.execute("ROLLBACK")
            raise
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        if self.loader is not None:
            self.loader.shutdown()

    def _run(
        self, labels: Mapping[str, str], labels_by_run: Mapping[str, Mapping[str, str]]
    ) -> Summary:
        total = sum(
            file.size()
            for _, jobs in self.plan.values()
            for job in jobs
            for file in job.files.files.values()
        )
        stored = self.con.execute("SELECT shape FROM shapes").fetchall()
        self.stored_shapes = {shape for (shape,) in stored}
        done = 0
        for name, (path, jobs) in self.plan.items():
            known = self._known(name)
            self._begin()
            self.run_changed = not known
            self._add_run(name, path, {**labels, **labels_by_run.get(name, {})})
            for batch in self._grouped(jobs, known):
                self._store(batch)
                done += sum(loaded.size for _, loaded in batch)
                if self.progress is not None:
                    self.progress(done, total)
                if self.in_transaction >= TRANSACTION_BYTES:
                    self._commit()
                    self._begin()
            self._finish_run(name, path, jobs)
            self._commit()
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
            except OSError as error:
                self._unreadable(job, error)
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

    def _unreadable(self, job: _Job, error: OSError) -> None:
        self.summary.skipped_count += 1
        path = next(iter(job.files.files.values())).name
        message = f"cannot be read: {error.strerror}"
        self._add_diagnostics(
            job.run, [(None, Finding(0, "error", "unreadable_file", message, path))]
        )

    def _delete(self, module_id: int) -> None:
        self._flush()
        self._wait()
        for table in MODULE_TABLES:
            self.con.execute(f'DELETE FROM "{table}" WHERE module_id = ?', [module_id])

    # -- reading and storing ---------------------------------------------------------------

    def _store(self, batch: list[tuple[_Job, Loaded]]) -> None:
        self.run_changed = True
        modules = [loaded for _, loaded in batch]
        is_large = len(modules) == 1 and modules[0].is_large
        source = LargeModule(modules[0], self.block_bytes) if is_large else Batch(modules)
        ids = np.array([job.module_id for job, _ in batch], np.int64)

        def emit(table: str, columns: Columns) -> None:
            self._emit(table, columns, ids)

        assembled = assemble(source, emit, self.shapes)
        self._emit_shapes(assembled.shapes)
        self._emit_modules(batch, source, assembled, ids)
        self._emit_companions(source, ids)
        run = batch[0][0].run
        findings = [*source.findings, *assembled.findings]
        self._add_diagnostics(run, [(int(ids[f.module]), f) for f in findings])
        size = sum(loaded.size for loaded in modules)
        self.summary.module_count += len(batch)
        self.summary.text_bytes += size
        self.in_transaction += size

    def _emit(self, table: str, columns: Columns, ids: Ints) -> None:
        columns = dict(columns)
        modules = columns.pop("module")
        if not len(modules):
            return
        rows = {
            "module_id": ids[modules],
            **{n: c for n, c in columns.items() if n in _COLUMNS[table]},
        }
        self._queue(table, rows)

    def _queue(self, table: str, columns: Columns) -> None:
        length = len(next(iter(columns.values())))
        if not length:
            return
        for name in _COLUMNS[table]:
            if name not in columns:
                columns[name] = _missing(name, length)
        ordered = {
            name: columns[name] for name in ("module_id", *_COLUMNS[table]) if name in columns
        }
        waiting = self.batches.setdefault(table, [])
        waiting.append(to_arrow(ordered))
        self.summary.row_count += length
        if table in _TEXT_TABLES:
            self.waiting_rows += length
            if self.waiting_rows >= INSERT_ROWS:
                self._flush(_TEXT_TABLES)

    def _flush(self, tables: Collection[str] | None = None) -> None:
        """Insert what waits for all tables or for these."""
        chosen = list(self.batches) if tables is None else tables
        waiting = {table: self.batches.pop(table) for table in chosen if table in self.batches}
        self.waiting_rows = 0
        self._wait()
        if self.loader is None:
            self._insert(waiting)
        else:
            self.loading = self.loader.submit(self._insert, waiting)

    def _insert(self, waiting: dict[str, list[Any]]) -> None:
        for table, batches in waiting.items():
            # DuckDB finds the variable by its name. To register it would make a view, which the
            # transaction keeps, with all the text behind it, until it ends.
            arrow_batches = Batches(batches)  # noqa: F841
            cast = _CASTS.get(table, "*")
            self.con.execute(f'INSERT INTO "{table}" BY NAME SELECT {cast} FROM arrow_batches')

    def _wait(self) -> None:
        """Wait for the loader thread: there is one connection, and inserts keep their order."""
        if self.loading is not None:
            loading, self.loading = self.loading, None
            loading.result()

    def _begin(self) -> None:
        self.con.execute("BEGIN")
        self.is_open = True
        self.in_transaction = 0

    def _commit(self) -> None:
        self._flush()
        self._wait()
        self.con.execute("COMMIT")
        self.is_open = False

    # -- small tables ----------------------------------------------------------------------

    def _emit_shapes(self, shapes: list[Shape]) -> None:
        fresh = [shape for shape in shapes if shape.text not in self.stored_shapes]
        self.stored_shapes.update(shape.text for shape in fresh)
        dimensions = [
            None
            if shape.dimensions is None
            else "[" + ", ".join("NULL" if d is None else str(d) for d in shape.dimensions) + "]"
            for shape in fresh
        ]
        self._queue(
            "shapes",
            {
                "shape": strings([s.text for s in fresh]),
                "dtype": strings([s.dtype for s in fresh]),
                "dimensions": strings(dimensions),
                "dimensions_text": strings([s.dimensions_text for s in fresh]),
                "layout": strings([s.layout for s in fresh]),
                "memory_space": integers([s.memory_space for s in fresh]),
                "element_count": integers([s.element_count for s in fresh]),
                "logical_bytes": integers([s.logical_bytes for s in fresh]),
                "is_tuple": np.array([s.is_tuple for s in fresh], np.bool_),
            },
        )

    def _emit_modules(
        self,
        batch: list[tuple[_Job, Loaded]],
        source: Batch,
        assembled: Assembled,
        ids: Ints,
    ) -> None:
        rows: list[dict[str, Any]] = []
        files: list[tuple[int, str, str, int, str]] = []
        for number, (job, loaded) in enumerate(batch):
            facts, header = assembled.facts[number], source.headers.get(number)
            name = job.files.name
            hlo_name = header.module_name if header else None
            module_name = name.module_name or hlo_name
            live = facts.live
            rows.append(
                {
                    "run_name": job.run,
                    "module_key": job.files.key,
                    "module_name": module_name,
                    "function_name": function_name(module_name) or facts.jit_name,
                    "module_number": name.module_number,
                    "platform": name.platform or ("tpu" if facts.has_tiles else None),
                    "backend": name.backend,
                    "cl_number": name.cl_number,
                    "dump_time_us": name.dump_time_us,
                    "format_era": _era(job.files, facts, number in source.has_block_layout),
                    "reported_total_bytes": facts.total_bytes,
                    "schedule_length": live.schedule_length,
                    "reported_peak_time": live.peak_time,
                    "reported_peak_status": live.peak_status,
                    "reported_peak_tree_bytes": live.tree_bytes,
                    "hlo_module_name": hlo_name,
                    "entry_computation_layout": header.entry_computation_layout if header else None,
                    "partition_count": header.partition_count if header and hlo_name else None,
                    "replica_count": header.replica_count if header and hlo_name else None,
                    "has_used_values": facts.has_used_values,
                    "has_live_ranges": facts.has_live_ranges,
                    "has_hlo_text": header is not None,
                }
            )
            for kind, file in job.files.files.items():
                files.append(
                    (job.module_id, file.name, kind, loaded.sizes[kind], loaded.hashes[kind])
                )
            self._missing_parts(number, job.files, facts, source)
        columns: Columns = {"module_id": ids}
        for column in _COLUMNS["modules"]:
            values = [row[column] for row in rows]
            if column.startswith("has_"):
                columns[column] = np.array(values, np.bool_)
            elif column in _TEXT_COLUMNS:
                columns[column] = strings(values)
            else:
                columns[column] = integers(values)
        self._queue("modules", columns)
        file_ids, paths, kinds, sizes, hashes = zip(*files, strict=True)
        self._queue(
            "files",
            {
                "module_id": np.array(file_ids, np.int64),
                "path": strings(paths),
                "file_kind": strings(kinds),
                "size_bytes": np.array(sizes, np.int64),
                "content_hash": strings(hashes),
            },
        )

    def _missing_parts(
        self, number: int, files: ModuleFiles, facts: ModuleFacts, source: Batch
    ) -> None:
        """Files that would tell more, as notices."""
        if facts.needs_frames and not facts_have_frames(source, number):
            message = (
                f"source lines are unknown: instructions name stack frames, and the tables are in "
                f"the HLO text {files.key}.txt, which is not there"
            )
            source.find(number, "notice", "missing_hlo_text", message)
        if _era(files, facts, number in source.has_block_layout) != "C":
            return
        for kind, suffix, what in (
            ("buffer_assignment", "-buffer-assignment.txt", "sizes and offsets"),
            ("values", "-buffer-assignment-values.txt", "positions, uses and opcodes"),
            ("live_range", "-live-range.txt", "live ranges and the peak"),
        ):
            if kind not in files.files:
                message = f"{what} are unknown: {files.key}{suffix} is not there"
                source.find(number, "notice", "missing_file", message)

    def _emit_companions(self, source: Batch, ids: Ints) -> None:
        frames = [(ids[n], f) for n, header in source.headers.items() for f in header.frames]
        if frames:
            columns: Columns = {"module_id": np.array([i for i, _ in frames], np.int64)}
            for name in _COLUMNS["stack_frames"]:
                values = [getattr(frame, name) for _, frame in frames]
                text = name in ("source_file", "function_name")
                columns[name] = strings(values) if text else integers(values)
            self._queue("stack_frames", columns)
        aliases = [(ids[n], a) for n, header in source.headers.items() for a in header.aliases]
        if aliases:
            self._queue(
                "input_output_aliases",
                {
                    "module_id": np.array([i for i, _ in aliases], np.int64),
                    "output_index": strings([a[0] for _, a in aliases]),
                    "parameter_number": integers([a[1] for _, a in aliases]),
                    "parameter_index": strings([a[2] for _, a in aliases]),
                    "alias_kind": strings([a[3] for _, a in aliases]),
                },
            )
        options = [
            (ids[number], ordinal, option)
            for number, found in source.options.items()
            for ordinal, option in enumerate(found)
        ]
        if options:
            self._queue(
                "compiler_options",
                {
                    "module_id": np.array([i for i, _, _ in options], np.int64),
                    "option_ordinal": integers([o for _, o, _ in options]),
                    "option_name": strings([o[0] for _, _, o in options]),
                    "option_value": strings([o[1] for _, _, o in options]),
                },
            )

    def _add_diagnostics(self, run: str, findings: list[tuple[int | None, Finding]]) -> None:
        if not findings:
            return
        found = [finding for _, finding in findings]
        self.problems.update(finding.severity for finding in found)
        self._queue(
            "diagnostics",
            {
                "run_name": Labels(np.zeros(len(found), np.int64), [run]),
                "module_id": integers([module_id for module_id, _ in findings]),
                "severity": strings([f.severity for f in found]),
                "code": strings([f.code for f in found]),
                "path": strings([f.path for f in found]),
                "line_number": integers([f.line_number for f in found]),
                "message": strings([f.message for f in found]),
            },
        )

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

    def _finish_run(self, name: str, path: Path, jobs: list[_Job]) -> None:
        self._flush()
        self._wait()
        if not self.run_changed:
            return
        earliest = min((dumped_at(job.files) for job in jobs), default=None)
        dumped = None if earliest is None else datetime.fromtimestamp(earliest, UTC)
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


def facts_have_frames(source: Batch, number: int) -> bool:
    """Whether a module's stack-frame tables were read."""
    header = source.headers.get(number)
    return header is not None and bool(header.frames)


def function_name(module_name: str | None) -> str | None:
    """The jitted function that a module name such as `jit_train_step.15` is made from."""
    if module_name is None:
        return None
    name = re.sub(r"\.\d+$", "", module_name)
    return re.sub(r"^(?:p?jit|pmap|xmap)_+(?=.)", "", name)


def _era(files: ModuleFiles, facts: ModuleFacts, has_block_layout: bool) -> str:
    """modules.format_era: by the files there are, then by what only some eras print."""
    if "values" in files.files or "live_range" in files.files:
        return "C"
    if facts.has_live_ranges or facts.has_tellings or facts.live.peak_status:
        return "B"
    if facts.has_pointer or has_block_layout:
        return "A"
    return "B" if facts.has_used_values else "C"


_COLUMNS: dict[str, tuple[str, ...]] = {
    "modules": (
        "run_name",
        "module_key",
        "module_name",
        "function_name",
        "module_number",
        "platform",
        "backend",
        "cl_number",
        "dump_time_us",
        "format_era",
        "reported_total_bytes",
        "schedule_length",
        "reported_peak_time",
        "reported_peak_status",
        "reported_peak_tree_bytes",
        "hlo_module_name",
        "entry_computation_layout",
        "partition_count",
        "replica_count",
        "has_used_values",
        "has_live_ranges",
        "has_hlo_text",
    ),
    "files": ("path", "file_kind", "size_bytes", "content_hash"),
    "allocations": (
        "allocation_index",
        "size_bytes",
        "color",
        "page",
        "kind",
        "is_constant",
        "is_thread_local",
        "is_maybe_live_out",
        "is_preallocated_temp",
        "parameter_number",
        "parameter_shape",
        "parameter_shape_index",
        "output_shape",
        "other_attributes",
    ),
    "values": (
        "value_id",
        "allocation_index",
        "offset_bytes",
        "size_bytes",
        "color",
        "instruction_name",
        "shape_index",
        "is_phi",
        "shape",
        "logical_bytes",
    ),
    "shapes": (
        "shape",
        "dtype",
        "dimensions",
        "dimensions_text",
        "layout",
        "memory_space",
        "element_count",
        "logical_bytes",
        "is_tuple",
    ),
    "positions": ("value_id", "position_ordinal", "instruction_name", "shape_index", "is_defining"),
    "uses": ("value_id", "use_ordinal", "instruction_name", "operand_number", "operand_index"),
    "instructions": (
        "instruction_name",
        "program_order",
        "opcode",
        "shape",
        "op_type",
        "op_name",
        "source_file",
        "source_line",
        "source_end_line",
        "source_column",
        "source_end_column",
        "stack_frame_id",
        "text",
    ),
    "live_ranges": ("value_id", "instruction_name", "shape_index", "start_time", "end_time"),
    "occupied_peaks": ("color", "peak_time", "occupied_temp_bytes", "naive_live_bytes"),
    "occupancy_steps": ("color", "start_time", "occupied_temp_bytes"),
    "peak_contributors": (
        "contributor_ordinal",
        "value_id",
        "instruction_name",
        "shape_index",
        "logical_bytes",
        "cumulative_bytes",
    ),
    "peak_stack_nodes": (
        "node_ordinal",
        "parent_ordinal",
        "depth",
        "label",
        "total_bytes",
        "current_bytes",
        "remaining_bytes",
    ),
    "stack_frames": (
        "stack_frame_id",
        "parent_frame_id",
        "own_frame_id",
        "depth",
        "source_file",
        "function_name",
        "source_line",
        "source_end_line",
        "source_column",
        "source_end_column",
    ),
    "input_output_aliases": ("output_index", "parameter_number", "parameter_index", "alias_kind"),
    "compiler_options": ("option_ordinal", "option_name", "option_value"),
    "diagnostics": ("run_name", "module_id", "severity", "code", "path", "line_number", "message"),
}
"""Columns that the ingest fills, module_id apart."""

_TEXT_COLUMNS = {
    "run_name",
    "module_key",
    "module_name",
    "function_name",
    "platform",
    "backend",
    "format_era",
    "reported_peak_status",
    "hlo_module_name",
    "entry_computation_layout",
    "opcode",
    "shape",
    "op_type",
    "op_name",
    "source_file",
    "text",
}
_CASTS = {"shapes": "* REPLACE (dimensions::BIGINT[] AS dimensions)"}


def _missing(name: str, length: int) -> Any:
    """A column of NULLs."""
    if name in _TEXT_COLUMNS:
        return Labels(np.zeros(length, np.int64), [None])
    return integers([None]).take(np.zeros(length, np.int64))
