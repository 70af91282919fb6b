"""The computations of an HLO text as a graph: names, roots, callers, operands (format section 7).

Where computations begin is found at once, the lines of one when it is first asked for, and of a
line only what is asked for. What makes no sense in a text (names that are nowhere, computations
that call themselves, numbers of any size) is left out, or left to whoever walks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from bufdb.read.instruction import metadata_of, plain_metadata

Index = tuple[int, ...]
"""Place in a tuple shape: () for the whole."""
LOOP = b" while("
"""Stands in every text that has a loop."""

_COMPUTATION = re.compile(rb"\n\n(ENTRY )?%?([\w.\-]+) [({]")
_FIRST_COMPUTATION = re.compile(rb"\n*(ENTRY )?%?([\w.\-]+) [({]")
# A raw line end inside a backend_config begins no instruction.
_LINE = re.compile(rb"\n  (?:ROOT )?%?([^\s=]+) = ")
_NEXT = re.compile(rb"\n  (?:ROOT )?%?[^\s=]+ = |\n\}")
_HEAD = re.compile(rb"([^\s=]+) = (\((?s:.*?)\)|[^\s(]\S*) ([\w\-]+)\((?:%([\w.\-]+)(?=[,)]))?")
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(?P<open>[({\[])|(?P<close>[)}\]])', re.DOTALL)
_OPERAND = re.compile(rb"%([\w.\-]+)(?:#(\d{1,9}(?:,\d{1,9})*))?")
_BARE_OPERAND = re.compile(rb"(?:^|\s)([\w.\-]+)(?:#(\d{1,9}(?:,\d{1,9})*))?$")
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NUMBER = re.compile(rb" *(\d{1,9}) *")
_ELEMENT = re.compile(rb", index=(\d{1,9})")
_CALLS = re.compile(rb", calls=%?([\w.\-]+)")
_ROLE = re.compile(
    rb", (calls|to_apply|body|condition|branch_computations|true_computation|false_computation)="
    rb"(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(rb"[\w.\-]+")
_TRIPS = re.compile(rb'known_trip_count\\?":\{\\?"n\\?":\\?"(\d{1,18})\\?"')
_CALLERS = ("call", "conditional", "-start")
"""How other opcodes end that enter computations whose instructions define values."""
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


class Instruction:
    """One line, of which is taken apart what is asked for."""

    __slots__ = (
        "_attributes",
        "_called",
        "_close",
        "_first",
        "_line_end",
        "_metadata",
        "_operands",
        "_stop",
        "_text",
        "computation",
        "is_users",
        "name",
        "opcode",
        "paren",
        "position",
        "shape_text",
    )

    def __init__(self, text: bytes, head: re.Match[bytes], computation: int, stop: int) -> None:
        """Take the line's head; `stop` is where its computation ends."""
        self._text, self.computation, self._stop = text, computation, stop
        self._line_end = head.endpos
        self.name, self.shape_text, opcode, self._first = head.groups()
        self.opcode = opcode.decode()
        self.position = head.start()
        """Where the name stands in the text: no other instruction has it."""
        self.paren = head.end(3)
        self.is_users: bool | None = None
        """Kept by `Places`."""
        self._close = -1
        self._attributes: bytes | None = None
        self._operands: list[tuple[bytes, Index]] | None = None
        self._called: dict[str, list[bytes]] | None = None
        self._metadata: dict[str, Any] | None = None

    @property
    def shape(self) -> str:
        """Shape with layout, as printed."""
        return self.shape_text.decode(errors="replace")

    @property
    def close(self) -> int:
        """Where the bracket behind the operands stands."""
        if self._close < 0:
            self._close = _closing(self._text, self.paren, self._line_end)
        return self._close

    @property
    def operands(self) -> list[tuple[bytes, Index]]:
        """Names of the operands, and the index that jaxlib 0.11 and later print (`%while.5#1`)."""
        if self._operands is None:
            is_literal = self.opcode in ("constant", "iota")
            inside = b"" if is_literal else self._text[self.paren + 1 : self.close]
            self._operands = _operands(inside)
        return self._operands

    def operand(self, number: int) -> tuple[bytes, Index] | None:
        """One of the operands; the first is mostly known without the others."""
        if number == 0 and self._first is not None:
            return self._first, ()
        operands = self.operands
        return operands[number] if number < len(operands) else None

    @property
    def number(self) -> int | None:
        """Which parameter a `parameter` is, which element a `get-tuple-element` takes."""
        if self.opcode == "parameter":
            found = _NUMBER.fullmatch(self._text, self.paren + 1, self.close)
        else:
            found = _ELEMENT.search(self._text, self.paren, self._line_end)
        return int(found[1]) if found else None

    @property
    def attributes(self) -> bytes:
        """What stands behind the operands."""
        if self._attributes is None:
            end = _end(self._text, self._line_end, self._stop)
            self._attributes = self._text[self.close + 1 : end]
        return self._attributes

    @property
    def called(self) -> dict[str, list[bytes]]:
        """Names of the computations that it calls by role; those of branches are in their order."""
        if self._called is None:
            if self.opcode == "fusion":
                found = _CALLS.search(self._text, self.paren, self._line_end)
                if found is not None and self._text.find(b'"', self.paren, found.start()) < 0:
                    self._called = {"calls": [found[1]]}
                    return self._called
            self._called = {}
            plain, quote, _ = self.attributes.partition(b'"')
            if quote and self.opcode.startswith("custom-call"):
                # Its target stands before what it calls; elsewhere quotes come behind that.
                plain = _QUOTED.sub(b"", self.attributes)
            for role, names in _ROLE.findall(plain):
                key = "branch" if role.decode() in _BRANCHES else role.decode()
                self._called.setdefault(key, []).extend(_NAME.findall(names))
        return self._called

    @property
    def metadata(self) -> dict[str, Any]:
        """Fields of the metadata by name; text is unescaped bytes, numbers are int."""
        if self._metadata is None:
            self._metadata = plain_metadata(self._text, self.paren, self._line_end)
            if self._metadata is None:
                self._metadata = metadata_of(self.attributes)
        return self._metadata

    @property
    def op_name(self) -> bytes | None:
        """Scope path of the operation, None if it has none."""
        return self.metadata.get("op_name") or None

    @property
    def trip_count(self) -> int | None:
        """How often a loop runs, where XLA knows and says so."""
        found = _TRIPS.search(self.attributes)
        return int(found[1]) if found else None


