"""What a file is that is no dump, by its beginning, and what to give instead."""

from __future__ import annotations

import re

from bufdb.dumps.pasted.plain import plain

INSTEAD = (
    "give the *-buffer-assignment.txt files, which XLA writes with XLA_FLAGS=--xla_dump_to=DIR"
)
_TEXTS = (
    (
        re.compile(rb"\s*HloModule \S"),
        f"this is an HLO module without buffer assignment; {INSTEAD}, of the stage "
        "after_optimizations",
    ),
    (
        re.compile(
            rb"\s*Total bytes used:[^\n]*\s*(?:\n\s*)*Allocations sorted by size:"
            rb"|(?:.*\n){0,3}\s*(?:Memory Space: \S+ \(color=|cumulative_size; )"
        ),
        f"this is a memory-usage report, whose sizes are rounded; {INSTEAD} beside it",
    ),
    (
        re.compile(rb"\s*(?:#loc\d* = |module (?:@|attributes )|func\.func |stablehlo\.)"),
        f"this is a program in MLIR (StableHLO), before XLA has compiled it; {INSTEAD}",
    ),
    (
        re.compile(rb"\s*(?:xla_\w+: \S+\s*\n){2}"),
        f"these are compiler options alone; {INSTEAD} beside them",
    ),
    (
        re.compile(rb"\s*\{.{0,2000}?\"(?:traceEvents|displayTimeUnit)\"", re.DOTALL),
        f"this is a trace of a profiler, which has no buffers; {INSTEAD}",
    ),
    (
        re.compile(rb"(?:[^\n]*\n){0,60}?[^\n]*RESOURCE_EXHAUSTED"),
        "this is an out-of-memory error without figures or the list of buffers; "
        f"give the whole message, from 'Ran out of memory' or 'BufferAssignment' on, or {INSTEAD}",
    ),
)
_BINARIES = (
    (re.compile(rb".{8}DUCK", re.DOTALL), "this is a DuckDB database; name it with --db"),
    (re.compile(rb"PK\x03\x04"), "this is a zip archive; give it a name that ends with .zip"),
    (re.compile(rb"\x1f\x8b"), "this is compressed by gzip; its name tells what is in it: .txt.gz"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "this is compressed by Zstandard; name it .txt.zst"),
    (re.compile(rb"SQLite format 3"), "this is an SQLite database"),
    (re.compile(rb"\x89PNG|\xff\xd8\xff"), "this is a picture; text is needed"),
    (re.compile(rb"\x7fELF"), "this is a program for a computer"),
)


def looks_like(head: bytes) -> str:
    """One line that says what a file is and what to give instead."""
    if not head.strip():
        return "it is empty"
    for pattern, text in _BINARIES:
        if pattern.match(head):
            return text
    made_plain = plain(head)
    for pattern, text in _TEXTS:
        if pattern.match(made_plain):
            return text
    if b"\0" in made_plain:
        return f"this is no text; {INSTEAD}"
    return f"this text holds no section of a buffer assignment; {INSTEAD}"
