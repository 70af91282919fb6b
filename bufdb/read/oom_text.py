"""Out-of-memory messages in a log (format section 9.2): titles, fields, lists of buffers.

A line is known by the words in it, wherever they are. Invariant: each line from the first to the
last of a message is read, known to belong to the log, or named as unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bufdb.read import compiled_forms, log_warnings
from bufdb.read import oom_forms as forms
from bufdb.read.amount import PATTERN, amount_of
from bufdb.read.compiled_forms import place_of
from bufdb.read.instruction import metadata_of
from bufdb.read.log_lines import (
    LONGEST,
    Front,
    Line,
    by_process,
    front_of,
    is_foreign,
    lines_of,
    of_tracebacks,
    plain,
)
from bufdb.read.log_warnings import Warned, tuned_of, warning_of
from bufdb.read.message import SPARSE_SPACES, Buffer, Message

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
    + compiled_forms.TITLES
    + log_warnings.TITLES
)
TITLES = re.compile(_TITLE.encode())
"""Every message has one of these; text without any is not read further."""
_TITLES = re.compile(_TITLE)
MAX_FOREIGN = 60
"""Lines of others in a row after which a message may still continue."""
_LONGEST_RAW = 1 << 22
"""Bytes of a line, which may be a whole message in JSON."""
_PARTS = {rule.part for rule in forms.TITLED}
_APART = 4096
"""Lines after which nothing belongs to a message: many processes may write in turn."""
_TELLING = re.compile(rf"(?<![\w.]){PATTERN}(?!\w)|\b[a-z]+\d*\[[\d,]*\]|op_name=|source_file=")
"""A line with one of these has something that a message says."""
_MOST_CONTINUED = 30
_NEAR = 12
"""Lines between the operation that autotuning names and the message of the allocator."""
_NO_SUMS = 99
"""Place of a sum below which none may follow."""


Warning = tuple[int, Warned]
"""The number of its line, and what it says."""


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
    on_memory: set[int] = field(default_factory=set)
    """Those of the unread lines that say something about memory."""
    lines: list[int] | None = None
    """The lines of its process from the first to the last; None if all lines are."""

    def warn(self, warnings: list[Warning]) -> None:
        """Add warnings, whose lines may be far above the message's own."""
        numbers = {number for number, _ in warnings}
        own = self.lines or range(self.first, self.last + 1)
        self.lines = sorted(numbers.union(own))
        self.first, self.last = self.lines[0], self.lines[-1]
        self.read |= numbers
        self.message.warnings = list(dict.fromkeys(warned for _, warned in warnings))


def read(text: str | bytes) -> list[Found]:
    """Return the messages of a log, in order; of bytes only the text around titles is decoded."""
    messages: list[Found] = []
    pending: list[Warning] = []
    for region in _regions(text.encode(errors="replace") if isinstance(text, str) else text):
        streams = by_process(lines_of(region, _TITLES), _content, _PARTS)
        before, pending = pending, []
        for stream in streams:
            reader = _Reader()
            of_stream = reader.run(stream)
            if len(streams) > 1:
                numbers = sorted({index for index, _ in stream})
                for one in of_stream:
                    one.lines = [n for n in numbers if one.first <= n <= one.last]
            pending += _with_warnings(of_stream, before + reader.warnings)
            before = []
            messages += of_stream
    if pending:
        # XLA warned, and nothing failed after it.
        numbers = sorted({number for number, _ in pending})
        alone = Found(Message(is_tpu=False, form="warning"), numbers[0], numbers[-1])
        alone.warn(pending)
        messages.append(replace(alone, lines=numbers))
    # Prose that quotes a title is no message.
    messages = [one for one in messages if not one.message.is_empty]
    return sorted(messages, key=lambda one: (one.first, one.last))


def _with_warnings(messages: list[Found], warnings: list[Warning]) -> list[Warning]:
    """Give warnings to the message after them and to its copies; return those after the last."""
    pending: list[Warning] = []
    of: Message | None = None
    for one in messages:
        before = [warning for warning in warnings if warning[0] <= one.last]
        warnings = warnings[len(before) :]
        bare = replace(one.message)
        if before or (of is not None and (of.is_within(bare) or bare.is_within(of))):
            pending, of = before or pending, bare
            one.warn(pending)
        else:
            of = None
    return warnings


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
    for rule in forms.TITLED:
        if match := rule.search(line):
            return rule.part, match.start()
    for number, pattern in enumerate(forms.FIELDS):
        if match := pattern.search(line):
            return str(number), match.start()
    warned = warning_of(line)
    return None if warned is None else ("warning", warned[1])


