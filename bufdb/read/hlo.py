"""The HLO text in a dump: what no other file has (format sections 2.1 and 7.1).

Module header, aliases, and the stack-frame tables between the header and the computations.
`parent_frame_id` is printed one too high; that is corrected here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from bufdb.errors import quote
from bufdb.read.own import NOTHING_MORE, Own

_MODULE = re.compile(rb"HloModule ([^\s,]+)")
_ALIAS = re.compile(rb"(\{[\d, ]*\}): \((\d{1,18}), (\{[\d, ]*\})(?:, (may-alias|must-alias))?\)")
_NAME = re.compile(rb'(\d{1,18}) "((?:[^"\\]|\\.)*)"')
_LOCATION = re.compile(
    rb"(\d{1,18}) \{file_name_id=(\d{1,18}) function_name_id=(\d{1,18}) line=(\d{1,18})"
    rb"(?: end_line=(\d{1,18}))?(?: column=(\d{1,18}))?(?: end_column=(\d{1,18}))?\}"
)
_FRAME = re.compile(rb"(\d{1,18}) \{file_location_id=(\d{1,18})(?: parent_frame_id=(\d{1,18}))?\}")
_COMPUTATION = re.compile(rb"^(?:(ENTRY |%)|[\w.-]++ )", re.MULTILINE)
_HELPERS = re.compile(
    rb'jit\((?<!"jit\()([^()/";\n]+)\)+/[^/";\n]*"[^}\n]{0,999} stack_frame_id=(\d{1,18})'
)
"""A jit after the first one of an op_name. Matching letters first is six times as fast."""
_BEARERS = re.compile(rb"stack_frame_id=(\d{1,18})")
_FARTHEST = 100
"""Limit on how many frames above a call is looked for; JAX writes 10 of each stack."""
_NO_CALLER = -1
T = TypeVar("T")
TABLES = (b"FileNames", b"FunctionNames", b"FileLocations", b"StackFrames")


@dataclass(frozen=True)
class Frame:
    """A row of `stack_frames`."""

    stack_frame_id: int
    parent_frame_id: int | None
    own_frame_id: int | None
    depth: int
    tree_ordinal: int
    last_tree_ordinal: int
    source_file: str | None
    function_name: str | None
    source_line: int | None
    source_end_line: int | None
    source_column: int | None
    source_end_column: int | None


@dataclass
class HloHeader:
    """The text above the computations of an HLO text."""

    module_name: str | None = None
    entry_computation_layout: str | None = None
    partition_count: int = 1
    replica_count: int = 1
    aliases: list[tuple[str, int, str, str]] = field(default_factory=list)
    """(output index, parameter number, parameter index, kind) of input_output_alias."""
    frames: list[Frame] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    """(line number, message) of lines above the computations that were not understood."""
    read_count: int = 0
    """Lines above the computations that were read."""


def header_end(text: bytes) -> int:
    """Return where the computations begin; the length of the text if there are none."""
    for match in _COMPUTATION.finditer(text):
        if match[1]:
            return match.start()
        end = text.find(b"\n", match.end())
        line = text[match.end() : len(text) if end < 0 else end]
        if line == b"{" or (line[:1] == b"(" and line[-1:] == b"{" and b") -> " in line):
            return match.start()
    return len(text)


def read(text: bytes, own: Own = NOTHING_MORE) -> HloHeader:
    """Read the text above the computations; without "HloModule" the header is empty.

    Args:
        text: the text above `header_end`.
        own: which frames are the user's own.
    """
    header = HloHeader()
    first, _, tables = text.partition(b"\n")
    module = _MODULE.match(first)
    if module is None:
        quoted = quote(first[:400].decode(errors="replace"))
        header.problems.append((1, f"expected 'HloModule NAME', found {quoted}"))
    else:
        header.read_count += 1
        _read_first(first, header, module)
    _read_tables(tables, header, own)
    return header


def mend(header: HloHeader, text: bytes, start: int = 0) -> None:
    """Name the line of the call where an instruction has the line of a helper's first call.

    What a rule of JAX's calls (of a `custom_jvp` or `custom_vjp`, of a scan) is traced once for
    each shape and kept, with the line for which it was traced first (format section 7.1). XLA puts
    the frames of each call above it: `layer:4 < layer:5 < loss:10` of a `jax.nn.relu` on line 5.
    Such a frame is known by all of these: a frame above it is on another line of the same function;
    only instructions of a helper have it; and others have one between the two, the call's, which is
    then its own_frame_id. A function that calls itself meets them only where the result of the
    inner call is the left side of an operator and its end is nothing but helpers.

    Args:
        header: the text above the computations.
        text: the HLO text.
        start: where its computations begin.
    """
    above = _elsewhere_in_function(header.frames)
    helpers = Counter(_HELPERS.findall(text, start) if above else ())
    names = {int(at): name.decode(errors="replace") for name, at in helpers if int(at) in above}
    if not names:
        return
    every = Counter(_BEARERS.findall(text, start))
    bearers = Counter({int(number): count for number, count in every.items()})
    for (_, number), count in helpers.items():
        bearers[int(number)] -= count
    by_id = {frame.stack_frame_id: frame for frame in header.frames}
    calls: dict[int, int] = {}
    for number, name in names.items():
        inside = _up_to(by_id, number, by_id[above[number]])
        own = [frame for frame in inside if frame.own_frame_id == frame.stack_frame_id]
        functions = {(frame.function_name or "").rpartition(".")[2] for frame in own}
        borne = [at.stack_frame_id for at in own if bearers[at.stack_frame_id] and at.source_column]
        if borne and not bearers[number] and name not in functions:
            calls[number] = borne[0]
    for place, frame in enumerate(header.frames):
        if frame.stack_frame_id in calls:
            header.frames[place] = replace(frame, own_frame_id=calls[frame.stack_frame_id])


def _elsewhere_in_function(frames: Iterable[Frame]) -> dict[int, int]:
    """Return, by user frame, the nearest frame above on another line of a function inside it."""
    callers: dict[int, Frame] = {}
    others: dict[int, Frame | None] = {}
    path: list[tuple[Frame, Frame | None]] = []
    innermost: dict[tuple[str | None, str | None], Frame | None] = {}
    for frame in sorted(frames, key=lambda frame: frame.tree_ordinal):
        while len(path) > frame.depth:
            gone, before = path.pop()
            innermost[gone.source_file, gone.function_name] = before
        function = frame.source_file, frame.function_name
        before = innermost.get(function)
        path.append((frame, before))
        innermost[function] = frame
        number, other = frame.stack_frame_id, before
        if before is not None and before.source_line == frame.source_line:
            other = others[before.stack_frame_id]
        others[number] = other
        known = callers.get(frame.parent_frame_id or 0) if frame.depth else None
        nearest = [at for at in (other, known) if at is not None]
        if nearest and frame.own_frame_id is not None:
            callers[number] = max(nearest, key=lambda at: at.depth)
    return {number: at.stack_frame_id for number, at in callers.items()}


def _up_to(frames: Mapping[int, Frame], number: int, last: Frame) -> list[Frame]:
    """Return the frames from `number` up to `last`, and those above that repeat its line.

    XLA repeats the frames of a call in each computation that replaces it.
    """
    at = frames[number]
    inside, is_after = [at], False
    for _ in range(_FARTHEST):
        above = frames.get(at.parent_frame_id or 0)
        if above is None:
            break
        at = above
        is_on_line = at.source_line == last.source_line and at.function_name == last.function_name
        if not is_after or is_on_line:
            inside.append(at)
        is_after = is_after or at is last
    return inside


def _read_first(first: bytes, header: HloHeader, module: re.Match[bytes]) -> None:
    """Read the line "HloModule NAME, attribute, …" into the header."""
    header.module_name = module[1].decode(errors="replace")
    layout = _braced(first, b"entry_computation_layout=")
    header.entry_computation_layout = None if layout is None else layout.decode(errors="replace")
    header.partition_count = _count(first, b"num_partitions=")
    header.replica_count = _count(first, b"replica_count=")
    aliases = _braced(first, b"input_output_alias=") or b""
    for alias in _ALIAS.finditer(aliases):
        output, number, index, kind = alias.groups()
        header.aliases.append(
            (
                output.replace(b" ", b"").decode(),
                int(number),
                index.replace(b" ", b"").decode(),
                (kind or b"may-alias").decode(),
            )
        )


def _count(line: bytes, key: bytes) -> int:
    match = re.search(rb", " + key + rb"(\d{1,18})", line)
    return int(match[1]) if match else 1


def _braced(line: bytes, key: bytes) -> bytes | None:
    """Return the text inside the balanced braces after `, KEY={`."""
    start = line.find(b", " + key + b"{")
    if start < 0:
        return None
    start += len(key) + 3
    depth = 1
    for brace in re.compile(rb"[{}]").finditer(line, start):
        depth += 1 if brace[0] == b"{" else -1
        if depth == 0:
            return line[start : brace.start()]
    return None


class _Numbered(Generic[T]):
    """The rows of a table by number; what two different lines give a number has none."""

    def __init__(self, header: HloHeader) -> None:
        """Start without a row."""
        self.header = header
        self.rows: dict[int, T] = {}
        self.lines: dict[int, int] = {}
        self._twice: set[int] = set()

    def add(self, number: int, row: T, line: int, table: str) -> None:
        """Add the row of a line."""
        if number in self.lines and self.rows.get(number) != row:
            self._twice.add(number)
            self.rows.pop(number, None)
            message = f"expected each number once in {table}, found {number} twice"
            self.header.problems.append((line, message))
            return
        self.header.read_count += 1
        self.lines[number] = line
        if number not in self._twice:
            self.rows[number] = row

    def refuse(self, number: int, message: str) -> None:
        """Report a row that was read."""
        self.header.read_count -= 1
        self.header.problems.append((self.lines[number], message))


_Place = tuple[int | None, ...]
"""Numbers of file and function, lines and columns."""


class _FrameTables:
    """The four tables of section 7.1, as their lines give them."""

    def __init__(self, header: HloHeader) -> None:
        """Start without a row."""
        self.files: _Numbered[str] = _Numbered(header)
        self.functions: _Numbered[str] = _Numbered(header)
        self.locations: _Numbered[_Place] = _Numbered(header)
        self.frames: _Numbered[tuple[int, int]] = _Numbered(header)
        """Numbers of location and caller."""

    def read(self, table: str, line: bytes, at: int) -> bool:
        """Read a line of a table; return False if it is none."""
        if table in ("FileNames", "FunctionNames"):
            name = _NAME.fullmatch(line)
            names = self.files if table == "FileNames" else self.functions
            if name is not None:
                names.add(int(name[1]), unescape(name[2]).decode(), at, table)
            return name is not None
        if table == "FileLocations":
            place = _LOCATION.fullmatch(line)
            if place is not None:
                numbers = [None if group is None else int(group) for group in place.groups()]
                self.locations.add(int(place[1]), tuple(numbers[1:]), at, table)
            return place is not None
        frame = _FRAME.fullmatch(line) if table == "StackFrames" else None
        if frame is not None:
            printed = int(frame[3] or 0)
            caller = printed - 1 if printed > 1 else _NO_CALLER
            self.frames.add(int(frame[1]), (int(frame[2]), caller), at, table)
        return frame is not None

    def check(self, on_cycle: set[int]) -> None:
        """Report numbers that are in no table, and frames that call themselves.

        Function 0 is none.
        """
        for number, place in self.locations.rows.items():
            for what, names in (("file_name_id", self.files), ("function_name_id", self.functions)):
                name = place[what == "function_name_id"]
                if name not in names.rows and not (name == 0 and names is self.functions):
                    self.locations.refuse(number, f"expected a name, found {what}={name}")
                    break
        for number, (location, caller) in self.frames.rows.items():
            if location not in self.locations.rows:
                problem = f"expected a location, found file_location_id={location}"
                self.frames.refuse(number, problem)
            elif number in on_cycle or not (caller == _NO_CALLER or caller in self.frames.rows):
                problem = f"expected the frame of a caller, found parent_frame_id={caller + 1}"
                self.frames.refuse(number, problem)


def _read_tables(text: bytes, header: HloHeader, own: Own) -> None:
    tables, table = _FrameTables(header), ""
    for number, line in enumerate(text.split(b"\n"), 2):
        if not line:
            continue
        if line in TABLES:
            table = line.decode()
            header.read_count += 1
        elif not tables.read(table, line, number):
            what = f"a line of {table}" if table else "a table of stack frames"
            quoted = quote(line[:400].decode(errors="replace"))
            header.problems.append((number, f"expected {what}, found {quoted}"))
    own_files = {number for number, name in tables.files.rows.items() if not own.is_library(name)}
    _resolve(header, tables, own_files)


def _resolve(header: HloHeader, tables: _FrameTables, own_files: set[int]) -> None:
    frames, files, functions = tables.frames.rows, tables.files.rows, tables.functions.rows
    depths, owns, on_cycle = _chains(own_files, files, tables.locations.rows, frames)
    tables.check(on_cycle)
    header.problems.sort()
    spans = tree_spans({number: caller for number, (_, caller) in frames.items()}, depths)
    for frame_id, (location_id, caller) in sorted(frames.items()):
        place = tables.locations.rows.get(location_id, (None,) * 6)
        source_file = None if place[0] is None else files.get(place[0])
        function = None if place[1] is None else functions.get(place[1])
        own, depth = owns[frame_id], depths[frame_id]
        parent_id = caller if depth else None
        header.frames.append(
            Frame(
                frame_id, parent_id, own, depth, *spans[frame_id], source_file, function, *place[2:]
            )
        )


def _chains(
    own_files: set[int],
    files: Container[int | None],
    locations: Mapping[int, _Place],
    frames: Mapping[int, tuple[int, int]],
) -> tuple[dict[int, int], dict[int, int | None], set[int]]:
    """Return each frame's number of callers and innermost own frame, and those that form cycles.

    Where a file on the way is unknown, so is the innermost own frame: it may be that one.
    """
    depths: dict[int, int] = {}
    owns: dict[int, int | None] = {}
    on_cycle: set[int] = set()
    for frame_id in frames:
        walk: list[int] = []
        on_walk: set[int] = set()
        at = frame_id
        while at in frames and at not in depths and at not in on_walk:
            walk.append(at)
            on_walk.add(at)
            at = frames[at][1]
        if at in on_walk:
            on_cycle.update(walk[walk.index(at) :])
        for inner in reversed(walk):
            location, caller = frames[inner]
            is_called = caller in depths and inner not in on_cycle
            depths[inner] = depths[caller] + 1 if is_called else 0
            file_id = locations.get(location, (None,))[0]
            owns[inner] = inner if file_id in own_files else None
            if is_called and file_id in files and file_id not in own_files:
                owns[inner] = owns[caller]
    return depths, owns, on_cycle


def tree_spans(parents: Mapping[int, int], depths: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return each frame's place in call order, callers first, and the last place below it.

    So the callers of a frame are those whose span holds its place: two numbers per frame, however
    deep the stacks. Frames without a caller, and those with the same one, are ordered by number.

    Args:
        parents: the caller of each frame, which is not used where the depth is 0.
        depths: callers of each frame, as `_chains` counts them.
    """
    sizes = dict.fromkeys(depths, 1)
    by_depth = sorted(depths, key=lambda number: (depths[number], number))
    for number in reversed(by_depth):
        if depths[number]:
            sizes[parents[number]] += sizes[number]
    spans: dict[int, tuple[int, int]] = {}
    free: dict[int | None, int] = {None: 0}
    for number in by_depth:
        caller = parents[number] if depths[number] else None
        place = free[caller]
        free[caller] += sizes[number]
        free[number] = place + 1
        spans[number] = (place, place + sizes[number] - 1)
    return spans


