"""Lines of a log as out-of-memory messages (format section 9.2).

A log puts timestamps, names of processes or colours in front of lines, and lines of others between
them; so a line is known by the words in it, wherever they stand. Invariant: each line from the
first to the last of a message is read, known to belong to the log, or named as unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bufdb.read.instruction import metadata_of
from bufdb.read.reports.message import KINDS, Buffer, Message
from bufdb.read.reports.sizes import PATTERN, amount_of

TITLES = re.compile(
    rb"BufferAssignment OOM Debugging|BufferAssignment stats:|Peak buffers:"
    rb"|Ran out of memory in memory space |Total \w+ usage >= |Program \w+ requirement"
    rb"|Largest program allocations in "
)
"""One of these is in every message; what has none needs no further look."""
MAX_FOREIGN = 60
"""Lines of others in a row that a message may go on after."""
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_FRONT = r"(?:^|(?<=[\s\]|:>\"'`]))"
_LOG = re.compile(
    r"\s*(?:$|\d{4}-\d\d-\d\d[ T]\d\d:|[IWEF]\d{4} \d\d:|\[?(?:INFO|WARNING|ERROR)\b|\S+ \[)"
)
"""A line of the log itself, or an empty one."""
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


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Lines with their index; one that holds a message with \n for line ends counts as many."""
    for index, line in enumerate(text.split("\n")):
        line = _ANSI.sub("", line.rstrip("\r"))
        if "\\n" in line and TITLES.search(line.encode(errors="replace")):
            # A JSON log or the repr() of an exception. A quote that it escapes is one of the text.
            line = line.replace('\\"', '"').replace("\\t", "\t")
            for part in line.split("\\n"):
                yield index, part
        else:
            yield index, line


def read(text: str) -> list[Found]:
    """The messages of a log, in order."""
    return _Reader().run(text)


class _Reader:
    """Goes through the lines; `found[-1]` is the message that they may belong to."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.is_open = False
        self.foreign = 0
        """Lines since the last that belonged to the message."""
        self.between: list[int] = []
        """Of these the ones that do not look like the log's."""
        self.quoted: list[str] = []
        """An Operator whose quotes are open: the terminal or the log has broken its line."""

    def run(self, text: str) -> list[Found]:
        for index, line in logical_lines(text):
            if self._title(index, line) or (self.is_open and self._field(line)):
                self._took(index)
            elif self.is_open:
                self.foreign += 1
                if not _LOG.match(line):
                    self.between.append(index)
                if self.foreign > MAX_FOREIGN:
                    self._close()
        self._close()
        return self.found

    def _took(self, index: int) -> None:
        found = self.found[-1]
        found.unread += self.between
        self.between, self.foreign = [], 0
        found.read.add(index)
        found.last = index

    def _close(self) -> None:
        self.is_open, self.between, self.quoted, self.foreign = False, [], [], 0

    def _title(self, index: int, line: str) -> bool:
        for part, pattern, read in _TITLED:
            if title := pattern.search(line):
                self._begin(index, part, is_tpu=part in _TPU_PARTS, space=_space(title))
                read(self.found[-1].message, title)
                return True
        return False

    def _begin(self, index: int, part: str, is_tpu: bool, space: str | None) -> None:
        if self.is_open:
            message = self.found[-1].message
            same = message.is_tpu == is_tpu and (space is None or message.space == space)
            # Parts come in one order, so that what comes again or earlier is another message's.
            order = _TPU_PARTS if is_tpu else _GPU_PARTS
            if same and all(order.index(part) > order.index(known) for known in message.parts):
                message.parts.add(part)
                return
        self._close()
        self.is_open = True
        message = Message(is_tpu, space or "hbm", parts={part})
        self.found.append(Found(message, index, index))

    def _field(self, line: str) -> bool:
        message = self.found[-1].message
        buffer = message.buffers[-1] if message.buffers else None
        if self.quoted:
            return self._continue(line)
        for pattern, read in _TPU_FIELDS if message.is_tpu else _GPU_FIELDS:
            if found := pattern.search(line):
                read(message, found)
                return True
        if not message.parts & {"peak", "largest"}:
            return False
        if (head := (_TPU_HEAD if message.is_tpu else _GPU_HEAD).search(line)) is not None:
            number = int(head["number"])
            if buffer is not None and number <= buffer.number:
                return False
            new = Buffer(number)
            new.size = amount_of(head["size"]) if message.is_tpu else None
            message.buffers.append(new)
            return True
        if buffer is None or buffer.is_whole:
            return False
        if operator := _OPERATOR.search(line):
            self.quoted = [operator["text"]]
            self._settle_operator(buffer)
            return True
        for pattern, take in _BUFFER_FIELDS:
            if found := pattern.search(line):
                take(buffer, found)
                return True
        return False

    def _continue(self, line: str) -> bool:
        buffer = self.found[-1].message.buffers[-1]
        if _END_OF_OPERATOR.search(line) or len(self.quoted) > _MOST_CONTINUED:
            self.quoted = []
            return self._field(line)
        self.quoted.append(line)
        self._settle_operator(buffer)
        return True

    def _settle_operator(self, buffer: Buffer) -> None:
        text = "".join(self.quoted)
        if len(re.findall(r'(?<!\\)"', text)) % 2 == 0:
            self.quoted = []
            buffer.metadata = metadata_of(b", metadata={" + text.strip().encode() + b"}")


