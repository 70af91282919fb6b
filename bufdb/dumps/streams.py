"""Compressed streams: read through once, bounded, and then readable from any position on.

Members of an archive are read by the names of their modules, which is no order of the stream: to
decompress from its beginning, or from a state kept, for each takes many times the stream. What
comes out is kept in compressed blocks instead, in memory or, if it is more, in a temporary file
without a name, which takes about as much room as the archive.

Invariant: no more than `MOST_BYTES` come out of a stream, and beyond `FREE_BYTES` no more than
`MOST_RATIO` times what went in; text of XLA's is compressed 5 to 30 times. What is kept is bounded
in the same way. One decompressor is open at a time, of at most `WINDOW_BYTES`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Callable, Generator, Iterator
from typing import IO, Any

from bufdb.dumps.place import damaged

MOST_BYTES = 64 << 30
FREE_BYTES = 256 << 20
MOST_RATIO = 250
FREE_KEPT_BYTES = 1 << 30
MOST_KEPT_RATIO = 8
"""Blocks take twice as much room as gzip's best, and up to five times Zstandard's."""
WINDOW_BYTES = 128 << 20
"""What the `zstd` command takes as well unless it is asked to take more."""
BLOCK_BYTES = 64 << 10
"""Text of a block. Half as much takes a fifth more time to make, twice as much twice to read."""
_MEMORY_BYTES = 32 << 20
Opener = Callable[[], IO[bytes]]


def check_bounds(compressed: int, out: int) -> None:
    """Check that what came out is within the bounds.

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


class Kept:
    """Blocks of streams, compressed, one after the other."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - closed below
        weakref.finalize(self, self._file.close)
        self.size = 0
        """Bytes of all blocks."""
        self.given = 0
        """Bytes that the streams took."""
        self.read_count = 0
        """Blocks that were decompressed again."""
        self._last = (-1, b"")
        """Where a block begins, and its text: what is read next is often in the same."""

    def add(self, text: bytes) -> int:
        """Add a block and return where it ends.

        Raises:
            OSError: there is no room for it, or it is beyond the bounds.
        """
        block = zlib.compress(text, 1)
        if self.size + len(block) > max(FREE_KEPT_BYTES, MOST_KEPT_RATIO * self.given):
            most = f"{MOST_KEPT_RATIO} times its size"
            raise OSError(errno.EFBIG, f"it takes more than {most} to keep; unpack it first")
        self._file.seek(self.size)
        self._file.write(block)
        self._last = (self.size, text)
        self.size += len(block)
        return self.size

    def read(self, start: int, stop: int) -> bytes:
        """Return the text of a block."""
        if start != self._last[0]:
            self.read_count += 1
            self._file.seek(start)
            self._last = (start, zlib.decompress(self._file.read(stop - start)))
        return self._last[1]

    def drop(self, size: int) -> None:
        """Drop what was added beyond a size."""
        self._file.truncate(size)
        self.size = size
        self._last = (-1, b"")


class Compressed:
    """A stream of gzip members or Zstandard frames, one after the other."""

    def __init__(
        self,
        opener: Opener,
        new: Callable[[], Any],
        error: type[Exception],
        chunk: int,
        kept: Kept,
    ) -> None:
        """Begin.

        Args:
            opener: opens what is compressed.
            new: makes a decompressor of one member or frame.
            error: what it raises for damaged bytes.
            chunk: bytes to decompress at a time, so few that what comes out fits into memory.
            kept: takes what comes out.
        """
        self._kept = kept
        # The decompressor with its window is the generator's alone and ends with it: a directory
        # may have thousands of streams.
        self._parts = _decompressed(opener, new, error, chunk, kept)
        self._rest = b""
        """Text that does not fill a block yet."""
        self._starts = array("Q", [kept.size])
        """Where blocks begin, and where the last one ends."""

    def size(self) -> int:
        """Return the bytes of the whole stream, by reading it.

        Raises:
            OSError: it is damaged or beyond the bounds.
        """
        with contextlib.closing(self):
            while self._advance():
                pass
        number = len(self._starts) - 2
        return number * BLOCK_BYTES + len(self._block(number)) if number >= 0 else 0

    def read_from(self, position: int) -> Iterator[bytes]:
        """Yield the bytes from a position on.

        Raises:
            OSError: the stream is damaged or beyond the bounds.
        """
        number, skipped = divmod(position, BLOCK_BYTES)
        while text := self._block(number):
            if skipped < len(text):
                yield text[skipped:]
            number, skipped = number + 1, 0

    def close(self) -> None:
        """End the stream with what was read of it; that can still be read."""
        self._parts.close()
        self._finish()

    def _block(self, number: int) -> bytes:
        """Return a block's text, or b'' beyond the last one."""
        while number > len(self._starts) - 2 and self._advance():
            pass
        if number > len(self._starts) - 2:
            return b""
        return self._kept.read(self._starts[number], self._starts[number + 1])

    def _advance(self) -> bool:
        """Decompress some more; return False at the end."""
        part = next(self._parts, b"")
        if not part:
            self._finish()
            return False
        text = self._rest + part
        whole = len(text) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, whole, BLOCK_BYTES):
            self._keep(text[start : start + BLOCK_BYTES])
        self._rest = text[whole:]
        return True

    def _finish(self) -> None:
        if self._rest:
            self._keep(self._rest)
            self._rest = b""

    def _keep(self, text: bytes) -> None:
        self._starts.append(self._kept.add(text))


def _decompressed(
    opener: Opener, new: Callable[[], Any], error: type[Exception], chunk: int, kept: Kept
) -> Generator[bytes, None, None]:
    """Yield what comes out, from the beginning to the end, in parts that are not empty."""
    out, consumed, inflate = 0, 0, new()
    with opener() as file:
        left = b""
        while data := left or file.read(chunk):
            if inflate.eof:
                if not data.strip(b"\0"):
                    left = b""
                    continue  # what pads the end of a tape
                inflate = new()
            try:
                part = inflate.decompress(data)
            except error as fault:
                raise _as_fault(fault) from fault
            left = inflate.unused_data
            consumed += len(data) - len(left)
            kept.given += len(data) - len(left)
            out += len(part)
            check_bounds(consumed, out)
            if part:
                yield part
        if not inflate.eof:
            raise damaged("it ends too early")


def _as_fault(error: Exception) -> OSError:
    if "too much memory" in str(error):
        most = f"{WINDOW_BYTES >> 20} MiB"
        return OSError(errno.EFBIG, f"it takes a window of more than {most}; unpack it first")
    return damaged(error)


def gzip(opener: Opener, kept: Kept) -> Compressed:
    """Return a gzip stream: at most 1,032 times as much comes out as goes in."""
    return Compressed(opener, lambda: zlib.decompressobj(31), zlib.error, 16 << 10, kept)


def zstandard(opener: Opener, kept: Kept) -> Compressed:
    """Return a Zstandard stream, by the standard library if it has one (Python 3.14).

    Raises:
        OSError: no library for it is installed.
    """
    for name in ("compression.zstd", "zstandard"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        # The frames share a context, and so does what zstandard makes of one decompressor.
        if name == "zstandard":
            new = library.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj
        else:
            most = {library.DecompressionParameter.window_log_max: WINDOW_BYTES.bit_length() - 1}
            new = functools.partial(library.ZstdDecompressor, options=most)
        # A block of four bytes may expand to 128 KiB.
        return Compressed(opener, new, library.ZstdError, 1 << 10, kept)
    text = "it is compressed by Zstandard, which needs: pip install 'bufdb[zst]'"
    raise OSError(errno.ENOSYS, text)
