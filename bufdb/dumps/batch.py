"""Batches of dump files as the sections that the assembly reads.

Many small modules are read whole and go through the readers end to end, in one round. A large
module is a batch of its own and goes through in rounds of a block each, so that memory does not
grow with the file.
"""

from __future__ import annotations

import codecs
import errno
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import xxhash

from bufdb.columnar.account import READ, UNREAD, Account
from bufdb.columnar.section import Piece, Rounds
from bufdb.dumps.discover import BUFFER_KINDS, DumpFile, ModuleFiles, open_file
from bufdb.read import debug_options, hlo, layout_2019
from bufdb.read.boundaries import BOM, Span, Titles, cut

BLOCK_BYTES = 10 << 20
"""Text of small modules read per round. Measured on 1,000 modules of 1 MB: 6 MB costs 12 % more CPU
in fixed cost per round, 32 MB 10 % in page faults."""
LARGE_BLOCK_BYTES = 6 << 20
"""Text of a large module read per round: 10 MB saves no CPU there and costs 60 MB of memory."""


_NOT_AVAILABLE = b"HloLiveRange not available (finalized or constructed from proto)"
"""The one text that XLA writes without a line end."""
_LOOK_BYTES = 1 << 16
"""The beginning of a file that tells a layout of 2019."""


@dataclass
class Loaded:
    """A module's files with their hashes, and their text if it is small."""

    files: ModuleFiles
    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    titles: dict[str, Titles] = field(default_factory=dict)
    is_large: bool = False

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(self.sizes.values())


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
    for kind, file in files.files.items():
        titles = loaded.titles[kind] = Titles(kind)
        if loaded.is_large and kind in BUFFER_KINDS:
            digest = xxhash.xxh3_128()
            for _, text in _whole_lines(file, 0, loaded.sizes[kind], 1 << 20):
                digest.update(text)
                titles.feed(text)
            loaded.hashes[kind] = digest.hexdigest()
        else:
            text = read_span(file, 0, loaded.sizes[kind])
            titles.feed(text)
            loaded.hashes[kind] = xxhash.xxh3_128_hexdigest(text)
            loaded.texts[kind] = text
    return loaded


def _is_rewritten(files: ModuleFiles) -> bool:
    """Whether a text is in a layout of 2019, which is rewritten as a whole."""
    return any(
        layout_2019.is_block_layout(read_span(file, 0, min(file.size(), _LOOK_BYTES)))
        for kind, file in files.files.items()
        if kind in BUFFER_KINDS
    )


def read_span(file: DumpFile, start: int, stop: int) -> bytes:
    """The bytes of a dump file from one position of it to another.

    Raises:
        OSError: it cannot be read, or has fewer bytes by now.
    """
    return b"".join(_chunks(file, start, stop, stop - start))


def _chunks(file: DumpFile, start: int, stop: int, size: int) -> Iterator[bytes]:
    with open_file(file.path) as stream:
        stream.seek(file.start + start)
        while start < stop:
            text = stream.read(min(size, stop - start))
            if not text:
                raise OSError(errno.ESTALE, "it became shorter while it was read")
            start += len(text)
            yield text


