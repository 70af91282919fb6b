"""The plan into an open database: what goes, what comes, and what is one transaction.

A module is stored whole or not at all. Modules go in their order by key, many in one transaction
(a transaction each would cost more than reading them), so that the rows of a module lie together.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from bufdb.columnar.rows import Rows
from bufdb.columnar.section import Finding
from bufdb.database import faults, runs, store
from bufdb.dumps.discover import Source
from bufdb.dumps.files import Problem
from bufdb.dumps.memory_profiles import NO_PROFILE
from bufdb.dumps.mixed import SEVERAL
from bufdb.dumps.modules import NO_BUFFERS
from bufdb.errors import DatabaseError
from bufdb.ingest import memory
from bufdb.ingest import writer as run_rows
from bufdb.ingest.own import left_own, own_note_globs
from bufdb.ingest.plan import PlannedRun, Reporter, Request, Summary
from bufdb.ingest.reader import Here, Reader
from bufdb.ingest.rows import MODULE_TABLES, diagnostic_row, shape_row
from bufdb.ingest.stored import ToRead
from bufdb.ingest.work import Done, Group
from bufdb.ingest.writer import FEW_INSERT_ROWS, INSERT_ROWS, TableWriter

if TYPE_CHECKING:
    from bufdb.dumps.contents import Part
    from bufdb.ingest.profile import Timing

TRANSACTION_BYTES = 1 << 30
"""Text per transaction: what an interrupted ingest loses at most, large modules aside: 10 to 30
seconds of work. Each packs again the row group that the last one began, in every table."""

NOTED = (NO_BUFFERS, NO_PROFILE, SEVERAL)
"""Codes of what is missing from the dumps as a whole, which is noted at once."""

CONTENT_BYTES = 8 << 20
"""Compressed bytes of files that wait for an insert."""

LOGGED_BYTES = 16 << 20
"""Text of a last transaction that may go to the log next to the file, which is joined to the file
when that is closed, or later if the disk is too full. With more, too, DuckDB would log the little
that is not packed yet, and pack it when the file is closed: 30 ms for 2,000 small modules."""


def opened(db: str, config: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """Open the database, made if it is not there; a full disk leaves no part of a new one."""
    is_new = not os.path.lexists(db)
    try:
        return store.open_writable(db, config)
    except (DatabaseError, duckdb.Error) as error:
        if is_new and any(faults.is_full(e) for e in (error, error.__cause__) if e is not None):
            for part in (db, f"{db}.wal"):
                Path(part).unlink(missing_ok=True)
        raise


def has_runs(con: duckdb.DuckDBPyConnection, names: Iterable[str]) -> bool:
    """Return whether any of these runs is in a database."""
    sql = "SELECT 1 FROM runs WHERE list_contains(?::VARCHAR[], run_name) LIMIT 1"
    return con.execute(sql, [list(names)]).fetchone() is not None


class Ingest:
    """The plan on its way into the database, one transaction after the other.

    It is the sink of what is read (`bufdb.ingest.work.Sink`).
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: dict[str, PlannedRun],
        request: Request,
        reader: Reader | None = None,
        to_read: dict[str, ToRead] | None = None,
    ) -> None:
        """Take a plan, and what to read of each run if that was found out and is being read."""
        self.con, self.plan, self.request = con, plan, request
        self.reporter = Reporter(
            (job for planned in plan.values() for job in planned.jobs), request.progress
        )
        self.reader = reader or Here()
        self.writer = TableWriter(con)
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.in_transaction, self.transaction_bytes = 0, TRANSACTION_BYTES
        self.to_read = to_read or {}
        self.timing: Timing | None = None
        """Times of instructions for the modules of the run."""
        if request.profile is not None:
            from bufdb.ingest.profile import Timing

            self.timing = Timing(request.profile)
        self.say: Callable[[str], object] = str
        """Receives how far the ingest is, for those who wait for the database."""
        self.is_last = False
        """Whether the file is closed after the next commit."""

    def run(self) -> Summary:
        """Read and store the plan; what was committed stays when this fails or is interrupted."""
        try:
            summary = self._run()
        except BaseException:
            # What went wrong may have ended the transaction, or the database with it; an error
            # about the rollback would hide the reason.
            with contextlib.suppress(duckdb.Error):
                self.writer.close()
            raise
        self.writer.close()
        return summary

    def _run(self) -> Summary:
        request = self.request
        if not self.to_read:
            self.reader.begin(self._ahead())
        for name, planned in self.plan.items():
            self.run_name, path = name, planned.path
            self._say()
            self.writer.begin()
            if request.replace:
                self.summary.removed_count += runs.delete(self.con, name).module_count
            self._look_up_shapes()
            self._look_up_contents()
            self.of_run = self._to_read(name)
            self.run_changed, self.dumped_at = not self.of_run.stored_ids, math.inf
            own_labels, is_alone = request.labels_of(name), planned.is_memory_alone
            run_rows.add_run(
                self.con, name, path, own_labels, request.metadata, keeps_findings=is_alone
            )
            own_note_globs(self.con, name, request.own_globs)
            for problem in planned.problems:
                self._odd(problem)
            for module_id in self.of_run.unchanged:
                self.unchanged(module_id, math.inf)
            for group in self.of_run.groups:
                self.reader.read(group, self)
                if self.in_transaction >= self.transaction_bytes:
                    self._begin_anew()
            self._add_memory(name, planned)
            if request.prune:
                self._prune(planned)
            self._finish_run(path)
            self._add_times()
            if name == next(reversed(self.plan)):
                self._end_reading()
            self._commit()
            del self.to_read[name]
        self.summary.row_count = self.writer.row_count
        self.summary.problem_counts = dict(self.problems)
        return self.summary

    def _look_up_shapes(self) -> None:
        stored = self.con.execute("SELECT shape FROM shapes").fetchall()
        self.stored_shapes = {shape for (shape,) in stored}

    def _look_up_contents(self) -> None:
        sql = "SELECT DISTINCT content_hash FROM file_contents"
        self.stored_contents = {one for (one,) in self.con.execute(sql).fetchall()}
        self.new_contents: set[str] = set()
        """Those of them that came with the modules that were begun last."""
        self.stored_content: str | None = None
        """The file whose parts are being stored."""
        self.waiting_parts: list[Part] = []
        self.waiting_bytes = 0

    def _begin_anew(self) -> None:
        """Commit what was stored so far, unless everything must become visible at once."""
        if not self.request.replace:
            self._commit()
            self.writer.begin()

    def _commit(self) -> None:
        self.writer.commit(is_packed=self.is_last and self.in_transaction >= LOGGED_BYTES)
        self.in_transaction = 0

    # -- what to read ----------------------------------------------------------------------

    def _ahead(self) -> Iterator[Group]:
        """Yield the groups of all runs: the next run is begun while the last is being stored."""
        for name in self.plan:
            yield from self._to_read(name).groups

    def _to_read(self, name: str) -> ToRead:
        """Return what to read of a run; found once, by what it has before any of it is stored."""
        if name not in self.to_read:
            jobs = self.plan[name].jobs
            self.to_read[name] = ToRead(self.con, name, jobs, self.request, self.reader.count)
        return self.to_read[name]

    # -- what is found in it ---------------------------------------------------------------

    def unchanged(self, module_id: int, dumped: float) -> None:
        """Note that a module stays as it is."""
        self.dumped_at = min(self.dumped_at, dumped)
        self.summary.unchanged_count += 1
        self.reporter.done([module_id])

    def unreadable(self, module_id: int, error: OSError) -> None:
        """Skip a module that cannot be read; what was stored of it before stays."""
        self._skip(module_id, error)
        self.reporter.done([module_id])

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        """Begin the rows of modules; what is stored of them is removed."""
        self.ids, self.run_changed, self.new_contents = ids, True, set()
        self.writer.insert_rows = FEW_INSERT_ROWS if is_large else INSERT_ROWS
        if is_large:
            self._begin_anew()
            self.before = copy.copy(self.summary), self.writer.row_count
        self.summary.replaced_count += self._delete(
            [module_id for module_id in ids if module_id in self.of_run.stored_ids]
        )

    def add(self, table: str, rows: Rows) -> None:
        """Store rows of modules."""
        self.writer.add(table, rows)

    def content(self, part: Part) -> None:
        """Store a part of a file, unless an equal file is stored."""
        if part.part_ordinal == 0:
            is_new = part.content_hash not in self.stored_contents
            self.stored_content = part.content_hash if is_new else None
            self.stored_contents.add(part.content_hash)
            self.new_contents |= {part.content_hash} if is_new else set()
        if part.content_hash != self.stored_content:
            return
        self.waiting_parts.append(part)
        self.waiting_bytes += len(part.compressed)
        if self.waiting_bytes >= CONTENT_BYTES:
            self._add_contents()
            self.writer.flush("file_contents")
            self.waiting_bytes = 0

    def _add_contents(self) -> None:
        self.writer.add_rows("file_contents", [part.row() for part in self.waiting_parts])
        self.waiting_parts = []

    def idle(self) -> None:
        """Insert what waits, if it is worth it."""
        self.writer.idle()

    def part(self, size: int) -> None:
        """Report that a part of a large module was read."""
        self.reporter.part(self.ids[0], size)

    def end(self, done: Done) -> None:
        """Finish these modules, all of whose rows are given to the writer."""
        fresh = [shape for shape in done.shapes if shape.text not in self.stored_shapes]
        self.stored_shapes.update(shape.text for shape in fresh)
        self.writer.add_rows("shapes", [shape_row(shape) for shape in fresh])
        self._add_contents()
        self.problems += done.problem_counts
        self.dumped_at = min(self.dumped_at, done.dumped_at)
        self.summary.module_count += len(done.ids)
        self.summary.text_bytes += done.text_bytes
        self.in_transaction += done.text_bytes
        self.reporter.done(done.ids)
        self._say()

    def _say(self) -> None:
        """Say how far the ingest is."""
        total = sum(len(planned.jobs) for planned in self.plan.values())
        stored = self.summary.module_count
        self.say(f"ingest of run {self.run_name}, {stored} of {total} modules so far")

    def lost(self, module_id: int, error: OSError) -> None:
        """Undo a large module that cannot be read to its end; what was there before stays."""
        if self.request.replace:
            raise error
        self.writer.settle()
        self.con.execute("ROLLBACK")
        self.stored_contents -= self.new_contents
        self.waiting_parts = []
        self.writer.begin()
        self.summary, self.writer.row_count = self.before
        self.unreadable(module_id, error)

    def _skip(self, module_id: int, error: OSError) -> None:
        ((job),) = (job for job in self.plan[self.run_name].jobs if job.module_id == module_id)
        name = next(iter(job.files.files.values())).name
        message = f"cannot be read: {error.strerror}"
        self._odd(Problem(name, "error", "unreadable_file", message))

    def _odd(self, problem: Problem) -> None:
        if problem.severity == "error":
            self.summary.skipped_count += 1
        if problem.code in NOTED:
            where = f"{problem.name}: " if problem.name else ""
            self.summary.notes.append(f"run {self.run_name}: {where}{problem.message}")
        self.problems[problem.severity] += 1
        finding = Finding(0, problem.severity, problem.code, problem.message, problem.name)
        self.writer.add_rows("diagnostics", [diagnostic_row(self.run_name, None, finding)])

    def _delete(self, ids: list[int]) -> int:
        """Delete all rows of these modules; return how many modules they are."""
        if ids:
            self.writer.settle()
            for table in MODULE_TABLES:
                self.con.execute(
                    f'DELETE FROM "{table}" WHERE module_id IN (SELECT unnest(?::BIGINT[]))', [ids]
                )
        return len(ids)

    # -- what is left to do for a run ------------------------------------------------------

    def _end_reading(self) -> None:
        """End reading: the next commit is the last before the file is closed."""
        self.reader.end()
        self.is_last = True

    def _prune(self, planned: PlannedRun) -> None:
        """Delete the modules of a run that are no longer where they were."""
        gone = sorted(self.of_run.stored_ids - {job.module_id for job in planned.jobs})
        if gone and any(problem.severity == "error" for problem in planned.problems):
            self.summary.notes.append(
                f"run {self.run_name}: {len(gone)} modules were not found but stay, since part of "
                f"{planned.path} could not be read"
            )
            return
        self.summary.pruned_count += self._delete(gone)
        self.run_changed |= bool(gone)

    def _add_memory(self, run: str, planned: PlannedRun) -> None:
        self.writer.settle()
        more = (self._odd, self.summary)
        memory.add(self.con, run, planned, self.of_run.own, *more, prune=self.request.prune)

    def _finish_run(self, path: Source) -> None:
        self.writer.settle()
        self.summary.notes += self._left()
        if not self.run_changed:
            return
        if self.summary.replaced_count or self.summary.pruned_count:
            runs.delete_unused(self.con)
        run_rows.update_run(self.con, self.run_name, path, self.dumped_at)

    def _add_times(self) -> None:
        """Store the times of the run's modules, if there is a profile."""
        if self.timing is not None:
            self.timing.add(self.con, self.run_name)
            self._note_times(self.timing)

    def _note_times(self, timing: Timing) -> None:
        report = timing.finish(self.con, self.run_name)
        self.summary.notes += report.lines
        self.summary.notes += [f"not matched: {text}" for text in report.unmatched]

    def _left(self) -> list[str]:
        """Return a note if modules that are not ingested now have another --own."""
        return left_own(self.con, self.run_name, self.of_run.own)
