"""A database of this version from one of another: kept dumps are read again, the rest is copied.

The new file is made next to the old one and then renamed over it, so that whatever ends the process
leaves one of the two, whole. Nothing in the old file is obeyed: only rows of its tables are read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import xxhash

from bufdb import __version__
from bufdb.database import memory, other_versions, store
from bufdb.database.contents import stored_parts
from bufdb.database.runs import LIVE_TABLES
from bufdb.dumps.archives import Member, Unpacked
from bufdb.dumps.contents import expanded
from bufdb.dumps.files import DumpFile, ModuleFiles
from bufdb.errors import DatabaseError, listed
from bufdb.ingest.plan import Job, PlannedRun, Progress, Request
from bufdb.ingest.processes import readers
from bufdb.ingest.profile import CODES
from bufdb.ingest.rows import MODULE_TABLES
from bufdb.ingest.stored import NOT_READ_AGAIN, ToRead
from bufdb.ingest.storing import Ingest
from bufdb.read.own import Own

BATCH_BYTES = 4 << 30
"""Text of whole runs that is unpacked at once, into a temporary folder."""
_OLD = "before"
"""Name of the old file in the connection to the new one."""
_CONFIG = {"threads": "1", "write_buffer_row_group_count": "1"}
_RULES = ("memory_spaces", "op_categories", "role_rules")
_OF_RUNS = ("run_labels", *LIVE_TABLES)
_WORDS = {"rematerialised": "rematerialized"}
"""Values of rules that were spelled otherwise before schema version 8."""
_MODULES = """
SELECT modules.run_name, modules.module_id, modules.module_key, modules.own_pattern,
  files.path, files.file_kind, files.content_hash, files.source_stamp, files.size_bytes
FROM {old}.main.modules AS modules
JOIN {old}.main.files AS files ON files.module_id = modules.module_id
ORDER BY modules.run_name, modules.module_key, files.path
"""
_UNKNOWN_EXECUTIONS = """
INSERT INTO instruction_executions
SELECT DISTINCT instructions.module_id, instructions.instruction_name, NULL, 0, ?
FROM instructions
JOIN modules ON modules.module_id = instructions.module_id AND modules.has_hlo_text
WHERE instructions.module_id IN (SELECT module_id FROM temp.main.copied)
"""
_UNKNOWN_SHAPES = """
UPDATE live_profiles SET shapes_unknown_reason = ?
WHERE EXISTS (
  FROM live_arrays
  WHERE live_arrays.run_name = live_profiles.run_name
    AND live_arrays.profile_name = live_profiles.profile_name
)
"""
_LINES = """
UPDATE live_arrays SET source = lines.source, python_function_name = lines.function_name
FROM (
  SELECT
    made.run_name, made.profile_name, made.stack_frame_id, own.function_name,
    coalesce(
      if(made.own_frame_id IS NOT NULL, own.source_file || ':' || own.source_line, NULL),
      library_source(own.source_file, own.source_line)
    ) AS source
  FROM live_frames AS made
  JOIN live_frames AS own
    ON own.run_name = made.run_name
    AND own.profile_name = made.profile_name
    AND own.stack_frame_id = coalesce(made.own_frame_id, made.stack_frame_id)
) AS lines
WHERE lines.run_name = live_arrays.run_name
  AND lines.profile_name = live_arrays.profile_name
  AND lines.stack_frame_id = live_arrays.stack_frame_id
"""
_PROGRAM_COUNTS = """
UPDATE live_profiles SET program_count = greatest(live_profiles.program_count, listed.row_count)
FROM (SELECT run_name, profile_name, count(*) AS row_count FROM live_programs GROUP BY ALL)
  AS listed
WHERE listed.run_name = live_profiles.run_name
  AND listed.profile_name = live_profiles.profile_name
"""
"""Before schema version 8, programs that only bufdb.watch lists did not count."""
_SIGNATURES = """
UPDATE modules SET entry_hash = derived.entry_hash, shapes_name = derived.shapes_name
FROM derived_signatures AS derived
WHERE derived.module_id = modules.module_id
  AND modules.module_id IN (SELECT module_id FROM temp.main.copied)
