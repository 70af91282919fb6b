"""Environments with some versions of packages, made once and kept in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bufdb.capture.runner import Observer, end_of
from bufdb.errors import BufdbError, UsageError, quote

_READY = "bufdb-packages.txt"
"""In a finished environment: its packages, a line each."""
_TEMPORARY = ".tmp"
"""Suffix of the folder in which uv or pip have their temporary files."""
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_BOUND = r"(?:===|==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(rf"({_NAME})(?:\[{_NAME}(?:,{_NAME})*\])?(?:{_BOUND}(?:,{_BOUND})*)?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+!_]*")
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".egg", ".txt", ".toml")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_POLL_S = 0.2


def folder() -> Path:
    """Return the folder of all environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "bufdb" / "blame"


def require_requirements(packages: Sequence[str]) -> None:
    """Check that each is the name of a package with versions, and no option, path or address.

    Raises:
        UsageError: one is not.
    """
    for text in packages:
        match = _REQUIREMENT.fullmatch(text)
        if match is None or match[1].lower().endswith(_ARCHIVES):
            raise UsageError(f"--with wants PACKAGE or PACKAGE==VERSION, got {quote(text)}")


def require_versions(versions: Sequence[str]) -> None:
    """Check that each is a version.

    Raises:
        UsageError: one is not.
    """
    for text in versions:
        if not _VERSION.fullmatch(text):
            raise UsageError(f"--jax wants versions with commas, such as 0.7.2, got {quote(text)}")


