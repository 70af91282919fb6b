"""Compressed streams, read from any position on without a copy on disk.

A stream is gone through once, which gives its size and, of gzip, states of the decompressor to go
on from. Invariant: no more than `MOST_BYTES` come out of a stream, and beyond `FREE_BYTES` no more
than `MOST_RATIO` times what went in; text of XLA's is compressed 5 to 30 times.
"""

from __future__ import annotations

import errno
import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bufdb.dumps.places.place import damaged

MOST_BYTES = 64 << 30
FREE_BYTES = 256 << 20
MOST_RATIO = 250
CHECKPOINT_BYTES = 16 << 20
"""Output between two states kept; each takes 40 KB."""
Opener = Callable[[], IO[bytes]]


def check_bounds(compressed: int, out: int) -> None:
    """Nothing while what came out is within the bounds.

    Raises:
        OSError: it is not.
    """
    if out > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it holds more than {MOST_BYTES >> 30} GiB; unpack it first")
    if out > FREE_BYTES and out > MOST_RATIO * compressed:
        raise OSError(
            errno.EFBIG,
            f"it holds more than {MOST_RATIO} times its size; unpack it first if it can be trusted",
        )


class Compressed:
    """A stream of gzip members or Zstandard frames, one behind the other."""

    def __init__(
        self,
        opener: Opener,
        new: Callable[[], Any],
        error: type[Exception],
        chunk: int,
        *,
        has_states: bool,
    ) -> None:
        """Begin.

        Args:
            opener: opens what is compressed.
            new: makes a decompressor of one member or frame.
            error: what it raises of damaged bytes.
            chunk: bytes to decompress at a time, so few that what comes out fits into memory.
            has_states: whether a decompressor can be copied, to go on from there again.
        """
        self._open, self._new, self._error = opener, new, error
        self._chunk, self._has_states = chunk, has_states
        self._states: list[tuple[int, int, Any]] = []
        """Output and input so far, and the decompressor that goes on there."""
        self.reached = 0
        """Bytes that have come out so far, at the most."""

    def size(self) -> int:
        """Bytes of the whole stream, by reading it.

        Raises:
            OSError: it is damaged or beyond the bounds.
        """
        for part in self.read_from(self.reached):
            del part
        return self.reached

    def read_from(self, position: int) -> Iterator[bytes]:
        """The bytes from a position on.

        Raises:
            OSError: the stream is damaged or beyond the bounds.
        """
        out, consumed, inflate = 0, 0, self._new()
        for known_out, known_in, state in self._states:
            if known_out <= position:
                out, consumed, inflate = known_out, known_in, state.copy()
        with self._open() as file:
            file.seek(consumed)
            left = b""
            while data := left or file.read(self._chunk):
                if inflate.eof:
                    if not data.strip(b"\0"):
                        left = b""
                        continue  # what pads the end of a tape
                    inflate = self._new()
                try:
                    part = inflate.decompress(data)
                except self._error as error:
                    raise damaged(error) from error
                left = inflate.unused_data
                consumed += len(data) - len(left)
                start, out = out, out + len(part)
                self._reach(out, consumed, inflate)
                if out > position:
                    yield part[max(0, position - start) :]
            if not inflate.eof:
                raise damaged("it ends too early")

    def _reach(self, out: int, consumed: int, inflate: Any) -> None:
        if out <= self.reached:
            return
        self.reached = out
        check_bounds(consumed, out)
        last = self._states[-1][0] if self._states else 0
        if self._has_states and out - last >= CHECKPOINT_BYTES and not inflate.eof:
            self._states.append((out, consumed, inflate.copy()))


def gzip(opener: Opener) -> Compressed:
    """A gzip stream: at most 1,032 times as much comes out as goes in."""
    return Compressed(opener, lambda: zlib.decompressobj(31), zlib.error, 16 << 10, has_states=True)


def zstandard(opener: Opener) -> Compressed:
    """A Zstandard stream, by the standard library where it has it (Python 3.14).

    Raises:
        OSError: nothing is there that reads it.
    """
    for name in ("compression.zstd", "zstandard"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        new = getattr(library.ZstdDecompressor(), "decompressobj", library.ZstdDecompressor)
        # A block of four bytes may stand for 128 KiB.
        return Compressed(opener, new, library.ZstdError, 1 << 10, has_states=False)
    text = "it is compressed by Zstandard, which needs: pip install 'bufdb[zst]'"
    raise OSError(errno.ENOSYS, text)
