"""How a worker is started: as a copy of this process, or as a Python of its own.

A copy (fork) is there at once, with all that was imported: of 2,000 small dumps, which two workers
read in 1.4 s, two new interpreters would be 0.3 s. But it has of several threads only one, and of
the others their locks, held for good; JAX warns of it, and libraries of macOS end the process. So
that is for whoever owns the process, the command line, before it opens a database and while it has
one thread. Others get new interpreters, which know nothing of the caller: not by `multiprocessing`,
whose new processes import the caller's script again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from multiprocessing.connection import Connection
from typing import Protocol

from bufdb.ingest.workers import worker

_SCRIPT = "from bufdb.ingest.workers.worker import main; main()"


class Started(Protocol):
    """A process, as `subprocess.Popen` has it."""

    def kill(self) -> None:
        """End it."""

    def wait(self) -> int:
        """Its exit code when it has ended; minus the signal that ended it."""


def may_copy() -> bool:
    """Whether a copy of this process can work: nothing of another thread is needed in it."""
    return sys.platform == "linux" and threading.active_count() == 1


def copied(pipe: Connection, files: list[int], others: list[Connection]) -> Started:
    """A copy of this process that serves at this end of a pipe.

    Args:
        pipe: the worker's end.
        files: its segments.
        others: ends that belong to this process alone; while a copy has them open, too, the end of
            this process is not seen.
    """
    with warnings.catch_warnings():
        # Python 3.12 counts the threads of NumPy's BLAS, which ends and begins them around a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return _Copy(number)
    try:
        for other in others:
            other.close()
        worker.serve(pipe, files)
    finally:
        os._exit(1)  # nothing of the caller's runs here, whatever happened


class _Copy:
    def __init__(self, number: int) -> None:
        self.number = number
        self.code: int | None = None

    def kill(self) -> None:
        if self.code is None:
            os.kill(self.number, signal.SIGKILL)

    def wait(self) -> int:
        if self.code is None:
            _, status = os.waitpid(self.number, 0)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code


def fresh(pipe: Connection, files: list[int]) -> Started:
    """A new interpreter, with this one's paths, that serves at this end of a pipe."""
    given = [pipe.fileno(), *files]
    folders = [os.path.abspath(folder) for folder in sys.path if folder]  # noqa: PTH100 - of text
    return subprocess.Popen(
        # -P: a module of the working directory stands for none of Python's.
        [sys.executable, "-P", "-c", _SCRIPT, *map(str, given)],
        pass_fds=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # No worker asks NumPy's BLAS anything, whose threads cost 40 ms.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OPENBLAS_NUM_THREADS": "1"},
    )
