"""Out-of-memory messages in a log (format section 9.2).

A line is known by the words in it, wherever they stand. Invariant: each line from the first to the
last of a message is read, known to belong to the log, or named as unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bufdb.read.instruction import metadata_of
from bufdb.read.reports.log_lines import Front, Line, by_process, front_of, lines_of, plain
from bufdb.read.reports.message import KINDS, SCOPED, Buffer, Message
from bufdb.read.reports.sizes import PATTERN, amount_of

_TITLE = (
    r"BufferAssignment OOM Debugging|BufferAssignment stats:|Peak buffers:"
    r"|Ran out of memory in memory space |Used [\d.]+[BKMGTP] of [\d.]+[BKMGTP] [a-z]+"
    r"|Error loading program '"
    r"|Total \w+ usage (?:>|&gt;)= |Program \w+ requirement|Largest program allocations in "
    r"|Scoped allocation with size|memory required for HLO temporaries|SparseCore Hbm usage"
    r"|have enough memory\. Requires|Attempting to (?:reserve|allocate) \d"
    r"|Out of memory while trying to allocate \d"
)
TITLES = re.compile(_TITLE.encode())
"""One of these is in every message; what has none needs no further look."""
_TITLES = re.compile(_TITLE)
MAX_FOREIGN = 60
"""Lines of others in a row that a message may go on after."""
_FRONT = r"(?:^|(?<=[\s\]|:>\"'`]))"
_TELLING = re.compile(rf"(?<![\w.]){PATTERN}(?!\w)|\b[a-z]+\d*\[[\d,]*\]|op_name=|source_file=")
"""In a line with one of these is something that a message says."""
_MOST_CONTINUED = 30


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
    """Of these the ones that say something of memory."""
    lines: list[int] | None = None
    """The lines of its process from the first to the last; None if all are."""


def read(text: str) -> list[Found]:
    """The messages of a log, in order."""
    found = []
    for region in _regions(text):
        streams = by_process(lines_of(region, _TITLES), _content)
        for stream in streams:
            mine = _Reader().run(stream)
            if len(streams) > 1:
                numbers = sorted({index for index, _ in stream})
                for one in mine:
                    one.lines = [n for n in numbers if one.first <= n <= one.last]
            found += mine
    return sorted(found, key=lambda one: (one.first, one.last))


def _regions(text: str) -> Iterator[Iterable[Line]]:
    """Lines from a title to where nothing of a message follows for long."""
    lines: list[str] = []
    number = place = stop = 0
    for title in _TITLES.finditer(text):
        lines = lines or text.split("\n")
        number += text.count("\n", place, title.start())
        place = title.start()
        if number < stop:
            continue
        last, stop = number, number + 1
        while stop < len(lines) and stop - last <= MAX_FOREIGN + 1:
            if _content(plain(lines[stop])) is not None:
                last = stop
            stop += 1
        yield enumerate(lines[number : last + 1], number)


def _content(line: str) -> tuple[str, int] | None:
    """Which kind of line of a message a line is, and where that begins."""
    for part, pattern, _ in _TITLED:
        if found := pattern.search(line):
            return part, found.start()
    for number, pattern in enumerate(_FIELDS):
        if found := pattern.search(line):
            return str(number), found.start()
    return None


class _Reader:
    """Goes through the lines; `found[-1]` is the message that they may belong to."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.is_open = False
        self.foreign = 0
        """Lines since the last that belonged to the message."""
        self.between: list[Line] = []
        """Of these the ones that do not look like the log's."""
        self.quoted: list[str] = []
        """An Operator or an instruction that is not closed: its line was broken."""
        self.front = Front()
        self.before = ""
        """Content of the line that was taken last."""

    def run(self, lines: Iterable[Line]) -> list[Found]:
        for index, line in lines:
            found = _content(line)
            if self._again(line, found):
                self._took(index)
            elif self._title(index, line) or (self.is_open and self._field(line)):
                self._took(index)
                if found is not None:
                    self.front, self.before = front_of(line, found[1]), line[found[1] :]
            elif self.is_open:
                self.foreign += 1
                if not self.front.is_foreign(line):
                    self.between.append((index, line))
                if self.foreign > MAX_FOREIGN:
                    self._close()
        self._close()
        return self.found

    def _again(self, line: str, found: tuple[str, int] | None) -> bool:
        """Whether two loggers wrote the same line: no line of a message follows itself."""
        return self.is_open and found is not None and line[found[1] :] == self.before

    def _took(self, index: int) -> None:
        found = self.found[-1]
        found.unread += [number for number, _ in self.between]
        found.telling |= {number for number, line in self.between if _TELLING.search(line)}
        self.between, self.foreign = [], 0
        found.read.add(index)
        found.last = index

    def _close(self) -> None:
        self.is_open, self.between, self.quoted, self.foreign = False, [], [], 0
        self.before = ""

    def _title(self, index: int, line: str) -> bool:
        for part, pattern, take in _TITLED:
            if title := pattern.search(line):
                self._begin(index, part, _space(title))
                message = self.found[-1].message
                take(message, title)
                self._more(line[title.end() :])
                if part == "ran_out" and message.form == "kernel" and "scoped" not in message.parts:
                    self.quoted = [title["instruction"]]
                    self._settle(message)
                return True
        return False

    def _more(self, rest: str) -> None:
        """What a title is followed by in the same line."""
        message = self.found[-1].message
        for part, pattern, take in _TITLED:
            if part in _FOLLOWING and (found := pattern.search(rest)):
                message.parts.add(part)
                take(message, found)
        for pattern, take in _TPU_FIELDS if message.is_tpu else _GPU_FIELDS:
            if found := pattern.search(rest):
                take(message, found)

    def _begin(self, index: int, part: str, space: str | None) -> None:
        is_tpu = part in _TPU_PARTS
        if self.is_open:
            message = self.found[-1].message
            same = message.is_tpu == is_tpu and (space is None or message.space == space)
            # Parts come in one order, so that what comes again or earlier is another message's.
            order = _TPU_PARTS if is_tpu else _GPU_PARTS
            if same and all(order.index(part) > order.index(known) for known in message.parts):
                follows = part in _AFTER_ALONE or not message.parts & _ALONE
                if follows and (part not in _ALONE or message.parts == {"loading"}):
                    message.parts.add(part)
                    return
        self._close()
        self.is_open = True
        message = Message(is_tpu, space or "hbm", parts={part})
        self.found.append(Found(message, index, index))

    def _field(self, line: str) -> bool:
        message = self.found[-1].message
        if self.quoted:
            return self._continue(line)
        for pattern, take in _TPU_FIELDS if message.is_tpu else _GPU_FIELDS:
            if found := pattern.search(line):
                take(message, found)
                return True
        if not message.parts & {"peak", "largest"}:
            return False
        buffer = message.buffers[-1] if message.buffers else None
        if (head := (_TPU_HEAD if message.is_tpu else _GPU_HEAD).search(line)) is not None:
            number = int(head["number"])
            if buffer is not None and number <= buffer.number:
                return False
            new = Buffer(number)
            new.size = amount_of(head["size"]) if message.is_tpu else None
            message.buffers.append(new)
            return True
        if _is_next(message, buffer) and _LABEL_LINE.search(line):
            buffer = Buffer(len(message.buffers) + 1)
            message.buffers.append(buffer)
        if buffer is None or buffer.is_whole:
            return False
        if operator := _OPERATOR.search(line):
            self.quoted = [operator["text"]]
            self._settle(message)
            return True
        for pattern, put in _BUFFER_FIELDS:
            if found := pattern.search(line):
                put(buffer, found)
                return True
        return False

    def _continue(self, line: str) -> bool:
        if _END_OF_OPERATOR.search(line) or len(self.quoted) > _MOST_CONTINUED:
            self.quoted = []
            return self._field(line)
        self.quoted.append(line)
        self._settle(self.found[-1].message)
        return True

    def _settle(self, message: Message) -> None:
        """Take what is quoted if it is whole."""
        text, buffer = "".join(self.quoted), message.buffers[-1]
        if message.form == "kernel":
            _read_label(buffer, text.strip())
            if text.rstrip().endswith("...") or _is_closed(text):
                self.quoted = []
        elif _is_closed(text, marks=('""',)):
            self.quoted = []
            buffer.metadata = metadata_of(b", metadata={" + text.strip().encode() + b"}")


