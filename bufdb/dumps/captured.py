"""What a log holds: dump files framed by the lines that XLA prints, out-of-memory messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bufdb.dumps.files import BEFORE, MESSAGE_KIND, PARTS, DumpFile, open_file
from bufdb.dumps.pasted.plain import LOOK_BYTES, decoded, encoding_of
from bufdb.dumps.places.place import Bytes, Place
from bufdb.read.reports import oom_text

FRAME = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\n", re.MULTILINE)
_PIECE = 1 << 26
_OVERLAP = 1 << 13
"""Bytes that two pieces share: no title and no name in a frame is longer."""
CAPTURED = (".txt", ".log", ".out", ".err", ".html", ".htm", ".md", ".json", ".jsonl", "")


def parts_of(path: Path | Place, name: str) -> Iterator[DumpFile]:
    """The dump files in a log; without any the out-of-memory messages."""
    if isinstance(path, Path) and not _may_have_parts(path):
        return
    with open_file(path) as file:
        text = file.read() or b""
    if encoding_of(text[:LOOK_BYTES]) is not None:
        text = decoded(text)
        path = Bytes(path.name, text)
    found = list(_frames(path, name, text))
    yield from found or _messages(path, name, text)


def _may_have_parts(path: Path) -> bool:
    """Whether a file is small, or has the beginning of a part, looked for a piece at a time."""
    with open_file(path) as file:
        piece = file.read(_PIECE) or b""
        if len(piece) < _PIECE or encoding_of(piece[:LOOK_BYTES]) is not None:
            return True
        while piece:
            if oom_text.TITLES.search(piece) or FRAME.search(piece):
                return True
            more = file.read(_PIECE)
            piece = piece[-_OVERLAP:] + more if more else b""
    return False


def _frames(path: Path | Place, name: str, text: bytes) -> Iterator[DumpFile]:
    """Dump files; each frame's content ends with one line end too many."""
    for begin in FRAME.finditer(text):
        inner = begin[1].decode(errors="replace")
        end = text.find(b"*** End " + begin[1] + b" ***", begin.end())
        stop = len(text) if end < 0 else max(begin.end(), end - 1)
        framed = f"{name}/{inner}"
        for suffix, kind in PARTS.items():
            if inner.endswith(suffix):
                yield DumpFile(path, framed, kind, begin.end(), stop)
                break
        else:
            for ending, kind in (("after_optimizations", "hlo"), (f".{BEFORE}", BEFORE)):
                if inner.endswith(f"{ending}.txt"):
                    yield DumpFile(path, framed, kind, begin.end(), stop)


def _messages(path: Path | Place, name: str, text: bytes) -> Iterator[DumpFile]:
    """Out-of-memory messages; one of which another says the same or more is left out.

    A log has a message twice where the compiler and the exception print it, or several processes.
    """
    if not oom_text.TITLES.search(text):
        return
    found = oom_text.read(text)
    chosen = _different(found)
    wanted = {number for one in chosen for number in (one.first, one.last, *(one.lines or ()))}
    starts = _starts(text, wanted | {number + 1 for number in wanted})
    for number, one in enumerate(chosen, 1):
        named = f"{name}/message_{number}"
        if one.lines is None:
            yield DumpFile(path, named, MESSAGE_KIND, starts[one.first], starts[one.last + 1])
        else:
            # Another process wrote between its lines.
            mine = b"".join(text[starts[n] : starts[n + 1]] for n in one.lines)
            yield DumpFile(Bytes(path.name, mine), named, MESSAGE_KIND)


def _starts(text: bytes, wanted: set[int]) -> dict[int, int]:
    """Where lines begin, by their number; the end of the text for the one after the last."""
    found = {0: 0}
    count = 0
    for count, end in enumerate(re.finditer(b"\n", text), 1):
        if count in wanted:
            found[count] = end.end()
    return {**found, count + 1: len(text)}


def _different(found: list[oom_text.Found]) -> list[oom_text.Found]:
    """Messages without those of which another says the same or more."""
    kept: list[oom_text.Found] = []
    for one in found:
        if any(one.message.is_within(other.message) for other in kept):
            continue
        kept = [other for other in kept if not other.message.is_within(one.message)]
        kept.append(one)
    return kept
