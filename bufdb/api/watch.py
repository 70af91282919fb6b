"""`bufdb.watch`: what a process holds when a device runs out of memory, and at the end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bufdb.answers import process
from bufdb.answers.devices import limit_of
from bufdb.api.database import Database, connect
from bufdb.capture import watched
from bufdb.capture.environment import run_name
from bufdb.capture.target import jax_module
from bufdb.errors import BufdbError, one_line
from bufdb.query.asked import glob


def _print(text: str) -> None:
    print(text, file=sys.stderr)


@contextmanager
def watch(
    db: Database | str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    limit: int | str | None = None,
    write: Callable[[str], object] = _print,
) -> Iterator[None]:
    """Write down what this process holds when a device runs out of memory in the block.

    At an error RESOURCE_EXHAUSTED, else at the end of the block, a memory profile is stored, with
    what each loaded program needs and the statistics of the device's allocator, and an account is
    written: what the program needs, and what is alive that it does not take, by line. The error
    goes on unchanged. What `jax.profiler.save_device_memory_profile` does not say is which arrays
    are the arguments of the call that failed; here they are known by identity.

    Args:
        db: where the profile is stored: an open database or its file; None stores nothing.
        run: its run, such as one that has the dumps; by default the program's name and the time.
        limit: memory of the device, as bytes, "16GiB" or "TPU v5e"; by default what it says itself.
        write: is given each line of the account; by default they go to standard error.

    Raises:
        UsageError: the limit is not valid, or JAX is not installed.
    """
    limit_bytes, _ = limit_of(limit)
    jax_module()
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
        seen = watched.Watch(Path(folder), limit_bytes)
        seen.start()
        try:
            yield
        except BaseException as error:
            seen.stop()
            seen.end(error)
            _store(Path(folder), db, run, write)
            raise
        seen.stop()
        seen.end()
        _store(Path(folder), db, run, write)


def _store(
    folder: Path,
    db: Database | str | os.PathLike[str] | None,
    run: str | None,
    write: Callable[[str], object],
) -> None:
    """Store a profile and write its account; whatever goes wrong is a line, and no error."""
    file = folder / f"{watched.NAME}{watched.PROFILE}"
    try:
        if not file.is_file():
            raise BufdbError("no memory profile could be written")
        opened = db if isinstance(db, Database) else connect(db)
        try:
            name = run or run_name(["python", Path(sys.argv[0]).name], datetime.now(UTC))
            opened.ingest(str(file), run=name)
            rows = opened.query("process", run=glob(name), profile=file.name, top_n=5)
            for line in process.text(process.grouped(rows.columns, rows.fetchall())):
                write(line)
        finally:
            if opened is not db:
                opened.close()
    except Exception as error:  # it must not hide that of the block
        write(f"bufdb: error: {one_line(str(error))}")
