"""The computations of an HLO text as a graph: names, roots, callers, operands (format section 7).

The computations are located at once, the lines of a long one when it is first used, those of a
short one line by line, and a line is parsed only as far as it is used. What makes no sense in a
text (names that are nowhere, computations that call themselves, numbers of any size) is left out,
or left to the caller that walks the graph.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from bufdb.read.instruction import metadata_of, plain_metadata
from bufdb.read.shape import Shape, shape_at

Index = tuple[int, ...]
"""Place in a tuple shape: () for the whole."""
LOOP = b" while("
"""Occurs in every text that has a loop."""

_COMPUTATION = re.compile(rb"\n\n(ENTRY )?%?([\w.\-]+) [({]")
_FIRST_COMPUTATION = re.compile(rb"\n*(ENTRY )?%?([\w.\-]+) [({]")
# A raw line end inside a backend_config begins no instruction.
_LINE = re.compile(rb"\n  (?:ROOT )?%?([^ ]++) = ")
_NEXT = re.compile(rb"\n  (?:ROOT )?%?[^\s=]+ = |\n\}")
_HEAD = re.compile(
    rb"([^ ]++) = (\([^)]*+(?:\)(?! [a-zA-Z0-9_\-]++\()[^)]*+)*\)|(?!\()[^ ]++)"
    rb" ([a-zA-Z0-9_\-]++)\("
    rb"(?:%([a-zA-Z0-9_.\-]++)(?=[,)])| *([0-9]{1,9}) *\))?"
)
"""Name, shape, opcode, and the first item in the brackets: an operand or a number."""
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(?P<open>[({\[])|(?P<close>[)}\]])', re.DOTALL)
_PLAIN_OPERANDS = re.compile(rb'\(([^()"#]*+)\)')
_PLAIN_OPERAND = re.compile(rb"%([a-zA-Z0-9_.\-]++)")
_OPERAND = re.compile(rb"%([a-zA-Z0-9_.\-]++)(?:#(\d{1,9}(?:,\d{1,9})*))?")
_BARE_OPERAND = re.compile(rb"(?:^|\s)([\w.\-]+)(?:#(\d{1,9}(?:,\d{1,9})*))?$")
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_ELEMENT = re.compile(rb", index=(\d{1,9})")
_CALLS = re.compile(rb", calls=%?([a-zA-Z0-9_.\-]++)")
_ROLE = re.compile(
    rb", (calls|to_apply|body|condition|branch_computations|true_computation|false_computation)="
    rb"(\{[^}]*\}|%?[\w.\-]+)"
)
_NAME = re.compile(rb"[\w.\-]+")
_TRIPS = re.compile(rb'known_trip_count\\?":\{\\?"n\\?":\\?"(\d{1,18})\\?"')
_CALLERS = ("call", "conditional", "-start")
"""Suffixes of the other opcodes that enter computations whose instructions define values."""
_LINE_STARTS = (b"\n  ", b"\n  ROOT ")
_MOST_FUSED = 20
"""Limit on fusions within fusions; XLA's go two deep."""
_SHORT = 1 << 12
"""Up to this many bytes, a line is found by its text, without an index of all lines."""
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