# -- Frames that another file of the same module has (format section 7.1) --------------------------
#
# Through jaxlib 0.8.1 HLO texts have neither the tables nor numbers of frames; protos have both.

_NUMBERED = re.compile(rb"^  (?:ROOT )?%?(\S+) = .*? stack_frame_id=(\d{1,18})\}", re.MULTILINE)
_METADATA = re.compile(
    rb'^(  (?:ROOT )?%?(\S+) = .*?, metadata=\{(?:[^}"\n]|"(?:[^"\\\n]|\\.)*")*)\}', re.MULTILINE
)


def frame_ids(text: bytes) -> dict[bytes, int]:
    """Return the frame of each instruction of an HLO text that has one, by name."""
    return {name: int(number) for name, number in _NUMBERED.findall(text)}


def with_frame_ids(text: bytes, numbers: Mapping[bytes, int]) -> bytes:
    """Return an HLO text with the frame of each instruction that has metadata."""

    def numbered(match: re.Match[bytes]) -> bytes:
        number = numbers.get(match[2])
        return match[0] if number is None else b"%b stack_frame_id=%d}" % (match[1], number)

    return _METADATA.sub(numbered, text)


# -- Text between quotes, as XLA escapes it (format section 7) -------------------------------------

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}


def unescape(text: bytes) -> bytes:
    """Return text between quotes, C escapes undone, as valid UTF-8 (format section 7)."""
    if b"\\" in text:
        # Most of JAX's names, as `args[\'x\']`, have no other escape.
        simple = text.replace(rb"\'", b"'")
        text = _ESCAPE.sub(_unescaped, text) if b"\\" in simple else simple
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _unescaped(match: re.Match[bytes]) -> bytes:
    code: bytes = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if len(code) == 3:
        return bytes([int(code[1:], 16)])
    return _ESCAPES.get(code, code)
