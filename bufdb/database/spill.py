"""Folders in which questions that outgrow memory spill, removed whatever ends the process.

DuckDB removes its folder when a database is closed. bufdb ends without that (`bufdb.cli.main`), and
a process that is killed has no time to: what it left is removed by the next one, which knows by the
name that the process is gone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_MADE: set[str] = set()
"""Folders of this process; DuckDB makes one on need."""


def spill_folder() -> str:
    """Return where a query that outgrows memory spills to: an unguessable name, made on need.

    DuckDB's own choice is `FILE.tmp` next to the database, where nothing may be writable, and which
    two readers of one file would share. '' if nothing can be written: queries must fit in memory.
    """
    for folder in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):  # tempfile takes 4 ms to import
        if folder and os.access(folder, os.W_OK | os.X_OK):
            above = Path(folder).absolute()
            prefix = f"bufdb-{_machine()}-"
            _remove_left(above, prefix)
            name = str(above / f"{prefix}{os.getpid()}-{os.urandom(8).hex()}")
            _MADE.add(name)
            return name
    return ""


def remove_spilled() -> None:
    """Remove the folders of this process, which is about to end without closing its databases."""
    for name in _MADE:
        if Path(name).is_dir():
            _remove(name)


def _machine() -> str:
    """Return what processes share that know each other by number: a host, and a container on it."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return hashlib.blake2b(f"{os.uname().nodename} {space}".encode(), digest_size=4).hexdigest()


def _remove_left(above: Path, prefix: str) -> None:
    """Remove folders of this user's processes that are gone; links do not count."""
    try:
        with os.scandir(above) as entries:
            left = [entry for entry in entries if entry.name.startswith(prefix)]
    except OSError:  # nothing can be listed, as in a folder that is only to be written to
        return
    for entry in left:
        pid = entry.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and _is_own(entry) and not _is_running(int(pid)):
            _remove(entry.path)


def _is_own(entry: os.DirEntry[str]) -> bool:
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        return is_folder and entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:  # another process has removed it
        return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no number of a process
        return True
    return True


def _remove(name: str) -> None:
    import shutil  # needed only after an accident

    shutil.rmtree(name, ignore_errors=True)
