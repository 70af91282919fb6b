"""The bytes of dump files as a database keeps them: in parts, each a Zstandard frame."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bufdb.dumps import streams
from bufdb.dumps.place import damaged

PART_BYTES = 4 << 20
"""Bytes of a file that are compressed together, and in memory at once."""
_LEVEL = 1
"""Ten times smaller at 750 MB per CPU-second, on dumps of cpu-0.10.2; level 3 takes half more time
for the same size, gzip's fastest four times as much for half more."""


@dataclass(frozen=True)
class Part:
    """A part of a file, as a row of file_contents."""

    content_hash: str
    part_ordinal: int
    size_bytes: int
    compressed: bytes

    def row(self) -> dict[str, Any]:
        """Return the row."""
        return {**vars(self), "compressed_bytes": len(self.compressed)}


def parts(content_hash: str, pieces: Iterable[bytes]) -> Iterator[Part]:
    """Yield the parts of a file, of pieces of at most PART_BYTES."""
    for ordinal, piece in enumerate(pieces):
        yield Part(content_hash, ordinal, len(piece), _compress()(piece))


def cut(text: bytes) -> Iterator[bytes]:
    """Yield the pieces of a text."""
    for start in range(0, len(text), PART_BYTES):
        yield text[start : start + PART_BYTES]


@functools.cache
def _compress() -> Callable[[bytes], bytes]:
    """Return a function that compresses a part: the standard library's, from Python 3.14 on."""
    try:
        library = importlib.import_module("compression.zstd")
    except ImportError:
        # A compressor for each part, 13 µs: threads, as workers of Sail are, cannot share one.
        library = importlib.import_module("zstandard")
    return functools.partial(library.compress, level=_LEVEL)


def expanded(compressed: bytes, size: int) -> bytes:
    """Return a part as it is in its file.

    Raises:
        OSError: it is damaged, or has another size.
    """
    pieces: list[bytes] = []
    left = min(size, PART_BYTES)
    for piece in streams.zstandard(lambda: io.BytesIO(compressed)):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            break
    if left or size > PART_BYTES:
        raise damaged("a part has another size than it should")
    return b"".join(pieces)
