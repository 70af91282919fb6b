"""What a worker tells, in messages: little through a pipe, columns through memory that is shared.

A worker has some files in memory (`memfd_create`): no name that could be left behind, and no limit
of `/dev/shm`, which containers keep at 64 MB. It writes the buffers of a message's columns into one
of them, where the other process maps them without a copy, and says when it is done with them. They
are written by `pwrite` and not through a mapping: where there is no room that fails, and the
columns go through the pipe, instead of ending the process with SIGBUS.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bufdb.ingest.workers.pipe import Pipe

Event = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of `bufdb.ingest.workers.work.Sink`, or another word, and what it is given."""
FAILED = "failed"
"""A word besides those of a sink: something else than the files of the group went wrong."""
_SMALL_BYTES = 1024
"""Arrays of so many bytes go through the pipe."""
_ALIGNED_BYTES = 64
"""Arrow's alignment of buffers."""


@dataclass
class _Message:
    """As it goes through the pipe."""

    segment: int | None
    """Number of the worker's segment that holds the buffers; None if `rest` does."""
    spans: list[tuple[int, int]]
    """Start and size of each buffer in the segment."""
    events: bytes
    """Events, pickled without their buffers."""
    rest: list[bytes]
    is_last: bool
    """Whether it is the last one of its group."""


def segments(count: int) -> list[int]:
    """File descriptors of new shared memory; none where the system has no such thing."""
    files: list[int] = []
    # A system may have it and forbid it.
    with contextlib.suppress(AttributeError, OSError):
        while len(files) < count:
            files.append(os.memfd_create("bufdb"))
    return files


def send(
    pipe: Pipe, events: list[Event], segment: int | None, file: int | None, *, is_last: bool
) -> bool:
    """Send events, their columns through a segment.

    Args:
        pipe: to the process that stores.
        events: in order.
        segment: the number of the segment; None if there is none.
        file: its file.
        is_last: whether the group ends with them.

    Returns:
        Whether the segment holds something now.
    """
    buffers: list[pickle.PickleBuffer] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes <= _SMALL_BYTES:
            return True
        buffers.append(buffer)
        return False

    text = pickle.dumps(events, 5, buffer_callback=is_small)
    raw = [buffer.raw() for buffer in buffers]
    spans = _write(file, raw) if raw and file is not None else None
    if spans is None:
        message = _Message(None, [], text, [bytes(buffer) for buffer in raw], is_last)
    else:
        message = _Message(segment, spans, text, [], is_last)
    pipe.send(message)
    return spans is not None


def _write(file: int, buffers: Iterable[memoryview]) -> list[tuple[int, int]] | None:
    """Write buffers one behind the other; where each is. None if there is no room."""
    at = 0
    spans = []
    try:
        for buffer in buffers:
            spans.append((at, buffer.nbytes))
            done = 0
            while done < buffer.nbytes:
                done += os.pwrite(file, buffer[done:], at + done)
            at += -(-buffer.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    except OSError:
        return None
    return spans


def receive(pipe: Pipe, files: list[int]) -> Received:
    """The next message of the worker at the other end, which has these segments.

    Raises:
        EOFError: it has ended.
    """
    return Received(pipe.receive(), files)


class Received:
    """Events of a message; what their columns are made of stays in the segment."""

    def __init__(self, message: _Message, files: list[int]) -> None:
        self.is_last = message.is_last
        """Whether the group ends with it."""
        self._events = message.events
        self._buffers: list[Any] = list(message.rest)
        self.segment = message.segment
        """The segment that must not be written before `is_free`; None if it is in none."""
        self._memory: mmap.mmap | None = None
        if message.segment is not None:
            stop = sum(message.spans[-1])
            self._memory = mmap.mmap(files[message.segment], stop, prot=mmap.PROT_READ)
            with memoryview(self._memory) as whole:
                self._buffers = [whole[start : start + size] for start, size in message.spans]

    def events(self) -> Iterator[Event]:
        """The events, once."""
        events, buffers = self._events, self._buffers
        self._events, self._buffers = b"", []
        return iter(pickle.loads(events, buffers=buffers))

    def is_free(self) -> bool:
        """Whether nothing refers to the segment any longer, which is let go then."""
        if self._memory is not None:
            try:
                self._memory.close()
            except BufferError:  # an array is still there
                return False
            self._memory = None
        return True
