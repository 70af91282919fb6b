"""Memory profiles into the tables of live arrays: rows of a run, not of a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import duckdb

from bufdb.database.runs import LIVE_TABLES
from bufdb.dumps.files import Problem
from bufdb.dumps.memory_profiles import MemoryFile, Taken, load, statistics_of
from bufdb.errors import BufdbError
from bufdb.ingest.plan import PlannedRun, Summary
from bufdb.proto.pprof import Frame, Stack
from bufdb.read.own import Own

UNSIZED = "unknown_code_size"
"""Code of the notice about a profile with programs of unknown size."""
_TOTALS = """
INSERT INTO live_totals BY NAME
FROM derived_live_totals WHERE run_name = ? AND list_contains(?::VARCHAR[], profile_name)
"""
"""One statement for all profiles of an ingest: to plan it takes longer than to sum one."""


def add(
    con: duckdb.DuckDBPyConnection,
    run: str,
    planned: PlannedRun,
    own: Own,
    odd: Callable[[Problem], None],
    summary: Summary,
    *,
    prune: bool,
) -> None:
    """Store the memory profiles of a run; what is damaged in a directory or unknown goes to `odd`.

    Raises:
        BufdbError: a file that was named itself cannot be read.
    """
    stored: list[str] = []
    for file in planned.memory_files:
        if file.is_log:
            _store_log(con, run, file)
            stored.append(file.name)
            continue
        try:
            taken = load(file)
        except BufdbError as error:
            if planned.are_given:
                raise
            odd(Problem(file.name, "error", "unreadable_file", str(error)))
            continue
        store(con, run, taken, own)
        stored.append(taken.name)
        summary.profile_count += 1
        if unsized := taken.profile.unsized_count:
            message = (
                f"the runtime does not know the code size of {unsized} of "
                f"{taken.profile.program_count} programs (-1): live_profiles.code_bytes is NULL"
            )
            odd(Problem(taken.name, "notice", UNSIZED, message))
    if stored:
        con.execute(_TOTALS, [run, stored])
    if prune:
        summary.pruned_count += _prune(con, run, planned)


def _store_log(con: duckdb.DuckDBPyConnection, run: str, file: MemoryFile) -> None:
    """Store the statistics of allocators in a log, in place of those of the same name."""
    with suppress(OSError):  # reported when it is read as a dump
        rows = statistics_of(file.path)
        remove(con, run, [file.name])
        _insert(con, "allocator_statistics", run, file.name, rows)


def store(con: duckdb.DuckDBPyConnection, run: str, taken: Taken, own: Own) -> None:
    """Store a profile in place of one of the same name, in the transaction that is open."""
    remove(con, run, [taken.name])
    frames = _Frames(own)
    arrays = [{**frames.cells(row.pop("stack")), **row} for row in taken.arrays()]
    _insert(con, "live_profiles", run, taken.name, [taken.row()])
    _insert(con, "live_arrays", run, taken.name, arrays)
    _insert(con, "live_frames", run, taken.name, frames.rows)
    _insert(con, "live_programs", run, taken.name, taken.programs)
    _insert(con, "allocator_statistics", run, taken.name, taken.statistics)


def remove(con: duckdb.DuckDBPyConnection, run: str, names: Sequence[str]) -> None:
    """Remove profiles of a run and the notices about them, by name."""
    con.execute(
        "DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NULL AND code = ? "
        "AND list_contains(?::VARCHAR[], path)",
        [run, UNSIZED, list(names)],
    )
    for table in LIVE_TABLES:
        con.execute(
            f"DELETE FROM {table} WHERE run_name = ? AND list_contains(?::VARCHAR[], profile_name)",
            [run, list(names)],
        )


def _prune(con: duckdb.DuckDBPyConnection, run: str, planned: PlannedRun) -> int:
    """Remove the profiles of a run that are not among the planned ones; return how many."""
    sql = (
        "SELECT profile_name FROM live_profiles WHERE run_name = $run "
        "UNION SELECT profile_name FROM allocator_statistics WHERE run_name = $run"
    )
    stored = {name for (name,) in con.execute(sql, {"run": run}).fetchall()}
    gone = sorted(stored - {file.name for file in planned.memory_files})
    remove(con, run, gone)
    return len(gone)


class _Frames:
    """The stacks of a profile as a tree, callers first."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[int | None, Frame], int] = {}

    def cells(self, stack: Stack) -> dict[str, Any]:
        """Return what live_arrays has of a stack, whose frames are added."""
        number = self._number(stack)
        if number is None:
            return dict.fromkeys(("stack_frame_id", "source", "python_function_name"))
        own = self.rows[number - 1]["own_frame_id"]
        row = self.rows[(own or number) - 1]
        file, line = row["source_file"], row["source_line"]
        source = self.own.library_source(file, line)
        if own is not None and line is not None:
            source = f"{file}:{line}"
        return {
            "stack_frame_id": number,
            "source": source,
            "python_function_name": row["function_name"],
        }

    def _number(self, stack: Stack) -> int | None:
        innermost: int | None = None
        for depth, frame in enumerate(stack):
            key = (innermost, frame)
            if key not in self._numbers:
                self._numbers[key] = len(self.rows) + 1
                self.rows.append(self._row(frame, innermost, depth))
            innermost = self._numbers[key]
        return innermost

    def _row(self, frame: Frame, parent: int | None, depth: int) -> dict[str, Any]:
        number = len(self.rows) + 1
        is_own = frame.source_file != "" and not self.own.is_library(frame.source_file)
        above = None if parent is None else self.rows[parent - 1]["own_frame_id"]
        return {
            "stack_frame_id": number,
            "parent_frame_id": parent,
            "own_frame_id": number if is_own else above,
            "depth": depth,
            "source_file": frame.source_file or None,
            "function_name": frame.function_name or None,
            "source_line": frame.source_line,
        }


def _insert(
    con: duckdb.DuckDBPyConnection,
    table: str,
    run: str,
    profile: str,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    if not rows:
        return
    columns = ["run_name", "profile_name", *rows[0]]
    cells = [[run] * len(rows), [profile] * len(rows)]
    cells += [[row[name] for row in rows] for name in rows[0]]
    unnested = ", ".join("unnest(?)" for _ in columns)
    con.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {unnested}", cells)
