"""Compressed streams, read once from the beginning to the end, and bounded.

Invariant: no more than `MOST_BYTES` come out of a stream, and beyond `FREE_BYTES` no more than
`MOST_RATIO` times what went in; text of XLA's is compressed 5 to 30 times. A decompressor takes at
most `WINDOW_BYTES`, and ends with its stream.
"""

from __future__ import annotations

import errno
import functools
import importlib
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from bufdb.dumps.place import damaged

MOST_BYTES = 64 << 30
FREE_BYTES = 256 << 20
MOST_RATIO = 250
WINDOW_BYTES = 128 << 20
"""What the `zstd` command takes as well unless it is asked to take more."""
Opener = Callable[[], IO[bytes]]
Decompressor = Callable[[Opener], Iterator[bytes]]


def check_total(out: int) -> None:
    """Check that everything that came out is within the bounds.

    Raises:
        OSError: it is not.
    """
    if out > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it holds more than {MOST_BYTES >> 30} GiB; unpack it first")


def check_bounds(compressed: int, out: int) -> None:
    """Check the same, and that it is not too much for what went in."""
    check_total(out)
    if out > FREE_BYTES and out > MOST_RATIO * compressed:
        raise OSError(
            errno.EFBIG,
            f"it holds more than {MOST_RATIO} times its size; unpack it first if it can be trusted",
        )


def _decompressed(
    opener: Opener, new: Callable[[], Any], error: type[Exception], chunk: int
) -> Iterator[bytes]:
    """Yield what comes out of gzip members or Zstandard frames, one after the other.

    Args:
        opener: opens what is compressed.
        new: makes a decompressor of one member or frame.
        error: what it raises for damaged bytes.
        chunk: bytes to decompress at a time, so few that what comes out fits into memory.

    Raises:
        OSError: the stream is damaged or beyond the bounds.
    """
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


def gzip(opener: Opener) -> Iterator[bytes]:
    """Return a gzip stream: at most 1,032 times as much comes out as goes in."""
    return _decompressed(opener, lambda: zlib.decompressobj(31), zlib.error, 16 << 10)


def zstandard(opener: Opener) -> Iterator[bytes]:
    """Return a Zstandard stream, by the standard library if it has one (Python 3.14)."""
    # The frames share a context, and so does what zstandard makes of one decompressor.
    try:
        library = importlib.import_module("compression.zstd")
    except ImportError:
        library = importlib.import_module("zstandard")
        new = library.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj
    else:
        most = {library.DecompressionParameter.window_log_max: WINDOW_BYTES.bit_length() - 1}
        new = functools.partial(library.ZstdDecompressor, options=most)
    # A block of four bytes may expand to 128 KiB.
    return _decompressed(opener, new, library.ZstdError, 1 << 10)
