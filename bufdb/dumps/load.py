"""The bytes of dump files: looked through once, hashed, and kept if they are few."""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import xxhash

from bufdb.columnar.scan import PAD
from bufdb.dumps.blocks import BLOCK_BYTES
from bufdb.dumps.files import (
    BEFORE,
    BUFFER_KINDS,
    PROTO,
    DumpFile,
    ModuleFiles,
    base_name,
    bears_dump_name,
    open_file,
)
from bufdb.dumps.pasted.plain import LOOK_BYTES as PASTED_BYTES
from bufdb.dumps.pasted.plain import has_prose, is_plain, plain, without_prose
from bufdb.read import layout_2019
from bufdb.read.beside.before_optimizations import BeforeOptimizations
from bufdb.read.boundaries import Titles, cut

ABOVE_BYTES = 1 << 16
"""What a round leaves unread of the one above is seldom more: the lines of one value."""
BELOW_BYTES = len(PAD)
"""What a block needs behind its last line."""
LOOK_BYTES = 1 << 16
"""The beginning of a file that shows a layout of 2019."""
MOST_LINE_BYTES = 64 << 20
"""Beyond them a line is none of a dump's: it would be in memory several times."""
MOST_REWRITTEN_BYTES = 128 << 20
"""Of a text that is not as XLA writes it today: it is in memory several times."""
LOOKED_BYTES = 1 << 16
"""Text that is looked through at a time: it stays in the cache. 1 MB takes a third more CPU."""


@dataclass
class Loaded:
    """A module's files with their hashes, and their text if it is small."""

    files: ModuleFiles
    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    titles: dict[str, Titles] = field(default_factory=dict)
    before: BeforeOptimizations | None = None
    """What was kept of the HLO text before optimisation, which may be long and goes by once."""
    is_large: bool = False
    derived: frozenset[str] = frozenset()
    """Kinds of text that no file has and that the proto is asked for."""

    def file(self, kind: str) -> DumpFile:
        """The file that holds a kind of text, or from which it is derived."""
        return self.files.files[PROTO if kind in self.derived else kind]

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(self.sizes.values())

    @property
    def kept_size(self) -> int:
        """Bytes of them that wait to be read."""
        return sum(map(len, self.texts.values()))


def load(files: ModuleFiles, block_bytes: int = BLOCK_BYTES) -> Loaded:
    """Look through the files of a module, and keep their text unless it is more than a block.

    Raises:
        OSError: a file cannot be read.
    """
    loaded = Loaded(files)
    for kind, file in files.files.items():
        loaded.sizes[kind] = file.size()
    large = sum(loaded.sizes.get(kind, 0) for kind in BUFFER_KINDS) > block_bytes
    loaded.is_large = large and not _is_rewritten(files)
    if large and not loaded.is_large and loaded.size > MOST_REWRITTEN_BYTES:
        raise OSError(errno.EFBIG, _TOO_LARGE)
    for kind, file in files.files.items():
        titles = loaded.titles[kind] = Titles(kind)
        if kind == BEFORE or (loaded.is_large and kind in BUFFER_KINDS):
            digest = xxhash.xxh3_128()
            if kind == BEFORE:
                loaded.before = BeforeOptimizations()
            for _, text in whole_lines(file, 0, loaded.sizes[kind], LOOKED_BYTES):
                digest.update(text)
                titles.feed(text)
                if kind == BEFORE and loaded.before is not None:
                    loaded.before.feed(text)
            loaded.hashes[kind] = digest.hexdigest()
        else:
            text = read_span(file, 0, loaded.sizes[kind])
            loaded.hashes[kind] = xxhash.xxh3_128_hexdigest(text)
            if not is_plain(text[:PASTED_BYTES]):
                text = plain(text)
            if _may_have_prose(file):
                text = without_prose(text)
            if kind != PROTO:
                titles.feed(text)
            loaded.texts[kind] = text
    if PROTO in files.files:
        loaded.derived = _not_in_text(loaded)
        if loaded.derived and loaded.sizes[PROTO] > block_bytes:
            loaded.is_large = not _is_rewritten(files)
    return loaded


_TOO_LARGE = (
    f"it has more than {MOST_REWRITTEN_BYTES >> 20} MiB and is no text as XLA writes it: something "
    "is around it or in front of its lines, or its encoding or layout is another"
)