def _is_closed(text: str, marks: tuple[str, ...] = ('""', "()", "{}")) -> bool:
    """Whether all quotes and brackets are."""
    plain_text = text.replace("\\\\", "").replace('\\"', "")
    quoteless = re.sub(r'"[^"]*"', "", plain_text)
    return '"' not in quoteless and all(
        quoteless.count(mark[0]) == quoteless.count(mark[1]) for mark in marks
    )


def _is_next(message: Message, buffer: Buffer | None) -> bool:
    """Whether a label begins a buffer: until 2020 those of scratch memory have no size."""
    return message.is_tpu and (buffer is None or (buffer.size is None and buffer.is_whole))


def _space(title: re.Match[str]) -> str | None:
    space = title.groupdict().get("space")
    return None if space is None else space.lower()


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_FRONT + text.replace("SIZE", PATTERN))


# -- titles, and messages of one line --------------------------------------------------------------


def _nothing(message: Message, title: re.Match[str]) -> None:
    """A title without a figure, or a line that follows from others."""


def _ran_out(message: Message, title: re.Match[str]) -> None:
    if title["instruction"] is None:
        return
    message.form = "kernel"
    message.buffers = [Buffer(1, kind="temp", is_scoped=True, is_whole=True)]
    _read_label(message.buffers[0], title["instruction"].strip())