def _space(title: re.Match[str]) -> str | None:
    return title.groupdict().get("space")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_FRONT + text.replace("SIZE", PATTERN))


def _nothing(message: Message, title: re.Match[str]) -> None:
    """A title without a figure."""


def _used(message: Message, title: re.Match[str]) -> None:
    if title["used"]:
        message.total, message.is_program_alone = amount_of(title["used"]), True
        message.limit = amount_of(title["limit"])


def _usage(message: Message, title: re.Match[str]) -> None:
    message.total, message.is_program_alone = amount_of(title["size"]), False


def _program(message: Message, title: re.Match[str]) -> None:
    if message.total is None:
        message.total, message.is_program_alone = amount_of(title["size"]), True


_GPU_PARTS = ["title", "stats", "peak"]
_TPU_PARTS = ["ran_out", "usage", "program", "largest"]
_TITLED: list[tuple[str, re.Pattern[str], Callable[[Message, re.Match[str]], None]]] = [
    ("title", re.compile(r"BufferAssignment OOM Debugging"), _nothing),
    ("stats", re.compile(r"BufferAssignment stats:"), _nothing),
    ("peak", _pattern(r"Peak buffers:\s*$"), _nothing),
    (
        "ran_out",
        re.compile(
            r"Ran out of memory in memory space (?P<space>\w+)"
            rf"(?:.*?\bUsed (?P<used>{PATTERN}) of (?P<limit>{PATTERN}) )?"
        ),
        _used,
    ),
    ("usage", _pattern(r"Total (?P<space>\w+) usage >= (?P<size>SIZE)"), _usage),
    ("program", _pattern(r"Program (?P<space>\w+) requirement (?P<size>SIZE)"), _program),
    ("largest", _pattern(r"Largest program allocations in (?P<space>\w+)"), _nothing),
]


def _amount(*names: str) -> Callable[[Message, re.Match[str]], None]:
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


_GPU_FIELDS = [
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
_TPU_FIELDS = [
    (
        _pattern(
            r"HLO temp +(?P<temp>SIZE)(?:\s*\(.*?fragmentation \((?P<fragmentation>SIZE)\)\))?"
        ),
        _amount("temp", "fragmentation"),
    ),
    (_pattern(r"arguments +(?:(?P<argument>SIZE)|unknown size)\s*$"), _arguments),
    (
        _pattern(
            r"Output size (?:(?P<output>SIZE)(?:; shares (?P<alias>SIZE) with arguments)?|unknown)"
        ),
        _amount("output", "alias"),
    ),
    (_pattern(r"(?:reserved|program|global|scoped|overlays|HLO \w+) +(?:SIZE|unknown)"), _nothing),
]
_GPU_HEAD = _pattern(r"Buffer (?P<number>\d{1,9}):\s*$")
_TPU_HEAD = _pattern(r"(?P<number>\d{1,9})\. Size: (?P<size>SIZE)\s*$")
_OPERATOR = _pattern(r"Operator: (?P<text>.*)$")
_END_OF_OPERATOR = re.compile(r"(?:XLA [Ll]abel|Shape|Entry Parameter Subshape|Size): |={10}")
_LABEL = re.compile(
    r"%?(?P<name>[^\s=%]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9-]*)\(.*"
)


def _size(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.size = amount_of(found["size"])


def _shape(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape = found["text"].strip()


def _parameter(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape, buffer.kind, buffer.opcode = found["text"].strip(), "parameter", "parameter"


def _label(buffer: Buffer, found: re.Match[str]) -> None:
    text = found["text"].strip()
    instruction = _LABEL.fullmatch(text)
    if instruction is None:
        if re.fullmatch(r"[a-z][a-z0-9-]*", text):
            buffer.opcode = text
        return
    buffer.name, buffer.opcode = instruction["name"], instruction["opcode"]
    buffer.result = instruction["shape"]
    if not text.endswith("..."):
        told = metadata_of(text[instruction.end("opcode") :].encode())
        buffer.metadata = {**told, **buffer.metadata}
        if told == buffer.metadata:
            buffer.label = text if text.startswith("%") else f"%{text}"


def _kind(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.kind = KINDS.get(found["text"].strip().lower())


def _end(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.is_whole = True


def _known(buffer: Buffer, found: re.Match[str]) -> None:
    """A line that follows from the size and the shape."""


_BUFFER_FIELDS = [
    (_pattern(r"Size: (?P<size>SIZE)\s*$"), _size),
    (_pattern(r"Entry Parameter Subshape: (?P<text>.+)$"), _parameter),
    (_pattern(r"Shape: (?P<text>.+)$"), _shape),
    (_pattern(r"XLA [Ll]abel: (?P<text>.+)$"), _label),
    (_pattern(r"Allocation type: (?P<text>.+)$"), _kind),
    (_pattern(r"Unpadded size: SIZE"), _known),
    (_pattern(r"Extra memory due to padding: SIZE"), _known),
    (_pattern(r"={20,}\s*$"), _end),
]
