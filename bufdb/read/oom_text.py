"""Out-of-memory messages in a log: lines of several ranks, titles, lists of buffers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bufdb.read import oom_forms as forms
from bufdb.read.compiled_forms import TITLES as TITLES_OF_SUMS
from bufdb.read.compiled_forms import place_of
from bufdb.read.instruction import metadata_of
from bufdb.read.message import PATTERN, SPARSE_SPACES, Buffer, Message, amount_of

# --------------------------------------------------------------------------------------------------
# Lines of a log as lines of the messages in it: what logs, pages and processes add to them.
#
# A log puts times, names of processes or colors in front of lines, a page writes `&gt;`, a ticket
# `**` and `1\.`, JSON a whole message as one line; several processes write theirs in turn (format
# section 9.2). Invariant: a line of the text is one line here, or several of the same number.

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
_WHOSE = re.compile(r"pod|host|node|rank|worker|container|task|instance")
"""In the names of fields that say whose record it is."""
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
    r"""Return the lines of a JSON log or of an exception's repr(), in which \n ends a line."""
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
        found = None if self.form is None else self.form.match(line)
        return line if found is None else line[found.end() :]


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
    found = _ERROR.search(front)
    return (front if found is None else front[: found.start()]).rstrip()


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
        if (found := content(line)) is not None:
            order.append(_process(line[: found[1]]))
            kinds.setdefault(order[-1], set()).add(found[0])
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
    mine = order[0]
    for index, line in lines:
        mine = _whose(" ".join(_CHANGING.sub(" ", line).split()), known, mine)
        streams[mine].append((index, line))
    return list(streams.values())


def _whose(text: str, known: set[str], before: str) -> str:
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


# -- Out-of-memory messages in a log (format section 9.2) ------------------------------------------
#
# A line is known by the words in it, wherever they are. Invariant: each line from the first to
# the last of a message is read, known to belong to the log, or named as unread.

_TITLE = (
    r"BufferAssignment OOM Debugging|BufferAssignment stats:|Peak buffers:"
    r"|Ran out of memory in memory space |Used [\d.]+[BKMGTP] of [\d.]+[BKMGTP] [a-z]+"
    r"|Error loading program (?:'|&#)"
    r"|Total \w+ usage (?:>|&gt;)= |Program \w+ requirement|Largest program allocations in "
    r"|Scoped allocation with size|memory required for HLO temporaries|SparseCore Hbm usage"
    r"|have enough (?:device )?memory\. Requires|Attempting to (?:reserve|allocate) \d"
    r"|memory size limit exceeded: requested |exceeds device resources \(|allocatable offset upper"
    r"|\) would exceed memory \(size="
    r"|exceeds available shared memory: |uses too much shared data \("
    r"|Out of memory (?:while trying to allocate|allocating) \d|Failed to allocate request for \d"
    + TITLES_OF_SUMS
)
TITLES = re.compile(_TITLE.encode())
"""Every message has one of these; text without any is not read further."""
_TITLES = re.compile(_TITLE)
MAX_FOREIGN = 60
"""Lines of others in a row after which a message may still continue."""
_LONGEST_RAW = 1 << 22
"""Bytes of a line, which may be a whole message in JSON."""
_PARTS = {part for part, *_ in forms.TITLED}
_APART = 4096
"""Lines after which nothing belongs to a message: many processes may write in turn."""
_TELLING = re.compile(rf"(?<![\w.]){PATTERN}(?!\w)|\b[a-z]+\d*\[[\d,]*\]|op_name=|source_file=")
"""A line with one of these has something that a message says."""
_MOST_CONTINUED = 30
_NO_SUMS = 99
"""Place of a sum below which none may follow."""


@dataclass
class Found:
    """A message and the lines it was read from."""

    message: Message
    first: int
    """Index of its first line."""
    last: int = 0
    """Index of the last line that is part of it."""
    read: set[int] = field(default_factory=set)
    unread: list[int] = field(default_factory=list)
    """Lines between them that belong neither to it nor, by their look, to the log."""
    telling: set[int] = field(default_factory=set)
    """Those of the unread lines that say something about memory."""
    lines: list[int] | None = None
    """The lines of its process from the first to the last; None if all lines are."""


def read(text: str | bytes) -> list[Found]:
    """Return the messages of a log, in order; of bytes only the text around titles is decoded."""
    found = []
    for region in _regions(text.encode(errors="replace") if isinstance(text, str) else text):
        streams = by_process(lines_of(region, _TITLES), _content, _PARTS)
        for stream in streams:
            mine = _Reader().run(stream)
            if len(streams) > 1:
                numbers = sorted({index for index, _ in stream})
                for one in mine:
                    one.lines = [n for n in numbers if one.first <= n <= one.last]
            found += mine
    return sorted(found, key=lambda one: (one.first, one.last))