def _not_in_text(loaded: Loaded) -> frozenset[str]:
    """Kinds of text that a dump's files lack: one file may hold the sections of three."""
    kinds = {kind for kind in ("hlo", *BUFFER_KINDS) if kind in loaded.files.files}
    for kind in kinds & set(BUFFER_KINDS):
        found = cut(loaded.titles[kind])
        spans = (found.allocations, found.used_values, found.live_ranges)
        kinds |= {k for k, span in zip(BUFFER_KINDS, spans, strict=True) if span[1]}
    return frozenset({"hlo", *BUFFER_KINDS} - kinds)


def _is_rewritten(files: ModuleFiles) -> bool:
    """Whether a text is made plain, or is in a layout of 2019, which goes by whole texts."""
    for kind, file in files.files.items():
        if kind not in BUFFER_KINDS:
            continue
        size = file.size()
        head = read_span(file, 0, min(size, LOOK_BYTES))
        if not is_plain(head[:PASTED_BYTES]) or layout_2019.is_block_layout(head):
            return True
        if _may_have_prose(file):
            tail = read_span(file, max(0, size - PASTED_BYTES), size)
            if has_prose(head[:PASTED_BYTES] + tail):
                return True
    return False


def _may_have_prose(file: DumpFile) -> bool:
    """Whether a person may have written around a dump: what XLA names, and frames, are its own."""
    is_whole = file.start == 0 and file.stop < 0
    return file.kind in BUFFER_KINDS and is_whole and not bears_dump_name(base_name(file.name))


def read_span(file: DumpFile, start: int, stop: int) -> bytes:
    """The bytes of a dump file from one position of it to another.

    Raises:
        OSError: it cannot be read, or has fewer bytes by now.
    """
    return b"".join(chunks(file, start, stop, stop - start))


def chunks(file: DumpFile, start: int, stop: int, size: int) -> Iterator[bytes]:
    """The same in pieces of at most a size."""
    with open_file(file.path) as stream:
        stream.seek(file.start + start)
        while start < stop:
            text = stream.read(min(size, stop - start))
            if not text:
                raise _shorter()
            start += len(text)
            yield text


def _shorter() -> OSError:
    return OSError(errno.ESTALE, "it became shorter while it was read")


def whole_lines(file: DumpFile, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Text of about a size with its position, each but the last one ending with a line end.

    Raises:
        OSError: it cannot be read, has fewer bytes by now, or a line longer than any of XLA's.
    """
    buffer, held = bytearray(min(size, stop - start)), 0
    with open_file(file.path) as stream:
        stream.seek(file.start + start)
        left = stop - start
        while left:
            if held == len(buffer):
                if held >= MOST_LINE_BYTES:
                    most = f"it has a line of more than {MOST_LINE_BYTES >> 20} MiB"
                    raise OSError(errno.EFBIG, most)
                buffer += bytes(held)
            with memoryview(buffer) as room:
                count = stream.readinto(room[held : held + left])
            if not count:
                raise _shorter()
            left -= count
            end = buffer.rfind(b"\n", held, held + count) + 1 if left else held + count
            held += count
            if end:
                with memoryview(buffer) as room:
                    yield start, bytes(room[:end])
                start += end
                held -= end
                buffer[:held] = buffer[end : end + held]


@dataclass(frozen=True)
class Window:
    """Whole lines of a file among the bytes that stand around them."""

    at: int
    """Where the lines begin, in the file."""
    data: bytes
    span: tuple[int, int]
    """Where they stand in the data."""


def windows(file: DumpFile, start: int, stop: int, size: int) -> Iterator[Window]:
    """The same text with what stands above and below it, so that a block may begin above it.

    Then nobody copies it. For files in which to seek costs nothing.
    """
    with open_file(file.path) as stream:
        most = size
        while start < stop:
            above, wanted = min(ABOVE_BYTES, start), min(most, stop - start)
            stream.seek(file.start + start - above)
            data = stream.read(above + wanted + BELOW_BYTES)
            end = above + wanted
            if len(data) < end:
                raise _shorter()
            if start + wanted < stop:
                end = data.rfind(b"\n", above, end) + 1
            if end:
                yield Window(start, data, (above, end))
                start += end - above
            most = size if end else 2 * most


def dumped_at(files: ModuleFiles) -> float:
    """Seconds since 1970 of the earliest file, by the name's time stamp if it has one; else inf."""
    if files.name.dump_time_us is not None:
        return files.name.dump_time_us / 1e6
    times = (file.path.stat().st_mtime for file in files.files.values())
    return min((time for time in times if time), default=math.inf)