class Instruction:
    """One line, parsed only as far as it is used."""

    __slots__ = (
        "_attributes",
        "_called",
        "_close",
        "_head",
        "_metadata",
        "_operands",
        "_stop",
        "computation",
        "first",
        "is_users",
        "opcode",
        "own",
        "paren",
        "position",
    )

    def __init__(self, head: re.Match[bytes], computation: int, stop: int) -> None:
        """Take the line's head; `stop` is where its computation ends."""
        self._head, self.computation, self._stop = head, computation, stop
        opcode, first = head.group(3, 4)
        self.opcode: str = _text(opcode)
        self.first: bytes | None = first
        """Name of the first operand, where it is written plainly; else see `operands`."""
        self.position, self.paren = head.start(), head.end(3)
        """Positions in the text of the name and of the bracket before the operands."""
        self.is_users: bool | None = None
        """Set by `Places`, as is `own`."""
        self.own: Any = NotImplemented
        self._close = -1
        self._attributes: bytes | None = None
        self._operands: list[tuple[bytes, Index]] | None = None
        self._called: dict[str, list[bytes]] | None = None
        self._metadata: dict[str, Any] | None = None

    @property
    def name(self) -> bytes:
        """Its name, without the `%`."""
        return self._head[1]

    @property
    def shape_text(self) -> bytes:
        """Shape with layout, as printed."""
        return self._head[2]

    @property
    def shape(self) -> str:
        """Shape with layout, as text."""
        return self._head[2].decode(errors="replace")

    @property
    def close(self) -> int:
        """Position of the bracket after the operands."""
        if self._close < 0:
            self._close = _closing(self._head.string, self.paren, self._head.endpos)
        return self._close

    @property
    def operands(self) -> list[tuple[bytes, Index]]:
        """Names of the operands, with the index that jaxlib 0.11 and later print (`%while.5#1`)."""
        if self._operands is None:
            self._operands = self._read_operands()
        return self._operands

    def _read_operands(self) -> list[tuple[bytes, Index]]:
        if self.opcode in ("constant", "iota"):
            return []
        plain = _PLAIN_OPERANDS.match(self._head.string, self.paren, self._head.endpos)
        names = _PLAIN_OPERAND.findall(plain[1]) if plain is not None else []
        if names:
            return [(name, ()) for name in names]
        return _operands(self._head.string[self.paren + 1 : self.close])

    @property
    def number(self) -> int | None:
        """Which parameter a `parameter` is, which element a `get-tuple-element` takes."""
        if self.opcode == "parameter":
            digits = self._head[5]
            return int(digits) if digits else None
        match = _ELEMENT.search(self._head.string, self.paren, self._head.endpos)
        return int(match[1]) if match else None

    @property
    def attributes(self) -> bytes:
        """The text after the operands."""
        if self._attributes is None:
            end = _end(self._head.string, self._head.endpos, self._stop)
            self._attributes = self._head.string[self.close + 1 : end]
        return self._attributes

    @property
    def called(self) -> dict[str, list[bytes]]:
        """Names of the computations that it calls, by role; those of branches are in order."""
        if self._called is None:
            self._called = {}
            plain, quote, _ = self.attributes.partition(b'"')
            if quote and (self.opcode == "custom-call" or self.opcode.endswith("-start")):
                # Its target, or thread, is before what it calls; elsewhere quotes come after that.
                plain = _QUOTED.sub(b"", self.attributes)
            for role, names in _ROLE.findall(plain):
                key = "branch" if role.decode() in _BRANCHES else role.decode()
                self._called.setdefault(key, []).extend(_NAME.findall(names))
        return self._called

    @property
    def fused(self) -> bytes | None:
        """For a fusion, the name of what it calls, which comes before any quoted text."""
        text = self._head.string
        match = _CALLS.search(text, self.paren, self._head.endpos)
        if match is not None and text.find(b'"', self.paren, match.start()) < 0:
            return match[1]
        names = self.called.get("calls")
        return names[0] if names else None

    @property
    def metadata(self) -> dict[str, Any]:
        """Fields of the metadata by name; text is unescaped bytes, numbers are int."""
        if self._metadata is None:
            self._metadata = plain_metadata(self._head.string, self.paren, self._head.endpos)
            if self._metadata is None:
                self._metadata = metadata_of(self.attributes)
        return self._metadata

    @property
    def op_name(self) -> bytes | None:
        """Scope path of the operation, None if it has none."""
        return self.metadata.get("op_name") or None

    @property
    def trip_count(self) -> int | None:
        """How often a loop runs, if XLA knows and prints it."""
        match = _TRIPS.search(self.attributes)
        return int(match[1]) if match else None


