"""Load the files of modules: each scanned once, hashed, and kept if it is small."""

from __future__ import annotations

import codecs
import errno
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

from bufdb.columnar.scan import PAD
from bufdb.columnar.section import UNREAD, Account, Piece
from bufdb.dumps.files import (
    BEFORE,
    BLOCK_BYTES,
    BUFFER_KINDS,
    CODE,
    MESSAGE_KIND,
    PROTO,
    DumpFile,
    ModuleFiles,
    base_name,
    bears_dump_name,
    open_file,
)
from bufdb.dumps.pasted import LOOK_BYTES as PASTED_BYTES
from bufdb.dumps.pasted import has_prose, is_plain, plain, without_prose
from bufdb.read import layout_2019
from bufdb.read.boundaries import BOM, Span, Titles, cut
from bufdb.read.kernels import CompiledCalls
from bufdb.read.other_files import BeforeOptimizations

ABOVE_BYTES = 1 << 16
"""The unread rest of the previous round is seldom larger: the lines of one value."""
BELOW_BYTES = len(PAD)
"""Bytes that a block needs after its last line."""
LOOK_BYTES = 1 << 16
"""The beginning of a file that shows a layout of 2019."""
MOST_LINE_BYTES = 64 << 20
"""Beyond them a line is none of a dump's: it would be in memory several times."""
MOST_REWRITTEN_BYTES = 128 << 20
"""Of a text that is not as XLA writes it today: it is in memory several times."""
LOOKED_BYTES = 1 << 16
"""Text scanned at a time: it stays in the cache. 1 MB takes a third more CPU."""


@dataclass
class Loaded:
    """A module's files with their hashes, and their text if it is small."""

    files: ModuleFiles
    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    originals: dict[str, bytes] = field(default_factory=dict)
    """Texts as they are in their files, where `texts` has them rewritten."""
    titles: dict[str, Titles] = field(default_factory=dict)
    before: BeforeOptimizations | None = None
    """What was kept of the HLO text before optimization, which may be long and is read once."""
    code: CompiledCalls | None = None
    """What was kept of the HLO text after code generation, which is as long."""
    is_large: bool = False
    derived: frozenset[str] = frozenset()
    """Kinds of text that no file has and that are derived from the proto."""

    def file(self, kind: str) -> DumpFile:
        """Return the file that holds a kind of text, or from which it is derived."""
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
    """Scan the files of a module, and keep their text unless it is more than a block.

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
        if kind in (BEFORE, CODE) or (loaded.is_large and kind in BUFFER_KINDS):
            digest = xxhash.xxh3_128()
            kept: BeforeOptimizations | CompiledCalls | None = None
            if kind == BEFORE:
                kept = loaded.before = BeforeOptimizations()
            elif kind == CODE:
                kept = loaded.code = CompiledCalls()
            for _, text in whole_lines(file, 0, loaded.sizes[kind], LOOKED_BYTES):
                digest.update(text)
                titles.feed(text)
                if kept is not None:
                    kept.feed(text)
            loaded.hashes[kind] = digest.hexdigest()
        else:
            text = original = read_span(file, 0, loaded.sizes[kind])
            loaded.hashes[kind] = xxhash.xxh3_128_hexdigest(text)
            if not is_plain(text[:PASTED_BYTES]):
                text = plain(text)
            if _may_have_prose(file):
                text = without_prose(text)
            if kind != PROTO:
                titles.feed(text)
            loaded.texts[kind] = text
            if text is not original:
                loaded.originals[kind] = original
    if PROTO in files.files:
        loaded.derived = _not_in_text(loaded)
        if loaded.derived and loaded.sizes[PROTO] > block_bytes:
            loaded.is_large = not _is_rewritten(files)
    return loaded


_TOO_LARGE = (
    f"it has more than {MOST_REWRITTEN_BYTES >> 20} MiB and is not text as XLA writes it: there is "
    "text around it or before its lines, or its encoding or layout differs"
)


def _not_in_text(loaded: Loaded) -> frozenset[str]:
    """Return kinds of text that a dump's files lack: one file may hold the sections of three."""
    kinds = {kind for kind in ("hlo", *BUFFER_KINDS) if kind in loaded.files.files}
    for kind in kinds & set(BUFFER_KINDS):
        texts = cut(loaded.titles[kind])
        spans = (texts.allocations, texts.used_values, texts.live_ranges)
        kinds |= {k for k, span in zip(BUFFER_KINDS, spans, strict=True) if span[1]}
    return frozenset({"hlo", *BUFFER_KINDS} - kinds)


def _is_rewritten(files: ModuleFiles) -> bool:
    """Return whether a text is made plain, or in a layout of 2019: these need whole texts."""
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
    """Return whether a person may have written around a dump: not if XLA named or framed it."""
    is_whole = file.start == 0 and file.stop < 0
    return file.kind in BUFFER_KINDS and is_whole and not bears_dump_name(base_name(file.name))


def read_span(file: DumpFile, start: int, stop: int) -> bytes:
    """Return the bytes of a dump file from one position of it to another.

    Raises:
        OSError: it cannot be read, or has fewer bytes by now.
    """
    return b"".join(chunks(file, start, stop, stop - start))


def chunks(file: DumpFile, start: int, stop: int, size: int) -> Iterator[bytes]:
    """Yield the same in pieces of at most a size."""
    with open_file(file.path) as stream:
        stream.seek(file.start + start)
        while start < stop:
            text = stream.read(min(size, stop - start))
            if not text:
                raise _shorter()
            start += len(text)
            yield text


def _shorter() -> OSError:
    return OSError(errno.ESTALE, "it shrank while it was read")


