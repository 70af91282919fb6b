"""Folders in the user's cache: only the owner's, and bounded in size."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "BUFDB_CACHE"
"""A folder in place of `bufdb` in the user's cache; or `off`."""
OFF = "off"
TEMPORARY = ".tmp"
"""Suffix of a file that is being written; one of an hour ago is what a killed writer left."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder(name: str) -> Path | None:
    """Return a folder of the cache, made if it is not there; None if nothing is kept."""
    chosen = os.environ.get(VARIABLE)
    if chosen == OFF:
        return None
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        place = (Path(chosen) if chosen else Path(cache) / "bufdb") / name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.lstat()
    except (OSError, RuntimeError):  # a file system that is read-only, a user without a home
        return None
    return place if stat.S_ISDIR(status.st_mode) and is_own(status) else None


def is_own(status: os.stat_result) -> bool:
    """Return whether no other user can have written a file."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def make_room(place: Path, suffixes: tuple[str, ...], most_bytes: int) -> None:
    """Remove the files with these suffixes that are too much, those used longest ago first."""
    used = []
    for path in place.iterdir():
        with suppress(FileNotFoundError):  # another process makes room, too
            status = path.lstat()
            if path.suffix in suffixes:
                used.append((status.st_mtime_ns, status.st_size, path))
            elif path.suffix == TEMPORARY and status.st_mtime < time.time() - 3600:
                path.unlink()
    total = 0
    for _, size, path in sorted(used, reverse=True):
        total += size
        if total > most_bytes:
            path.unlink(missing_ok=True)