@lru_cache(maxsize=1 << 10)
def _text(opcode: bytes) -> str:
    """Decode an opcode into a text shared by all instructions: there are some dozens."""
    return opcode.decode()


At = tuple[Instruction, Index]
"""An instruction and an index in its shape."""


def at_shape(at: At) -> Shape:
    """Return the shape of an instruction's result at an index."""
    return shape_at(at[0].shape, at[1])


Caller = tuple[Instruction, str, int]
"""The instruction that calls a computation, in which role, as which of them."""


class HloGraph:
    """Instructions and computations of one module's text, each computation with a number."""

    def __init__(
        self,
        text: bytes,
        loops: Sequence[int],
        metadata: Mapping[bytes, dict[str, Any]] | None = None,
    ) -> None:
        """Find the computations.

        Args:
            text: the computations, in whole lines.
            loops: positions of LOOP in it (`loops_in`).
            metadata: of instructions by name, instead of what the text has.
        """
        self.text, self._loops, self._metadata = text, loops, metadata or {}
        first = _FIRST_COMPUTATION.match(text)
        heads = [*([first] if first else []), *_COMPUTATION.finditer(text)]
        self._starts = [head.start() for head in heads]
        self._stops = [*self._starts[1:], len(text)]
        names = [head[2] for head in reversed(heads)]
        # Of several with one name, the first.
        self._numbers = dict(zip(names, range(len(names) - 1, -1, -1), strict=True))
        self._entries = [number for number, head in enumerate(heads) if head[1]]
        self._lines: dict[int, dict[bytes, int]] = {}
        self._named: list[dict[bytes, Instruction | None]] = [{} for _ in heads]
        self._roots: dict[int, Instruction | None] = {}

    # -- finding -------------------------------------------------------------------------------

    def find(self, computation: int, name: bytes) -> Instruction | None:
        """Return the instruction of this name in a computation (that of its users)."""
        named = self._named[computation]
        return named[name] if name in named else self._look_up(computation, name)

    def operand(self, ins: Instruction, number: int, index: Index) -> At | None:
        """Return an operand and the index in its shape (or a part of the index); None if absent."""
        name = ins.first if number == 0 else None
        if name is None:
            operands = ins._operands
            if operands is None:
                operands = ins.operands
            if number >= len(operands):
                return self._of_update(ins, number, index)
            name, within = operands[number]
            if within:
                index = within + index
        named = self._named[ins.computation]
        instruction = named[name] if name in named else self._look_up(ins.computation, name)
        return None if instruction is None else (instruction, index)

    def _of_update(self, start: Instruction, number: int, index: Index) -> At | None:
        """Return an operand that an asynchronous call's update takes; its first is the call."""
        if not start.opcode.endswith("-start"):
            return None
        text, stop = self.text, self._stops[start.computation]
        at = text.find(b"-update(%" + start.name + b",", start.position, stop)
        line = _LINE.match(text, text.rfind(b"\n  ", start.position, at)) if at >= 0 else None
        update = self._at(line.start(1), start.computation) if line else None
        if update is None or not update.opcode.endswith("-update"):
            return None
        return self.operand(update, 1 + number - len(start.operands), index)

    def operand_shape(self, ins: Instruction, number: int) -> Shape | None:
        """Return the shape of an operand, of the element that it names if it names one."""
        at = self.operand(ins, number, ())
        return None if at is None else at_shape(at)

    def root(self, name: bytes) -> Instruction | None:
        """Return the root of the computation of this name."""
        number = self._numbers.get(name)
        if number is None:
            return None
        if number not in self._roots:
            text = self.text
            at = text.rfind(b"\n  ROOT ", self._starts[number], self._stops[number]) + 8
            at += text.startswith(b"%", at)
            self._roots[number] = self._at(at, number) if at >= 8 else None
        return self._roots[number]

    def caller(self, computation: int) -> Caller | None:
        """Return the loop, call or branch that enters a computation.

        Fusions are left out: a fused computation is only reached through its fusion.
        """
        caller = self._in_loops.get(computation)
        if caller is None and computation not in self._entries:
            caller = self._called.get(computation)
        return caller

    def is_fused(self, computation: int) -> bool:
        """Return whether a computation defines no values: only a fusion calls it."""
        return computation not in self._entries and self.caller(computation) is None

    def instructions(self, name: bytes) -> list[Instruction | None]:
        """Return the instructions of a computation by name; None for an unreadable line."""
        number = self._numbers.get(name)
        return [] if number is None else self.instructions_in(number)

    def instructions_in(self, computation: int) -> list[Instruction | None]:
        """Return the instructions of a computation by number; None for an unreadable line."""
        return [self._at(at, computation) for at in self._lines_of(computation).values()]

    def entered(self) -> list[int]:
        """Return the computations that a loop, call or branch enters, in the order of the text."""
        return sorted((self._in_loops.keys() | self._called.keys()) - set(self._entries))

    def having(self, pattern: bytes) -> Iterator[Instruction]:
        """Yield each instruction whose line, or what it is continued by, holds some bytes."""
        text, last = self.text, -1
        for at in _places(text, pattern):
            # What begins below a line end within a text is the line's above.
            begin = text.rfind(b"\n  ", 0, at)
            line = _LINE.match(text, begin) if begin >= 0 else None
            computation = bisect_right(self._starts, at) - 1
            if line is None or begin == last or computation < 0:
                continue
            last = begin
            ins = self._at(line.start(1), computation)
            if ins is not None:
                yield ins

    def is_entry(self, computation: int) -> bool:
        """Return whether it is the program's."""
        return computation in self._entries

    def fusion(self, computation: int) -> Instruction | None:
        """Return the fusion that calls a computation."""
        return self._fusions.get(computation)

    def executed(self, ins: Instruction) -> Instruction | None:
        """Return the instruction that is executed for one: for what is fused its fusion."""
        for _ in range(_MOST_FUSED):
            if not self.is_fused(ins.computation):
                return ins
            fusion = self.fusion(ins.computation)
            if fusion is None:
                return None
            ins = fusion
        return None

    @cached_property
    def _fusions(self) -> dict[int, Instruction]:
        callers = self._callers(_places(self.text, b" fusion("), "fusion")
        return {computation: caller[0] for computation, caller in callers.items()}

    def homes(self, names: Iterable[bytes], only_in_loops: bool = False) -> dict[bytes, int]:
        """Return the computations of these instructions, among those that define values.

        Args:
            names: of instructions.
            only_in_loops: whether those outside the bodies of loops need not be found.
        """
        computations: dict[bytes, int] = {}
        left = set(names)
        rest = () if only_in_loops else (lambda: self._entries, lambda: self._called)
        for numbers in (lambda: self._in_loops, *rest):
            for number in numbers() if left else ():
                defined_here = left & self._lines_of(number).keys()
                computations.update(dict.fromkeys(defined_here, number))
                left -= defined_here
        return computations

    @cached_property
    def _in_loops(self) -> dict[int, Caller]:
        return self._callers(self._loops, "while")

    @cached_property
    def _called(self) -> dict[int, Caller]:
        callers: dict[int, Caller] = {}
        for opcode in _CALLERS:
            pattern = f"{opcode}(" if opcode.startswith("-") else f" {opcode}("
            places = _places(self.text, pattern.encode())
            callers = self._callers(places, opcode) | callers
        return callers

    def _callers(self, places: Iterable[int], opcode: str) -> dict[int, Caller]:
        """Return, by computation, its caller among the instructions with a text at these places."""
        callers: dict[int, Caller] = {}
        text, before = self.text, 0
        for at in places:
            # Nothing is read twice: two places without a line start between them are on one line.
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
                        callers.setdefault(self._numbers[name], (ins, role, place))
        return callers

    def _lines_of(self, computation: int) -> dict[bytes, int]:
        """Return the positions of the names of a computation's instructions."""
        lines = self._lines.get(computation)
        if lines is None:
            begin, end = self._starts[computation], self._stops[computation]
            matches = _LINE.finditer(self.text, begin, end)
            lines = self._lines[computation] = {line[1]: line.start(1) for line in matches}
        return lines

    def _look_up(self, computation: int, name: bytes) -> Instruction | None:
        """Find an instruction in the text, once."""
        begin, end = self._starts[computation], self._stops[computation]
        position = None
        if end - begin <= _SHORT:
            at = self.text.rfind(b"%" + name + b" = ", begin, end)
            if at >= 0 and self.text.endswith(_LINE_STARTS, begin, at):
                position = at + 1
        if position is None:
            position = self._lines_of(computation).get(name)
        instruction = None if position is None else self._at(position, computation)
        self._named[computation][name] = instruction
        return instruction

    def _at(self, position: int, computation: int) -> Instruction | None:
        """Return the instruction whose name is there; None if its line is not understood."""
        stop = self._stops[computation]
        line_end = self.text.find(b"\n", position, stop)
        head = _HEAD.match(self.text, position, line_end if line_end >= 0 else stop)
        if head is None:
            return None
        ins = self._named[computation].setdefault(head[1], Instruction(head, computation, stop))
        if ins is not None and head[1] in self._metadata:
            ins._metadata = self._metadata[head[1]]
        return ins