class _Reader:
    """Goes through the lines; `found[-1]` is the message that they may belong to."""

    def __init__(self) -> None:
        self.messages: list[Found] = []
        self.target = Message(is_tpu=False)
        """The message's part that the last title names: one memory space."""
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
        self.warnings: list[Warning] = []
        self.tuned: Warning | None = None
        """The operation that autotuning named last."""

    def run(self, lines: Iterable[Line]) -> list[Found]:
        for index, line in lines:
            if tuned := tuned_of(line):
                self.tuned = index, tuned
            content = _content(line)
            if content is not None and content[0] == "warning":
                self.warnings += [(index, warned[0])] if (warned := warning_of(line)) else []
            elif self._again(line, content):
                self._took(index)
            elif self._title(index, line) or (self.is_open and self._field(line)):
                if content is not None:
                    self.fronts[front_of(line, content[1])] = None
                    self.before = line[content[1] :]
                self._took(index)
            elif self.is_open:
                self.foreign += 1
                self.between.append((index, line))
                if self.foreign > MAX_FOREIGN:
                    self._close()
        self._close()
        return self.messages

    def _again(self, line: str, content: tuple[str, int] | None) -> bool:
        """Return whether two loggers wrote the same line: no message repeats a line."""
        return self.is_open and content is not None and line[content[1] :] == self.before

    def _took(self, index: int) -> None:
        last = self.messages[-1]
        known = of_tracebacks(self.between)
        for number, line in self.between:
            if number not in known and not self._is_foreign(line):
                last.unread.append(number)
                if _TELLING.search(line):
                    last.on_memory.add(number)
        self.between, self.foreign = [], 0
        last.read.add(index)
        last.last = index

    def _is_foreign(self, line: str) -> bool:
        """Return whether a line is empty or the log's, apart from the message's own front."""
        rests = {front.without(line) for front in self.fronts} - {line}
        return any(map(is_foreign, rests or {line}))

    def _close(self) -> None:
        self.is_open, self.between, self.quoted, self.foreign = False, [], [], 0
        self.before, self.fronts = "", {}

    def _title(self, index: int, line: str) -> bool:
        for rule in forms.TITLED:
            if title := rule.search(line):
                part = rule.part
                if self.quoted and part == "scoped":
                    self.quoted.append(self._bare(line[: title.start()]).rstrip(". "))
                    self._settle(self.target)
                self.quoted = []
                self._begin(index, part, _space(title))
                message = self.target
                rule.apply(message, title)
                if message.form == "array" and self.tuned is not None:
                    self.warnings += [self.tuned] if index - self.tuned[0] <= _NEAR else []
                    self.tuned = None
                self._more(line[title.end() :])
                if part == "ran_out" and message.form == "kernel" and "scoped" not in message.parts:
                    self.quoted = [title["instruction"].rstrip(" |")]
                    self._settle(message)
                return True
        return False

    def _more(self, rest: str) -> None:
        """Take what follows a title on the same line."""
        message = self.target
        for rule in forms.TITLED:
            if rule.part in forms.FOLLOWING and (match := rule.search(rest)):
                message.parts.add(rule.part)
                rule.apply(message, match)
        for rule in forms.TPU_FIELDS if message.is_tpu else forms.GPU_FIELDS:
            if match := rule.search(rest):
                rule.apply(message, match)

    def _begin(self, index: int, part: str, space: str | None) -> None:
        is_tpu = part in forms.TPU_PARTS
        if self.is_open and self.messages[-1].message.form == "summary":
            if self._add_space(self.messages[-1].message, part, space or "hbm"):
                return
        elif self.is_open:
            message = self.target
            same = message.is_tpu == is_tpu and (space is None or message.space == space)
            # Parts come in one order, so that what comes again or earlier is another message's.
            order = forms.TPU_PARTS if is_tpu else forms.GPU_PARTS
            if same and part == "ran_out" and message.parts == {"scoped"}:
                message.parts.add(part)  # of a kernel, whose two lines are in either order
                return
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
        self.messages.append(Found(self.target, index, index))

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
        for rule in forms.TPU_FIELDS if message.is_tpu else forms.GPU_FIELDS:
            if match := rule.search(line):
                rule.apply(message, match)
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
            if match := pattern.search(line):
                put(buffer, match)
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
