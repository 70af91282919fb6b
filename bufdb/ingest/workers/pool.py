"""Workers that read groups ahead, and their findings in the order of the groups.

Each worker has a pipe and some segments of shared memory of its own; nothing is shared among them.
Invariant: a sink is told exactly what `bufdb.ingest.group.read` would tell it in this process, in
the same order, whichever worker was first. When the pool is closed, also by an error or Ctrl-C, no
process and no shared memory is left; when this process is killed, workers end by themselves.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from bufdb.errors import BufdbError
from bufdb.ingest.workers import messages, start
from bufdb.ingest.workers.choice import Here
from bufdb.ingest.workers.messages import FAILED, Received
from bufdb.ingest.workers.pipe import Pipe, wait
from bufdb.ingest.workers.start import Channel, Forerunner, Started
from bufdb.ingest.workers.work import Group, Sink, Store

AHEAD = 4
"""Groups that a worker has been given: one that it reads, and those that it may end during an
insert, when nobody gives it more."""


@dataclass
class _Worker:
    pipe: Pipe
    process: Started
    files: list[int]
    groups: deque[Group] = field(default_factory=deque)
    """What it was given and has not finished, as far as its messages were taken."""
    received: deque[Received] = field(default_factory=deque)
    """Its messages that nobody was told of yet."""
    taken: int = 0
    """Its segments that are not free, as far as its messages were taken."""


class Pool:
    """Some workers."""

    def __init__(self, count: int, forerunner: Forerunner | None = None) -> None:
        """Start workers.

        Args:
            count: of them.
            forerunner: who makes them; without one they are new interpreters.

        Raises:
            OSError: no more processes or files may be had.
        """
        self.count = count
        self.workers: list[_Worker] = []
        self.groups: Iterator[Group] = iter(())
        self.order: deque[tuple[Group, _Worker | None]] = deque()
        """What was given to whom and was not told yet; to None what only this process can read."""
        self.told: list[tuple[_Worker, Received]] = []
        """Messages whose rows may not be stored yet."""
        if forerunner is not None:
            for process, channel in forerunner.started(count):
                self.workers.append(_Worker(channel.ours, process, channel.files))
            return
        try:
            while len(self.workers) < count:
                channel = Channel.new()
                try:
                    process = start.fresh(channel)
                except BaseException:
                    channel.close()
                    raise
                self.workers.append(_Worker(channel.ours, process, channel.files))
        except BaseException:
            self.close()
            raise

    def begin(self, groups: Iterator[Group]) -> None:
        """Begin to read groups, which are taken in order and a few at a time."""
        self.groups = groups
        self._give()

    def read(self, group: Group, sink: Store) -> None:
        """Tell a sink what is found in the next group, which is this one.

        Raises:
            BufdbError: a worker has ended.
        """
        self._give()
        next_group, who = self.order.popleft()
        assert next_group is group, "groups are told in the order in which they were given"
        if who is None:
            Here().read(group, sink)
            return
        is_finished = False
        while not is_finished:
            message = self._next_of(who, sink)
            _tell(sink, message)
            if message.segment is not None:
                self.told.append((who, message))
            self._release()
            is_finished = message.is_last

    def end(self) -> None:
        """Let workers go, and with them the memory that is shared.

        It is given up here first, so that they free it, while this process stores: 30 ms of 2,000
        small modules, and 20 that they take themselves.
        """
        self.told.clear()
        self.order.clear()
        for one in self.workers:
            while one.files:
                os.close(one.files.pop())
            one.pipe.close()
            one.process.kill()

    def close(self) -> None:
        """End all workers, and wait until they have."""
        self.end()
        for one in self.workers:
            one.process.wait()
        self.workers = []

    def _give(self) -> None:
        """Give groups to those who have the fewest, until all have enough."""
        while True:
            who = min(self.workers, key=lambda one: len(one.groups))
            if len(who.groups) >= AHEAD or len(self.order) > AHEAD * len(self.workers):
                return
            group = next(self.groups, None)
            if group is None:
                return
            if not _is_portable(group):
                self.order.append((group, None))
                continue
            self.order.append((group, who))
            who.groups.append(group)
            self._send(who, group)

    def _next_of(self, who: _Worker, sink: Store) -> Received:
        """The next message of a worker; those of others are taken meanwhile."""
        while not who.received:
            if who.files and who.taken == len(who.files):
                # It waits for memory, and what holds it waits to be stored.
                sink.settle()
                self._release()
            pipes = [one.pipe for one in self.workers]
            ready = wait(pipes, 0)
            if not ready:
                sink.idle()
                self._release()
                ready = wait(pipes)
            for pipe in ready:
                self._receive(next(one for one in self.workers if one.pipe is pipe))
        return who.received.popleft()

    def _receive(self, who: _Worker) -> None:
        try:
            message = messages.receive(who.pipe, who.files)
        except EOFError:
            self._raise_ended(who)
        who.received.append(message)
        who.taken += message.segment is not None
        if message.is_last:
            who.groups.popleft()
            self._give()

    def _release(self) -> None:
        """Let workers write again where all that was there is stored."""
        still = []
        for who, message in self.told:
            if message.is_free():
                who.taken -= 1
                self._send(who, message.segment)
            else:
                still.append((who, message))
        self.told = still

    def _send(self, who: _Worker, what: object) -> None:
        try:
            who.pipe.send(what)
        except BrokenPipeError:
            self._raise_ended(who)

    def _raise_ended(self, who: _Worker) -> NoReturn:
        code = who.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        where = ""
        if who.groups:
            job, *more = who.groups[0].jobs
            where = f" while it read {job.files.key}" + (f" or {len(more)} more" if more else "")
        raise BufdbError(
            f"a process that reads dumps {how}{where}; what was stored before is whole. If memory "
            "ran out, fewer processes need less: run the same command again with --jobs 1"
        )


def _tell(sink: Sink, message: Received) -> None:
    """Tell a sink what a worker told.

    Raises:
        BaseException: what the worker failed with.
    """
    from bufdb.ingest import tables  # with NumPy, which is imported while others read already

    for word, given, named in message.events():
        if word == FAILED:
            raise given[0]
        if word == "add" and given[0] not in tables.LARGE:
            # These may wait for the end of the transaction, and the memory must not.
            sink.add(given[0], given[1].copied())
        else:
            getattr(sink, word)(*given, **named)


def _is_portable(group: Group) -> bool:
    """Whether another process can read the files: archives and URLs are open in this one."""
    return all(isinstance(f.path, Path) for job in group.jobs for f in job.files.files.values())
