"""Files next to the buffer files: compiler flags, the HLO text as received, memory usage."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bufdb.errors import quote
from bufdb.read import hlo
from bufdb.read.boundaries import BOM
from bufdb.read.calls import Calls

# --------------------------------------------------------------------------------------------------
# The HLO text as the compiler received it: the parameters of the program (format section 7.5).
#
# Compilers for TPU take shardings away; there this text alone has them, with whole shapes. It may
# be as long as the program, so it is read in parts, and the lines of parameters are kept.

_END = re.compile(rb'\n\}(?: // [^\s"]+)?\r?(?:\n(?=\r?\n)|(?:\n)?\Z)')
"""A computation's end and an empty line, or the end of the part; a brace may also follow a raw line
end in an attribute. After the brace jaxlib 0.4.35 repeats a computation's name."""
_OPCODE = b" parameter("
_PARAMETER = re.compile(
    rb'  (?:ROOT )?(%?[^\s=]+ = (\([^"]*\)|[^\s"]+) parameter\((\d{1,18})\).*)', re.DOTALL
)


@dataclass(frozen=True)
class EntryParameter:
    """A row of `entry_parameters`."""

    parameter_number: int
    shape: str
    text: str


class BeforeOptimizations:
    """What is kept of a text that arrives in parts of whole lines."""

    def __init__(self) -> None:
        """Begin a text."""
        self.header = hlo.HloHeader()
        """Header from its first line; nothing below is read."""
        self.parameters: dict[int, EntryParameter] = {}
        """Parameters of the entry computation by number, in the order of the text."""
        self.problems: list[tuple[int, str]] = []
        """(line number, message) of lines that were not understood."""
        self.calls = Calls()
        """Who calls the functions that have no line of their own."""
        self.has_end = False
        """Whether the entry computation ended, as far as the text goes."""
        self._has_entry = self._is_after = False
        self._line_count = 0
        self._ends_line = True

    @property
    def line_count(self) -> int:
        """Lines so far, one without a line end included."""
        return self._line_count + (not self._ends_line)

    @property
    def read_count(self) -> int:
        """Lines that were read."""
        return self.header.read_count + len(self.parameters)

    def feed(self, text: bytes) -> None:
        """Scan the next part."""
        if not self._line_count:
            first, _, _ = text.removeprefix(BOM).partition(b"\n")
            self.header = hlo.read(first.rstrip(b"\r"))
            self.problems += self.header.problems
        self.calls.feed(text)
        if self.has_end and text:
            self.has_end = self._is_after = self._is_after or text.startswith((b"\n", b"\r\n"))
        if not self._is_after:
            self._look(b"\n" + text)
        self._line_count += text.count(b"\n")
        self._ends_line = text.endswith(b"\n")

    def _look(self, text: bytes) -> None:
        begin = 0
        if not self._has_entry:
            begin = text.find(b"\nENTRY ")
            if begin < 0:
                return
            self._has_entry = True
            begin = text.find(b"\n", begin + 1)
            begin = len(text) if begin < 0 else begin
        end = _END.search(text, begin)
        stop = end.start() if end else len(text)
        self.has_end = end is not None
        self._is_after = end is not None and end.end() < len(text)
        number = counted = 0
        at = text.find(_OPCODE, begin, stop)
        while at >= 0:
            start = text.rfind(b"\n", 0, at) + 1
            line_end = text.find(b"\n", at, stop)
            line_end = stop if line_end < 0 else line_end
            expected = self._parameter(text[start:line_end].rstrip(b"\r"), at - start)
            if expected is not None:
                quoted = quote(text[start : min(line_end, start + 400)].decode(errors="replace"))
                number, counted = number + text.count(b"\n", counted, start), start
                message = f"expected {expected}, found {quoted}"
                self.problems.append((self._line_count + number, message))
            at = text.find(_OPCODE, line_end, stop)

    def _parameter(self, line: bytes, at: int) -> str | None:
        """Keep a parameter whose opcode seems to be at `at`; return what was expected if not."""
        match = _PARAMETER.fullmatch(line)
        if match is None or match.start(3) != at + len(_OPCODE):
            return None if b'"' in line[:at] else "%NAME = SHAPE parameter(N)"
        text, shape, digits = match.groups()
        number = int(digits)
        if number in self.parameters:
            return "a parameter of another number"
        self.parameters[number] = EntryParameter(
            number, shape.decode(errors="replace"), text.decode(errors="replace")
        )
        return None


# -- The debug_options file: compiler flags that differ from their default (format section 2.1) ----


def read_debug_options(text: bytes) -> tuple[list[tuple[str, str]], list[tuple[int, str]]]:
    """Return (name, value) of each `name: value` line, and (line number, message) of the others."""
    options, problems = [], []
    for number, line in enumerate(text.decode(errors="replace").split("\n"), 1):
        name, separator, value = line.partition(": ")
        if separator and name:
            options.append((name, value))
        elif line.strip():
            problems.append((number, "expected 'name: value'"))
    return options, problems


# -- The memory-usage-report: its totals alone, which are exact (format section 9.1) ---------------

_SPACE = re.compile(rb"Memory Space: [^\n]*\(color=(\d{1,18})\)\r?$")
_BYTES = re.compile(rb"Total bytes: (-?\d{1,38}) \(")
_USED = re.compile(rb"Total bytes used: (-?\d{1,38}) \(")


def read_memory_usage(text: bytes) -> tuple[list[tuple[int | None, int]], int]:
    """Return (color, bytes) of each total, and the number of lines that state them.

    The color is None for the total of all memory spaces, which is that of jaxlib 0.4.35 to 0.9.1.
    A total without a color above it, and a second one of the same color, are left out: the report
    was damaged there.
    """
    totals: dict[int | None, int] = {}
    color: int | None = None
    lines = 0
    for line in text.split(b"\n"):
        if space := _SPACE.match(line):
            color = int(space[1])
            lines += 1
        elif (total := _BYTES.match(line)) and color is not None:
            totals.setdefault(color, int(total[1]))
            color = None
            lines += 1
        elif used := _USED.match(line):
            totals.setdefault(None, int(used[1]))
            lines += 1
    return list(totals.items()), lines
