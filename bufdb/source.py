"""Batches of dump files as the sections that the assembly reads.

Many small modules are read whole and go through the readers end to end, in one round. A large
module is a batch of its own and goes through in rounds of a block each, so that memory does not
grow with the file.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import xxhash

from bufdb.assemble import Rounds
from bufdb.discover import BUFFER_KINDS, DumpFile, ModuleFiles, open_file
from bufdb.read import block_layout, hlo, options
from bufdb.read.cut import TOTAL, USED, Cut, Span, cut, cut_part, live_start
from bufdb.read.section import Finding, Piece

BLOCK_BYTES = 10 << 20
"""Text of small modules read per round. Measured on 1,000 modules of 1 MB: 6 MB costs 12 % more CPU
in fixed cost per round, 32 MB 10 % in page faults."""
LARGE_BLOCK_BYTES = 6 << 20
"""Text of a large module read per round: 10 MB saves no CPU there and costs 60 MB of memory."""


@dataclass
class Loaded:
    """A module's files with their hashes, and their text if it is small."""

    files: ModuleFiles
    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    is_large: bool = False

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(self.sizes.values())


def load(files: ModuleFiles, block_bytes: int = BLOCK_BYTES) -> Loaded:
    """Hash the files of a module, and keep their text unless it is more than a block.

    Raises:
        OSError: a file cannot be read.
    """
    loaded = Loaded(files)
    for kind, file in files.files.items():
        loaded.sizes[kind] = file.size()
    large = sum(loaded.sizes.get(kind, 0) for kind in BUFFER_KINDS) > block_bytes
    loaded.is_large = large and not _is_rewritten(files)
    for kind, file in files.files.items():
        if loaded.is_large and kind in BUFFER_KINDS:
            loaded.hashes[kind] = _hash(file)
        else:
            text = read_span(file, 0, loaded.sizes[kind])
            loaded.hashes[kind] = xxhash.xxh3_128_hexdigest(text)
            loaded.texts[kind] = text
    return loaded


def _is_rewritten(files: ModuleFiles) -> bool:
    """Whether the text is in a layout of 2019, which is rewritten as a whole."""
    file = files.files.get("buffer_assignment")
    return file is not None and block_layout.is_block_layout(
        read_span(file, 0, min(file.size(), 1 << 16))
    )


def read_span(file: DumpFile, start: int, stop: int) -> bytes:
    """The bytes of a dump file from one position of it to another.

    Raises:
        OSError: it cannot be read, or has fewer bytes by now.
    """
    return b"".join(_chunks(file, start, stop, stop - start))


def _hash(file: DumpFile) -> str:
    digest = xxhash.xxh3_128()
    for text in _chunks(file, 0, file.size(), 1 << 20):
        digest.update(text)
    return digest.hexdigest()


def _chunks(file: DumpFile, start: int, stop: int, size: int) -> Iterator[bytes]:
    with open_file(file.path) as stream:
        stream.seek(file.start + start)
        while start < stop:
            text = stream.read(min(size, stop - start))
            if not text:
                raise OSError(errno.ESTALE, "it became shorter while it was read")
            start += len(text)
            yield text