def _used(message: Message, title: re.Match[str]) -> None:
    message.needed = message.total = amount_of(title["used"])
    message.is_program_alone = True
    message.limit = amount_of(title["limit"])


def _scoped(message: Message, title: re.Match[str]) -> None:
    message.form = "kernel"
    message.needed = message.total = amount_of(title["size"])
    message.limit, message.excess = amount_of(title["limit"]), amount_of(title["over"])
    if message.total is not None:
        message.amounts["scoped"] = message.total
    if not message.buffers:
        message.buffers = [Buffer(1, kind="temp", is_scoped=True, is_whole=True)]
    message.buffers[0].size = message.total


def _usage(message: Message, title: re.Match[str]) -> None:
    message.total, message.is_program_alone = amount_of(title["size"]), False


def _program(message: Message, title: re.Match[str]) -> None:
    if message.total is None or "held" in message.amounts:
        message.total = amount_of(title["size"])
        message.is_program_alone = message.space == "hbm"
    elif message.space != "hbm":
        # All that is in such a memory is the program's.
        message.is_program_alone = False


def _temporaries(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "temporaries", True
    message.needed = message.total = amount_of(title["size"])
    message.limit = amount_of(title["limit"])
    if message.total is not None:
        message.amounts["temp"] = message.total


def _cores(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "cores", True
    tensor, sparse = amount_of(title["tensor"]), amount_of(title["sparse"])
    if tensor is not None and sparse is not None:
        message.needed = message.total = tensor + sparse
        message.amounts |= {"tensor": tensor, "sparse": sparse}
    message.limit = amount_of(title["limit"])


def _early(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "early", True
    message.needed = message.total = amount_of(title["size"])
    message.limit = amount_of(title["limit"])


def _wanted(message: Message, title: re.Match[str]) -> None:
    is_program = message.function is not None or title["bottom"]
    message.form = "program" if is_program else "array"
    message.is_program_alone = True
    message.needed = message.total = amount_of(title["size"])


def _loading(message: Message, title: re.Match[str]) -> None:
    message.form, message.function = "program", title["program"]


def _allocate(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "array", True
    message.needed = message.total = amount_of(title["size"].replace(" bytes", "B"))


def _stats(message: Message, title: re.Match[str]) -> None:
    message.form, message.total, message.is_program_alone = "list", None, False


_GPU_PARTS = ["allocate", "title", "stats", "peak"]
_TPU_PARTS = ["loading", "early", "temporaries", "cores", "wanted", "ran_out", "used", "scoped"]
_TPU_PARTS += ["usage", "program", "largest"]
_ALONE = {"early", "temporaries", "cores", "wanted"}
"""Titles that hold a whole message, below which there may be ..."""
_AFTER_ALONE = {"usage", "program", "largest"}
_FOLLOWING = {"wanted", "used", "scoped"}
"""Titles that may be in the line of another."""
_Take = Callable[[Message, re.Match[str]], None]
_TITLED: list[tuple[str, re.Pattern[str], _Take]] = [
    (
        "allocate",
        re.compile(rf"Out of memory while trying to allocate (?P<size>\d+ bytes|{PATTERN})"),
        _allocate,
    ),
    ("title", re.compile(r"BufferAssignment OOM Debugging"), _nothing),
    ("stats", re.compile(r"BufferAssignment stats:"), _stats),
    ("peak", _pattern(r"Peak buffers:\s*$"), _nothing),
    ("loading", re.compile(r"Error loading program '(?P<program>[^']+)'"), _loading),
    (
        "ran_out",
        re.compile(
            r"Ran out of memory in memory space (?P<space>\w+)(?: while allocating on stack for "
            r"(?P<instruction>.+?)(?:\.{0,3} *(?=Scoped allocation with)|$))?"
        ),
        _ran_out,
    ),
    (
        "used",
        re.compile(
            rf"Used (?P<used>{PATTERN}) of (?P<limit>{PATTERN}) (?P<space>hbm|[a-z]+mem|sflag|host)\b"
        ),
        _used,
    ),
    (
        "scoped",
        re.compile(
            rf"Scoped allocation with size (?P<size>{PATTERN}) and limit (?P<limit>{PATTERN})"
            rf" exceeded scoped (?P<space>\w+) limit by (?P<over>{PATTERN})"
        ),
        _scoped,
    ),
    ("usage", _pattern(r"Total (?P<space>\w+) usage >= (?P<size>SIZE)"), _usage),
    ("program", _pattern(r"Program (?P<space>\w+) requirement (?P<size>SIZE)"), _program),
    ("largest", _pattern(r"Largest program allocations in (?P<space>\w+)"), _nothing),
    (
        "temporaries",
        re.compile(
            rf"memory required for HLO temporaries \((?P<size>{PATTERN})\) exceeds available "
            rf"(?P<space>HBM) \((?P<limit>{PATTERN})\)"
        ),
        _temporaries,
    ),
    (
        "cores",
        re.compile(
            rf"TensorCore (?P<space>Hbm) usage:? (?P<tensor>{PATTERN}), SparseCore Hbm usage:? "
            rf"(?P<sparse>{PATTERN}), exceeding available bytes:? (?P<limit>{PATTERN})"
        ),
        _cores,
    ),
    (
        "early",
        re.compile(
            rf"have enough memory\. Requires (?P<size>{PATTERN}), has (?P<limit>{PATTERN}) available"
        ),
        _early,
    ),
    (
        "wanted",
        re.compile(
            rf"Attempting to (?:reserve|allocate) (?P<size>{PATTERN})"
            r"(?P<bottom> at the bottom of memory)?"
        ),
        _wanted,
    ),
]


# -- lines below them ------------------------------------------------------------------------------


def _amount(*names: str) -> _Take:
    def take(message: Message, found: re.Match[str]) -> None:
        for name in names:
            if text := found.groupdict().get(name):
                amount = amount_of(text)
                if amount is not None:
                    message.amounts[name] = amount

    return take


def _total(message: Message, found: re.Match[str]) -> None:
    message.total = amount_of(found["total"])


def _arguments(message: Message, found: re.Match[str]) -> None:
    if found["argument"]:
        _amount("argument")(message, found)
    else:
        message.is_program_alone = True


def _free(message: Message, found: re.Match[str]) -> None:
    message.limit = amount_of(found["reservable"] or found["free"])


def _excess(message: Message, found: re.Match[str]) -> None:
    message.excess = amount_of(found["over"])


def _module(message: Message, found: re.Match[str]) -> None:
    message.function = found["name"]


_SHARE = r"(?: \([^()]*\))?"
"""`(99.9% utilization)`, as until 2020."""
_GPU_FIELDS: list[tuple[re.Pattern[str], _Take]] = [
    (_pattern(r"parameter allocation: +(?P<argument>SIZE)"), _amount("argument")),
    (_pattern(r"constant allocation: +(?P<constant>SIZE)"), _amount("constant")),
    (_pattern(r"maybe_live_out allocation: +(?P<output>SIZE)"), _amount("output")),
    (_pattern(r"preallocated temp allocation: +(?P<temp>SIZE)"), _amount("temp")),
    (
        _pattern(r"preallocated temp fragmentation: +(?P<fragmentation>SIZE)"),
        _amount("fragmentation"),
    ),
    (_pattern(r"total allocation: +(?P<total>SIZE)"), _total),
    (_pattern(r"total fragmentation: +"), _nothing),
]
_TPU_FIELDS: list[tuple[re.Pattern[str], _Take]] = [
    (
        _pattern(
            r"HLO temp +(?P<temp>SIZE)(?:\s*\(.*?fragmentation \((?P<fragmentation>SIZE)\)\))?"
        ),
        _amount("temp", "fragmentation"),
    ),
    (_pattern(rf"arguments +(?:(?P<argument>SIZE){_SHARE}|unknown size)\s*$"), _arguments),
    (
        _pattern(
            rf"Output size (?:(?P<output>SIZE){_SHARE}(?:; shares (?P<alias>SIZE) with arguments)?"
            r"|unknown)"
        ),
        _amount("output", "alias"),
    ),
    (_pattern(r"(?:Currently allocated:|heap allocations \(.*?\)) +(?P<held>SIZE)"),
     _amount("held")),
    (_pattern(r"scoped +(?P<scoped>SIZE)"), _amount("scoped")),
    (
        _pattern(
            r"(?:reserved(?:\([\w/]+\))?|program|global|scoped|overlays|output|HLO \w+)"
            r" +(?:SIZE|unknown)"
        ),
        _nothing,
    ),
    (_pattern(r"Used (?P<used>SIZE) of (?P<limit>SIZE)"), _used),
    (_pattern(r"Exceeded \w+ capacity by (?P<over>SIZE)"), _excess),
    (
        _pattern(
            r"There are (?P<free>SIZE) free(?:, SIZE reserved, and (?P<reservable>SIZE) reservable)?"
        ),
        _free,
    ),
    (re.compile(r"HLO module: (?P<name>[\w.<>-]*[\w<>-])"), _module),
    (
        _pattern(
            r"(?:HBM capacity|Top-of-Memory reserved:|Program requirement:|Max free chunk"
            r"|Available after request:|No (?:program )?allocations in )[ :]*"
        ),
        _nothing,
    ),
    (
        _pattern(
            r"(?:Heap allocator status:|Persistent allocations include"
            r"|attempting reservation for|That was not possible\.?$|It should not be possible"
            r"|See https://openxla\.org/xla/errors)"
        ),
        _nothing,
    ),
]  # fmt: skip
_GPU_HEAD = _pattern(r"Buffer (?P<number>\d{1,9}):\s*$")
_TPU_HEAD = _pattern(r"(?P<number>\d{1,9})\. Size: (?P<size>SIZE)\s*$")
_OPERATOR = _pattern(r"Operator: (?P<text>.*)$")
_END_OF_OPERATOR = re.compile(
    r"Scoped allocation with|(?:XLA [Ll]abel|Shape|Entry Parameter Subshape|Size|Tag|Allocation type): |={10}"
)
_INSTRUCTION = re.compile(
    r"%?(?P<name>[^\s=%]+) = (?:(?P<shape>\(.*?\)|[^\s(]+) )?(?P<opcode>[a-z][a-z0-9-]*)\(.*"
)
"""An instruction; since 2023 without the shape of its result."""
_NAME = re.compile(r"%?(?P<name>[^\s=%]+)(?: = .*)?")


def _read_label(buffer: Buffer, text: str) -> None:
    instruction = _INSTRUCTION.fullmatch(text)
    if instruction is None:
        named = _NAME.fullmatch(text)  # cut off within the shape of its result
        buffer.name = text if named is None else named["name"].rstrip(".")
        return
    buffer.name, buffer.opcode = instruction["name"], instruction["opcode"]
    buffer.result = instruction["shape"]
    if not text.endswith("..."):
        told = metadata_of(text[instruction.end("opcode") :].encode())
        buffer.metadata = {**told, **buffer.metadata}
        if told == buffer.metadata and buffer.result is not None:
            buffer.label = text if text.startswith("%") else f"%{text}"


def _size(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.size = amount_of(found["size"])


def _shape(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape = found["text"].strip()


def _parameter(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape, buffer.kind, buffer.opcode = found["text"].strip(), "parameter", "parameter"


def _label(buffer: Buffer, found: re.Match[str]) -> None:
    text = found["text"].strip()
    if re.fullmatch(r"[a-z][a-z0-9-]*", text):
        buffer.opcode = text
    else:
        _read_label(buffer, text)


def _kind(buffer: Buffer, found: re.Match[str]) -> None:
    text = found["text"].strip().lower()
    buffer.kind, buffer.is_scoped = KINDS.get(text), text == SCOPED
    buffer.is_whole = buffer.size is None


def _end(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.is_whole = True


def _known(buffer: Buffer, found: re.Match[str]) -> None:
    """A line that follows from the size and the shape, or that says what it is for."""


_LABEL_LINE = _pattern(r"XLA [Ll]abel: (?P<text>.+)$")
_BUFFER_FIELDS: list[tuple[re.Pattern[str], Callable[[Buffer, re.Match[str]], None]]] = [
    (_pattern(r"Size: (?P<size>SIZE)\s*$"), _size),
    (_pattern(r"Entry Parameter Subshape: (?P<text>.+)$"), _parameter),
    (_pattern(r"Shape: (?P<text>.+)$"), _shape),
    (_LABEL_LINE, _label),
    (_pattern(r"Allocation type: (?P<text>.+)$"), _kind),
    (_pattern(r"Unpadded size: SIZE"), _known),
    (_pattern(r"Extra memory due to padding: SIZE"), _known),
    (_pattern(r"Tag: \S"), _known),
    (_pattern(r"={20,}\s*$"), _end),
]
_FIELDS = [
    *(pattern for pattern, _ in (*_GPU_FIELDS, *_TPU_FIELDS)),
    *(_GPU_HEAD, _TPU_HEAD, _OPERATOR),
    *(pattern for pattern, _ in _BUFFER_FIELDS),
]
"""All lines that are none of the titles."""