def loops_in(text: bytes) -> list[int]:
    """Return the positions of LOOP in a text: in the lines of loops, and perhaps in other text."""
    return list(_places(text, LOOP))


def loops_of(text: bytes, places: Iterable[int]) -> list[dict[str, Any]]:
    """Return the metadata of the loops of a text; nothing else in it is parsed."""
    loops, last = [], 0
    for at in places:
        if at < last:
            continue
        line_end = text.find(b"\n", at)
        last = _end(text, line_end, len(text)) if line_end >= 0 else len(text)
        close = _closing(text, at + len(LOOP) - 1, last)
        loops.append(metadata_of(text[close + 1 : last]))
    return loops


def _places(text: bytes, pattern: bytes) -> Iterable[int]:
    at = text.find(pattern)
    while at >= 0:
        yield at
        at = text.find(pattern, at + 1)


def _end(text: bytes, line_end: int, stop: int) -> int:
    """Return where an instruction ends: at the end of its line, or after raw line ends in it."""
    following = _NEXT.search(text, line_end, stop)
    return following.start() if following else stop


def _closing(text: bytes, paren: int, end: int) -> int:
    """Return where the bracket at a place is closed; the end if it is not."""
    close = text.find(b")", paren, end)
    if close >= 0 and text.find(b"(", paren + 1, close) < 0 and text.find(b'"', paren, close) < 0:
        return close
    depth = 0
    for match in _BRACKET.finditer(text, paren, end):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth == 0:
                return match.start()
    return end


def _operands(inside: bytes) -> list[tuple[bytes, Index]]:
    """Return the names of the operands with their index; old texts print a shape before each."""
    if b"%" in inside:
        return [(name, _index(at) if at else ()) for name, at in _OPERAND.findall(inside)]
    operands, depth, start = [], 0, 0
    inside = _COMMENT.sub(b"", inside) + b","
    for at, char in enumerate(inside):
        depth += (char in b"([{") - (char in b")]}")
        if char == ord(",") and depth == 0:
            operand = _BARE_OPERAND.search(inside[start:at])
            if operand:
                operands.append((operand[1], _index(operand[2])))
            start = at + 1
    return operands


def _index(text: bytes | None) -> Index:
    return tuple(map(int, text.split(b","))) if text else ()
