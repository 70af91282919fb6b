"""Dump text from an editor, a mail, a terminal or a log, and files that are no dump.

Invariant: a line stays a line, so that findings name the lines of the file as it is.
"""

from __future__ import annotations

import codecs
import re

from bufdb.read.boundaries import BOM

LOOK_BYTES = 4096
"""A title is within them, or the text is taken as it is."""
_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TITLE = (
    rb"(?:(?:BufferAssignment:|HloLiveRange \(max \d+\):|Used values:)(?=[ \t]*\r?$)"
    rb"|HloLiveRange not available|Total bytes used: -?\d|HloModule \S)"
)
_PLAIN = re.compile(rb"^(?:%s|allocation \d)" % _TITLE, re.MULTILINE)
_WRAPPED = re.compile(rb"^(?P<front>[^\n]{1,160}?)(?P<title>%s)" % _TITLE, re.MULTILINE)
_BEGINNINGS = (
    b"BufferAssignment:",
    b"HloLiveRange ",
    b"HloModule ",
    b"\nTotal bytes used:",
    b"Total bytes used:",
    b"xla_",
)
"""How XLA's own texts begin: then nothing need be searched for."""
_QUOTES = b"\"'`"
_FORM = re.compile(
    rb"(?:%s|allocation \d|<\d+ |\s+(?:value: <|positions:|uses:|from instruction:|\S+, operand \d"
    rb"|InstructionSequence:|BufferLiveRange:|Live ranges at |\d+:\S|\S+\{[\d,]*\}:-?\d"
    rb"|\S.*: \d+ bytes|\xe2))" % _TITLE
)
"""How lines of a buffer assignment begin; the last are branches of a tree."""
_FENCE = re.compile(rb"^[ \t>]*(?:```|~~~)[^\n`]*$", re.MULTILINE)


def encoding_of(head: bytes) -> str | None:
    """Return an encoding with several bytes a character, by the beginning; None for others."""
    for mark, name in _ENCODINGS:
        if head.startswith(mark):
            return name
    if len(head) >= 8 and b"\0" in head[:64]:
        # ASCII in UTF-16 without a mark: every other byte is 0.
        even, odd = head[0:64:2], head[1:64:2]
        if not odd.strip(b"\0") and b"\0" not in even:
            return "utf-16-le"
        if not even.strip(b"\0") and b"\0" not in odd:
            return "utf-16-be"
    return None


def decoded(text: bytes) -> bytes:
    """Return a text in UTF-8, if it is in an encoding of more than one byte a character."""
    encoding = encoding_of(text[:LOOK_BYTES])
    if encoding is None:
        return text
    return text.decode(encoding, "replace").encode().removeprefix(BOM)


def is_plain(head: bytes) -> bool:
    """Return whether a text can be read as it is, by its first LOOK_BYTES."""
    if head.startswith(_BEGINNINGS):
        return True
    if encoding_of(head) is not None:
        return False
    match = _WRAPPED.search(head)
    if match is None:
        return True
    front = match["front"]
    if not front.strip(_QUOTES) and not head[: match.start()].strip():
        return False  # a quote that opens the text; further lines have none
    if _PLAIN.search(head.removeprefix(BOM)) is not None:
        return True
    # In prose that names a title the next line begins with something else.
    below = head.find(b"\n", match.end()) + 1
    return below == 0 or _front(front).match(head, below) is None


def plain(text: bytes) -> bytes:
    """Return a text as XLA wrote it; the same where nothing is known to be around it."""
    text = decoded(text)
    head = text[:LOOK_BYTES]
    if is_plain(head):
        return text
    match = _WRAPPED.search(head)
    assert match is not None, "else it is plain"
    front = match["front"]
    if not front.strip(_QUOTES):
        return _unquoted(text, match.start(), front)
    return _without_front(_FENCE.sub(b"", text), front)


def _unquoted(text: bytes, at: int, quote: bytes) -> bytes:
    """Return a text without the quote that opens it and, if it is there, the one that closes it."""
    text = text[:at] + text[at + len(quote) :]
    end = len(text.rstrip())
    return text[: end - len(quote)] + text[end:] if text[:end].endswith(quote) else text


def _without_front(text: bytes, front: bytes) -> bytes:
    """Return a text without what precedes each line: its numbers differ, as in times.

    A line that ends within the front was empty; one with another front is left as it is.
    """
    return _front(front).sub(b"", text)