def _whole_lines(file: DumpFile, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Text of about a size with its position, each but the last one ending with a line end."""
    parts: list[bytes] = []
    for text in _chunks(file, start, stop, size):
        end = text.rfind(b"\n") + 1
        if not end:
            parts.append(text)
            continue
        whole = b"".join([*parts, text[:end]])
        yield start, whole
        start += len(whole)
        parts = [text[end:]] if end < len(text) else []
    if parts:
        yield start, b"".join(parts)


class _Text:
    """One file of a module as the readers want it: plain line ends, UTF-8, whole lines alone."""

    def __init__(self, module: int, loaded: Loaded, kind: str, account: Account) -> None:
        self.module, self.kind, self.account = module, kind, account
        self.file, self.titles = loaded.files.files[kind], loaded.titles[kind]
        self.whole = loaded.texts.get(kind)
        self.path = self.file.name
        self.size = self.titles.size
        """Bytes of whole lines."""
        self._counted = (0, 0)
        """A position and the number of lines above it."""
        self._told: list[tuple[int, int]] = []
        """Spans whose invalid bytes were reported."""
        last = self._last_line()
        lines = self.titles.line_count + bool(last)
        account.open(module, self.path, lines, rest_is_known=kind not in BUFFER_KINDS)
        if last and last not in (_NOT_AVAILABLE, b"}"):
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
        for at, text in _whole_lines(self.file, start, stop, block_bytes):
            yield self.piece(at, at + len(text), at == start, text)

    def lines_before(self, at: int) -> int:
        """Number of lines above a position; cheap if positions ascend."""
        known, lines = self._counted if self._counted[0] <= at else (0, 0)
        if self.whole is not None:
            lines += self.whole.count(b"\n", known, at)
        else:
            lines += sum(text.count(b"\n") for text in _chunks(self.file, known, at, 1 << 20))
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
            if not any(start <= at and end <= stop for start, stop in self._told):
                self._told.append((at, end))
                self._tell_invalid(text, at)
            return text.decode("utf-8", _QUESTION).encode()
        return text

    def _tell_invalid(self, text: bytes, at: int) -> None:
        """Report lines with bytes that are no UTF-8."""
        lines = enumerate(text.split(b"\n"), self.lines_before(at) + 1)
        numbers = [number for number, line in lines if not _is_utf8(line)]
        message = "bytes that are not UTF-8 were replaced by '?'"
        told = [(number, message) for number in numbers[:51]]
        self.account.unread(self.module, self.path, told, len(numbers), "invalid_utf8")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


_QUESTION = "bufdb_question"
codecs.register_error(_QUESTION, lambda error: ("?", getattr(error, "end", 0)))


class Batch:
    """Small modules, whole; or the one large module of `LargeModule`."""

    def __init__(self, modules: list[Loaded]) -> None:
        self.modules = modules
        self.count = len(modules)
        self.account = Account()
        self.headers: dict[int, hlo.HloHeader] = {}
        self.options: dict[int, list[tuple[str, str]]] = {}
        self.has_block_layout: set[int] = set()
        self.one_file: set[int] = set()
        """Modules of which one file holds used values or live ranges behind the allocations."""
        self._hlo: list[tuple[_Text, int]] = []
        self._allocations: list[Piece] = []
        self._used_values: list[Piece] = []
        self._live_ranges: list[Piece] = []
        for number, loaded in enumerate(modules):
            self._companions(number, loaded)
            for kind in BUFFER_KINDS:
                if kind in loaded.files.files:
                    self._sections(number, loaded, _Text(number, loaded, kind, self.account))

    def allocations(self) -> Rounds:
        """Allocation sections."""
        return iter([self._allocations] if self._allocations else [])

    def used_values(self) -> Rounds:
        """Sections of totals and used values."""
        return iter([self._used_values] if self._used_values else [])

    def live_ranges(self) -> Rounds:
        """Live-range sections."""
        return iter([self._live_ranges] if self._live_ranges else [])

    def hlo(self) -> Rounds:
        """Computations of the HLO texts."""
        for text, begin in self._hlo:
            yield [text.piece(begin, text.size)]

    def _companions(self, number: int, loaded: Loaded) -> None:
        if "hlo" in loaded.texts:
            text = _Text(number, loaded, "hlo", self.account)
            self._header(number, text)
        if "debug_options" in loaded.texts:
            text = _Text(number, loaded, "debug_options", self.account)
            found, problems = debug_options.read(text.piece(0, text.size).text)
            self.options[number] = found
            self._tell(text, len(found), problems)

    def _header(self, number: int, text: _Text) -> None:
        """What stands above the computations; where they begin; whether they end."""
        assert text.whole is not None, "a companion is read whole"
        plain = text.piece(0, text.size).text
        above = hlo.header_end(plain)
        lines = plain.count(b"\n", 0, above)
        begin = 0
        for _ in range(lines):
            begin = text.whole.find(b"\n", begin) + 1
        if not plain:
            self.headers[number] = hlo.HloHeader()
            if not text.titles.size:
                self.account.find(number, "data_loss", "empty_file", "it is empty", text.path)
            return
        header = self.headers[number] = hlo.read(plain[:above])
        self._tell(text, header.read_count, header.problems)
        if not plain.rstrip().endswith(b"}"):
            message = "the HLO text does not end with the end of a computation; it was cut off"
            self.account.find(number, "data_loss", "truncated_hlo_text", message, text.path)
        self._hlo.append((text, begin))

    def _tell(self, text: _Text, read_count: int, problems: list[tuple[int, str]]) -> None:
        states = [READ] * read_count + [UNREAD] * len(problems)
        self.account.count(text.module, text.path, np.array(states, np.uint8))
        if problems:
            self.account.unread(text.module, text.path, problems[:51], len(problems))

    def _sections(self, number: int, loaded: Loaded, text: _Text) -> None:
        found = cut(text.titles)
        if found.is_empty:
            self._nothing(number, text)
            return
        if found.allocations[1] and (found.used_values[1] or found.live_ranges[1]):
            self.one_file.add(number)
        self._read(number, text, found.allocations, found.used_values, found.live_ranges)

    def _read(self, number: int, text: _Text, *spans: Span) -> None:
        """Keep the sections, given in the order of their sources."""
        targets = (self._allocations, self._used_values, self._live_ranges)
        for target, (start, stop) in zip(targets, spans, strict=True):
            stop = min(stop, text.size)
            if stop <= start:
                continue
            piece = text.piece(start, stop)
            assert text.whole is not None, "a small file is read whole"
            if target is self._allocations and layout_2019.is_block_layout(
                text.whole[:_LOOK_BYTES]
            ):
                self._block_layout(piece)
            else:
                target.append(piece)

    def _nothing(self, number: int, text: _Text) -> None:
        lines = text.account.tallies[number, text.path]
        left = lines.line_count - lines.unread_count
        if not text.titles.size:
            message = f"the {text.kind} file is empty"
            self.account.find(number, "data_loss", "empty_file", message, text.path)
            return
        message = f"the {text.kind} file holds no section of a buffer assignment"
        self.account.find(number, "data_loss", "unreadable_file", message, text.path)
        self.account.count(number, text.path, np.full(left, UNREAD, np.uint8))

    def _block_layout(self, piece: Piece) -> None:
        """Allocations of 2019, rewritten into the later layout."""
        self.has_block_layout.add(piece.module)
        text = piece.text
        later = layout_2019.rewrite(text if text.endswith(b"\n") else text + b"\n")
        for pieces, lines, numbers in (
            (self._allocations, later.allocations, later.allocation_lines),
            (self._used_values, later.used_values, later.used_lines),
        ):
            if lines:
                rewritten = b"\n".join([*lines, b""])
                pieces.append(Piece(piece.module, piece.path, rewritten, line_numbers=numbers))


class LargeModule(Batch):
    """One module in rounds of a block of whole lines."""

    def __init__(self, loaded: Loaded, block_bytes: int = BLOCK_BYTES) -> None:
        self.block_bytes = min(block_bytes, LARGE_BLOCK_BYTES)
        self._spans: tuple[list[tuple[_Text, Span]], ...] = ([], [], [])
        super().__init__([loaded])

    def _read(self, number: int, text: _Text, *spans: Span) -> None:
        for some, span in zip(self._spans, spans, strict=True):
            if min(span[1], text.size) > span[0]:
                some.append((text, span))

    def _rounds(self, section: int) -> Iterator[Piece]:
        for text, span in self._spans[section]:
            yield from text.rounds(span, self.block_bytes)

    def allocations(self) -> Rounds:
        """Allocation section, in rounds."""
        return ([piece] for piece in self._rounds(0))

    def used_values(self) -> Rounds:
        """Totals and used values, in rounds."""
        return ([piece] for piece in self._rounds(1))

    def live_ranges(self) -> Rounds:
        """Live ranges in rounds; the printed peak and its tree come in one, being one list each."""
        rest: list[Piece] = []
        for piece in self._rounds(2):
            if piece.begins and rest:
                yield [_joined(rest)]
                rest = []
            if rest:
                rest.append(piece)
                continue
            place = _peak_start(piece.text)
            if place < 0:
                yield [piece]
                continue
            if place:
                yield [replace(piece, text=piece.text[:place])]
            above = functools.partial(_lines_above, piece, place)
            begins = piece.begins and place == 0
            rest.append(Piece(0, piece.path, piece.text[place:], above, begins=begins))
        if rest:
            yield [_joined(rest)]


def _joined(pieces: list[Piece]) -> Piece:
    return replace(pieces[0], text=b"".join(piece.text for piece in pieces))


_BEHIND_RANGES = re.compile(
    rb"^  (?:Live ranges at |Peak memory could not |Stack trace breakdown for )", re.MULTILINE
)


def _peak_start(text: bytes) -> int:
    """Where the peak listing or its tree may begin, or -1."""
    found = _BEHIND_RANGES.search(text)
    return found.start() if found else -1


def _lines_above(piece: Piece, place: int) -> int:
    """Number of lines above a place in a piece, in its file."""
    return piece.lines_before() + piece.text.count(b"\n", 0, place)


def dumped_at(files: ModuleFiles) -> float:
    """Seconds since 1970 of the earliest file, by the name's time stamp if it has one."""
    if files.name.dump_time_us is not None:
        return files.name.dump_time_us / 1e6
    return min(file.path.stat().st_mtime for file in files.files.values())
