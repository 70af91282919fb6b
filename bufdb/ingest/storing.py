"""Store what was read: what has changed, a run's own packages, transactions, a summary."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from bufdb.columnar.rows import Rows
from bufdb.columnar.section import Finding
from bufdb.database import faults, runs, store
from bufdb.dumps.discover import Source
from bufdb.dumps.files import BEFORE, Oddity, as_text
from bufdb.dumps.modules import NO_BUFFERS
from bufdb.errors import DatabaseError
from bufdb.ingest import writer as run_rows
from bufdb.ingest.plan import Content, Done, Group, Job, PlannedRun, Progress, Reporter, made_with
from bufdb.ingest.pool import Here, Reader
from bufdb.ingest.rows import MODULE_TABLES, diagnostic_row, shape_row
from bufdb.ingest.writer import FEW_INSERT_ROWS, INSERT_ROWS, TableWriter
from bufdb.read.hlo import Own

# -- What counts as the user's own among installed packages: globs into one regular expression -----
#
# The expression is stored with each module (modules.own_pattern), since views judge lines by it
# too; so it has only what Python's regular expressions and DuckDB's (RE2) treat alike, and is for
# whole paths.

OWN_LABEL = "own"
"""Metadata of a run that has the globs, for people to read."""


def parse_own(globs: Sequence[str]) -> Own:
    """Return what globs count as the user's own, in any order and number.

    With a slash in it a glob is for the whole path of a file. Without one it is for the name of an
    installed package or module, in upper or lower case, with - or _. In both * is any text and ?
    any character. Empty globs say nothing.
    """
    texts = {as_text(glob) for glob in globs if glob}
    parts = sorted(_path(glob) if "/" in glob else _package(glob) for glob in texts)
    return Own("|".join(parts) if parts else None)


def own_of_run(con: duckdb.DuckDBPyConnection, run: str, globs: Sequence[str] | None) -> Own:
    """Return what globs say; without any, what the run's modules were read with."""
    if globs is not None:
        return parse_own(globs)
    found = con.execute("SELECT max(own_pattern) FROM modules WHERE run_name = ?", [run]).fetchone()
    return Own(found[0] if found else None)


def own_note_globs(con: duckdb.DuckDBPyConnection, run: str, globs: Sequence[str] | None) -> None:
    """Write the given globs, if any, into the metadata of a run in place of the earlier ones.

    A label of that name that the user gave it stays.
    """
    if globs is None:
        return
    con.execute(
        "DELETE FROM run_labels WHERE run_name = ? AND label = ? AND is_metadata", [run, OWN_LABEL]
    )
    text = as_text(" ".join(dict.fromkeys(glob for glob in globs if glob)))
    if text:
        con.execute(
            "INSERT INTO run_labels SELECT $run, $label, $text, TRUE WHERE NOT EXISTS "
            "(FROM run_labels WHERE run_name = $run AND label = $label)",
            {"run": run, "label": OWN_LABEL, "text": text},
        )


def left_own(con: duckdb.DuckDBPyConnection, run: str, own: Own) -> list[str]:
    """Return a note if modules of a run, not among those read now, have another --own."""
    found = con.execute(
        "SELECT count(*) FROM modules WHERE run_name = ? AND own_pattern IS DISTINCT FROM ?",
        [run, own.pattern],
    ).fetchone()
    return [own_note(run, f"{found[0]} modules")] if found and found[0] else []


def own_note(run: str, modules: str) -> str:
    """Return what a user should know about `modules` of a run, which have another --own."""
    return (
        f"run {run}: {modules} that are not in these paths keep the --own that they were "
        "read with; ingest their dumps again to have all alike"
    )


def _path(glob: str) -> str:
    return _translated(glob, "")


def _package(glob: str) -> str:
    name = f"(?i:{_translated(glob, '/')})"
    return rf"(?:[\s\S]*/)?(?:site-packages|dist-packages)/{name}(?:/[\s\S]*|[.]py)"


def _translated(glob: str, but: str) -> str:
    """Return a glob as a regular expression; `but` is what * and ? do not match."""
    any_character = f"[^{but}]" if but else r"[\s\S]"
    wild = {"*": f"{any_character}*", "?": any_character}
    if but:
        wild |= dict.fromkeys("-_", "[-_]")
    return "".join(wild.get(character) or re.escape(character) for character in glob)


# -- What a run has stored of its modules, and what is left to read of it --------------------------

UNCHANGED_SHARE = 8
"""So many stored modules are read together for one that is not stored: most have not changed, and
cost only their hash."""