def _front(front: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a front, whatever its numbers, or of its form without end blanks."""
    parts = re.split(rb"(\d+)", front)
    form = b"".join(rb"\d+" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    return re.compile(rb"^(?:%s|%s(?=\r?$))" % (form, _stripped(parts)), re.MULTILINE)


def _stripped(parts: list[bytes]) -> bytes:
    """Return the form of a front without the blanks at its end, which editors remove."""
    kept = [*parts[:-1], parts[-1].rstrip(b" \t")]
    return b"".join(rb"\d+" if n % 2 else re.escape(part) for n, part in enumerate(kept))


def has_prose(text: bytes) -> bool:
    """Return whether a text of unknown name has words of its author around the sections."""
    head, tail = text[:LOOK_BYTES].removeprefix(BOM), text[-LOOK_BYTES:].rstrip()
    last = tail[tail.rfind(b"\n") + 1 :]
    return not head.lstrip().startswith(_BEGINNINGS) or not last[:1].isspace()


def without_prose(text: bytes) -> bytes:
    """Return a text with empty lines for the prose, headings and fences around its sections.

    Those are lines above a title and below the last line of a form that XLA writes. What is not
    understood between such lines stays, to be reported.
    """
    lines = text.removeprefix(BOM).split(b"\n")
    forms = [number for number, line in enumerate(lines) if _FORM.match(line)]
    titles = [number for number in forms if _PLAIN.match(lines[number])]
    if not titles:
        return text
    above = set(range(forms[0]))
    for title in titles:
        number = title - 1
        while number >= 0 and _is_prose(lines[number]):
            above.add(number)
            number -= 1
    below = range(forms[-1] + 1, len(lines))
    first = next((n for n in below if lines[n].strip() and _is_prose(lines[n])), len(lines))
    for number in (*above, *range(first, len(lines))):
        lines[number] = b""
    return b"\n".join(lines)


def _is_prose(line: bytes) -> bool:
    """Return whether a line is empty, or neither indented nor of a form that XLA writes."""
    return not line.strip() or not (line[:1].isspace() or _FORM.match(line))


# -- Files that are no dump, by their beginning, and what to give instead --------------------------

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
        f"this is a memory-usage report, whose sizes are rounded; {INSTEAD} next to it",
    ),
    (
        re.compile(rb"\s*(?:#loc\d* = |module (?:@|attributes )|func\.func |stablehlo\.)"),
        f"this is a program in MLIR (StableHLO), before XLA compiled it; {INSTEAD}",
    ),
    (
        re.compile(rb"\s*(?:xla_\w+: \S+\s*\n){2}"),
        f"these are only compiler options; {INSTEAD} next to them",
    ),
    (
        re.compile(rb"\s*\{.{0,2000}?\"(?:traceEvents|displayTimeUnit)\"", re.DOTALL),
        f"this is a profiler trace, which has no buffers; {INSTEAD}",
    ),
    (
        re.compile(rb"(?:[^\n]*\n){0,60}?[^\n]*RESOURCE_EXHAUSTED"),
        "this is an out-of-memory error without figures or the list of buffers; "
        f"give the whole message, from 'Ran out of memory' or 'BufferAssignment' on, or {INSTEAD}",
    ),
)
_OTHER_RUNTIMES = (
    (
        re.compile(rb"\b(?:NRT|TDRV|NMGR):\w|\bnrt_\w+ |\bN(?:RT|ERR)_RESOURCE\b|neuronx-cc"),
        "this is a log of AWS Neuron, whose compiler neuronx-cc writes no buffer assignment; "
        "neuron-top and neuron-monitor show what its devices hold",
    ),
    (
        re.compile(
            rb"\bTT_(?:FATAL|THROW)\b"
            rb"|Not enough space to allocate \d+ B \w+ buffer across \d+ banks"
        ),
        "this is a log of Tenstorrent's tt-metal, which places its buffers itself, without XLA's "
        "buffer assignment; its message has what is allocated and free in each bank",
    ),
    (
        re.compile(rb"\bWarp CUDA error \d|\bwarp/native/|warp[\w/.]*/context\.py"),
        "this is an error of NVIDIA Warp, which allocates outside XLA's memory; with JAX, "
        "XLA_PYTHON_CLIENT_MEM_FRACTION leaves it more of the device's memory",
    ),
    (
        re.compile(rb"torch[\w.]*\.OutOfMemoryError|CUDA out of memory\. Tried to allocate"),
        "this is an error of PyTorch's own CUDA allocator, not of XLA; "
        "torch.cuda.memory_summary() shows what it holds",
    ),
    (
        re.compile(rb"\[TRT\]|\[TensorRT\]|\bTensorRT\b[^\n]*(?i:out of ?memory)"),
        "this is a log of TensorRT, whose engines plan their memory themselves, without XLA's "
        "buffer assignment; its own log at the level VERBOSE has the sizes",
    ),
)
"""Logs of runtimes that write no files that bufdb reads; a word of theirs may be anywhere."""
_BINARIES = (
    (re.compile(rb".{8}DUCK", re.DOTALL), "this is a DuckDB database; name it with --db"),
    (re.compile(rb"PK\x03\x04"), "this is a zip archive; give it a name that ends with .zip"),
    (re.compile(rb"\x1f\x8b"), "this is compressed by gzip; its name says what is in it: .txt.gz"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "this is compressed by Zstandard; name it .txt.zst"),
    (re.compile(rb"SQLite format 3"), "this is an SQLite database"),
    (re.compile(rb"\x89PNG|\xff\xd8\xff"), "this is an image; text is needed"),
    (re.compile(rb"\x7fELF"), "this is an executable"),
)


def looks_like(head: bytes) -> str:
    """Return one line that says what a file is and what to give instead."""
    if not head.strip():
        return "it is empty"
    for pattern, text in _BINARIES:
        if pattern.match(head):
            return text
    made_plain = plain(head)
    for pattern, text in _TEXTS[:-1]:
        if pattern.match(made_plain):
            return text
    for pattern, text in _OTHER_RUNTIMES:
        if pattern.search(made_plain):
            return text
    pattern, text = _TEXTS[-1]
    if pattern.match(made_plain):
        return text
    if b"\0" in made_plain:
        return f"this is not text; {INSTEAD}"
    return f"this text holds no section of a buffer assignment; {INSTEAD}"
