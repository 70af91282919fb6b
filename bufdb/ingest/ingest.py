"""Dump directories into the database: discover, skip what is unchanged, read, store.

What reading takes others import while this process looks for modules, and NumPy and DuckDB are
imported here, and a new database made, while they read already: 0.2 s in all.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.database import memory
from bufdb.dumps.blocks import BLOCK_BYTES
from bufdb.ingest.summary import Summary
from bufdb.ingest.workers.choice import Here, Reader, readers

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source
    from bufdb.ingest.plan import PlannedRun
    from bufdb.ingest.progress import Progress
    from bufdb.ingest.stored import ToRead

_CONFIG = {"threads": "1", "write_buffer_row_group_count": "1"}
"""A row group is packed and written when it is full. By default five wait for each other, unpacked:
3 to 5 % more CPU and 30 MB more memory for 300 MB and 1 GB of text."""


def ingest(
    db: str,
    paths: Sequence[Source],
    run: str | None = None,
    labels: Mapping[str, str] | None = None,
    jobs: int | None = 1,
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
        jobs: processes that read while this one stores, at the most; None for as many as this
            machine has use for. With 1, or little to read, this one does all. It changes nothing
            in the result.
        memory_limit: DuckDB's memory limit, such as "512MB"; by default what is asked for
            (`bufdb.database.memory`), else 256 MB.
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
    # Nothing here makes cycles, and the collector's visits cost 5 % of a gigabyte's ingest.
    collects = gc.isenabled()
    gc.disable()
    try:
        with readers(jobs) as reader:
            from bufdb.ingest.plan import plan

            planned = plan(paths, run)
            if source_path is not None:
                for one in planned.values():
                    one.path = Path(source_path)
            reading = reader([job for one in planned.values() for job in one.jobs])
            to_read = _begun(db, planned, reading, block_bytes, own_globs)
            from bufdb.ingest import storing  # NumPy and DuckDB with it, which begins threads

            config = {**_CONFIG, "memory_limit": memory_limit or memory.for_ingest()}
            with contextlib.closing(storing.opened(db, config)) as con:
                # Another ingest may have made it meanwhile; of other runs what is read stays.
                if to_read and storing.has_runs(con, planned):
                    to_read, reading = {}, Here()
                work = storing.Ingest(
                    con, planned, block_bytes, progress, reading, replace, own_globs, prune, to_read
                )
                summary = work.run(labels or {}, labels_by_run or {}, metadata)
        summary.run_names = list(planned)
    finally:
        if collects:
            gc.enable()
    if Path(f"{db}.wal").exists():
        # DuckDB says nothing of a disk too full for it; all is stored, in two files.
        summary.notes.append(
            f"part of the database is in {db}.wal, which belongs to {db}; the next command that "
            "writes puts them together if the disk has room"
        )
    summary.seconds = time.perf_counter() - began
    return summary


def _begun(
    db: str,
    planned: Mapping[str, PlannedRun],
    reading: Reader,
    block_bytes: int,
    own_globs: Sequence[str] | None,
) -> dict[str, ToRead]:
    """What to read of each run, if no database is to be asked about that; it is begun then."""
    if os.path.lexists(db):
        return {}
    from bufdb.ingest.stored import ToRead

    more = (block_bytes, own_globs)
    to_read = {
        name: ToRead(None, name, one.jobs, *more, is_replaced=False, reader_count=reading.count)
        for name, one in planned.items()
    }
    # Kept apart, for what is stored is taken out of the dictionary.
    reading.begin(itertools.chain.from_iterable([one.groups for one in to_read.values()]))
    return to_read
