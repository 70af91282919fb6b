"""One file of a module as the readers want it."""

from __future__ import annotations

import codecs
import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bufdb.columnar.account import UNREAD, Account
from bufdb.columnar.section import Piece
from bufdb.dumps.files import BUFFER_KINDS, MESSAGE_KIND
from bufdb.dumps.load import Loaded, Window, chunks, read_span, whole_lines, windows
from bufdb.read.boundaries import BOM, Span

_NOT_AVAILABLE = b"HloLiveRange not available (finalized or constructed from proto)"
"""The one text that XLA writes without a line end."""


class DumpText:
    """One file of a module as the readers want it: plain line ends, UTF-8, whole lines alone."""

    def __init__(self, module: int, loaded: Loaded, kind: str, account: Account) -> None:
        self.module, self.kind, self.account = module, kind, account
        self.file, self.titles = loaded.file(kind), loaded.titles[kind]
        self.whole = loaded.texts.get(kind)
        self.path = f"{self.file.name}#{kind}" if kind in loaded.derived else self.file.name
        """Of derived text the proto's, with the kind."""
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
        """What stands behind the last line end."""
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
        """The lines from one position to another, which are line starts or the end."""
        if text is None:
            assert self.whole is not None, "a large file is read in rounds"
            text = self.whole[start:stop]
        before = functools.partial(self.lines_before, start)
        return Piece(self.module, self.path, self._plain(text, start), before, begins=begins)

    def rounds(self, span: Span, block_bytes: int) -> Iterator[Piece]:
        """The pieces of a section."""
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
        """The lines of a window where they stand, if they need no change."""
        at, (begin, end) = window.at, window.span
        if not window.data.isascii():
            return self.piece(at, at + end - begin, begins, window.data[begin:end])
        before = functools.partial(self.lines_before, at)
        return Piece(self.module, self.path, window.data, before, begins=begins, span=window.span)

    def lines_before(self, at: int) -> int:
        """Number of lines above a position; cheap if positions ascend."""
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
        found = [(number, message) for number in numbers[:51]]
        self.account.unread(self.module, self.path, found, len(numbers), "invalid_utf8")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


_QUESTION = "bufdb_question"
codecs.register_error(_QUESTION, lambda error: ("?", getattr(error, "end", 0)))
