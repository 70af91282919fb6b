"""Processes that read groups ahead, and their findings in the order of the groups.

Invariant: a sink is given what `bufdb.ingest.group.read` would give it in this process, in the
same order, whichever process was first.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, NamedTuple, NoReturn

from bufdb.errors import BufdbError
from bufdb.ingest.reader import Here
from bufdb.ingest.work import Event, Group, Store, is_for_others

AHEAD = 2
"""Groups for each process that are read or wait to be stored: each has a block of text, which makes
30 MB of columns."""
_SAFE_PATH = "PYTHONSAFEPATH"
_SMALL_BYTES = 1024
"""Arrays of up to so many bytes go through the executor's pipe."""


class _Result(NamedTuple):
    """What a process has found in a group."""

    events: bytes
    """Events, pickled without their larger buffers."""
    sizes: list[int]
    """Bytes of each buffer, one after the other in the file of the group."""
    buffers: list[bytes]
    """The buffers themselves where there is no file, or no room in it."""


class _Pending(NamedTuple):
    group: Group
    result: Future[_Result] | None
    """None if only this process can read it."""
    file: int | None


class Pool:
    """An executor of processes, and files in memory through which they give columns.

    Through a pipe alone columns cost a tenth of the CPU of an ingest. The files (`memfd_create`)
    have no name that could be left, and no limit of /dev/shm, which containers keep at 64 MB.
    """

    def __init__(self, count: int) -> None:
        """Start processes: copies of this one where it has one thread and the system allows it.

        Args:
            count: of them.

        Raises:
            OSError: no more processes or files may be had.
        """
        is_copy = _has_one_thread()
        self.count = count
        self.groups: Iterator[Group] = iter(())
        self.pending: deque[_Pending] = deque()
        self.files = [os.memfd_create("bufdb") for _ in range(AHEAD * count)] if is_copy else []
        self.free = list(self.files)
        if is_copy:
            import bufdb.ingest.group  # noqa: F401 - once, not in each of them
        context = multiprocessing.get_context("fork") if is_copy else _Spawned()
        with _safe_path():
            self.executor = ProcessPoolExecutor(count, context, _prepare)
        self.executor.submit(int)  # starts them now, before DuckDB has threads

    def begin(self, groups: Iterator[Group]) -> None:
        """Begin to read groups, which are taken in order and a few at a time."""
        self.groups = groups
        self._submit()

    def read(self, group: Group, sink: Store) -> None:
        """Give a sink what is found in the next group, which is this one.

        Raises:
            BufdbError: a process has ended.
            Exception: what reading the group failed with.
        """
        self._submit()
        pending = self.pending.popleft()
        assert pending.group is group, "groups are read in the order in which they were given"
        if pending.result is None:
            Here().read(group, sink)
            return
        if not pending.result.done():
            sink.idle()
        try:
            events = _received(pending.result.result(), pending.file)
        except BrokenProcessPool:
            _raise_ended(group)
        if pending.file is not None:
            self.free.append(pending.file)
        self._submit()
        for word, arguments, named in events:
            getattr(sink, word)(*arguments, **named)

    def end(self) -> None:
        """Let processes go when they have read what they were given."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End all processes, and wait until they have."""
        self.executor.shutdown(cancel_futures=True)
        while self.files:
            os.close(self.files.pop())

    def _submit(self) -> None:
        """Give groups to the executor, up to AHEAD for each process."""
        while len(self.pending) < AHEAD * self.count:
            group = next(self.groups, None)
            if group is None:
                return
            if not is_for_others(group):
                self.pending.append(_Pending(group, None, None))
                continue
            file = self.free.pop() if self.free else None
            try:
                result = self.executor.submit(_read, group, file)
            except BrokenProcessPool:
                _raise_ended(group)
            self.pending.append(_Pending(group, result, file))


class _SpawnedProcess(SpawnProcess):
    """A process that does not search the working directory for Python's own modules."""

    @staticmethod
    def _Popen(process: Any) -> Any:
        with _safe_path():
            return SpawnProcess._Popen(process)


class _Spawned(SpawnContext):
    """The context of such processes."""

    Process = _SpawnedProcess


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start Python with -P within the block, also where multiprocessing starts a helper of its own.

    It starts `python -c`, which searches the working directory: a types.py there would be run.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _has_one_thread() -> bool:
    """Return whether this process may be copied: a copy has one of its threads, and all locks.

    JAX and DuckDB have threads that Python does not know of.
    """
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208


def _raise_ended(group: Group) -> NoReturn:
    job, *more = group.jobs
    where = job.files.key + (f" or {len(more)} more" if more else "")
    raise BufdbError(
        f"a reading process ended unexpectedly, near {where}; what was stored before is intact. "
        "If memory ran out, run the same command again with --jobs 1, which needs less"
    ) from None


def _received(result: _Result, file: int | None) -> list[Event]:
    """Return the events of a result, with buffers of their own: the file may be written again."""
    buffers: list[bytes | bytearray] = list(result.buffers)
    at = 0
    for size in result.sizes:
        buffer = bytearray(size)
        assert file is not None and os.preadv(file, [buffer], at) == size
        buffers.append(buffer)
        at += size
    events: list[Event] = pickle.loads(result.events, buffers=buffers)
    return events


# -- in the other processes --------------------------------------------------------------------


def _prepare() -> None:
    # The terminal's Ctrl-C goes to all; the process that stores ends those that read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the process that stores is killed: an executor's processes would wait for work."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class _Events:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[Event] = []

    def __getattr__(self, word: str) -> Any:
        return lambda *arguments, **named: self.kept.append((word, arguments, named))


def _read(group: Group, file: int | None) -> _Result:
    """Read a group, and write the buffers of its columns into a file."""
    from bufdb.ingest.group import read

    events, buffers = _Events(), list[memoryview]()
    read(group, events)

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= _SMALL_BYTES:
            return True
        buffers.append(raw)
        return False

    text = pickle.dumps(events.kept, 5, buffer_callback=is_small)
    if file is not None and _is_written(file, buffers):
        return _Result(text, [buffer.nbytes for buffer in buffers], [])
    return _Result(text, [], [bytes(buffer) for buffer in buffers])


def _is_written(file: int, buffers: list[memoryview]) -> bool:
    """Write buffers one after the other; return False if there is no room."""
    at = 0
    try:
        for buffer in buffers:
            if os.pwrite(file, buffer, at) < buffer.nbytes:
                return False
            at += buffer.nbytes
    except OSError:
        return False
    return True
