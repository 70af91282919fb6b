"""A process that writes nothing outside of a folder: the kernel refuses it (Landlock, Linux 5.13).

`python -m bufdb.capture.confined FOLDER BYTES COMMAND...` becomes the command, so that everything
that it starts is confined as well, for good, and has that much memory for data in each process.
Reading, the network and the devices are as before.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from bufdb.errors import BufdbError

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls landlock_create_ruleset, _add_rule and _restrict_self, of all architectures."""
_VERSION_FLAG, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_WRITE_FILE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = sum(1 << bit for bit in range(4, 13)) | _WRITE_FILE
"""Write, remove and make files of each kind (uapi/linux/landlock.h)."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm")
"""Written to by libraries, and kept by nothing."""


def why_not() -> str | None:
    """Return why a process cannot be confined here; None if it can."""
    if sys.platform != "linux":
        return "the kernel confines processes on Linux alone"
    if _version() < 1:
        return "this kernel has no Landlock (Linux 5.13), or it is switched off"
    return None


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _version() -> int:
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except OSError:
        return 0


def confine(folders: Sequence[Path]) -> None:
    """Let this process and what it starts write below some folders alone.

    Raises:
        BufdbError: the kernel cannot do that.
    """
    reason = why_not()
    if reason is not None:
        raise BufdbError(reason)
    version = _version()
    rights = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _call(_CREATE, struct.pack("=Q", rights), ctypes.c_size_t(8), ctypes.c_uint32(0))
    try:
        for path in (*map(str, folders), *_DEVICES):
            _allow(rules, path, rights)
        if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise BufdbError("the kernel does not let this process give up privileges")
        _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # no such device here
        return
    try:
        of_path = rights if Path(path).is_dir() else rights & (_WRITE_FILE | _TRUNCATE)
        rule = struct.pack("=Qi", of_path, place)
        _call(_ADD, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


if __name__ == "__main__":
    import resource

    confine([Path(sys.argv[1])])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = int(sys.argv[2])
    resource.setrlimit(
        resource.RLIMIT_DATA,
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    )
    os.execvp(sys.argv[3], sys.argv[3:])