def made(
    packages: Sequence[str],
    observer: Observer | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> str:
    """Return the Python of an environment with these packages, made if it is not there.

    A file that is written last marks a finished one; others are removed by the next start. `note`
    receives its size.

    Raises:
        BufdbError: it cannot be made, or another user could have changed it.
    """
    key = "\n".join([sys.version.split()[0], *sorted(packages)])
    place = folder() / hashlib.sha256(key.encode()).hexdigest()[:16]
    python = place / "bin" / "python"

    def is_there() -> bool:
        if not (place / _READY).exists() or not python.exists():
            return False
        _require_own(place)
        return True

    what = " ".join(packages)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(place.parent)
        if is_there():
            _tidy(place.parent)
            return str(python)
        with _turn(place.parent, observer) as lock:
            if is_there():
                return str(python)
            # What was left of an interrupted one; without a lock others may be being made.
            _remove_partial(place.parent if lock is not None else place)
            with tempfile.TemporaryFile() as log:
                for command in _commands(place, packages):
                    step = f"making an environment with {what}"
                    _run(command, log.fileno(), step, place, observer, lock)
            text = "".join(f"{item}\n" for item in packages)
            (place / _READY).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BufdbError(f"cannot make an environment in {place}: {error.strerror}") from error
    note(f"made an environment with {what}: {size_of(place) / 1e6:.0f} MB in {place}")
    return str(python)


def _require_own(place: Path) -> None:
    """Check that no other user can have put something into a folder, whose Python is run.

    Raises:
        BufdbError: another user owns it, or may write there.
    """
    status = place.lstat() if place.parent == folder() else place.stat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        is_folder = stat.S_ISDIR(status.st_mode)
        reason = f"it belongs to user {status.st_uid}" if is_folder else "it is no folder"
    elif status.st_mode & _OTHERS_WRITE:
        reason = "others may write there; if no one has, chmod go-w makes it yours"
    else:
        return
    raise BufdbError(
        f"environments in {place} are not used: {reason}. XDG_CACHE_HOME names another folder"
    )


def _remove_partial(place: Path) -> None:
    """Remove an environment that was not finished, or all of them in a folder."""
    for item in [place] if place.parent == folder() else place.iterdir():
        if not (item / _READY).exists():
            shutil.rmtree(item, ignore_errors=True)


def _tidy(place: Path) -> None:
    """Remove what interrupted starts left in a folder, unless an environment is being made."""
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_partial(place)
    except OSError:  # locked, or a file system without locks
        pass
    finally:
        os.close(lock)


@contextmanager
def _turn(place: Path, observer: Observer | None) -> Iterator[int | None]:
    """Wait until no other process makes environments in a folder; then none does in the block.

    Yields the descriptor that holds the lock; None on a file system without locks.
    """
    began = time.monotonic()
    lock = os.open(place, os.O_RDONLY)
    is_locked = False
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
                break
            except BlockingIOError:
                if observer is not None:
                    seconds = time.monotonic() - began
                    observer("waiting for an environment that another process makes", seconds)
                time.sleep(_POLL_S)
            except OSError:  # a file system without locks
                break
        yield lock if is_locked else None
    finally:
        os.close(lock)


def _commands(place: Path, packages: Sequence[str]) -> list[list[str]]:
    python = str(place / "bin" / "python")
    if (uv := shutil.which("uv")) is not None:
        return [
            [uv, "venv", "--quiet", "--python", sys.executable, str(place)],
            [uv, "pip", "install", "--quiet", "--python", python, *packages],
        ]
    pip = [python, "-P", "-m", "pip", "install", "--quiet"]
    return [
        [sys.executable, "-P", "-m", "venv", str(place)],
        [*pip, "--disable-pip-version-check", "--no-compile", *packages],
    ]


def _run(
    command: Sequence[str],
    log: int,
    what: str,
    place: Path,
    observer: Observer | None,
    lock: int | None,
) -> None:
    """Run a step, showing how long it takes and how large the environment is by then.

    It shares the lock: if this process is killed, the next start waits until the step has ended.

    Raises:
        BufdbError: it failed; the message has what it said last.
    """
    began, measured, size = time.monotonic(), 0.0, 0
    temporary = place.with_suffix(_TEMPORARY)
    temporary.mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment | {"TMPDIR": str(temporary)},
        cwd=place.parent,  # uv reads the settings of a project
        umask=0o077,
        pass_fds=[] if lock is None else [lock],
    )
    try:
        while child.poll() is None:
            seconds = time.monotonic() - began
            if observer is not None:
                if seconds - measured > 5:
                    measured, size = seconds, size_of(place)
                observer(f"{what}, {size / 1e6:.0f} MB", seconds)
            time.sleep(_POLL_S)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
        shutil.rmtree(temporary, ignore_errors=True)
        if child.returncode:
            shutil.rmtree(place, ignore_errors=True)
    if child.returncode:
        os.lseek(log, 0, os.SEEK_SET)
        output = os.read(log, 1 << 20).decode(errors="replace").splitlines()
        ended = f"{end_of(child.returncode)}: " if child.returncode < 0 else ""
        raise BufdbError(f"{what} failed: {ended}{_reason(output)}")


def _reason(output: Sequence[str]) -> str:
    """Return the line in which pip or uv says why it gives up."""
    lines = [line.strip() for line in output if line.strip()]
    why = [
        line.partition(" ")[2].partition(", we can conclude")[0].rstrip(".")
        for line in lines
        if line.startswith(("cause:", "╰─▶"))
    ]
    clash = [line for line in lines if line.startswith("ERROR: Cannot install")]
    errors = [line for line in lines if line.lower().startswith(("error", "×"))]
    reason = [*why[:1], *clash[-1:], *errors[-1:], *lines[-1:], "no message"][0][:300]
    hint = "; '--with libtpu==VERSION' takes another one" if "libtpu" in reason else ""
    return f"{reason}{hint}"


def size_of(place: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for root, _, names in os.walk(place):
        for name in names:
            try:
                total += os.lstat(f"{root}/{name}").st_size
            except OSError:  # removed meanwhile
                continue
    return total


def clean() -> tuple[int, int]:
    """Remove all environments; return their number and their bytes.

    Raises:
        BufdbError: they cannot be removed.
    """
    place = folder()
    if not place.exists():
        return 0, 0
    count = sum(1 for item in place.iterdir() if item.is_dir())
    size = size_of(place)
    try:
        shutil.rmtree(place)
    except OSError as error:
        raise BufdbError(f"cannot remove {place}: {error.strerror or error}") from error
    return count, size
