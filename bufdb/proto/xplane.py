"""Profiles of `jax.profiler` (XSpace protos): how long each HLO instruction ran, by device."""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bufdb.proto.reader import UnreadableProto, varint

# -- The messages of tsl/profiler/protobuf/xplane.proto, by the numbers of their fields ------------
#
# A space has planes (a device, or the host), a plane lines (a stream, a thread), a line events. An
# event names its metadata, and both may have stats, which name theirs. Times are picoseconds.

_PLANES = 1
_PLANE_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA = 2, 3, 4, 5
_LINE_NAME, _LINE_NS, _EVENTS, _LINE_DISPLAY_NAME = 2, 3, 4, 11
_EVENT_METADATA_ID, _OFFSET, _DURATION, _EVENT_STATS = 1, 2, 3, 4
_METADATA_ID, _METADATA_NAME, _METADATA_DISPLAY_NAME, _METADATA_STATS = 1, 2, 4, 5
_STAT_ID, _DOUBLE, _STRING, _BYTES, _REFERENCE = 1, 2, 5, 6, 7
_KEY, _VALUE = 1, 2
"""Fields of an entry of a map."""
_HIGHEST_PLANE, _HIGHEST_SPACE = 6, 4

_HOST, _METADATA_PLANE, _DEVICE = "/host:", "/host:metadata", "/device:"
_OP_LINES = frozenset(("XLA Ops", "Sparse Core Ops"))
"""Lines of a device whose events are instructions, whatever stats they have."""
_ASYNC_LINE = "Async XLA Ops"
_MODULE_LINE = "XLA Modules"
_OTHER_LINES = frozenset(
    (
        *("Steps", "Framework Name Scope", "Framework Ops", "Source code", "Launch Stats"),
        *("_counters_", "Sparse Core Steps", "Sparse Core Modules", "Host Offload Ops"),
        *("Tensor Core Sync Flag", "Sparse Core Syncs", _MODULE_LINE),
    )
)
"""Lines of a device that say the same again, or something else."""
_STATS = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal", "scope_range_id")
_PROGRAM = re.compile(r"(.*)\((\d+)\)")
_INSTRUCTION = re.compile(r"%?([^ =]+)")
CUT_OFF = "it was cut off, or is damaged"
NO_PROFILE = "it is not a profile of jax.profiler (an xplane.pb)"


class Program(NamedTuple):
    """A compiled module of the process that was profiled."""

    module_name: str
    program_id: int | None
    """On CPU and GPU the number of the module in the names of its dumps; on TPU a fingerprint."""


class Timed(NamedTuple):
    """An instruction on a device."""

    program: Program
    instruction_name: str
    device: str
    """Such as TPU:0."""
    is_overlapped: bool
    """Whether it is on the line of asynchronous operations, which run while others do."""


@dataclass
class Times:
    """The executions of an instruction."""

    execution_count: int = 0
    total_ps: int = 0
    self_ps: int = 0
    """Without the instructions that ran within it, as the body of a loop does."""
    least_ps: int = 0
    largest_ps: int = 0

    def add(self, other: Times) -> None:
        """Take further executions."""
        if other.execution_count:
            least = (one.least_ps for one in (self, other) if one.execution_count)
            self.least_ps = min(least)
            self.largest_ps = max(self.largest_ps, other.largest_ps)
            self.execution_count += other.execution_count
            self.total_ps += other.total_ps
            self.self_ps += other.self_ps


@dataclass
class Unnamed:
    """Kernels on a device that name no instruction."""

    count: int = 0
    total_ps: int = 0


@dataclass
class Profile:
    """The instructions of a profile."""

    times: dict[Timed, Times] = field(default_factory=dict)
    run_counts: dict[tuple[Program, str], int] = field(default_factory=dict)
    """How often a program ran on a device, where the profile says so."""
    unnamed: dict[str, Unnamed] = field(default_factory=dict)
    """By device."""

    def add(self, other: Profile, prefix: str = "") -> None:
        """Take the instructions of another file, with a prefix to its devices."""
        for key, times in other.times.items():
            named = key._replace(device=prefix + key.device)
            self.times.setdefault(named, Times()).add(times)
        for (program, device), count in other.run_counts.items():
            of = (program, prefix + device)
            self.run_counts[of] = self.run_counts.get(of, 0) + count
        for device, unnamed in other.unnamed.items():
            own_unnamed = self.unnamed.setdefault(prefix + device, Unnamed())
            own_unnamed.count += unnamed.count
            own_unnamed.total_ps += unnamed.total_ps