"""
_MOST_NAMED = 4


@dataclass
class Upgraded:
    """The result of an upgrade."""

    version_before: int
    module_count: int = 0
    read_count: int = 0
    """Modules whose kept dump files were read again."""
    notes: list[str] = field(default_factory=list)
    is_current: bool = False
    """Whether nothing of a dataset was of an earlier version."""

    def line(self, db: str) -> str:
        """Return one line for people."""
        if self.is_current:
            return f"{db}: all of it has schema version {store.SCHEMA_VERSION} already"
        copied = self.module_count - self.read_count
        return (
            f"{db}: schema version {self.version_before} to {store.SCHEMA_VERSION}, "
            f"{self.module_count} modules: {self.read_count} read again, {copied} copied"
        )


@dataclass
class _Module:
    """A module of the old file."""

    run: str
    module_id: int
    key: str
    own_pattern: str | None
    files: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    """Path, file_kind, content_hash and source_stamp of each."""
    size: int = 0


def upgrade(db: str, /, *, jobs: int | None = 1, progress: Progress | None = None) -> Upgraded:
    """Replace a database by one of this version, with everything that it holds.

    Args:
        db: the file; it stays as it is until the new one is whole.
        jobs: processes that read, as for `bufdb.ingest.plan.Request`.
        progress: is given the bytes done and the bytes in total.

    Raises:
        DatabaseError: there is no such database, it is of a later version, or it cannot be read.
        BufdbError: the new one cannot be written; the old one is as it was.
    """
    path = Path(os.path.realpath(db))
    other_versions.require_upgradable(str(path), db)
    made = path.with_name(f"{path.name}.upgrading")
    _remove(made, db)
    try:
        config = {**_CONFIG, "memory_limit": memory.ingest_memory()}
        with contextlib.closing(store.open_writable(str(made), config)) as con:
            other_versions.attach(con, str(path), _OLD)
            copy = _Copy(con, db, jobs, progress)
            upgraded = copy.run()
            con.execute("CHECKPOINT")
            # The old file stays attached, and so is not written by others, until it is replaced.
            _replace(made, path)
    finally:
        _remove(made, db)
    return upgraded


def _replace(made: Path, path: Path) -> None:
    if Path(f"{made}.wal").exists():
        raise OSError(errno.ENOSPC, "the new database could not be written to its end", str(made))
    made.chmod(stat.S_IMODE(path.stat().st_mode))
    for name in (made, path.parent):
        file = os.open(name, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        if name == made:
            made.replace(path)


def _remove(made: Path, db: str) -> None:
    """Remove what a killed upgrade has left.

    Raises:
        DatabaseError: another process is at work on it.
    """
    if not os.path.lexists(made):
        return
    if other_versions.is_held(str(made)):
        raise DatabaseError(f"{db} is being upgraded by another process; try again later")
    for part in (made, Path(f"{made}.wal")):
        part.unlink(missing_ok=True)


class _Copy:
    """The old file, attached, on its way into the new one."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, db: str, jobs: int | None, progress: Progress | None
    ) -> None:
        self.con, self.db, self.jobs, self.progress = con, db, jobs, progress
        self.version = other_versions.schema_version(con, _OLD, db)
        self.old = other_versions.columns(con, _OLD, db)
        for table in ("runs", "modules", "files"):
            if table not in self.old:
                raise DatabaseError(f"{db} has no table {table} of bufdb's; name another file")
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        self.new = other_versions.columns(con, catalog, db)
        self.upgraded = Upgraded(self.version)
        self.reasons: dict[int, str] = {}
        """Why modules cannot be read again, by module_id."""

    def run(self) -> Upgraded:
        """Fill the new file."""
        modules = self._modules()
        self._rules()
        self._insert("runs", "TRUE")
        self._read_again(modules)
        self._copy_others(modules)
        self._of_runs(modules)
        self._contents()
        self._compare()
        self.upgraded.module_count = len(modules)
        self.upgraded.read_count = len(modules) - len(self.reasons)
        return self.upgraded

    def _modules(self) -> dict[int, _Module]:
        """Return all modules, each with its files if it has any."""
        rows = self.con.execute(
            f"SELECT run_name, module_id, module_key, own_pattern FROM {_OLD}.main.modules "
            "ORDER BY run_name, module_key"
        ).fetchall()
        modules = {row[1]: _Module(*row) for row in rows}
        for row in self.con.execute(_MODULES.format(old=_OLD)).fetchall():
            module = modules[row[1]]
            module.files.append(row[4:8])
            module.size += row[8]
        return modules

    # -- what is read again ----------------------------------------------------------------

    def _read_again(self, modules: dict[int, _Module]) -> None:
        """Read the modules whose files are kept; note of the others why they cannot be."""
        there = self._stored_hashes()
        wanted: list[_Module] = []
        for module in modules.values():
            if module.files and all(hash_ in there for _, _, hash_, _ in module.files):
                wanted.append(module)
            else:
                self.reasons[module.module_id] = "its dump files are not kept"
        total, done = sum(module.size for module in wanted), 0
        for batch in _batches(wanted):
            self._read_batch(batch, done, total)
            done += sum(module.size for module in batch)
        read = self.con.execute("SELECT module_id FROM modules").fetchall()
        for module_id in {module.module_id for module in wanted} - {one for (one,) in read}:
            self.reasons.setdefault(module_id, "its kept dump files cannot be read")

    def _stored_hashes(self) -> set[str]:
        empty = f"SELECT content_hash FROM {_OLD}.main.files WHERE size_bytes = 0"
        parts = f"SELECT content_hash FROM {_OLD}.main.file_contents"
        sql = f"{empty} UNION {parts}" if "file_contents" in self.old else empty
        return {one for (one,) in self.con.execute(sql).fetchall()}

    def _read_batch(self, batch: Sequence[_Module], done: int, total: int) -> None:
        places = self._unpacked({hash_ for module in batch for _, _, hash_, _ in module.files})
        planned: dict[str, PlannedRun] = {}
        patterns: dict[str, dict[str | None, list[Job]]] = {}
        for module in batch:
            if not all(hash_ in places for _, _, hash_, _ in module.files):
                self.reasons[module.module_id] = "its kept dump files are damaged"
                continue
            files = ModuleFiles(module.key)
            for path, kind, hash_, stamp in module.files:
                unpacked, start, size = places[hash_]
                member = Member(path, Path(self.db), 0, stamp, unpacked, start, size)
                files.files[kind] = DumpFile(member, path, kind)
            job = Job(module.run, module.module_id, files)
            planned.setdefault(module.run, PlannedRun(Path(module.run))).jobs.append(job)
            patterns.setdefault(module.run, {}).setdefault(module.own_pattern, []).append(job)
        if not planned:
            return

        def report(part: int, _: int) -> None:
            if self.progress is not None:
                self.progress(done + part, total)

        request = Request(keeps_sources=False, progress=report, jobs=self.jobs)
        with readers(self.jobs) as reader:
            reading = reader([job for one in planned.values() for job in one.jobs])
            to_read = {
                run: _to_read(run, by_pattern, request, reading.count)
                for run, by_pattern in patterns.items()
            }
            reading.begin(itertools.chain.from_iterable([one.groups for one in to_read.values()]))
            Ingest(self.con, planned, request, reading, to_read).run()

    def _unpacked(self, wanted: set[str]) -> dict[str, tuple[Unpacked, int, int]]:
        """Return where each content lies in a temporary file; without what is damaged."""
        unpacked = Unpacked()
        unpacked.add([])
        places: dict[str, tuple[Unpacked, int, int]] = {}
        parts = stored_parts(self.con, _OLD) if "file_contents" in self.old else iter(())
        for content_hash, group in itertools.groupby(parts, key=lambda part: part[0]):
            if content_hash not in wanted:
                continue
            start, digest = unpacked.size, xxhash.xxh3_128()
            try:
                for _, _, size, compressed in group:
                    piece = expanded(compressed, size)
                    digest.update(piece)
                    unpacked.add([piece])
            except OSError as error:
                if error.errno != errno.EIO:  # of what is stored, not of the temporary folder
                    raise
            if digest.hexdigest() == content_hash:
                places[content_hash] = (unpacked, start, unpacked.size - start)
        nothing = xxhash.xxh3_128_hexdigest(b"")
        return {**places, nothing: (unpacked, 0, 0)}

    # -- what is copied --------------------------------------------------------------------

    def _copy_others(self, modules: dict[int, _Module]) -> None:
        """Copy the rows of modules that cannot be read again, with a notice of what they lack."""
        self.con.execute("CREATE TEMP TABLE copied (module_id BIGINT, run_name VARCHAR)")
        ids = sorted(self.reasons)
        for module_id in ids:
            self.con.execute(
                "INSERT INTO copied VALUES (?, ?)", [module_id, modules[module_id].run]
            )
        if not ids:
            return
        of_copied = "stored.module_id IN (SELECT module_id FROM temp.main.copied)"
        for table in MODULE_TABLES:
            self._insert(table, of_copied)
        self._insert("shapes", "stored.shape NOT IN (SELECT shape FROM shapes)")
        if "entry_hash" not in self.old["modules"]:
            self.con.execute(_SIGNATURES)
        if self.version < 8 or "instruction_executions" not in self.old:
            # An instruction without a row would run once and touch all of its operands.
            self.con.execute(_UNKNOWN_EXECUTIONS, [f"read by a bufdb of schema {self.version}"])
            self._count_again("instruction_executions")
        lacking = sorted(set(MODULE_TABLES) - self.old.keys())
        lacks = f", so {', '.join(lacking)} have no rows of it" if lacking else ""
        noted = self.con.execute(
            "SELECT DISTINCT module_id FROM diagnostics WHERE code = ?", [NOT_READ_AGAIN]
        ).fetchall()
        # What an earlier upgrade noted is still so.
        for module_id in (
            ids if lacking else sorted(self.reasons.keys() - {one for (one,) in noted})
        ):
            message = (
                f"as a bufdb of schema version {self.version} read it: "
                f"{self.reasons[module_id]}{lacks}; ingest its dump again to renew it"
            )
            self.con.execute(
                "INSERT INTO diagnostics VALUES (?, ?, 'notice', ?, NULL, NULL, ?)",
                [modules[module_id].run, module_id, NOT_READ_AGAIN, message],
            )
        self._count_again("diagnostics")
        keys = listed([modules[one].key for one in ids], _MOST_NAMED)
        self.upgraded.notes.append(
            f"{len(ids)} modules are as bufdb read them before ({keys}); ingest their dumps again "
            "to renew them ('bufdb query diagnostics' has why)"
        )

    def _of_runs(self, modules: dict[int, _Module]) -> None:
        """Copy what is of runs, and times of profiles, which no dump has."""
        for table in _OF_RUNS:
            self.con.execute(f"DELETE FROM {table}")
            self._insert(table, "TRUE")
        if self.version < 8:
            self.con.execute(_PROGRAM_COUNTS)
        if self.version < 8 or "shape" not in self.old.get("live_arrays", ()):
            reason = f"a bufdb of schema {self.version}, which stored none, read the profile"
            self.con.execute(_UNKNOWN_SHAPES, [reason])
        if "source" not in self.old.get("live_arrays", ()):
            self.con.execute(_LINES)
        if "live_totals" not in self.old:
            self.con.execute("INSERT INTO live_totals BY NAME FROM derived_live_totals")
        self.con.execute("DELETE FROM diagnostics WHERE module_id IS NULL")
        self._insert("diagnostics", "stored.module_id IS NULL")
        self.con.execute("DELETE FROM runs")
        self._insert("runs", "TRUE")
        self.con.execute(
            "UPDATE runs SET bufdb_version = ? WHERE run_name IN (SELECT run_name FROM modules) "
            "AND run_name NOT IN (SELECT run_name FROM temp.main.copied)",
            [__version__],
        )
        read_again = "stored.module_id NOT IN (SELECT module_id FROM temp.main.copied)"
        codes = ", ".join(f"'{code}'" for code in CODES)
        self._insert("instruction_times", read_again)
        of_profile = f"stored.module_id IS NOT NULL AND stored.code IN ({codes})"
        self._insert("diagnostics", f"{of_profile} AND {read_again}")
        self._count_again("instruction_times")
        self._count_again("diagnostics")

    def _count_again(self, table: str) -> None:
        self.con.execute("DELETE FROM row_counts WHERE table_name = ?", [table])
        self.con.execute(
            f"INSERT INTO row_counts SELECT module_id, '{table}', count(*) FROM {table} "
            "WHERE module_id IS NOT NULL GROUP BY module_id"
        )

    def _rules(self) -> None:
        """Keep rules that a user has edited; others are this version's."""
        for table in _RULES:
            if table not in self.old:
                continue
            names = ", ".join(f'"{name}"' for name in self._common(table))
            select = f'SELECT {names} FROM {{}}."{table}" ORDER BY ALL'
            own = self.con.execute(select.format("main")).fetchall()
            rows = self.con.execute(select.format(f"{_OLD}.main")).fetchall()
            if self.version < 8:
                rows = [
                    tuple(_WORDS.get(cell, cell) if isinstance(cell, str) else cell for cell in row)
                    for row in rows
                ]
            if sorted(map(repr, rows)) == sorted(map(repr, own)):
                continue
            marks = ", ".join("?" for _ in self._common(table))
            self.con.execute(f"DELETE FROM {table}")
            for row in rows:
                self.con.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row))
            self.upgraded.notes.append(f"{table} has edited rules, which stay as they are")

    def _contents(self) -> None:
        self._insert(
            "file_contents", "stored.content_hash IN (SELECT content_hash FROM files)", "rowid"
        )

    def _common(self, table: str) -> list[str]:
        return [name for name in self.new[table] if name in self.old[table]]

    def _insert(self, table: str, condition: str, order: str | None = None) -> None:
        """Insert rows of the old file; columns that it does not have are NULL."""
        if table not in self.old:
            return
        names = ", ".join(f'"{name}"' for name in self._common(table))
        by = f" ORDER BY stored.{order}" if order else ""
        self.con.execute(
            f'INSERT INTO "{table}" ({names}) SELECT {names} '
            f'FROM {_OLD}.main."{table}" AS stored WHERE {condition}{by}'
        )

    def _compare(self) -> None:
        """Check that no run, module, label or file is lost.

        Raises:
            DatabaseError: one is.
        """
        keys = {"runs": "run_name", "modules": "module_id, run_name, module_key"}
        keys["run_labels"] = "run_name, label, label_value"
        for table in (*LIVE_TABLES, "instruction_times"):
            if table in self.old:
                names = [name for name in self._common(table) if name != "program_count"]
                keys[table] = ", ".join(names)
        for table, key in keys.items():
            lost = self.con.execute(
                f"SELECT {key} FROM {_OLD}.main.{table} EXCEPT SELECT {key} FROM {table} LIMIT 1"
            ).fetchone()
            if lost is not None:
                raise DatabaseError(
                    f"{self.db}: the upgrade would lose {lost[0]} of {table}; it is as it was. "
                    "Please report it"
                )


def _batches(modules: Iterable[_Module]) -> Iterator[list[_Module]]:
    """Yield modules of whole runs, up to BATCH_BYTES of text or one run together."""
    batch: list[_Module] = []
    size = 0
    for _, group in itertools.groupby(modules, key=lambda module: module.run):
        some = list(group)
        more = sum(module.size for module in some)
        if batch and size + more > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch += some
        size += more
    if batch:
        yield batch


def _to_read(
    run: str, by_pattern: dict[str | None, list[Job]], request: Request, reader_count: int
) -> ToRead:
    """Return the modules of a run, each read with what counted as the user's own."""
    made = [
        ToRead(None, run, jobs, request, reader_count, Own(pattern))
        for pattern, jobs in by_pattern.items()
    ]
    made[0].groups = [group for one in made for group in one.groups]
    return made[0]
