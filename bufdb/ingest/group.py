"""A group of modules from files to rows, without a database: what a process of any kind can do.

`read` gives a sink what it finds, in order: modules that have not changed, modules that cannot be
read, and batches, each with its rows. `collect` gives the same as one value. What goes in and what
comes out can be pickled. Invariant: what is reported of a module depends on its own files, on what
counts as the user's own and on nothing else: not on the group, nor on what was read before.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bufdb.columnar.rows import Misfits, Rows, column_of, rows_of
from bufdb.columnar.scan import Columns
from bufdb.dumps.batch import Batch, LargeModule
from bufdb.dumps.contents import PART_BYTES, Part, cut, parts
from bufdb.dumps.load import Loaded, chunks, dumped_at, load
from bufdb.ingest.plan import Job, check_unchanged, stamps_of
from bufdb.ingest.rows import (
    Row,
    column_types,
    companion_rows,
    diagnostic_row,
    file_rows,
    missing,
    module_row,
)
from bufdb.ingest.work import Content, Done, Group, Sink, made_with
from bufdb.read.own import Own
from bufdb.rows.assembly import assemble


def read(group: Group, sink: Sink) -> None:
    """Read the modules of a group, and give a sink what is found.

    Small modules are taken together, up to a block of text; a large one is alone.
    """
    batch: list[_Changed] = []
    size, dumped = 0, math.inf
    for one in _changed(group, sink):
        loaded = one.loaded
        if loaded.is_large or size + loaded.kept_size > group.block_bytes:
            _read_small(group, batch, dumped, sink)
            batch, size, dumped = [], 0, math.inf
        if loaded.is_large:
            _read_large(group, one, sink)
            continue
        batch.append(one)
        size += loaded.kept_size
        dumped = min(dumped, one.dumped_at)
    _read_small(group, batch, dumped, sink)


@dataclass
class Collected:
    """Everything that `read` finds in a group."""

    unchanged: list[int] = field(default_factory=list)
    """modules.module_id, as everywhere here."""
    errors: dict[int, OSError] = field(default_factory=dict)
    """Why modules could not be read."""
    rows: list[tuple[str, Rows]] = field(default_factory=list)
    """Rows with their table, in order."""
    parts: list[Part] = field(default_factory=list)
    """Bytes of files, if they are stored."""
    done: list[Done] = field(default_factory=list)


def collect(group: Group) -> Collected:
    """Read the modules of a group; the value can be pickled."""
    sink = _Collecting()
    read(group, sink)
    return sink.collected


class _Collecting:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.collected = Collected()
        self._kept = self._kept_parts = 0

    def unchanged(self, module_id: int, dumped: float) -> None:
        self.collected.unchanged.append(module_id)

    def unreadable(self, module_id: int, error: OSError) -> None:
        self.collected.errors[module_id] = error

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        self._kept, self._kept_parts = len(self.collected.rows), len(self.collected.parts)

    def add(self, table: str, rows: Rows) -> None:
        self.collected.rows.append((table, rows))

    def content(self, part: Part) -> None:
        self.collected.parts.append(part)

    def part(self, size: int) -> None:
        pass

    def end(self, done: Done) -> None:
        self.collected.done.append(done)

    def lost(self, module_id: int, error: OSError) -> None:
        del self.collected.rows[self._kept :]
        del self.collected.parts[self._kept_parts :]
        self.collected.errors[module_id] = error


def content_of(job: Job, loaded: Loaded, own: Own) -> Content:
    """Return what the rows of a module would be made of."""
    files = job.files.files
    hashes = {(files[kind].name, content) for kind, content in loaded.hashes.items()}
    return frozenset(hashes | {made_with(own.pattern)})


@dataclass
class _Changed:
    """A module that is read because it has changed."""

    job: Job
    loaded: Loaded
    dumped_at: float
    """Seconds since 1970."""
    parts: list[Part]
    """Its files, if it is small and they are stored."""


def _changed(group: Group, sink: Sink) -> Iterator[_Changed]:
    """Yield the modules that have changed, loaded."""
    for job in group.jobs:
        before = group.stored.get(job.module_id)
        some: list[Part] = []
        try:
            job.stamps = stamps_of(job.files)
            loaded = load(job.files, group.block_bytes)
            is_same = before is not None and before == content_of(job, loaded, group.own)
            if group.keeps_sources and not is_same and not loaded.is_large:
                some = list(_parts(loaded))
            check_unchanged(job)
            dumped = dumped_at(job.files)
        except OSError as error:
            sink.unreadable(job.module_id, error)
            continue
        if is_same:
            sink.unchanged(job.module_id, dumped)
        else:
            yield _Changed(job, loaded, dumped, some)


def _parts(loaded: Loaded) -> Iterator[Part]:
    """Yield the parts of a module's files, each file's in order.

    Raises:
        OSError: a file that is not in memory cannot be read again.
    """
    for kind, file in loaded.files.files.items():
        text = loaded.originals.get(kind) or loaded.texts.get(kind)
        again = None if text else chunks(file, 0, loaded.sizes[kind], PART_BYTES)
        yield from parts(loaded.hashes[kind], cut(text or b"") if again is None else again)


def _read_small(group: Group, batch: list[_Changed], dumped: float, sink: Sink) -> None:
    if batch:
        source = Batch([one.loaded for one in batch], group.own)
        jobs = [one.job for one in batch]
        sink.begin([job.module_id for job in jobs], is_large=False)
        for part in itertools.chain.from_iterable(one.parts for one in batch):
            sink.content(part)
        sink.end(_tell(source, jobs, dumped, sink))


def _read_large(group: Group, one: _Changed, sink: Sink) -> None:
    """Read a module whose files are read while its rows are emitted."""
    job = one.job
    sink.begin([job.module_id], is_large=True)
    try:
        if group.keeps_sources:
            for part in _parts(one.loaded):
                sink.content(part)
        source = LargeModule(one.loaded, group.block_bytes, group.own, sink.part)
        done = _tell(source, [job], one.dumped_at, sink)
        check_unchanged(job)
    except OSError as error:
        sink.lost(job.module_id, error)
    else:
        sink.end(done)


class _Counting:
    """Passes rows on to a sink, and counts them."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.counts = sink, Counter[tuple[int, str]]()
        """Rows by module_id and table."""

    def add(self, table: str, rows: Rows) -> None:
        """Pass on rows of a table, those of one module together."""
        self.sink.add(table, rows)
        ids = rows.numbers(list(column_types()[table]).index("module_id")).filled(0)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ids)) + 1])
        for module_id, count in zip(ids[starts], np.diff(starts, append=len(ids)), strict=True):
            self.counts[int(module_id), table] += int(count)

    def rows(self) -> list[Row]:
        """Return the rows of row_counts."""
        return [
            {"module_id": module_id, "table_name": table, "row_count": count}
            for (module_id, table), count in self.counts.items()
        ]