class ToRead:
    """The modules of a run, separating those that need not be read."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection | None,
        run: str,
        jobs: Sequence[Job],
        block_bytes: int,
        own_globs: Sequence[str] | None,
        *,
        is_replaced: bool,
        reader_count: int = 1,
    ) -> None:
        """Look at what the run has: nothing if it is replaced or if there is no database.

        Groups are for so many readers at once.
        """
        if con is None or is_replaced:
            self.own, stored = parse_own(own_globs or ()), _Stored([])
        else:
            self.own, stored = own_of_run(con, run, own_globs), _Stored.of_run(con, run)
        self.stored_ids = stored.ids
        """modules.module_id of everything that the run has."""
        same = [job for job in jobs if stored.has_same_stamps(job, self.own.pattern)]
        self.unchanged = [job.module_id for job in same]
        """Those whose places say, without being read, that nothing changed."""
        ids = set(self.unchanged)
        left = [job for job in jobs if job.module_id not in ids]
        self.groups = [
            Group(some, self.own, block_bytes, stored.contents(some))
            for some in _grouped(left, stored.ids, block_bytes, reader_count)
        ]
        """The others, in order."""


def _grouped(
    jobs: Sequence[Job], stored: Iterable[int], block_bytes: int, reader_count: int
) -> Iterator[list[Job]]:
    """Yield consecutive modules of about a block of text; a large one is alone.

    All readers get as many groups, of about one size: with five groups, two would wait for the
    third of one of them.
    """
    known = set(stored)
    sizes = [sum(size for kind, size in job.sizes.items() if kind != BEFORE) for job in jobs]
    sizes = [
        size // UNCHANGED_SHARE if job.module_id in known else size
        for size, job in zip(sizes, jobs, strict=True)
    ]
    small = [size for size in sizes if size <= block_bytes]
    rounds = -(-sum(small) // (block_bytes * reader_count))
    if reader_count > 1 and rounds:
        # The largest module is what a group may fall short by.
        block_bytes = min(block_bytes, sum(small) // (rounds * reader_count) + max(small))
    group: list[Job] = []
    total = 0
    for job, size in zip(jobs, sizes, strict=True):
        if group and total + size > block_bytes:
            yield group
            group, total = [], 0
        group.append(job)
        total += size
    if group:
        yield group


class _Stored:
    """The modules of a run by id, each with what it was made of."""

    def __init__(self, rows: Iterable[tuple[int, str, str, str | None, str | None]]) -> None:
        """Take module_id, path, content_hash and source_stamp of files, and own_pattern."""
        contents: dict[int, set[tuple[str, str]]] = {}
        self._stamps: dict[int, set[tuple[str, str]]] = {}
        for module_id, path, content_hash, stamp, pattern in rows:
            mine = made_with(pattern)
            contents.setdefault(module_id, {mine}).add((path, content_hash))
            self._stamps.setdefault(module_id, {mine}).add((path, stamp or ""))
        self._contents = {module_id: frozenset(content) for module_id, content in contents.items()}
        self.ids = self._contents.keys()

    @classmethod
    def of_run(cls, con: duckdb.DuckDBPyConnection, run: str) -> _Stored:
        return cls(
            con.execute(
                "SELECT files.module_id, files.path, files.content_hash, files.source_stamp, "
                "modules.own_pattern "
                "FROM files JOIN modules ON modules.module_id = files.module_id "
                "WHERE modules.run_name = ?",
                [run],
            ).fetchall()
        )

    def has_same_stamps(self, job: Job, own_pattern: str | None) -> bool:
        if job.module_id not in self._stamps:
            return False
        stamps = {(file.name, file.stamp or "") for file in job.files.files.values()}
        if not all(stamp for _, stamp in stamps):
            return False
        return self._stamps.get(job.module_id) == stamps | {made_with(own_pattern)}

    def contents(self, jobs: Iterable[Job]) -> dict[int, Content]:
        """Return what those of these modules that are stored were made of, by module_id."""
        ids = (job.module_id for job in jobs)
        return {one: self._contents[one] for one in ids if one in self._contents}


# -- The result of an ingest -----------------------------------------------------------------------


@dataclass
class Summary:
    """The result of an ingest."""

    run_names: list[str] = field(default_factory=list)
    """Runs that the dumps belong to."""
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
    pruned_count: int = 0
    """Modules removed because their dumps are gone."""
    notes: list[str] = field(default_factory=list)
    """What people should know in addition to the summary."""
    refusals: list[str] = field(default_factory=list)
    """By function, what XLA said when it planned the memory and then gave up."""

    @property
    def exit_code(self) -> int:
        """0, or 4 if something could not be read or contradicts itself."""
        return 4 if any(self.problem_counts.get(s) for s in ("data_loss", "error")) else 0

    def line(self) -> str:
        """Return one line for people."""
        parts = [
            f"ingested {self.module_count} modules ({self.replaced_count} replaced)",
            f"{self.row_count} rows",
            f"{self.text_bytes / 1e6:.1f} MB in {self.seconds:.2f} s",
            f"unchanged {self.unchanged_count}",
            f"skipped {self.skipped_count}",
        ]
        if self.pruned_count:
            parts.append(f"removed {self.pruned_count} that are gone")
        problems = [f"{n} {severity}" for severity, n in sorted(self.problem_counts.items()) if n]
        if problems:
            where = "; 'bufdb query diagnostics' lists them" if self.exit_code else ""
            parts.append(f"diagnostics: {', '.join(problems)}{where}")
        return ", ".join(parts)


# -- The plan into an open database: what goes, what comes, and what is one transaction ------------
#
# A module is stored whole or not at all. Modules go in their order by key, many in one transaction
# (a transaction each would cost more than reading them), so that the rows of a module lie together.

TRANSACTION_BYTES = 1 << 30
"""Text per transaction: what an interrupted ingest loses at most, large modules aside: 10 to 30
seconds of work. Each packs again the row group that the last one began, in every table."""

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

    It is the sink of what is read (`bufdb.ingest.plan.Sink`).
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        plan: dict[str, PlannedRun],
        block_bytes: int,
        progress: Progress | None = None,
        reader: Reader | None = None,
        replace: bool = False,
        own_globs: Sequence[str] | None = None,
        prune: bool = False,
        to_read: dict[str, ToRead] | None = None,
    ) -> None:
        """Take a plan, and what to read of each run if that was found out and is being read."""
        self.con, self.plan, self.block_bytes = con, plan, block_bytes
        self.reporter = Reporter(
            (job for planned in plan.values() for job in planned.jobs), progress
        )
        self.reader = reader or Here()
        self.writer = TableWriter(con)
        self.replace, self.own_globs, self.prune = replace, own_globs, prune
        self.summary = Summary()
        self.problems: Counter[str] = Counter()
        self.in_transaction, self.transaction_bytes = 0, TRANSACTION_BYTES
        self.to_read = to_read or {}
        self.is_last = False
        """Whether the file is closed after the next commit."""

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
            # What went wrong may have ended the transaction, or the database with it; an error
            # about the rollback would hide the reason.
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
        if not self.to_read:
            self.reader.begin(self._ahead())
        for name, planned in self.plan.items():
            self.run_name, path = name, planned.path
            self.writer.begin()
            if self.replace:
                self.summary.removed_count += runs.delete(self.con, name).module_count
            self._look_up_shapes()
            self.of_run = self._to_read(name)
            self.run_changed, self.dumped_at = not self.of_run.stored_ids, math.inf
            given = {**labels, **labels_by_run.get(name, {})}
            run_rows.add_run(self.con, name, path, given, metadata)
            own_note_globs(self.con, name, self.own_globs)
            for oddity in planned.oddities:
                self._odd(oddity)
            for module_id in self.of_run.unchanged:
                self.unchanged(module_id, math.inf)
            for group in self.of_run.groups:
                self.reader.read(group, self)
                if self.in_transaction >= self.transaction_bytes:
                    self._begin_anew()
            if self.prune:
                self._prune(planned)
            self._finish_run(path)
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

    def _begin_anew(self) -> None:
        """Commit what was stored so far, unless everything must become visible at once."""
        if not self.replace:
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
            self.to_read[name] = ToRead(
                self.con,
                name,
                self.plan[name].jobs,
                self.block_bytes,
                self.own_globs,
                is_replaced=self.replace,
                reader_count=self.reader.count,
            )
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
        self.ids, self.run_changed = ids, True
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
        self.problems += done.problem_counts
        self.dumped_at = min(self.dumped_at, done.dumped_at)
        self.summary.module_count += len(done.ids)
        self.summary.text_bytes += done.text_bytes
        self.in_transaction += done.text_bytes
        self.reporter.done(done.ids)

    def lost(self, module_id: int, error: OSError) -> None:
        """Undo a large module that cannot be read to its end; what was there before stays."""
        if self.replace:
            raise error
        self.writer.settle()
        self.con.execute("ROLLBACK")
        self.writer.begin()
        self.summary, self.writer.row_count = self.before
        self.unreadable(module_id, error)

    def _skip(self, module_id: int, error: OSError) -> None:
        ((job),) = (job for job in self.plan[self.run_name].jobs if job.module_id == module_id)
        name = next(iter(job.files.files.values())).name
        message = f"cannot be read: {error.strerror}"
        self._odd(Oddity(name, "error", "unreadable_file", message))

    def _odd(self, oddity: Oddity) -> None:
        if oddity.severity == "error":
            self.summary.skipped_count += 1
        if oddity.code == NO_BUFFERS:
            self.summary.notes.append(f"run {self.run_name}: {oddity.message}")
        self.problems[oddity.severity] += 1
        finding = Finding(0, oddity.severity, oddity.code, oddity.message, oddity.name)
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
        if gone and any(oddity.severity == "error" for oddity in planned.oddities):
            self.summary.notes.append(
                f"run {self.run_name}: {len(gone)} modules were not found and stay, for a part of "
                f"{planned.path} could not be read"
            )
            return
        self.summary.pruned_count += self._delete(gone)
        self.run_changed |= bool(gone)

    def _finish_run(self, path: Source) -> None:
        self.writer.settle()
        self.summary.notes += self._left()
        if not self.run_changed:
            return
        if self.summary.replaced_count or self.summary.pruned_count:
            runs.delete_unused_shapes(self.con)
        run_rows.update_run(self.con, self.run_name, path, self.dumped_at)

    def _left(self) -> list[str]:
        """Return a note if modules that are not ingested now have another --own."""
        return left_own(self.con, self.run_name, self.of_run.own)
