"""How workers are started: as copies of this process, or as Pythons of their own.

A copy (fork) has all that was imported. But it has of several threads only one, and of the others
their locks, held for good; JAX warns of it, and libraries of macOS end the process. So that is for
whoever owns the process, the command line, before it opens a database and while it has one thread.
Others get new interpreters, which know nothing of the caller: not by `multiprocessing`, whose new
processes import the caller's script again.

Copies are made by one that goes ahead (`Forerunner`): it imports what reading takes while this
process looks for dumps and imports what storing takes. Of 2,000 small dumps, which two workers read
in 1.4 s, that saves 0.07 s; two new interpreters cost 0.3 s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Protocol

from bufdb.ingest.workers import messages
from bufdb.ingest.workers.pipe import Pipe, pair

SEGMENTS = 4
"""Segments of a worker: so many messages of 28 MB may be written, wait and be stored. Of twice as
many nobody waits less, and a gigabyte of text takes 0.2 GB more memory."""
_SCRIPT = "from bufdb.ingest.workers.worker import main; main()"
_PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2): what a child leaves behind when it ends are children of this process then."""


class Started(Protocol):
    """A process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """Its number."""

    def kill(self) -> None:
        """End it."""

    def wait(self) -> int:
        """Its exit code when it has ended; minus the signal that ended it."""


@dataclass
class Channel:
    """What a worker and this process share."""

    ours: Pipe
    theirs: Pipe
    files: list[int]
    """File descriptors of shared memory."""

    @classmethod
    def new(cls) -> Channel:
        """A channel to a worker.

        Raises:
            OSError: no more files may be had.
        """
        return cls(*pair(), messages.segments(SEGMENTS))

    def close(self) -> None:
        """Let all of it go."""
        self.ours.close()
        self.theirs.close()
        while self.files:
            os.close(self.files.pop())


def may_copy() -> bool:
    """Whether a copy of this process can work: nothing of another thread is needed in it."""
    return sys.platform == "linux" and threading.active_count() == 1


class Forerunner:
    """A copy of this process that gets ready to read, and copies itself when it is asked to.

    Then it ends, and the copies are children of this process.
    """

    def __init__(self, count: int) -> None:
        """Begin.

        Args:
            count: of copies that may be asked for.

        Raises:
            OSError: no more processes or files may be had, or the system does not give away
                children of children.
        """
        _adopt()
        self.ours, theirs = pair()
        self.channels: list[Channel] = []
        self.pids: list[int] = []
        """Of the copies, as far as they are known."""
        self.code: int | None = None
        """Its exit code, when it has ended."""
        try:
            while len(self.channels) < count:
                self.channels.append(Channel.new())
            self.pid = _fork()
        except BaseException:
            theirs.close()
            self._let_go()
            raise
        if self.pid:
            for pipe in [theirs, *(channel.theirs for channel in self.channels)]:
                pipe.close()
            return
        try:
            # The terminal's Ctrl-C is for all; the process that stores ends those that read.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for pipe in [self.ours, *(channel.ours for channel in self.channels)]:
                pipe.close()
            _run_ahead(theirs, self.channels)
        finally:
            os._exit(1)  # nothing of the caller's runs here, whatever happened

    def started(self, count: int) -> list[tuple[Started, Channel]]:
        """Have copies made, each with its channel; it may take a while until they read.

        Raises:
            OSError: it is gone.
        """
        for channel in self.channels[count:]:
            channel.close()
        self.ours.send(count)
        return [(_Copy(self, at), channel) for at, channel in enumerate(self.channels[:count])]

    def pid_of(self, at: int) -> int:
        """Process id of a copy, when it is there; 0 if it could not be made."""
        with contextlib.suppress(EOFError):
            while len(self.pids) <= at:
                self.pids.append(self.ours.receive())
        return self.pids[at] if at < len(self.pids) else 0

    def wait(self) -> int:
        """Its exit code when it has ended."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def close(self) -> None:
        """End it, if it has not ended after it was asked."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self._let_go()

    def _let_go(self) -> None:
        self.ours.close()
        for channel in self.channels:
            channel.close()


def _run_ahead(pipe: Pipe, channels: list[Channel]) -> None:
    """What the forerunner does, until it ends."""
    from bufdb.ingest.workers import worker

    count = pipe.receive()
    for channel in channels[:count]:
        pid = _fork()
        if not pid:
            # While a copy has the ends of others open, too, their end is not seen.
            for other in [pipe, *(one.theirs for one in channels if one is not channel)]:
                other.close()
            worker.serve(channel.theirs, channel.files)
        channel.theirs.close()
        pipe.send(pid)
    os._exit(0)


def _adopt() -> None:
    """Have what children leave behind as children of this process, and hear how they end.

    Raises:
        OSError: the system does not.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # some start others with it ignored
    import ctypes

    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("no subreaper")


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 counts the threads of NumPy's BLAS, which ends and begins them around a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Copy:
    """A copy that a forerunner has made, or is about to make."""

    def __init__(self, forerunner: Forerunner, at: int) -> None:
        self.forerunner, self.at = forerunner, at
        self.code: int | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 if it could not be made."""
        return self.forerunner.pid_of(self.at)

    def kill(self) -> None:
        if self.code is None and self.pid:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.code is None:
            pid = self.pid
            self.code = self.forerunner.wait()  # whose child it is until then
            if pid:
                self.code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return self.code


def fresh(channel: Channel) -> Started:
    """A new interpreter, with this one's paths, that serves at one end of a channel.

    Raises:
        OSError: no more processes may be had.
    """
    given = [*channel.theirs.files, *channel.files]
    folders = [os.path.abspath(folder) for folder in sys.path if folder]  # noqa: PTH100 - of text
    process = subprocess.Popen(
        # -P: a module of the working directory stands for none of Python's.
        [sys.executable, "-P", "-c", _SCRIPT, *map(str, given)],
        pass_fds=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # No worker asks NumPy's BLAS anything, whose threads cost 40 ms.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OPENBLAS_NUM_THREADS": "1"},
    )
    channel.theirs.close()
    return process