def _regions(text: bytes) -> Iterator[Iterable[Line]]:
    """Yield the lines from a title to where no line of a message follows for long.

    If a line does not end, this is a piece around a title, and the region ends there.
    """
    number = place = at = 0
    for title in TITLES.finditer(text):
        if title.start() < at:
            continue
        number += text.count(b"\n", place, title.start())
        place = title.start()
        begin = max(at, place - LONGEST // 2)
        at = max(begin, text.rfind(b"\n", begin, place) + 1)
        lines: list[str] = []
        last, is_whole = 0, True
        while at <= len(text) and len(lines) - last <= _APART and is_whole:
            end = text.find(b"\n", at, at + _LONGEST_RAW)
            is_whole = end >= 0 or len(text) <= at + _LONGEST_RAW
            end = end if end >= 0 else min(len(text), at + _LONGEST_RAW)
            line = text[at:end].decode("utf-8", "replace")
            if lines and _content(plain(line[:LONGEST])) is not None:
                last = len(lines)
            lines.append(line)
            at = end + 1
        yield enumerate(lines[: last + 1], number)


def _content(line: str) -> tuple[str, int] | None:
    """Return the kind of message line that a line is, and where it begins; None for other lines."""
    for part, pattern, _ in forms.TITLED:
        if found := pattern.search(line):
            return part, found.start()
    for number, pattern in enumerate(forms.FIELDS):
        if found := pattern.search(line):
            return str(number), found.start()
    return None


class _Reader:
    """Goes through the lines; `found[-1]` is the message that they may belong to."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.target = Message(is_tpu=False)
        """The message's part of which the last title was: one memory space."""
        self.place = -1
        """Of the last sum of a summary below its title; _NO_SUMS where the title is lost."""
        self.is_open = False
        self.foreign = 0
        """Lines since the last that belonged to the message."""
        self.between: list[Line] = []
        """The same, which are the message's or the log's once it goes on."""
        self.quoted: list[str] = []
        """An Operator or an instruction that is not closed: its line was broken."""
        self.fronts: dict[Front, None] = {}
        """Fronts of lines of the message, the latest last."""
        self.before = ""
        """Content of the line that was taken last."""

    def run(self, lines: Iterable[Line]) -> list[Found]:
        for index, line in lines:
            found = _content(line)
            if self._again(line, found):
                self._took(index)
            elif self._title(index, line) or (self.is_open and self._field(line)):
                if found is not None:
                    self.fronts[front_of(line, found[1])] = None
                    self.before = line[found[1] :]
                self._took(index)
            elif self.is_open:
                self.foreign += 1
                self.between.append((index, line))
                if self.foreign > MAX_FOREIGN:
                    self._close()
        self._close()
        return self.found

    def _again(self, line: str, found: tuple[str, int] | None) -> bool:
        """Return whether two loggers wrote the same line: no message repeats a line."""
        return self.is_open and found is not None and line[found[1] :] == self.before

    def _took(self, index: int) -> None:
        found = self.found[-1]
        for number, line in self.between:
            if not self._is_foreign(line):
                found.unread.append(number)
                if _TELLING.search(line):
                    found.telling.add(number)
        self.between, self.foreign = [], 0
        found.read.add(index)
        found.last = index

    def _is_foreign(self, line: str) -> bool:
        """Return whether a line is empty or the log's, apart from the message's own front."""
        rests = {front.without(line) for front in self.fronts} - {line}
        return any(map(is_foreign, rests or {line}))

    def _close(self) -> None:
        self.is_open, self.between, self.quoted, self.foreign = False, [], [], 0
        self.before, self.fronts = "", {}

    def _title(self, index: int, line: str) -> bool:
        for part, pattern, take in forms.TITLED:
            if title := pattern.search(line):
                if self.quoted and part == "scoped":
                    self.quoted.append(self._bare(line[: title.start()]).rstrip(". "))
                    self._settle(self.target)
                self.quoted = []
                self._begin(index, part, _space(title))
                message = self.target
                take(message, title)
                self._more(line[title.end() :])
                if part == "ran_out" and message.form == "kernel" and "scoped" not in message.parts:
                    self.quoted = [title["instruction"].rstrip(" |")]
                    self._settle(message)
                return True
        return False

    def _more(self, rest: str) -> None:
        """Take what follows a title on the same line."""
        message = self.target
        for part, pattern, take in forms.TITLED:
            if part in forms.FOLLOWING and (found := pattern.search(rest)):
                message.parts.add(part)
                take(message, found)
        for pattern, take in forms.TPU_FIELDS if message.is_tpu else forms.GPU_FIELDS:
            if found := pattern.search(rest):
                take(message, found)

    def _begin(self, index: int, part: str, space: str | None) -> None:
        is_tpu = part in forms.TPU_PARTS
        if self.is_open and self.found[-1].message.form == "summary":
            if self._add_space(self.found[-1].message, part, space or "hbm"):
                return
        elif self.is_open:
            message = self.target
            same = message.is_tpu == is_tpu and (space is None or message.space == space)
            # Parts come in one order, so that what comes again or earlier is another message's.
            order = forms.TPU_PARTS if is_tpu else forms.GPU_PARTS
            if same and all(order.index(part) > order.index(known) for known in message.parts):
                follows = part in forms.AFTER_ALONE or not message.parts & forms.ALONE
                if follows and (part not in forms.ALONE or message.parts == {"loading"}):
                    message.parts.add(part)
                    return
        self._close()
        self.is_open = True
        form = "summary" if part in forms.SUMS else "list"
        self.target = Message(is_tpu, space or "hbm", form, parts={part})
        self.place = _NO_SUMS if part in ("module", "use") else -1
        self.found.append(Found(self.target, index, index))

    def _add_space(self, message: Message, part: str, space: str) -> bool:
        """Go to another memory space of a summary; return whether a title belongs to it."""
        if part not in (*forms.SUMS, "largest") or part == "module":
            return False
        target = message.of_space(space)
        if part in target.parts:
            return False
        target.parts.add(part)
        self.target, self.place = target, _NO_SUMS if part == "use" else -1
        return True

    def _has_title(self, line: str) -> bool:
        """Return whether a line of a summary may be below the last title: sums go down a list."""
        place = place_of(line)
        if place is not None:
            self.place = place if place > self.place else _NO_SUMS
        return place is None or self.place == place

    def _field(self, line: str) -> bool:
        message = self.target
        if self.quoted:
            return self._continue(line)
        if message.form == "summary" and not self._has_title(line):
            return False
        for pattern, take in forms.TPU_FIELDS if message.is_tpu else forms.GPU_FIELDS:
            if found := pattern.search(line):
                take(message, found)
                return True
        if not message.parts & {"peak", "largest"}:
            return False
        buffer = message.buffers[-1] if message.buffers else None
        if head := (forms.TPU_HEAD if message.is_tpu else forms.GPU_HEAD).search(line):
            number = int(head["number"])
            if buffer is not None and number <= buffer.number:
                return False
            new = Buffer(number)
            new.size = amount_of(head["size"]) if message.is_tpu else None
            message.buffers.append(new)
            return True
        if _is_next(message, buffer) and forms.LABEL_LINE.search(line):
            buffer = Buffer(len(message.buffers) + 1)
            message.buffers.append(buffer)
        if buffer is None or buffer.is_whole:
            return False
        if operator := forms.OPERATOR.search(line):
            self.quoted = [operator["text"]]
            self._settle(message)
            return True
        for pattern, put in forms.BUFFER_FIELDS:
            if found := pattern.search(line):
                put(buffer, found)
                return True
        return False

    def _continue(self, line: str) -> bool:
        if forms.END_OF_OPERATOR.search(line) or len(self.quoted) > _MOST_CONTINUED:
            self.quoted = []
            return self._field(line)
        self.quoted.append(self._bare(line))
        self._settle(self.target)
        return True

    def _bare(self, line: str) -> str:
        """Return a line without what precedes the message's lines."""
        return min((front.without(line) for front in self.fronts), key=len, default=line)

    def _settle(self, message: Message) -> None:
        """Take the quoted text if it is complete."""
        text, buffer = forms.unquoted("".join(self.quoted)), message.buffers[-1]
        if message.form == "kernel":
            forms.read_label(buffer, text.strip())
            if text.rstrip().endswith("...") or _is_closed(text):
                self.quoted = []
        elif _is_closed(text, marks=('""',)):
            self.quoted = []
            buffer.metadata = metadata_of(b", metadata={" + text.strip().encode() + b"}")


def _is_closed(text: str, marks: tuple[str, ...] = ('""', "()", "{}")) -> bool:
    """Return whether all quotes and brackets are closed."""
    plain_text = text.replace("\\\\", "").replace('\\"', "")
    quoteless = re.sub(r'"[^"]*"', "", plain_text)
    return '"' not in quoteless and all(
        quoteless.count(mark[0]) == quoteless.count(mark[1]) for mark in marks
    )


def _is_next(message: Message, buffer: Buffer | None) -> bool:
    """Return whether a label begins a buffer: until 2020 those of scratch memory have no size."""
    return message.is_tpu and (buffer is None or (buffer.size is None and buffer.is_whole))


def _space(title: re.Match[str]) -> str | None:
    space = title.groupdict().get("space")
    return None if space is None else SPARSE_SPACES.get(space, space).lower()
