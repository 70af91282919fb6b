"""`ingest`: from paths to tables."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.database import memory
from bufdb.database.patience import account
from bufdb.errors import UsageError
from bufdb.ingest.plan import Summary
from bufdb.ingest.processes import readers
from bufdb.ingest.reader import Here, Reader
from bufdb.render.notes import merged

if TYPE_CHECKING:
    import duckdb

    from bufdb.dumps.discover import Source
    from bufdb.ingest.plan import PlannedRun, Request
    from bufdb.ingest.stored import ToRead


# -- Dump directories into the database: discover, skip what is unchanged, read, store -------------
#
# What reading takes others import while this process looks for modules, and NumPy and DuckDB are
# imported here, and a new database made, while they read already: 0.2 s in all.

_CONFIG = {"threads": "1", "write_buffer_row_group_count": "1"}
"""A row group is packed and written when it is full. By default five wait for each other, unpacked:
3 to 5 % more CPU and 30 MB more memory for 300 MB and 1 GB of text."""


def ingest(
    db: str,
    paths: Sequence[Source],
    before: Callable[[duckdb.DuckDBPyConnection], object] = lambda con: None,
    **options: Any,
) -> Summary:
    """Read dumps and store them.

    Args:
        db: the database file, made if it is not there.
        paths: dump directories (with all below them) and single files.
        before: runs on the open database before anything is stored.
        options: fields of `bufdb.ingest.plan.Request`.

    Raises:
        UsageError: a path does not exist, holds no dump, or two paths hold one module.
        DatabaseError: the database cannot be opened or is of another version.
    """
    began = time.perf_counter()
    # Nothing here makes cycles, and the collector's visits cost 5 % of a gigabyte's ingest.
    collects = gc.isenabled()
    gc.disable()
    try:
        from bufdb.ingest.plan import Request, plan

        request = Request(**options)
        with readers(request.jobs) as reader:
            planned = plan(paths, request.run)
            if request.profile is not None:
                require_one(planned)
            reading = reader([job for one in planned.values() for job in one.jobs])
            to_read = _begun(db, planned, reading, request)
            from bufdb.ingest import storing  # NumPy and DuckDB with it, which begins threads

            config = {**_CONFIG, "memory_limit": request.memory_limit or memory.ingest_memory()}
            with (
                account(db) as progress_file,
                contextlib.closing(storing.opened(db, config)) as con,
            ):
                before(con)
                # Another ingest may have made it; if of other runs, what is being read stays.
                if to_read and storing.has_runs(con, planned):
                    to_read, reading = {}, Here()
                work = storing.Ingest(con, planned, request, reading, to_read)
                work.say = progress_file.say
                summary = work.run()
        summary.run_names = list(planned)
    finally:
        if collects:
            gc.enable()
    if Path(f"{db}.wal").exists():
        # DuckDB does not report a disk too full for it; everything is stored, in two files.
        summary.notes.append(
            f"part of the database is in {db}.wal, which belongs to {db}; the next command that "
            "writes merges them if the disk has space"
        )
    summary.notes = merged(summary.notes)
    summary.seconds = time.perf_counter() - began
    return summary


def ingest_into(con: duckdb.DuckDBPyConnection, paths: Sequence[Source], **options: Any) -> Summary:
    """Read dumps and store them in a database that is open; see `ingest`.

    To open a file takes longer than a small ingest.
    """
    from bufdb.ingest import storing
    from bufdb.ingest.plan import Request, plan

    request = Request(**options)
    planned = plan(paths, request.run)
    with readers(request.jobs) as reader:
        reading = reader([job for one in planned.values() for job in one.jobs])
        return storing.Ingest(con, planned, request, reading).run()


def require_one(planned: Mapping[str, PlannedRun]) -> None:
    """Check that a profile can only be of one run.

    Raises:
        UsageError: there are several.
    """
    if len(planned) > 1:
        raise UsageError("--profile is of one run: name it with --run, or give one directory")


def _begun(
    db: str,
    planned: Mapping[str, PlannedRun],
    reading: Reader,
    request: Request,
) -> dict[str, ToRead]:
    """Return what to read of each run, and begin to read it, if there is no database yet."""
    if os.path.lexists(db):
        return {}
    from bufdb.ingest.stored import ToRead

    to_read = {
        name: ToRead(None, name, one.jobs, request, reading.count) for name, one in planned.items()
    }
    # Kept apart, since what is stored is taken out of the dictionary.
    reading.begin(itertools.chain.from_iterable([one.groups for one in to_read.values()]))
    return to_read
