"""Temporary folders: what outgrows memory, what is unpacked; removed whatever ends the process.

DuckDB removes its folder when a database is closed. bufdb ends without that (`bufdb.cli.main`), and
a process that is killed has no time to: what it left is removed by the next one, which knows by the
name that the process is gone.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from pathlib import Path
from types import FrameType

from bufdb.database.digest import blake2b

_MADE: dict[str, int] = {}
"""Folders, by the process that they are of; DuckDB makes one on need."""
_UNPACKED: set[str] = set()
"""Those of them that `make_folder` made."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)


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
            _MADE[name] = os.getpid()
            return name
    return ""


def remove_spilled() -> None:
    """Remove the folders of this process, which is about to end without closing its databases."""
    for name, pid in _MADE.items():
        if pid == os.getpid() and Path(name).is_dir():  # a copy of a process has its list, too
            _remove(name)


def make_folder() -> Path:
    """Make a folder that `remove_folder` removes, or the end of the process, also by a signal.

    Raises:
        OSError: nothing can be written.
    """
    name = spill_folder()
    if not name:
        raise OSError(errno.EACCES, "no temporary folder can be written: set TMPDIR")
    folder = Path(name)
    folder.mkdir(0o700)
    _UNPACKED.add(name)
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ended)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder, unless this process is a copy of the one that made it."""
    name = str(folder)
    if _MADE.get(name) != os.getpid():
        return
    _remove(name)
    del _MADE[name]
    _UNPACKED.discard(name)
    if not _UNPACKED and threading.current_thread() is threading.main_thread():
        # The handler would wait for DuckDB, where the system's own ends it at once.
        for number in _ENDING:
            if signal.getsignal(number) is _ended:
                signal.signal(number, signal.SIG_DFL)


def _ended(number: int, _frame: FrameType | None) -> None:
    """Remove folders and end as the signal would have done."""
    remove_spilled()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _machine() -> str:
    """Return what processes share that know each other by number: a host, and a container on it."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return blake2b(f"{os.uname().nodename} {space}".encode(), digest_size=4).hexdigest()


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
