"""The process that reads: takes groups from a pipe, and tells what is found in them."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from bufdb.columnar.arrow import Rows
from bufdb.errors import BufdbError
from bufdb.ingest.group import Done, Group, read
from bufdb.ingest.workers import messages

MESSAGE_BYTES = 48 << 20
"""Columns in a message: those of a block of text are about 30 MB."""
FAILED = "failed"
"""A word besides those of a sink: something else than the files of the group went wrong."""


def serve(pipe: Connection, files: list[int]) -> None:
    """Read groups until there are no more, or nobody wants them any longer.

    Args:
        pipe: gives groups, numbers of segments that are free again, and None at the end.
        files: the segments.
    """
    # The terminal's Ctrl-C is for all; the process that stores ends those that read.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    try:
        told = _Told(pipe, files)
        while (group := told.next_group()) is not None:
            try:
                read(group, told)
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return
            except BaseException as error:
                told.events = []
                told.tell(FAILED, _portable(error))
            del group
            told.send(is_last=True)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the other process is gone


class _Told:
    """A sink that tells another process."""

    def __init__(self, pipe: Connection, files: list[int]) -> None:
        self.pipe, self.files = pipe, files
        self.free = list(range(len(files)))
        self.groups: list[Group | None] = []
        """Given while a segment was waited for."""
        self.events: list[messages.Event] = []
        self.size = 0
        self.seen: set[int] = set()
        """What is counted in the size: by identity, for columns share the text they point to."""

    def next_group(self) -> Group | None:
        while not self.groups:
            self._take()
        return self.groups.pop(0)

    def _take(self) -> None:
        given = self.pipe.recv()
        if isinstance(given, int):
            self.free.append(given)
        else:
            self.groups.append(given)

    def tell(self, word: str, *given: Any, **named: Any) -> None:
        self.events.append((word, given, named))

    def unchanged(self, module_id: int, dumped: float) -> None:
        self.tell("unchanged", module_id, dumped)

    def unreadable(self, module_id: int, error: OSError) -> None:
        self.tell("unreadable", module_id, error)

    def begin(self, ids: list[int], *, is_large: bool) -> None:
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
        self.tell("part", size)

    def end(self, done: Done) -> None:
        self.tell("end", done)

    def lost(self, module_id: int, error: OSError) -> None:
        self.tell("lost", module_id, error)

    def send(self, *, is_last: bool = False) -> None:
        """Send what was told, as soon as a segment is free."""
        while self.files and not self.free:
            self._take()
        segment, file = (self.free[-1], self.files[self.free[-1]]) if self.files else (-1, None)
        if messages.send(self.pipe, self.events, segment, file, is_last=is_last):
            self.free.pop()
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
    pipe, *files = map(int, sys.argv[1:])
    serve(Connection(pipe), files)
    os._exit(0)
