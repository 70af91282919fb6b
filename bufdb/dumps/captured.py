"""Contents of a log: dump files framed by lines that XLA prints, out-of-memory messages."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path

from bufdb.dumps.files import (
    BEFORE,
    MESSAGE_KIND,
    PARTS,
    DumpFile,
    open_file,
)
from bufdb.dumps.load import read_span
from bufdb.dumps.pasted import LOOK_BYTES, decoded, encoding_of
from bufdb.dumps.place import Bytes, Place
from bufdb.read import oom_text

FRAME = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\n", re.MULTILINE)
MARK = re.compile(
    rb"^\*\*\* (?P<what>Begin) (?P<name>.+?) \*\*\*\n|\*\*\* (?P<end>End) (?P<ended>.+?) \*\*\*",
    re.MULTILINE,
)
WINDOW_BYTES = 32 << 20
"""Text of a log that is read at once; a message is shorter."""
_PIECE_BYTES, _OVERLAP_BYTES = 1 << 20, 1 << 13
"""Text scanned at once, and how much of it is scanned again: a title is shorter."""
CAPTURED = (".txt", ".log", ".out", ".err", ".html", ".htm", ".md", ".json", ".jsonl", "")


def parts_of(path: Path | Place, name: str) -> Iterator[DumpFile]:
    """Yield the dump files in a log; without any the out-of-memory messages.

    However large the log, no more than some WINDOW_BYTES are in memory.

    Raises:
        OSError: it cannot be read, or is too large to be converted to UTF-8.
    """
    with open_file(path) as file:
        text = _read(file, WINDOW_BYTES + 1)
    is_whole = len(text) <= WINDOW_BYTES
    if encoding_of(text[:LOOK_BYTES]) is not None:
        if not is_whole:
            raise OSError(errno.EFBIG, "it is a large text in UTF-16; convert it to UTF-8 first")
        text = decoded(text)
        path = Bytes(path.name, text)
    if is_whole:
        parts = list(_frames(name, path, _marks([(0, text)]), len(text)))
        windows: Iterable[tuple[int, bytes]] = [(0, text)]
    else:
        del text
        titles: list[int] = []
        with open_file(path) as file:
            marks = list(_marks(_overlapping(file), titles))
        whole = DumpFile(path, name, MESSAGE_KIND)
        parts = list(_frames(name, path, marks, whole.size()))
        windows = _windows(whole, titles)
    yield from parts or _messages(path, name, windows)


def _read(file: RawIOBase, size: int) -> bytes:
    """Read so many bytes, or what there is to the end: a stream may give fewer at a time."""
    parts: list[bytes] = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _overlapping(file: RawIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a file, and where they begin; each begins with the end of the one before."""
    start, tail = 0, b""
    while chunk := _read(file, _PIECE_BYTES):
        piece = tail + chunk
        yield start, piece
        tail = piece[-_OVERLAP_BYTES:]
        start += len(piece) - len(tail)


def _marks(
    pieces: Iterable[tuple[int, bytes]], titles: list[int] | None = None
) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Yield what frames a dump file: Begin or End, its name, and where that begins and ends.

    `titles` takes the first title of a message, and the first beyond each window that it begins.
    """
    done = 0
    for start, piece in pieces:
        # A piece that begins within a line begins no line; what ends it is seen with the next.
        marks = MARK.finditer(piece, 1 if start else 0) if b"*** " in piece else ()
        for match in marks:
            if start + match.start() >= done:
                done = start + match.end()
                what, name = match["what"] or match["end"], match["name"] or match["ended"]
                yield what, name, start + match.start(), done
        if titles is None:
            continue
        for title in oom_text.TITLES.finditer(piece):
            line = piece.rfind(b"\n", 0, title.start()) + 1
            if not titles or start + title.start() >= titles[-1] + WINDOW_BYTES:
                titles.append(start + line)


def _frames(
    name: str,
    path: Path | Place,
    marks: Iterable[tuple[bytes, bytes, int, int]],
    size: int,
) -> Iterator[DumpFile]:
    """Yield the dump files; each frame's content ends with one line end too many."""
    begun: dict[bytes, list[int]] = {}
    spans: list[tuple[int, int, bytes]] = []
    for what, inner, start, stop in marks:
        if what == b"Begin":
            begun.setdefault(inner, []).append(stop)
        else:
            spans += [(at, max(at, start - 1), inner) for at in begun.pop(inner, ())]
    spans += [(at, size, inner) for inner, places in begun.items() for at in places]
    for start, stop, raw in sorted(spans):
        inner_name = raw.decode(errors="replace")
        framed = f"{name}/{inner_name}"
        for suffix, kind in PARTS.items():
            if inner_name.endswith(suffix):
                yield DumpFile(path, framed, kind, start, stop)
                break
        else:
            for ending, kind in (("after_optimizations", "hlo"), (f".{BEFORE}", BEFORE)):
                if inner_name.endswith(f"{ending}.txt"):
                    yield DumpFile(path, framed, kind, start, stop)


def _windows(log: DumpFile, titles: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield where each of these titles begins, and the text from there on."""
    size = log.size()
    for start in titles:
        yield start, read_span(log, start, min(start + WINDOW_BYTES, size))


def _messages(
    path: Path | Place, name: str, windows: Iterable[tuple[int, bytes]]
) -> Iterator[DumpFile]:
    """Yield the out-of-memory messages, without those that say no more than another.

    A log has a message twice where the compiler and the exception print it, or several processes.
    """
    for number, (_, where) in enumerate(_different(_placed(path, windows)), 1):
        named = f"{name}/message_{number}"
        if isinstance(where, tuple):
            yield DumpFile(path, named, MESSAGE_KIND, *where)
        else:
            yield DumpFile(where, named, MESSAGE_KIND)


def _placed(
    path: Path | Place, windows: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[oom_text.Found, Place | tuple[int, int]]]:
    """All messages with their places, a window's at a time: each has the numbers of its lines."""
    for base, text in windows:
        if not oom_text.TITLES.search(text):
            continue
        messages = oom_text.read(text.decode("utf-8", "replace"))
        wanted = {
            number for one in messages for number in (one.first, one.last, *(one.lines or ()))
        }
        starts = _starts(text, wanted | {number + 1 for number in wanted})
        for one in messages:
            if one.lines is None:
                yield one, (base + starts[one.first], base + starts[one.last + 1])
            else:
                # Another process wrote between its lines.
                own_lines = b"".join(text[starts[n] : starts[n + 1]] for n in one.lines)
                yield one, Bytes(path.name, own_lines)


def _starts(text: bytes, wanted: set[int]) -> dict[int, int]:
    """Return where lines begin, by their number; the end of the text for the one after the last."""
    starts = {0: 0}
    count = 0
    for count, end in enumerate(re.finditer(b"\n", text), 1):
        if count in wanted:
            starts[count] = end.end()
    return {**starts, count + 1: len(text)}


def _different(
    placed: Iterable[tuple[oom_text.Found, Place | tuple[int, int]]],
) -> list[tuple[oom_text.Found, Place | tuple[int, int]]]:
    """Return messages, each with its place, without those that say no more than another."""
    kept: list[tuple[oom_text.Found, Place | tuple[int, int]]] = []
    for one, where in placed:
        if any(one.message.is_within(other.message) for other, _ in kept):
            continue
        kept = [pair for pair in kept if not pair[0].message.is_within(one.message)]
        kept.append((one, where))
    return kept