class Batch:
    """Small modules, whole; or the one large module of `LargeModule`."""

    def __init__(self, modules: list[Loaded]) -> None:
        self.modules = modules
        self.count = len(modules)
        self.headers: dict[int, hlo.HloHeader] = {}
        self.options: dict[int, list[tuple[str, str]]] = {}
        self.findings: list[Finding] = []
        self.has_block_layout: set[int] = set()
        self._allocations: list[Piece] = []
        self._used_values: list[Piece] = []
        self._live_ranges: list[Piece] = []
        for number, loaded in enumerate(modules):
            self._companions(number, loaded)
            self._sections(number, loaded)

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
        for number, loaded in enumerate(self.modules):
            text = loaded.texts.get("hlo")
            if text is not None:
                file = loaded.files.files["hlo"]
                begin = hlo.header_end(text)
                before = functools.partial(text.count, b"\n", 0, begin)
                yield [
                    Piece(number, file.name, self._valid(number, file.name, text[begin:]), before)
                ]

    def find(
        self,
        module: int,
        severity: str,
        code: str,
        message: str,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        """Report something about a module or one of its files."""
        self.findings.append(Finding(module, severity, code, message, path, line))

    def _companions(self, number: int, loaded: Loaded) -> None:
        text = loaded.texts.get("hlo")
        if text is not None:
            name = loaded.files.files["hlo"].name
            header = hlo.read(self._valid(number, name, text[: hlo.header_end(text)]))
            self.headers[number] = header
            for line, message in header.problems:
                self.find(number, "data_loss", "unreadable_line", message, name, line)
        text = loaded.texts.get("debug_options")
        if text is not None:
            self.options[number], problems = options.read(text)
            name = loaded.files.files["debug_options"].name
            for line, message in problems:
                self.find(number, "data_loss", "unreadable_line", message, name, line)

    def _sections(self, number: int, loaded: Loaded) -> None:
        for kind in BUFFER_KINDS:
            file = loaded.files.files.get(kind)
            if file is None or kind not in loaded.texts:
                continue
            text = self._valid(number, file.name, loaded.texts[kind])
            found = cut_part(text, len(text), kind) or cut(text)
            if not (found.allocations[1] or found.used_values[1] or found.live_ranges[1]):
                self._nothing(number, file.name, kind, text)
                continue
            self._check_end(number, file.name, text[-64:])
            start, stop = found.allocations
            if stop and block_layout.is_block_layout(text[start:stop]):
                self._block_layout(number, file.name, text[start:stop])
            else:
                self._add(self._allocations, number, file.name, text, found.allocations)
            self._add(self._used_values, number, file.name, text, found.used_values)
            self._add(self._live_ranges, number, file.name, text, found.live_ranges)

    def _nothing(self, number: int, name: str, kind: str, text: bytes) -> None:
        what = "is empty" if not text.strip() else "holds no section of a buffer assignment"
        self.find(number, "data_loss", "unreadable_file", f"the {kind} file {what}", name)

    def _check_end(self, number: int, name: str, tail: bytes) -> None:
        """XLA ends every section with a line end, but for the one line of no live ranges."""
        if not tail.endswith((b"\n", b"proto)")):
            message = "the file ends within a line; what was cut off is missing"
            self.find(number, "data_loss", "truncated_file", message, name)

    def _add(self, pieces: list[Piece], number: int, name: str, text: bytes, span: Span) -> None:
        start, stop = span
        if stop > start:
            whole = text if (start, stop) == (0, len(text)) else text[start:stop]
            before = functools.partial(text.count, b"\n", 0, start)
            pieces.append(Piece(number, name, whole, before))

    def _block_layout(self, number: int, name: str, text: bytes) -> None:
        """Allocations of 2019, rewritten into the later layout."""
        self.has_block_layout.add(number)
        later = block_layout.rewrite(text if text.endswith(b"\n") else text + b"\n")
        for pieces, lines, numbers in (
            (self._allocations, later.allocations, later.allocation_lines),
            (self._used_values, later.used_values, later.used_lines),
        ):
            if lines:
                rewritten = b"\n".join([*lines, b""])
                pieces.append(Piece(number, name, rewritten, line_numbers=numbers))

    def _valid(
        self, number: int, name: str, text: bytes, before: Callable[[], int] = lambda: 0
    ) -> bytes:
        """The text with line ends of one byte and without bytes that are no UTF-8."""
        end = text.find(b"\n", 0, 4096)
        if end > 0 and text[end - 1 : end] == b"\r":
            text = text.replace(b"\r\n", b"\n")
        if text.isascii():
            return text
        try:
            text.decode()
            return text
        except UnicodeDecodeError as error:
            line = before() + text.count(b"\n", 0, error.start) + 1
        message = "bytes that are not UTF-8 were replaced by '?' from here on"
        self.find(number, "data_loss", "invalid_utf8", message, name, line)
        return text.decode("utf-8", "replace").replace("\ufffd", "?").encode()


class LargeModule(Batch):
    """One module in rounds of a block of whole lines."""

    def __init__(self, loaded: Loaded, block_bytes: int = BLOCK_BYTES) -> None:
        self.block_bytes = min(block_bytes, LARGE_BLOCK_BYTES)
        self.spans: list[tuple[DumpFile, Cut]] = []
        super().__init__([loaded])

    def _sections(self, number: int, loaded: Loaded) -> None:
        for kind in BUFFER_KINDS:
            file = loaded.files.files.get(kind)
            if file is None:
                continue
            found = self._cut(file, loaded.sizes[kind], kind)
            if not (found.allocations[1] or found.used_values[1] or found.live_ranges[1]):
                self._nothing(number, file.name, kind, b"?")
            size = loaded.sizes[kind]
            self._check_end(number, file.name, read_span(file, max(0, size - 64), size))
            self.spans.append((file, found))

    def _cut(self, file: DumpFile, size: int, kind: str) -> Cut:
        """The sections of a file too large to hold: searched from both ends."""
        head = read_span(file, 0, min(size, 4096))
        if (part := cut_part(head, size, kind)) is not None:
            return part
        live = self._last_title(file, size)
        end = size if live < 0 else live
        starts_here = b"BufferAssignment:" in head
        used = self._first_total(file, end)
        assignment = (0, end if used < 0 else used) if starts_here else (0, 0)
        return Cut(
            assignment,
            (0, 0) if used < 0 else (used, end),
            (0, 0) if live < 0 else (live, size),
        )

    def _last_title(self, file: DumpFile, size: int) -> int:
        step, overlap, stop = 4 << 20, 128, size
        while stop > 0:
            start = max(0, stop - step)
            text = read_span(file, start, min(size, stop + overlap))
            found = live_start(text)
            if found > 0 or (found == 0 and (start == 0 or text[:1] != b"H")):
                return start + found
            if found == 0 and read_span(file, start - 1, start) == b"\n":
                return start
            stop = start
        return -1

    def _first_total(self, file: DumpFile, end: int) -> int:
        at, tail = 0, b"\n"
        for text in _chunks(file, 0, end, 1 << 20):
            joined = tail + text
            places = [p for p in (joined.find(b"\n" + TOTAL), joined.find(b"\n" + USED)) if p >= 0]
            if places:
                return at - len(tail) + min(places) + 1
            at += len(text)
            tail = joined[-64:]
        return -1

    def _rounds(self, section: str) -> Rounds:
        for file, found in self.spans:
            start, stop = getattr(found, section)
            at, rest = start, b""
            for text in _chunks(file, start, stop, self.block_bytes):
                whole = rest + text
                last = whole.rfind(b"\n") + 1
                if last:
                    yield [self._piece(file, at, whole[:last])]
                    at += last
                rest = whole[last:]
            if rest:
                yield [self._piece(file, at, rest)]

    def _piece(self, file: DumpFile, at: int, text: bytes) -> Piece:
        before = functools.partial(_lines_before, file, at)
        if not text.isascii():
            text = self._valid(0, file.name, text, before)
        return Piece(0, file.name, text, before)

    def allocations(self) -> Rounds:
        """Allocation section, in rounds."""
        return self._rounds("allocations")

    def used_values(self) -> Rounds:
        """Totals and used values, in rounds."""
        return self._rounds("used_values")

    def live_ranges(self) -> Rounds:
        """Live ranges in rounds; the printed peak and its tree come in one, being one list each."""
        rest: list[Piece] = []
        for pieces in self._rounds("live_ranges"):
            piece = pieces[0]
            if rest:
                rest.append(piece)
                continue
            place = _peak_start(piece.text)
            if place < 0:
                yield pieces
                continue
            if place:
                yield [Piece(0, piece.path, piece.text[:place], piece.lines_before)]
            above = functools.partial(_lines_above, piece, place)
            rest.append(Piece(0, piece.path, piece.text[place:], above))
        if rest:
            yield [Piece(0, rest[0].path, b"".join(p.text for p in rest), rest[0].lines_before)]


def _peak_start(text: bytes) -> int:
    places = [text.find(title) for title in (b"  Live ranges at ", b"  Peak memory could not")]
    found = [p for p in places if p == 0 or (p > 0 and text[p - 1 : p] == b"\n")]
    return min(found, default=-1)


def _lines_above(piece: Piece, place: int) -> int:
    """Number of lines above a place in a piece, in its file."""
    return piece.lines_before() + piece.text.count(b"\n", 0, place)


def _lines_before(file: DumpFile, at: int) -> int:
    return sum(text.count(b"\n") for text in _chunks(file, 0, at, 1 << 20))


def dumped_at(files: ModuleFiles) -> float:
    """Seconds since 1970 of the earliest file, by the name's time stamp if it has one."""
    if files.name.dump_time_us is not None:
        return files.name.dump_time_us / 1e6
    return min(file.path.stat().st_mtime for file in files.files.values())
