"""`bufdb.watch`: what a process holds when a device runs out of memory, and at the end."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bufdb.answers import growth, process
from bufdb.answers.devices import limit_of
from bufdb.api.database import Database, connect
from bufdb.capture import watched
from bufdb.capture.environment import run_name
from bufdb.capture.holders import find
from bufdb.capture.snapshots import Snapshots
from bufdb.capture.target import jax_module
from bufdb.capture.words import seconds_of
from bufdb.errors import BufdbError, UsageError, one_line
from bufdb.query.parameters import glob


def _print(text: str) -> None:
    print(text, file=sys.stderr)


class Watching:
    """A block that is watched."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def mark(self, text: str) -> None:
        """Take a snapshot of what the process holds now, under a name such as "step 100"."""
        self._snapshots.take(str(text))


@contextmanager
def watch(
    db: Database | str | os.PathLike[str] | None = None,
    *,
    run: str | None = None,
    limit: int | str | None = None,
    write: Callable[[str], object] = _print,
    every: float | str | None = None,
    holders: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[Watching]:
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
        every: time between snapshots, such as "60s" or a number of seconds; None takes one at each
            `mark` alone.
        holders: whether the variables that hold arrays are searched for, which takes longer.
        folder: where snapshots are written at once, and stay, also if the process is killed:
            `bufdb ingest` reads them. It must be new or empty. By default they are gone with the
            process.

    Yields:
        What has `mark(text)`: a snapshot now.

    Raises:
        UsageError: the limit or the time is not valid, the folder has files, or JAX is not
            installed.
    """
    limit_bytes, _ = limit_of(limit)
    every_seconds = None if every is None else seconds_of(every)
    jax_module()
    with ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-")))
        else:
            place = _new_folder(Path(folder).absolute())
        seen = watched.Watch(place, limit_bytes)
        seen.find_holders = find if holders else None
        snapshots = Snapshots(watched, seen, every_seconds)
        seen.start()
        snapshots.start()
        error: BaseException | None = None
        try:
            yield Watching(snapshots)
        except BaseException as raised:
            error = raised
            raise
        finally:
            snapshots.stop()
            seen.stop()
            seen.end(error)
            _store(place, db, run, write)


def _new_folder(folder: Path) -> Path:
    """Return a folder that has no files, so that all snapshots in it are of one process."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"folder {folder} is there and not empty: name a new one")
    return folder


def _store(
    place: Path,
    db: Database | str | os.PathLike[str] | None,
    run: str | None,
    write: Callable[[str], object],
) -> None:
    """Store a profile and write its account; whatever goes wrong is a line, and no error."""
    file = place / f"{watched.NAME}{watched.PROFILE}"
    try:
        if not file.is_file():
            raise BufdbError("no memory profile could be written")
        opened = db if isinstance(db, Database) else connect(db)
        try:
            name = run or run_name(["python", Path(sys.argv[0]).name], datetime.now(UTC))
            opened.ingest(str(place), run=name)
            rows = opened.query("process", run=glob(name), profile=file.name, top_n=5)
            held = [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]
            for line in process.text(process.grouped(held)):
                write(line)
            grown = opened.query("process-growth", run=glob(name), profile=file.name, top_n=5)
            for row in grown.fetchall():
                one = dict(zip(grown.columns, row, strict=True))
                if one["sureness"] is not None:
                    for line in growth.lines([one], []):
                        write(line)
        finally:
            if opened is not db:
                opened.close()
    except Exception as error:  # it must not hide that of the block
        write(f"bufdb: error: {one_line(str(error))}")
