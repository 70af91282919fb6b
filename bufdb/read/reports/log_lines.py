r"""Lines of a log as those of the messages in it: what a log, a page or a process put around them.

A log puts times, names of processes or colors in front of lines, a page writes `&gt;`, a ticket
`**` and `1\.`, JSON a whole message as one line; several processes write theirs in turn (format
section 9.2). Invariant: a line of the text is one line here, or several of the same number.
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
"""Its number in the text, from 0, and what it says."""
LONGEST = 1 << 17
"""Characters of a line that are looked at; XLA cuts its own long before."""
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_ENTITY = re.compile(r"&(?:[gl]t|quot|amp|apos|nbsp|#\d{1,5}|#x[\da-fA-F]{1,4});")
_TAG = re.compile(r"</?(?:pre|code|span|div|p|b|i|em|strong|li|td|tr|font)(?:\s[^<>]*)?>")
_BREAK = re.compile(r"<br ?/?>")
_TEXTS = ("log", "message", "msg", "textpayload", "text", "line", "body", "error", "exception")
"""Names of the text in a record of JSON, as loggers have them, in small letters."""
_WHOSE = re.compile(r"pod|host|node|rank|worker|container|task|instance")
"""In the names of what says whose record it is."""
_MOST_NESTED = 3
_DOUBLED = re.compile(r'=""[^\s",)}]')
"""A quote that a table of comma-separated values writes twice."""
_ESCAPED_MARK = re.compile(r"\\([.*_\[\]()#+!<>|~`{}=-])")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_ESCAPED = re.compile(r'\\(["\'\\/])')
_CODE = re.compile(r"\\u00([0-7][\da-fA-F])")
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
"""The same in the sums, which a page shows in one line."""


def lines_of(lines: Iterable[Line], titles: re.Pattern[str]) -> Iterator[Line]:
    r"""Lines without what a page or a terminal puts into them.

    One that holds a message with \n for line ends, or several lines joined, counts as many.

    Args:
        lines: of a log.
        titles: what is in a line that is looked at more closely.
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
    """A line without colors, marks of HTML and Markdown, and its end; `<br>` is one within it.

    Of a record of JSON it is the text in it, in front of which is what says whose it is.
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
    """The text of a record of JSON; the line as it is if it is none."""
    for _ in range(_MOST_NESTED):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return line
        if not isinstance(record, dict):
            return line
        fields = dict(_fields(record))
        text = next((fields[name] for name in _TEXTS if name in fields), None)
        if text is None:
            return line
        whose = [value for name, value in sorted(fields.items()) if _WHOSE.search(name)]
        line = (" ".join(whose) + ": " if whose else "") + text.removesuffix("\n")
        if not text.lstrip().startswith("{"):
            break
        line = text
    return line


def _fields(record: dict[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if isinstance(value, dict) and depth < _MOST_NESTED:
            yield from _fields(value, depth + 1)
        elif isinstance(value, str | int):
            yield name.lower(), str(value)


def _unescaped(line: str) -> list[str]:
    r"""The lines of a JSON log or of the repr() of an exception, in which \n ends a line."""
    while _LINE_END.search(line) is None and "\\\\n" in line:
        line = _ESCAPED.sub(r"\1", line)  # JSON within JSON
    if _LINE_END.search(line) is None:
        return [line]
    line = _CODE.sub(lambda code: chr(int(code[1], 16)), line)
    parts = _LINE_END.split(line)
    return [_ESCAPED.sub(r"\1", part.replace("\\t", "\t")) for part in parts]


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
"""Dates, times and places in source files: other ones in each line of one process."""
_LOG = re.compile(
    r"[\s|\"',]*(?:$|\d{4}-\d\d-\d\d[ T]\d\d:|[IWEF]\d{4} \d\d:|\[?(?:INFO|WARNING|ERROR|DEBUG)\b"
    r"|\S+ \[|-{6,}[\s|\"',]*$)"
)
"""A line of the log itself, or an empty one."""
_PARTS = re.compile(r"(\d+|\s+)")
_MANY_KINDS = 3
"""Kinds of lines with one front that show it to be of a process: a line's number has one or two."""


@dataclass(frozen=True)
class Front:
    """What is in front of the lines of one message."""

    form: re.Pattern[str] | None = None
    """It with any numbers; None where there is nothing but blanks."""

    def without(self, line: str) -> str:
        """A line without the front, if it has it."""
        found = None if self.form is None else self.form.match(line)
        return line if found is None else line[found.end() :]


def is_foreign(line: str) -> bool:
    """Whether a line is empty or, by its look, one of the log and not of a message."""
    return _LOG.match(line) is not None


def front_of(line: str, start: int) -> Front:
    """The front of a line whose content begins at a place."""
    text = _own(line[:start])
    if not text.strip():
        return Front()
    parts = (r"\d+" if p.isdigit() else r"\s*" if p.isspace() else re.escape(p)
             for p in _PARTS.split(text))  # fmt: skip
    return Front(re.compile("".join(parts) + " ?"))


def _own(front: str) -> str:
    """A front without the beginning of an exception."""
    found = _ERROR.search(front)
    return (front if found is None else front[: found.start()]).rstrip()


def _process(front: str) -> str:
    """A front without what changes from line to line: the process that wrote it."""
    return " ".join(_CHANGING.sub(" ", _own(front)).split())


def by_process(
    lines: Iterable[Line],
    content: Callable[[str], tuple[str, int] | None],
    titles: Container[str],
) -> list[list[Line]]:
    """The lines of each of several processes that write in turn; else all as they are.

    Args:
        lines: of a log.
        content: kind of a line of a message and where its content begins; None for others.
        titles: kinds of which each message has one.
    """
    lines = list(lines)
    kinds: dict[str, set[str]] = {}
    order: list[str] = []
    for _, line in lines:
        if (found := content(line)) is not None:
            order.append(_process(line[: found[1]]))
            kinds.setdefault(order[-1], set()).add(found[0])
    known = {
        process
        for process, seen in kinds.items()
        if len(seen) >= _MANY_KINDS and any(kind in titles for kind in seen)
    }
    order = [process for process in order if process in known]
    if sum(one != other for one, other in pairwise(order)) < max(2, len(known)):
        return [lines]  # one after the other, or one alone
    streams: dict[str, list[Line]] = {process: [] for process in known}
    mine = order[0]
    for index, line in lines:
        mine = _whose(" ".join(_CHANGING.sub(" ", line).split()), known, mine)
        streams[mine].append((index, line))
    return list(streams.values())


def _whose(text: str, known: set[str], before: str) -> str:
    """The process of a line: the longest front that it begins with, else that of the line before.

    A line that a terminal or a log broke has no front.
    """
    fits = [
        process
        for process in known
        if text.startswith(process)
        and not (process[-1:].isalnum() and text[len(process) :][:1].isalnum())
    ]
    return max(fits, key=len, default=before)
