"""Headers of tar archives, each bounded before Python's `tarfile` looks at what is in it.

`tarfile` reads a header as long as it says it is, and searches it by patterns that take the square
of its length; a kilobyte that was compressed becomes minutes, or gigabytes.
"""

from __future__ import annotations

import re
import tarfile
from typing import Any

from bufdb.dumps.places.place import damaged

MOST_BYTES = 64 << 10
"""Of one header: names have 4 KiB at most, attributes of files some more."""
MOST_DIGITS = 64
"""Of a number in a header."""
MOST_GLOBAL = 1000
"""Keywords that hold for all members."""
_RECORD = re.compile(rb"(\d{1,6}) [^=\n]+=")


class Header(tarfile.TarInfo):
    """The header of a member; OSError for one that no program writes.

    tarfile reads extended headers in methods that typeshed does not know (misc below).
    """

    def _block(self, count: int) -> int:
        """Bytes with what fills the last block."""
        if count < 0:
            raise damaged("a size is negative")
        return int(super()._block(count))  # type: ignore[misc]

    def _proc_gnulong(self, archive: Any) -> Any:
        """A name before its member."""
        self._require_short()
        return super()._proc_gnulong(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: Any) -> Any:
        """Records before their member, or before all."""
        self._require_short()
        data = archive.fileobj.read(self._block(self.size))
        _require_sound(data[: self.size])
        if len(archive.pax_headers) > MOST_GLOBAL:
            raise damaged(f"more than {MOST_GLOBAL} keywords hold for all members")
        archive.fileobj = _Read(data, archive)
        return super()._proc_pax(archive)  # type: ignore[misc]

    def _require_short(self) -> None:
        if not 0 <= self.size <= MOST_BYTES:
            raise damaged(f"a header has more than {MOST_BYTES >> 10} KiB")

    def _proc_sparse(self, archive: Any) -> Any:
        """A sparse file, which is left out: where its parts lie is passed over."""
        _, is_extended, size = getattr(self, "_sparse_structs")  # noqa: B009
        while is_extended:
            part = archive.fileobj.read(tarfile.BLOCKSIZE)
            if len(part) < tarfile.BLOCKSIZE:
                raise damaged("it ends too early")
            is_extended = bool(part[504])
        self.sparse = []  # type: ignore[assignment]
        self.offset_data = archive.fileobj.tell()
        archive.offset = self.offset_data + self._block(self.size)
        self.size = size
        return self

    def _proc_gnusparse_10(self, member: Any, _keywords: Any, _archive: Any) -> None:
        """The same in its latest form."""
        member.sparse = []


class _Read:
    """What was read of a file already; after that the file is in its place again."""

    def __init__(self, data: bytes, archive: Any) -> None:
        self._data, self._archive, self._file = data, archive, archive.fileobj

    def read(self, _size: int) -> bytes:
        self._archive.fileobj = self._file
        return self._data


def _require_sound(data: bytes) -> None:
    """Nothing if records have the lengths that they say, and no number is without end."""
    at = 0
    while at < len(data):
        found = _RECORD.match(data, at)
        if found is None:
            if data[at:].strip(b"\0"):
                raise damaged("a header cannot be read")
            return
        end = at + int(found[1])
        if end < found.end() or data[end - 1 : end] != b"\n":
            raise damaged("a header cannot be read")
        at = end
    if any(len(digits) > MOST_DIGITS for digits in re.findall(rb"\d+", data)):
        raise damaged(f"a header has a number of more than {MOST_DIGITS} digits")
