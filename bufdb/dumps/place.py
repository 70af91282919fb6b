"""What bytes elsewhere have in common with a `pathlib.Path`, so that dump files may be in either.

Invariant: whatever goes wrong while bytes are read is an `OSError` with one line of text.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol


@dataclass(frozen=True)
class Stat:
    """What there is to know of a place without reading it, named as in `os.stat_result`."""

    st_size: int
    st_mtime_ns: int = 0
    st_ino: int = 0

    @property
    def st_mtime(self) -> float:
        """Seconds since 1970."""
        return self.st_mtime_ns / 1e9


class Place(Protocol):
    """Bytes that are no file on disk."""

    @property
    def name(self) -> str:
        """The last part of its name."""

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""

    @property
    def stamp(self) -> str | None:
        """Text that changes with the bytes; None if only reading them shows a change."""

    def stat(self) -> Stat:
        """Return size and times.

        Raises:
            OSError: it is gone.
        """

    def open(self) -> IO[bytes]:
        """Return the bytes.

        Raises:
            OSError: they cannot be read.
        """


@dataclass(frozen=True)
class Bytes:
    """Bytes in memory, such as those of standard input."""

    name: str
    content: bytes
    stamp: str | None = None

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return suffix_of(self.name)

    def __str__(self) -> str:
        return "-"

    def stat(self) -> Stat:
        """Return their number."""
        return Stat(len(self.content))

    def open(self) -> IO[bytes]:
        """Return the bytes."""
        return io.BytesIO(self.content)


@dataclass(frozen=True)
class Files:
    """Dump files by names that they do not have on disk, if they are there at all."""

    name: str
    """Of the run, if it is given no other."""
    files: Mapping[str, Path | Place]
    """By their name below the dump directory, with slashes."""
    title: str
    """runs.source_path."""

    def __str__(self) -> str:
        return self.title


def suffix_of(name: str) -> str:
    """Return the end of a name from its last dot on, as `pathlib.Path.suffix` has it."""
    last = name.rpartition("/")[2]
    dot = last.rfind(".")
    return last[dot:] if 0 < dot < len(last) - 1 else ""


def damaged(error: Exception | str) -> OSError:
    """Return an error of a decompressor as one of the system."""
    return OSError(errno.EIO, f"it is damaged: {error}")


class Reader(io.RawIOBase):
    """A file over something that can be read from any position on, as an iterator of bytes."""

    def __init__(self, read_from: Callable[[int], Iterator[bytes]], size: int | None) -> None:
        """Take `size`, None if it is not known: then the iterator's end is the file's."""
        self._read_from, self._size = read_from, size
        self._at = 0
        self._parts: Iterator[bytes] | None = None
        self._rest = memoryview(b"")
        """What is left to be read of a part, which may be many megabytes; a view, for no copy."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position; backwards may mean to decompress again."""
        at = offset + (self._at if whence == 1 else (self._size or 0) if whence == 2 else 0)
        if at != self._at:
            self._at, self._parts, self._rest = at, None, memoryview(b"")
        return at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: object) -> int:
        """Read as many bytes as fit in, fewer only at the end."""
        # io's own signature, in which a buffer is any object before Python 3.12.
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        wanted = len(view)
        if self._size is not None:
            wanted = max(0, min(wanted, self._size - self._at))
        if self._parts is None and wanted:
            self._parts = self._read_from(self._at)
        done = 0
        while done < wanted:
            if not self._rest:
                assert self._parts is not None, "begun above"
                self._rest = memoryview(next(self._parts, b""))
                if not self._rest:
                    if self._size is not None:
                        raise damaged("it ends too early")
                    break
            part = self._rest[: wanted - done]
            view[done : done + len(part)] = part
            self._rest = self._rest[len(part) :]
            done += len(part)
        self._at += done
        return done