Caller = tuple[Instruction, str, int]
"""The instruction that calls a computation, in which role, as which of them."""


class HloGraph:
    """Instructions and computations of one module's text, each computation with a number."""

    def __init__(self, text: bytes, loops: Sequence[int]) -> None:
        """Find the computations.

        Args:
            text: the computations, in whole lines.
            loops: where LOOP stands in it (`loops_in`).
        """
        self.text, self._loops = text, loops
        self._starts: list[int] = []
        self._numbers: dict[bytes, int] = {}
        self._entries: list[int] = []
        first = _FIRST_COMPUTATION.match(text)
        for found in ([first] if first else [], _COMPUTATION.finditer(text)):
            for head in found:
                number = len(self._starts)
                self._starts.append(head.start())
                self._numbers.setdefault(head[2], number)
                if head[1]:
                    self._entries.append(number)
        self._stops = [*self._starts[1:], len(text)]
        self._lines: dict[int, dict[bytes, int]] = {}
        self._read: dict[int, Instruction | None] = {}

    # -- finding -------------------------------------------------------------------------------

    def find(self, computation: int, name: bytes) -> Instruction | None:
        """The instruction of this name in a computation; operands stand where they are used."""
        lines = self._lines.get(computation)
        if lines is None:
            lines = self._lines_of(computation)
        at = lines.get(name)
        return None if at is None else self._at(at, computation)

    def root(self, name: bytes) -> Instruction | None:
        """The root of the computation of this name."""
        number = self._numbers.get(name)
        if number is None:
            return None
        at = self.text.rfind(b"\n  ROOT ", self._starts[number], self._stops[number])
        line = _LINE.match(self.text, at, self._stops[number]) if at >= 0 else None
        return self._at(line.start(1), number) if line else None

    def caller(self, computation: int) -> Caller | None:
        """The loop, call or branch that enters a computation.

        Fusions are left out: nobody comes to a fused computation but through its fusion.
        """
        found = self._in_loops.get(computation)
        if found is None and computation not in self._entries:
            found = self._called.get(computation)
        return found

    def homes(self, names: Iterable[bytes], only_in_loops: bool = False) -> dict[bytes, int]:
        """The computations of these instructions, as far as they define values: no fused ones.

        Args:
            names: of instructions.
            only_in_loops: whether those outside the bodies of loops need not be found.
        """
        found: dict[bytes, int] = {}
        left = set(names)
        rest = () if only_in_loops else (lambda: self._entries, lambda: self._called)
        for numbers in (lambda: self._in_loops, *rest):
            for number in numbers() if left else ():
                mine = left & self._lines_of(number).keys()
                found.update(dict.fromkeys(mine, number))
                left -= mine
        return found

    @cached_property
    def _in_loops(self) -> dict[int, Caller]:
        return self._callers(self._loops, "while")

    @cached_property
    def _called(self) -> dict[int, Caller]:
        found: dict[int, Caller] = {}
        for opcode in _CALLERS:
            pattern = f"{opcode}(" if opcode.startswith("-") else f" {opcode}("
            places = _places(self.text, pattern.encode())
            found = self._callers(places, opcode) | found
        return found

    def _callers(self, places: Iterable[int], opcode: str) -> dict[int, Caller]:
        """By computation who calls it, of the instructions with a text at these places."""
        found: dict[int, Caller] = {}
        text, before = self.text, 0
        for at in places:
            # Nothing is looked at twice: two places without a line's start between are one line's.
            begin = text.rfind(b"\n  ", before, at)
            before = at
            line = _LINE.match(text, begin) if begin >= 0 else None
            computation = bisect_right(self._starts, at) - 1
            ins = self._at(line.start(1), computation) if line and computation >= 0 else None
            if ins is None or not ins.opcode.endswith(opcode):
                continue
            for role, names in ins.called.items():
                for place, name in enumerate(names):
                    if name in self._numbers:
                        found.setdefault(self._numbers[name], (ins, role, place))
        return found

    def _lines_of(self, computation: int) -> dict[bytes, int]:
        """Where the names of a computation's instructions stand."""
        lines = self._lines.get(computation)
        if lines is None:
            begin, end = self._starts[computation], self._stops[computation]
            found = _LINE.finditer(self.text, begin, end)
            lines = self._lines[computation] = {line[1]: line.start(1) for line in found}
        return lines

    def _at(self, position: int, computation: int) -> Instruction | None:
        """The instruction whose name stands there; None if its line is not understood."""
        if position in self._read:
            return self._read[position]
        stop = self._stops[computation]
        line_end = self.text.find(b"\n", position, stop)
        head = _HEAD.match(self.text, position, line_end if line_end >= 0 else stop)
        ins = None if head is None else Instruction(self.text, head, computation, stop)
        self._read[position] = ins
        return ins