def _tell(source: Batch, jobs: Sequence[Job], dumped: float, to: Sink) -> Done:
    """Give a sink the rows of a batch."""
    sink = _Counting(to)
    ids = np.array([job.module_id for job in jobs], np.int64)
    account = source.account

    def emit(table: str, columns: Columns) -> None:
        for row, column in _add(sink, table, {**columns, "module_id": ids[columns["module"]]}):
            message = f"{table}.{column} does not fit into its type and is NULL"
            account.find(int(columns["module"][row]), "error", "misfit", message)

    assembled = assemble(source, emit, {})
    account.close()
    modules: list[Row] = []
    files: list[Row] = []
    for number, job in enumerate(jobs):
        facts = assembled.facts[number]
        row = module_row(job.run, job.module_id, job.files, facts, source, number)
        modules.append(row)
        files += file_rows(job.module_id, source, number)
        for finding in missing(job.files, facts, row["format_era"], source, number):
            account.add(finding)
    for number, column in _add_rows(sink, "modules", modules):
        message = f"modules.{column} does not fit into its type and is NULL"
        account.find(number, "error", "misfit", message)
    _add_rows(sink, "files", files)
    for table, some in companion_rows(source, ids.tolist()).items():
        _add_rows(sink, table, some)
    run = jobs[0].run
    findings = account.findings()
    rows = [diagnostic_row(run, int(ids[one.module]), one) for one in findings]
    _add_rows(sink, "diagnostics", rows)
    _add_rows(to, "row_counts", sink.rows())
    size = sum(loaded.size for loaded in source.modules)
    problems = Counter(one.severity for one in findings)
    return Done(ids.tolist(), size, dumped, assembled.shapes, problems)


def _add(sink: Sink | _Counting, table: str, columns: Columns) -> Misfits:
    """Give a sink rows; return the values that do not fit into their column and are NULL."""
    if not len(next(iter(columns.values()))):
        return []
    rows, misfits = rows_of(columns, column_types()[table])
    sink.add(table, rows)
    return misfits


def _add_rows(sink: Sink | _Counting, table: str, rows: Sequence[Row]) -> Misfits:
    """Do the same for a table with few rows."""
    types = column_types()[table].items()
    columns = {name: column_of([row.get(name) for row in rows], kind) for name, kind in types}
    return _add(sink, table, columns)
