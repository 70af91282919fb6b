"""Files in the user's cache that are named by their content, or by what it was made of.

A file that is damaged, or that another user could have written, is not used.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from bufdb import user_cache

MOST_BYTES = 256 << 20
"""Of all files; the one that was used longest ago goes first."""
SUFFIXES = (".dump", ".traces", ".figures", ".needs")
"""Of all files: others in the folder are not bufdb's."""
_DIGEST_BYTES = hashlib.sha256().digest_size


def folder() -> Path | None:
    """Return the folder of the files, made if it is not there; None if nothing is kept."""
    return user_cache.folder("compiled")


def read(place: Path, name: str) -> bytes | None:
    """Return what a file has; None if there is none, which it is from then on if it is damaged."""
    path = place / name
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if not user_cache.is_own(os.fstat(file.fileno())):
                return None
            data = file.read()
        if data[:_DIGEST_BYTES] == _digest(name, data[_DIGEST_BYTES:]):
            os.utime(path)
            return data[_DIGEST_BYTES:]
        path.unlink()
    except OSError:
        pass
    return None


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.partition(".")[0].encode() + data).digest()


def write(place: Path, name: str, data: bytes) -> None:
    """Keep a file, whole or not at all; what was used longest ago makes room for it."""
    if len(data) > MOST_BYTES // 4:
        return
    made = place / f"{name}-{os.urandom(8).hex()}{user_cache.TEMPORARY}"
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_digest(name, data) + data)
        made.replace(place / name)
        user_cache.make_room(place, SUFFIXES, MOST_BYTES)
    except OSError:  # such as a full disk
        pass
    finally:
        with suppress(OSError):
            made.unlink(missing_ok=True)
