"""Snapshots of what a process holds while it runs: every so often, and at marks of the program.

They are bounded in number, and each is on disk as a whole once it is taken, so that the last one
is there however the process ends. As `bufdb.capture.watched` this runs in the user's process, also
in a Python without bufdb's packages.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import Any

MOST = 64
"""Snapshots that are kept on a grid in time; the last and the highest are kept besides."""

REST = 20
"""The least time between two snapshots of the thread, as a multiple of that which the last took."""


class Kept:
    """Which snapshots are kept: the first, the last, the highest, and thinned between.

    Numbers that are multiples of a spacing are kept. When these are too many, every second one is
    dropped, and the spacing doubled.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most, self.spacing = most, 1
        self.size_bytes: dict[int, int] = {}
        """Bytes of each snapshot that is kept, by its number."""

    def add(self, ordinal: int, size_bytes: int) -> list[int]:
        """Keep the next snapshot; return the numbers of those to delete."""
        self.size_bytes[ordinal] = size_bytes
        while ordinal // self.spacing >= self.most:
            self.spacing *= 2
        # Of equally high ones the first: it shows since when.
        highest = max(self.size_bytes, key=lambda number: (self.size_bytes[number], -number))
        dropped = [
            number
            for number in self.size_bytes
            if number % self.spacing and number not in (ordinal, highest)
        ]
        for number in dropped:
            del self.size_bytes[number]
        return dropped


class Snapshots:
    """Takes snapshots of a process that is watched (`bufdb.capture.watched.Watch`)."""

    def __init__(self, watched: Any, watch: Any, every_seconds: float | None) -> None:
        self.watched, self.watch, self.every_seconds = watched, watch, every_seconds
        self.begin()

    def begin(self) -> None:
        """Begin again, without a thread: a forked process has none."""
        self._kept = Kept()
        self._count = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Take snapshots from now on, in a thread."""
        if self.every_seconds is not None and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="bufdb-snapshots", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take no more; one that is being taken is waited for."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        rest = every = self.every_seconds or 0.0
        while not self._stopped.wait(rest):
            began = time.monotonic()
            self.take()
            rest = max(every, REST * (time.monotonic() - began))

    def take(self, mark: str | None = None) -> None:
        """Take a snapshot now, unless the process has failed or ended."""
        if "jax" not in sys.modules:
            return
        with self._lock:
            if self._stopped.is_set() or self.watch.has_failed or self.watch.has_ended:
                return
            ordinal = self._count
            size_bytes = self.watch.snapshot(ordinal, mark)
            if size_bytes is None:
                return
            self._count += 1
            for number in self._kept.add(ordinal, size_bytes):
                stem = self.watched.stem_of(number)
                # The profile first: without it the other is not read.
                for suffix in (self.watched.PROFILE, self.watched.WATCHED):
                    with suppress(OSError):
                        (self.watch.folder / f"{stem}{suffix}").unlink()
