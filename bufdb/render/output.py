"""Write an answer to a file atomically: it has the whole answer, or its previous content."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from bufdb.errors import BufdbError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_KEPT = (errno.EACCES, errno.EPERM, errno.EBUSY)
_STREAMS = ("/dev/", "/proc/")
"""Folders of files that other processes have open: they would not read a replacement."""


def write_file(path: Path, *data: bytes) -> None:
    """Write an answer; see `write_pieces`."""
    write_pieces(path, data)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write an answer under a temporary name, and rename it when it is complete.

    The target of a link is replaced, not the link; a file keeps its permissions. Pipes, devices
    and streams are written directly, and so is a file that cannot be replaced: one that is mounted,
    or in a folder without write permission.

    Raises:
        UsageError: the file cannot be written, or is a database.
        BufdbError: the disk is full.
    """
    try:
        is_other = path.exists() and not path.is_file()
        if is_other or str(path.absolute()).startswith(_STREAMS) or not _replaced(path, pieces):
            with path.open("wb") as file:
                file.writelines(pieces)
    except OSError as error:
        kind = BufdbError if error.errno in _FULL else UsageError
        raise kind(f"cannot write {path}: {error.strerror}") from error


def _replaced(path: Path, pieces: Iterable[bytes]) -> bool:
    """Replace the file and return True; False if that is not possible and no piece was used."""
    target = Path(os.path.realpath(path))
    made = target.with_name(f".bufdb-{os.urandom(8).hex()}.tmp")
    try:
        if target.exists():
            with target.open("r+b") as file:  # a file without write permission is not replaced
                if file.read(12)[8:] == b"DUCK":
                    raise UsageError(f"{path} is a database; -o wants another file")
        with made.open("xb") as file:
            file.writelines(pieces)
        if target.exists():
            made.chmod(stat.S_IMODE(target.stat().st_mode))
        try:
            made.replace(target)
        except OSError as error:  # the file is mounted
            if error.errno not in _KEPT:
                raise
            import shutil  # 3 ms, with libraries of compression

            shutil.copyfile(made, path)
    except OSError as error:
        if error.errno in _KEPT:
            return False
        raise
    finally:
        made.unlink(missing_ok=True)
    return True
