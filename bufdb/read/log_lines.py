"""Lines of a log as lines of the messages in it: what logs, pages and processes add to them.

A log puts times, names of processes or colors in front of lines, a page writes `&gt;`, a ticket
`**`, JSON a whole message as one line; several processes write theirs in turn (format section 9.2).
Invariant: a line of the text is one line here, or several of the same number.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Line = tuple[int, str]
"""Its number in the text, from 0, and its text."""
LONGEST = 1 << 17
"""Characters of a line that are read; XLA cuts its own much earlier."""
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_ENTITY = re.compile(r"&(?:[gl]t|quot|amp|apos|nbsp|#\d{1,5}|#x[\da-fA-F]{1,4});")
_TAG = re.compile(r"</?(?:pre|code|span|div|p|b|i|em|strong|li|td|tr|font)(?:\s[^<>]*)?>")
_BREAK = re.compile(r"<br ?/?>")
_TEXTS = ("log", "message", "msg", "textpayload", "text", "line", "body", "error", "exception")
"""Names of the text in a record of JSON, as loggers have them, in small letters."""
_OWNER = re.compile(r"pod|host|node|rank|worker|container|task|instance")
"""In the names of fields that say whose record it is."""
_MOST_NESTED = 3
"""Records of the fields of a record, such as a cloud's `jsonPayload`."""
_DOUBLED = re.compile(r'=""[^\s",)}]')
"""A quote that a table of comma-separated values writes twice."""
_ESCAPED_MARK = re.compile(r"\\([.*_\[\]()#+!<>|~`{}=-])")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_ESCAPED = re.compile(r'\\(["\'\\/])')
_LINE_END = re.compile(r"(?<!\\)\\n")
_JOINED = re.compile(
    r"(?:(?<=\d[BKMGTP])|(?<=\d[BKMGTP]\.)|(?<=(?:arguments|.{2}unknown)\.)|(?<=n size)|(?<=\)\)))"
    r"\s*(?=Total \w+ usage >= |Output size (?:\d|unknown)|Program \w+ requirement \d"
    r"|Largest program allocations in )|(?<=={20})=*\s+(?=\d+\. Size: )"
)
"""Where a line end was lost between two lines that hold nothing else."""
_SUMS = re.compile(
    r"(?<=[:\dBKMGTe])\s+(?=(?:reserved|program|arguments|global|scoped|overlays|HLO temp)"
    r"\s+(?:\d|unknown))"
)
"""The same in the sums, which a page shows on one line."""


def lines_of(lines: Iterable[Line], titles: re.Pattern[str]) -> Iterator[Line]:
    r"""Yield lines without what a page or a terminal adds to them.

    A line that holds a message with \n for line ends, or several joined lines, is split.

    Args:
        lines: of a log.
        titles: marks a line that is examined more closely.
    """
    for index, line in ((index, one) for index, raw in lines for one in plain(raw).split("\n")):
        if titles.search(line) is None:
            yield from ((index, part) for part in _JOINED.split(line[:LONGEST]))
            continue
        for part in (part[:LONGEST] for part in _unescaped(line)):
            for piece in _JOINED.split(part):
                for one in _SUMS.split(piece) if titles.search(piece) else [piece]:
                    yield index, one


def plain(line: str) -> str:
    """Return a line without colors, HTML and Markdown marks, and its end; `<br>` ends a line.

    For a JSON record it is the record's text, preceded by what says whose it is.
    """
    line = line.rstrip("\r")
    if line.lstrip()[:1] == "{":
        line = _record(line)
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "<" in line:
        line = _BREAK.sub("\n", _TAG.sub("", line))
    if "&" in line and _ENTITY.search(line):
        line = html.unescape(line)
    if "\\" in line:
        line = _ESCAPED_MARK.sub(r"\1", line)
    if "[repeated " in line:
        line = _REPEATED.sub("", line)
    if '=""' in line and _DOUBLED.search(line):
        line = line.replace('""', '"')
    return line.replace("**", "").replace("\xa0", " ")


def _record(line: str) -> str:
    """Return the text of a JSON record; any other line as it is."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    fields = dict(_fields(record)) if isinstance(record, dict) else {}
    text = next((fields[name] for name in _TEXTS if name in fields), None)
    if text is None:
        return line
    owners = [value for name, value in sorted(fields.items()) if _OWNER.search(name)]
    return (" ".join(owners) + ": " if owners else "") + text.removesuffix("\n")


def _fields(record: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if isinstance(value, dict) and depth < _MOST_NESTED:
            yield from _fields(value, depth + 1)
        elif isinstance(value, str | int):
            yield name.lower(), str(value)


def _unescaped(line: str) -> list[str]:
    r"""Return the lines of a JSON log or of an exception's repr(), in which \n ends a line."""
    if _LINE_END.search(line) is None:
        return [line]
    return [_ESCAPED.sub(r"\1", part.replace("\\t", "\t")) for part in _LINE_END.split(line)]


# -- what is in front of a line --------------------------------------------------------------------

