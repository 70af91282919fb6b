"""Make things once for all processes that run tests."""

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills, once for all processes that run tests; they only read it."""
    root = _shared(factory)
    folder, done = root / name, root / f"{name}.done"
    with one_at_a_time(factory, name):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@contextlib.contextmanager
def one_at_a_time(factory: pytest.TempPathFactory, name: str) -> Iterator[None]:
    """Within the block no other process that runs tests is in a block of that name."""
    with (_shared(factory) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _shared(factory: pytest.TempPathFactory) -> Path:
    # A worker's own folder is in its session's. The name says so, not the environment, which a
    # session that a test starts inherits: it would share the folder of all sessions, even others'.
    root = factory.getbasetemp()
    return root.parent if root.name.startswith("popen-") else root
