"""The process that reads: takes groups from a pipe, and tells what is found in them."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import traceback
from queue import LifoQueue, SimpleQueue
from typing import Any, NoReturn

from bufdb.columnar.rows import Rows
from bufdb.errors import BufdbError
from bufdb.ingest.group import read
from bufdb.ingest.workers import heap, messages
from bufdb.ingest.workers.messages import FAILED
from bufdb.ingest.workers.pipe import Pipe
from bufdb.ingest.workers.work import Done, Group

MESSAGE_BYTES = 28 << 20
"""Columns in a message: those of a block of text are about 30 MB. Of larger ones few wait, and what
an insert sets free comes in larger parts."""
HUGE_BYTES = 512 << 20
"""Text of one module from which on its values need the memory that free segments have. To get it
anew for each message takes 5 % of the time."""


def serve(pipe: Pipe, files: list[int]) -> NoReturn:
    """Read groups until the process at the other end of the pipe closes it, or is gone.

    Args:
        pipe: gives groups, and numbers of segments that are free again.
        files: the segments.
    """
    # The terminal's Ctrl-C is for all; the process that stores ends those that read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    heap.prepare()
    told = _Told(pipe, files)
    while True:
        group = told.groups.get()
        try:
            read(group, told)
        except BaseException as error:
            told.events = []
            told.tell(FAILED, _portable(error))
        del group
        told.send(is_last=True)


class _Told:
    """A sink that tells another process."""

    def __init__(self, pipe: Pipe, files: list[int]) -> None:
        self.pipe, self.files = pipe, files
        self.groups: SimpleQueue[Group] = SimpleQueue()
        self.free: LifoQueue[int] = LifoQueue()
        """Segments; the next one is that which was given back last, whose memory is there."""
        for segment in range(len(files)):
            self.free.put(segment)
        self.events: list[messages.Event] = []
        self.size = 0
        self.seen: set[int] = set()
        """What is counted in the size: by identity, for columns share the text they point to."""
        self.read_bytes = 0
        """Text of a large module that was read so far."""
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        """Take what is given at any time, or both processes might wait for each other's pipe."""
        try:
            while True:
                given = self.pipe.receive()
                if isinstance(given, int):
                    if self.read_bytes >= HUGE_BYTES:
                        os.ftruncate(self.files[given], 0)
                    self.free.put(given)
                else:
                    self.groups.put(given)
        finally:
            os._exit(1)  # nobody is there to be told

    def tell(self, word: str, *given: Any, **named: Any) -> None:
        self.events.append((word, given, named))

    def unchanged(self, module_id: int, dumped: float) -> None:
        self.tell("unchanged", module_id, dumped)

    def unreadable(self, module_id: int, error: OSError) -> None:
        self.tell("unreadable", module_id, error)

    def begin(self, ids: list[int], *, is_large: bool) -> None:
        self.read_bytes = 0
        self.tell("begin", ids, is_large=is_large)

    def add(self, table: str, rows: Rows) -> None:
        self.tell("add", table, rows)
        for array in (array for column in rows.columns for array in column):
            if array is not None and id(array) not in self.seen:
                self.seen.add(id(array))
                self.size += array.nbytes
        if self.size >= MESSAGE_BYTES:
            self.send()

    def part(self, size: int) -> None:
        self.read_bytes += size
        self.tell("part", size)

    def end(self, done: Done) -> None:
        self.tell("end", done)

    def lost(self, module_id: int, error: OSError) -> None:
        self.tell("lost", module_id, error)

    def send(self, *, is_last: bool = False) -> None:
        """Send what was told, as soon as a segment is free."""
        segment = self.free.get() if self.files else None
        file = None if segment is None else self.files[segment]
        try:
            is_used = messages.send(self.pipe, self.events, segment, file, is_last=is_last)
        except BrokenPipeError:
            os._exit(1)
        if segment is not None and not is_used:
            self.free.put(segment)
        self.events, self.size, self.seen = [], 0, set()


def _portable(error: BaseException) -> BaseException:
    """An exception, or what it says if it cannot be sent."""
    where = "".join(traceback.format_exception(error))
    error.add_note(f"in a process that reads dumps:\n{where}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class does when it is made again
        return BufdbError(f"a process that reads dumps failed: {type(error).__name__}: {error}")
    return error


def main() -> None:
    """Serve over file descriptors that are given as arguments: the pipe, then the segments."""
    reading, writing, *files = map(int, sys.argv[1:])
    serve(Pipe(reading, writing), files)