_ERROR = re.compile(
    r"(?:\w+\.)*\w*(?:Error|Exception)\b|Bad StatusOr|RESOURCE_?EXHAUSTED|Resource exhausted"
    r"|XLA:TPU|Compilation failure|E\d{4}: |INTERNAL\b|message['\"]|CompilationResult"
)
"""How an exception begins, which may come between the front and a title."""
_CHANGING = re.compile(
    r"[IWEF]\d{4} |\d{4}-\d\d-\d\d[T ]?|\d\d?[-/]\d\d(?:[-/]\d\d(?:\d\d)?)? "
    r"|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|[\w./-]+\.(?:cc|py|h|cpp|go):\d+"
)
"""Dates, times and source locations: they differ on each line of one process."""
_LAUNCHER = r"(?:\([\w .=,-]*pid=[^)]*\) |\[[^\]]{1,80}\](?:<\w+>:)? ?|\d+: )?"
"""What Ray, mpirun, kubectl and srun put in front of a line."""
_LOG = re.compile(
    _LAUNCHER + r"[\s|\"',]*(?:$|\d{4}-\d\d-\d\d[ T]\d\d:|[IWEF]\d{4} \d\d:"
    r"|\[?(?:INFO|WARNING|ERROR|DEBUG)\b|\S+ \[|-{6,}[\s|\"',]*$)"
)
"""A line of the log itself, or an empty one."""
_THREAD = re.compile(r" ?\d+ \]$")
"""What remains of a logger's front without date and source location."""
_LINE_PARTS = re.compile(r"(\d+|\s+)")
_MANY_KINDS = 3
"""Kinds of lines with one front that show it to be a process's: a line number has one or two."""


@dataclass(frozen=True)
class Front:
    """What is in front of the lines of one message."""

    form: re.Pattern[str] | None = None
    """The front with any numbers; None where there are only blanks."""

    def without(self, line: str) -> str:
        """Return a line without the front, if it begins with it."""
        match = None if self.form is None else self.form.match(line)
        return line if match is None else line[match.end() :]


def is_foreign(line: str) -> bool:
    """Return whether a line is empty or looks like one of the log, not of a message."""
    return _LOG.match(line) is not None


def front_of(line: str, start: int) -> Front:
    """Return the front of a line whose content begins at a place."""
    text = _own(line[:start])
    if not text.strip():
        return Front()
    parts = (r"\d+" if p.isdigit() else r"\s*" if p.isspace() else re.escape(p)
             for p in _LINE_PARTS.split(text))  # fmt: skip
    return Front(re.compile("".join(parts) + " ?"))


def _own(front: str) -> str:
    """Return a front without the beginning of an exception."""
    match = _ERROR.search(front)
    return (front if match is None else front[: match.start()]).rstrip()


def _process(front: str) -> str:
    """Return a front without the parts that change per line: the process that wrote it."""
    return " ".join(_CHANGING.sub(" ", _own(front)).split())


def by_process(
    lines: Iterable[Line],
    content: Callable[[str], tuple[str, int] | None],
    titles: Container[str],
) -> list[list[Line]]:
    """Return the lines of each of several processes that write in turn; otherwise all in one list.

    Args:
        lines: of a log.
        content: kind of a line of a message and where its content begins; None for others.
        titles: kinds that each message has one of.
    """
    lines = list(lines)
    kinds: dict[str, set[str]] = {}
    order: list[str] = []
    for _, line in lines:
        if (rest := content(line)) is not None:
            order.append(_process(line[: rest[1]]))
            kinds.setdefault(order[-1], set()).add(rest[0])
    known = {
        process
        for process, seen in kinds.items()
        if len(seen) >= _MANY_KINDS and any(kind in titles for kind in seen)
    }
    # Of a record of several lines the first alone has the logger's front, which ends with a thread.
    bare = {process: _THREAD.sub("", process) for process in known}
    known = {bare[process] if bare[process] in known else process for process in known}
    order = [bare[p] if bare[p] in known else p for p in order if p in bare]
    if sum(one != other for one, other in pairwise(order)) < max(2, len(known)):
        return [lines]  # one after the other, or one alone
    streams: dict[str, list[Line]] = {process: [] for process in known}
    own = order[0]
    for index, line in lines:
        own = _process_of(" ".join(_CHANGING.sub(" ", line).split()), known, own)
        streams[own].append((index, line))
    return list(streams.values())


def _process_of(text: str, known: set[str], before: str) -> str:
    """Return the process of a line: the longest front it begins with, else the previous line's.

    A line that a terminal or a log broke has no front.
    """
    fits = [
        process
        for process in known
        if text.startswith(process)
        and not (process[-1:].isalnum() and text[len(process) :][:1].isalnum())
    ]
    return max(fits, key=len, default=before)


# -- tracebacks ------------------------------------------------------------------------------------

_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+")
_OF_TRACEBACK = re.compile(
    r"\s|[\w.]+(?:Error|Exception|Exit|Interrupt|Trace|Warning)\b|During handling of |The above "
    r"exception |The stack trace below |-{6,}"
)
"""How lines of a traceback begin, apart from its front; others end it."""


def of_tracebacks(lines: Iterable[Line]) -> set[int]:
    """Return the numbers of lines that are Python's tracebacks, with the code they quote."""
    numbers: set[int] = set()
    front: Front | None = None
    for index, line in lines:
        if begins := _TRACEBACK.search(line):
            front = front_of(line, begins.start())
            numbers.add(index)
        elif front is not None:
            own = front.without(line)
            front = front if not own or _OF_TRACEBACK.match(own) else None
            numbers |= set() if front is None else {index}
    return numbers
