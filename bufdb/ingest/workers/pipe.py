"""A pipe between two processes: objects both ways, in order.

`multiprocessing.connection` does as well, but takes 14 ms to import, while nobody reads yet: of
2,000 small dumps, which two workers read in 1.4 s, one percent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
from collections.abc import Sequence
from typing import Any

_ROOM_BYTES = 1 << 20
"""What a pipe holds before who sends must wait for who receives: some groups of 300 modules."""
_SIZE_BYTES = 8


class Pipe:
    """One end."""

    def __init__(self, reading: int, writing: int) -> None:
        """Take the file descriptors; whoever closes the pipe closes them."""
        self.files = [reading, writing]

    def send(self, what: object) -> None:
        """Send an object; waits for room.

        Raises:
            BrokenPipeError: nobody has the other end.
        """
        text = pickle.dumps(what, 5)
        left = memoryview(len(text).to_bytes(_SIZE_BYTES, "little") + text)
        while left:
            left = left[os.write(self.files[1], left) :]

    def receive(self) -> Any:
        """The next object; waits for it.

        Raises:
            EOFError: nobody has the other end, and all that was sent was received.
        """
        return pickle.loads(self._take(int.from_bytes(self._take(_SIZE_BYTES), "little")))

    def _take(self, size: int) -> bytearray:
        taken = bytearray(size)
        left = memoryview(taken)
        while left:
            count = os.readv(self.files[0], [left])
            if not count:
                raise EOFError
            left = left[count:]
        return taken

    def close(self) -> None:
        """Let it go; a second time is nothing."""
        while self.files:
            os.close(self.files.pop())


def pair() -> tuple[Pipe, Pipe]:
    """Both ends of a new pipe.

    Raises:
        OSError: no more files may be had.
    """
    there = _pipe()
    try:
        back = _pipe()
    except OSError:
        for file in there:
            os.close(file)
        raise
    return Pipe(back[0], there[1]), Pipe(there[0], back[1])


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    with contextlib.suppress(ImportError, AttributeError, OSError):  # Linux alone, and to a limit
        import fcntl

        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, _ROOM_BYTES)
    return ends


def wait(pipes: Sequence[Pipe], seconds: float | None = None) -> list[Pipe]:
    """Those of which something can be received, or the end; waits for one, or for so long."""
    by_file = {pipe.files[0]: pipe for pipe in pipes}
    poll = select.poll()
    for file in by_file:
        poll.register(file, select.POLLIN)
    return [by_file[file] for file, _ in poll.poll(None if seconds is None else 1000 * seconds)]