def whole_lines(file: DumpFile, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield text of about a size with its position, each but the last one ending with a line end.

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
    """Whole lines of a file among the bytes around them."""

    at: int
    """Where the lines begin, in the file."""
    data: bytes
    span: tuple[int, int]
    """Where they are in the data."""


def windows(file: DumpFile, start: int, stop: int, size: int) -> Iterator[Window]:
    """Yield the same text with what is above and below it, so that a block may begin above it.

    Then no copy is made. For files in which seeking costs nothing.
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
    """Return when the earliest file was written [s since 1970], by its name if possible, or inf."""
    if files.name.dump_time_us is not None:
        return files.name.dump_time_us / 1e6
    times = (file.path.stat().st_mtime for file in files.files.values())
    return min((time for time in times if time), default=math.inf)


# -- One file of a module as the readers want it ---------------------------------------------------

_NOT_AVAILABLE = b"HloLiveRange not available (finalized or constructed from proto)"
"""The one text that XLA writes without a line end."""


class DumpText:
    """One file of a module as the readers want it: plain line ends, UTF-8, whole lines alone."""

    def __init__(self, module: int, loaded: Loaded, kind: str, account: Account) -> None:
        self.module, self.kind, self.account = module, kind, account
        self.file, self.titles = loaded.file(kind), loaded.titles[kind]
        self.whole = loaded.texts.get(kind)
        self.path = f"{self.file.name}#{kind}" if kind in loaded.derived else self.file.name
        """For derived text the proto's name, with the kind."""
        self.size = self.titles.size
        """Bytes of whole lines."""
        self._counted = (0, 0)
        """A position and the number of lines above it."""
        self._reported: list[tuple[int, int]] = []
        """Spans whose invalid bytes were reported."""
        last = self._last_line()
        lines = self.titles.line_count + bool(last)
        account.open(module, self.path, lines, rest_is_known=kind not in BUFFER_KINDS)
        if last and kind != MESSAGE_KIND and last not in (_NOT_AVAILABLE, b"}"):
            self.size -= len(last)
            account.count(module, self.path, np.array([UNREAD], np.uint8))
            message = "the file ends within a line; what was cut off is missing"
            number = self.titles.line_count + 1
            account.unread(module, self.path, [(number, message)], 1, "truncated_file")

    def _last_line(self) -> bytes:
        """Return the text after the last line end."""
        if self.whole is not None:
            return self.whole[self.whole.rfind(b"\n") + 1 :]
        stop = self.size
        parts: list[bytes] = []
        while stop > 0:
            text = read_span(self.file, max(0, stop - 4096), stop)
            end = text.rfind(b"\n") + 1
            parts.append(text[end:])
            if end:
                break
            stop -= len(text)
        return b"".join(reversed(parts))

    def piece(self, start: int, stop: int, begins: bool = True, text: bytes | None = None) -> Piece:
        """Return the lines from one position to another, which are line starts or the end."""
        if text is None:
            assert self.whole is not None, "a large file is read in rounds"
            text = self.whole[start:stop]
        before = functools.partial(self.lines_before, start)
        return Piece(self.module, self.path, self._plain(text, start), before, begins=begins)

    def rounds(self, span: Span, block_bytes: int) -> Iterator[Piece]:
        """Yield the pieces of a section."""
        start, stop = span
        stop = min(stop, self.size)
        if self.whole is not None:
            while start < stop:
                end = self.whole.rfind(b"\n", start, min(start + block_bytes, stop)) + 1
                end = end or self.whole.find(b"\n", start, stop) + 1 or stop
                yield self.piece(start, end, start == span[0])
                start = end
            return
        if self.titles.is_crlf or not isinstance(self.file.path, Path):
            for at, text in whole_lines(self.file, start, stop, block_bytes):
                yield self.piece(at, at + len(text), at == start, text)
            return
        for window in windows(self.file, start, stop, block_bytes):
            yield self._in_window(window, begins=window.at == start)

    def _in_window(self, window: Window, *, begins: bool) -> Piece:
        """Return the lines of a window in place, if they need no change."""
        at, (begin, end) = window.at, window.span
        if not window.data.isascii():
            return self.piece(at, at + end - begin, begins, window.data[begin:end])
        before = functools.partial(self.lines_before, at)
        return Piece(self.module, self.path, window.data, before, begins=begins, span=window.span)

    def lines_before(self, at: int) -> int:
        """Return the number of lines above a position; cheap if positions ascend."""
        known, lines = self._counted if self._counted[0] <= at else (0, 0)
        if self.whole is not None:
            lines += self.whole.count(b"\n", known, at)
        else:
            lines += sum(text.count(b"\n") for text in chunks(self.file, known, at, 1 << 20))
        self._counted = (at, lines)
        return lines

    def _plain(self, text: bytes, at: int) -> bytes:
        end = at + len(text)
        if at == 0:
            text = text.removeprefix(BOM)
        if self.titles.is_crlf:
            text = text.replace(b"\r\n", b"\n")
        if text.isascii():
            return text
        try:
            text.decode()
        except UnicodeDecodeError:
            if not any(start <= at and end <= stop for start, stop in self._reported):
                self._reported.append((at, end))
                self._report_invalid(text, at)
            return text.decode("utf-8", _QUESTION).encode()
        return text

    def _report_invalid(self, text: bytes, at: int) -> None:
        """Report lines with bytes that are no UTF-8."""
        lines = enumerate(text.split(b"\n"), self.lines_before(at) + 1)
        numbers = [number for number, line in lines if not _is_utf8(line)]
        message = "bytes that are not UTF-8 were replaced by '?'"
        messages = [(number, message) for number in numbers[:51]]
        self.account.unread(self.module, self.path, messages, len(numbers), "invalid_utf8")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


_QUESTION = "bufdb_question"
codecs.register_error(_QUESTION, lambda error: ("?", getattr(error, "end", 0)))