def read(data: bytes) -> Profile:
    """Return the instructions of a serialized XSpace.

    Raises:
        UnreadableProto: it is none, or it is damaged.
    """
    if not data:
        raise UnreadableProto("it is empty")
    planes = []
    part_count = 0
    for number, value in _fields(data, 0, len(data), _HIGHEST_SPACE, NO_PROFILE):
        if number == _PLANES:
            planes.append(_Plane(data, *_span(value, NO_PROFILE)))
            _require_few(part_count := part_count + _PLANE_PARTS + planes[-1].part_count)
    if not planes:
        raise UnreadableProto(NO_PROFILE)
    programs: dict[int, str] = {}
    for plane in planes:
        programs |= plane.programs()
    profile = Profile()
    for plane in planes:
        if plane.name.startswith(_DEVICE):
            _Device(plane, programs, profile).read()
    on_devices = {key.program for key in profile.times}
    for plane in planes:
        if plane.name.startswith(_HOST):
            _Host(plane, programs, profile, on_devices).read()
    if sum(times.total_ps for times in profile.times.values()) > _MOST_PS:
        raise UnreadableProto("it is damaged: its times are longer than 106 days")
    return profile


def _require_few(part_count: int) -> None:
    if part_count > _MOST_PARTS:
        raise UnreadableProto(f"it has more than {_MOST_PARTS:,} parts, as no profile")


# -- Fields ----------------------------------------------------------------------------------------

_MOST_PARTS = 1_000_000
_PLANE_PARTS = 100
"""Bounds of the memory that planes, lines and names take; a plane takes that of so many others."""
_MOST_PS = 1 << 63
"""106 days."""
Field = int | tuple[int, int]
"""A number, or where bytes begin and end."""


def _fields(
    data: bytes, at: int, stop: int, highest: int = 0, why: str = CUT_OFF
) -> Iterator[tuple[int, Field]]:
    """Yield number and value of the fields of a message.

    Raises:
        UnreadableProto: they do not end where the message does, or are numbered above `highest`.
    """
    while at < stop:
        key = data[at]
        at += 1
        if key > 127:
            key, at = varint(data, at - 1)
        number, kind = key >> 3, key & 7
        if at < 0 or not number or (highest and number > highest):
            raise UnreadableProto(why if at < 0 or highest else CUT_OFF)
        value: Field
        if kind == 0:
            if at < stop and data[at] < 128:
                value = data[at]
                at += 1
            else:
                value, at = varint(data, at)
        elif kind == 2:
            size, start = varint(data, at)
            at = -1 if start < 0 else start + size
            value = (start, at)
        elif kind in (1, 5):
            value = (at, at + (8 if kind == 1 else 4))
            at = value[1]
        else:
            raise UnreadableProto(why)
        if at < 0 or at > stop:
            raise UnreadableProto(CUT_OFF)
        yield number, value


def _span(value: Field, why: str = CUT_OFF) -> tuple[int, int]:
    if isinstance(value, int):
        raise UnreadableProto(why)
    return value


def _number(value: Field) -> int:
    if not isinstance(value, int):
        raise UnreadableProto(CUT_OFF)
    return value


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


class _Metadata(NamedTuple):
    name: str
    display_name: str
    stats: list[tuple[int, int]]