def loops_in(text: bytes) -> list[int]:
    """Where LOOP stands in a text: in the lines of loops, and perhaps in texts of others."""
    return list(_places(text, LOOP))


def loops_of(text: bytes, places: Iterable[int]) -> list[dict[str, Any]]:
    """The metadata of the loops of a text; nothing else of it is taken apart."""
    found, last = [], 0
    for at in places:
        if at < last:
            continue
        line_end = text.find(b"\n", at)
        last = _end(text, line_end, len(text)) if line_end >= 0 else len(text)
        close = _closing(text, at + len(LOOP) - 1, last)
        found.append(metadata_of(text[close + 1 : last]))
    return found


def _places(text: bytes, pattern: bytes) -> Iterable[int]:
    at = text.find(pattern)
    while at >= 0:
        yield at
        at = text.find(pattern, at + 1)


def _end(text: bytes, line_end: int, stop: int) -> int:
    """Where an instruction ends: at the end of its line, or behind raw line ends in it."""
    following = _NEXT.search(text, line_end, stop)
    return following.start() if following else stop


def _closing(text: bytes, paren: int, end: int) -> int:
    """Where the bracket at a place is closed; the end if it is not."""
    close = text.find(b")", paren, end)
    if close >= 0 and text.find(b"(", paren + 1, close) < 0 and text.find(b'"', paren, close) < 0:
        return close
    depth = 0
    for found in _BRACKET.finditer(text, paren, end):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
            if depth == 0:
                return found.start()
    return end


def _operands(inside: bytes) -> list[tuple[bytes, Index]]:
    """Names of the operands with their index; old texts print a shape before each."""
    if b"%" in inside:
        return [(name, _index(at) if at else ()) for name, at in _OPERAND.findall(inside)]
    found, depth, start = [], 0, 0
    inside = _COMMENT.sub(b"", inside) + b","
    for at, char in enumerate(inside):
        depth += (char in b"([{") - (char in b")]}")
        if char == ord(",") and depth == 0:
            operand = _BARE_OPERAND.search(inside[start:at])
            if operand:
                found.append((operand[1], _index(operand[2])))
            start = at + 1
    return found


def _index(text: bytes | None) -> Index:
    return tuple(map(int, text.split(b","))) if text else ()
