"""What a log holds: dump files framed by the lines that XLA prints, out-of-memory messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bufdb.dumps.files import BEFORE, MESSAGE_KIND, PARTS, DumpFile, open_file
from bufdb.dumps.pasted.plain import LOOK_BYTES, decoded, encoding_of
from bufdb.dumps.places.place import Bytes, Place
from bufdb.read.reports import oom_text
from bufdb.read.reports.message import Message

FRAME = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\n", re.MULTILINE)
CAPTURED = (".txt", ".log", ".out", "")


def parts_of(path: Path | Place, name: str) -> Iterator[DumpFile]:
    """The dump files in a log; without any the out-of-memory messages."""
    with open_file(path) as file:
        text = file.read() or b""
    if encoding_of(text[:LOOK_BYTES]) is not None:
        text = decoded(text)
        path = Bytes(path.name, text)
    found = list(_frames(path, name, text))
    yield from found or _messages(path, name, text)


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
    """Out-of-memory messages; one that says the same as one above it is left out.

    A log has a message twice where the compiler and the exception print it, or several processes.
    """
    if not oom_text.TITLES.search(text):
        return
    # One byte a character, so that places in the text are those in the file.
    found = oom_text.read(text.decode("latin-1"))
    starts = [0, *(end.end() for end in re.finditer(b"\n", text)), len(text)]
    known: list[Message] = []
    for one in found:
        if one.message in known:
            continue
        known.append(one.message)
        start, stop = starts[one.first], starts[one.last + 1]
        yield DumpFile(path, f"{name}/message_{len(known)}", MESSAGE_KIND, start, stop)