class _Plane:
    """A plane, its metadata read and its lines not yet."""

    def __init__(self, data: bytes, start: int, stop: int) -> None:
        self.data = data
        self.name = ""
        self.part_count = 0
        self.lines: list[tuple[int, int]] = []
        self.metadata: dict[int, _Metadata] = {}
        self._stat_names: dict[int, str] = {}
        for number, value in _fields(data, start, stop, _HIGHEST_PLANE):
            if number == _PLANE_NAME:
                self.name = self._text(value)
            elif number == _LINES:
                self.lines.append(_span(value))
            elif number == _EVENT_METADATA:
                self._add_metadata(*_span(value))
            elif number == _STAT_METADATA:
                key, entry = self._entry(*_span(value))
                for part, text in _fields(data, *entry):
                    if part == _METADATA_NAME:
                        self._stat_names[key] = self._text(text)
            self.part_count += 1
            _require_few(self.part_count)
        self._known = {key: name for key, name in self._stat_names.items() if name in _STATS}
        """Stats that are asked for, by the number of their metadata."""
        self._of_metadata: dict[int, dict[str, str | int]] = {}

    def programs(self) -> dict[int, str]:
        """Return the names of programs by their ids, as far as metadata say: `jit_step(12)`."""
        names = {}
        for metadata in self.metadata.values():
            match = _PROGRAM.fullmatch(metadata.name)
            if match is not None:
                names[int(match[2])] = match[1]
        return names

    def stats_of(self, metadata_id: int) -> dict[str, str | int]:
        """Return the stats that all events with this metadata have."""
        stats = self._of_metadata.get(metadata_id)
        if stats is None:
            metadata = self.metadata.get(metadata_id)
            stats = self._of_metadata[metadata_id] = {}
            for span in metadata.stats if metadata else ():
                stats |= self.stat(*span)
        return stats

    def stat(self, start: int, stop: int) -> dict[str, str | int]:
        """Return a stat by its name; nothing if it is none of those asked for."""
        data = self.data
        # The number of its metadata comes first, in one byte mostly.
        if start + 1 < stop and data[start] == 8 and data[start + 1] < 128:
            name = self._known.get(data[start + 1])
            if name is None:
                return {}
        else:
            name = None
        stat_value: str | int | None = None
        for number, value in _fields(data, start, stop):
            if number == _STAT_ID:
                name = self._known.get(_number(value))
            elif number in (_STRING, _BYTES):
                stat_value = self._text(value)
            elif number == _REFERENCE:
                stat_value = self._stat_names.get(_number(value), "")
            elif number == _DOUBLE:
                at, end = _span(value)
                if end - at != struct.calcsize("<d"):
                    raise UnreadableProto("it is damaged: a number has another size")
                (double,) = struct.unpack("<d", data[at:end])
                stat_value = int(double) if double == double and abs(double) < 1 << 63 else 0
            else:
                stat_value = _signed(_number(value))
        return {} if name is None or stat_value is None else {name: stat_value}

    def _text(self, value: Field) -> str:
        return self.data[slice(*_span(value))].decode(errors="replace")

    def _entry(self, start: int, stop: int) -> tuple[int, tuple[int, int]]:
        key, entry = 0, (stop, stop)
        for number, value in _fields(self.data, start, stop):
            if number == _KEY:
                key = _number(value)
            elif number == _VALUE:
                entry = _span(value)
        return key, entry

    def _add_metadata(self, start: int, stop: int) -> None:
        key, entry = self._entry(start, stop)
        name, display_name, stats = "", "", []
        for number, value in _fields(self.data, *entry):
            if number == _METADATA_NAME:
                name = self._text(value)
            elif number == _METADATA_DISPLAY_NAME:
                display_name = self._text(value)
            elif number == _METADATA_STATS:
                stats.append(_span(value))
        self.metadata[key] = _Metadata(name, display_name, stats)

    def line_names(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the name of each line, and where it is."""
        for start, stop in self.lines:
            name = shown = ""
            for number, value in _fields(self.data, start, stop):
                if number == _LINE_NAME:
                    name = self._text(value)
                elif number == _LINE_DISPLAY_NAME:
                    shown = self._text(value)
            yield shown or name, (start, stop)

    def events(self, start: int, stop: int) -> Iterator[_Event]:
        """Yield the events of a line; of each the stats of its metadata and its own."""
        data, begin = self.data, 0
        spans = array("q")  # of millions of events, in pairs
        for number, value in _fields(data, start, stop):
            if number == _LINE_NS:
                begin = 1000 * _signed(_number(value))
            elif number == _EVENTS:
                spans.extend(_span(value))
        ends = iter(spans)
        for at, end in zip(ends, ends, strict=True):
            metadata_id = offset = duration = 0
            stats: dict[str, str | int] | None = None
            for number, value in _fields(data, at, end):
                if number == _EVENT_STATS:
                    own = self.stat(*_span(value))
                    if own:
                        stats = {**stats, **own} if stats else own
                elif number == _EVENT_METADATA_ID:
                    metadata_id = _number(value)
                elif number == _OFFSET:
                    offset = _signed(_number(value))
                elif number == _DURATION:
                    duration = _signed(_number(value))
            of_all = self.stats_of(metadata_id)
            every = of_all if stats is None else {**of_all, **stats}
            yield _Event(metadata_id, begin + offset, max(0, duration), every)


class _Event(NamedTuple):
    metadata_id: int
    start: int
    duration: int
    """Picoseconds."""
    stats: dict[str, str | int]


# -- Events of devices and of the host as instructions ---------------------------------------------


class _Span(NamedTuple):
    """One execution."""

    start: int
    end: int
    key: Timed


class _Reader:
    """One plane whose events become times."""

    def __init__(self, plane: _Plane, programs: dict[int, str], profile: Profile) -> None:
        self.plane, self.programs, self.profile = plane, programs, profile
        self._run_ids: dict[tuple[Program, str], set[int]] = {}

    def _program(self, stats: dict[str, str | int]) -> Program | None:
        """Return the program that stats name."""
        number = stats.get("program_id")
        program_id = number if isinstance(number, int) else None
        name = stats.get("hlo_module")
        if name is None and program_id is not None:
            # A fingerprint is printed without its sign.
            name = self.programs.get(program_id % (1 << 64))
        if name is None:
            return None
        text = str(name)
        match = _PROGRAM.fullmatch(text)
        if match is not None:
            text, program_id = match[1], program_id or _signed(int(match[2]))
        return Program(text, program_id)

    def _note_run(self, program: Program, device: str, stats: dict[str, str | int]) -> None:
        run_id = stats.get("run_id")
        if isinstance(run_id, int):
            self._run_ids.setdefault((program, device), set()).add(run_id)

    def _count_runs(self) -> None:
        for of, run_ids in self._run_ids.items():
            self.profile.run_counts[of] = self.profile.run_counts.get(of, 0) + len(run_ids)

    def _store(self, spans: list[_Span], *, is_nested: bool) -> None:
        """Add executions of one line, each less what ran within it."""
        within = _nested(spans) if is_nested else [0] * len(spans)
        for (start, end, key), inner in zip(spans, within, strict=True):
            duration = end - start
            times = Times(1, duration, max(0, duration - inner), duration, duration)
            self.profile.times.setdefault(key, Times()).add(times)


def _nested(spans: list[_Span]) -> list[int]:
    """Sort executions, and return the time in each that others within it took.

    On one line of a device, and in one thread, what overlaps is nested.
    """
    spans.sort(key=lambda one: (one.start, -one.end))
    within = [0] * len(spans)
    around: list[int] = []
    for at, (start, end, _) in enumerate(spans):
        while around and spans[around[-1]].end <= start:
            around.pop()
        if around:
            within[around[-1]] += min(end, spans[around[-1]].end) - start
        around.append(at)
    return within


class _Device(_Reader):
    """A plane of a device."""

    def read(self) -> None:
        """Add the times of its instructions."""
        plane = self.plane
        self.device = plane.name.removeprefix(_DEVICE)
        lines = list(plane.line_names())
        self._find_runs(lines)
        others = [
            (name, span)
            for name, span in lines
            if name not in _OTHER_LINES and name not in _OP_LINES and name != _ASYNC_LINE
        ]
        is_named = False
        for _, span in others:
            is_named |= self._read_stream(span)
        for name, span in lines:
            # Of a device with streams, this line repeats what is there.
            if name == _ASYNC_LINE or (name in _OP_LINES and not is_named):
                self._read_ops(span, is_overlapped=name == _ASYNC_LINE)

    def _find_runs(self, lines: list[tuple[str, tuple[int, int]]]) -> None:
        """Find when which program ran."""
        runs: list[tuple[int, int, Program]] = []
        for name, span in lines:
            if name == _MODULE_LINE:
                for event in self.plane.events(*span):
                    metadata = self.plane.metadata.get(event.metadata_id)
                    stats = dict(event.stats)
                    if metadata is not None:
                        stats.setdefault("hlo_module", metadata.name)
                    program = self._program(stats)
                    if program is not None:
                        runs.append((event.start, event.start + event.duration, program))
        runs.sort()
        self._runs, self._starts = runs, [start for start, _, _ in runs]
        for program, count in Counter(program for _, _, program in runs).items():
            self.profile.run_counts[program, self.device] = count

    def _running(self, start: int) -> Program | None:
        at = bisect_right(self._starts, start) - 1
        return self._runs[at][2] if at >= 0 and start <= self._runs[at][1] else None

    def _of_event(self, event: _Event) -> Program | None:
        """Return the program of an event, by its stats or by what ran then."""
        program = self._program(event.stats)
        running = self._running(event.start)
        if program is None or (running is not None and program.program_id is None):
            return running
        return program

    def _read_stream(self, span: tuple[int, int]) -> bool:
        """Add the kernels of a stream; return whether any has the name of an instruction."""
        spans: list[_Span] = []
        pieces: dict[tuple[Timed, int], _Span] = {}
        unnamed = Unnamed()
        for event in self.plane.events(*span):
            name, program = event.stats.get("hlo_op"), self._of_event(event)
            if not isinstance(name, str) or not name or program is None:
                unnamed.count += 1
                unnamed.total_ps += event.duration
                continue
            key = Timed(program, name, self.device, False)
            one = _Span(event.start, event.start + event.duration, key)
            scope = event.stats.get("scope_range_id")
            if not isinstance(scope, int) or not scope:
                spans.append(one)
                continue
            # Kernels of one execution of an instruction.
            of = key, scope
            before = pieces.get(of, one)
            pieces[of] = _Span(min(before.start, one.start), max(before.end, one.end), key)
        spans += pieces.values()
        self._store(spans, is_nested=False)
        if unnamed.count and self.device.startswith("GPU"):
            of_device = self.profile.unnamed.setdefault(self.device, Unnamed())
            of_device.count += unnamed.count
            of_device.total_ps += unnamed.total_ps
        return bool(spans)

    def _read_ops(self, span: tuple[int, int], *, is_overlapped: bool) -> None:
        """Add the instructions of a line that has nothing else."""
        spans = []
        for event in self.plane.events(*span):
            metadata = self.plane.metadata.get(event.metadata_id)
            name = event.stats.get("hlo_op")
            if not isinstance(name, str) and metadata is not None:
                name = metadata.display_name or metadata.name
            match = _INSTRUCTION.match(str(name or ""))
            program = self._of_event(event)
            if match is None or program is None:
                unnamed = self.profile.unnamed.setdefault(self.device, Unnamed())
                unnamed.count += 1
                unnamed.total_ps += event.duration
                continue
            key = Timed(program, match[1], self.device, is_overlapped)
            spans.append(_Span(event.start, event.start + event.duration, key))
        self._store(spans, is_nested=not is_overlapped)


class _Host(_Reader):
    """The plane of the host: threads that run the instructions of CPU programs."""

    def __init__(
        self,
        plane: _Plane,
        programs: dict[int, str],
        profile: Profile,
        on_devices: set[Program],
    ) -> None:
        super().__init__(plane, programs, profile)
        self.on_devices = on_devices
        """Programs of accelerators, whose instructions the host only begins."""

    def read(self) -> None:
        """Add the times of its instructions."""
        for line in self.plane.lines:
            spans = []
            for event in self.plane.events(*line):
                name, program = event.stats.get("hlo_op"), self._program(event.stats)
                if not isinstance(name, str) or program is None or program in self.on_devices:
                    continue
                device = f"CPU:{event.stats.get('device_ordinal', 0)}"
                key = Timed(program, name, device, False)
                spans.append(_Span(event.start, event.start + event.duration, key))
                self._note_run(program, device, event.stats)
            self._store(spans, is_nested=True)
        self._count_runs()
