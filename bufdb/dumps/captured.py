"""Dump files in a captured output: framed by the lines that XLA prints around each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bufdb.dumps.files import BEFORE, PARTS, DumpFile, open_file

FRAME = re.compile(rb"^\*\*\* Begin (.+?) \*\*\*\n", re.MULTILINE)
CAPTURED = (".txt", ".log", ".out", "")


def frames(path: Path, name: str) -> Iterator[DumpFile]:
    """The dump files in a captured output; each frame's content ends with one line end too many."""
    with open_file(path) as file:
        text = file.readall() or b""
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
