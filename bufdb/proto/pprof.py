"""Memory profiles of `jax.profiler` (pprof protos): arrays that are alive, by device and stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from bufdb.proto.reader import UnreadableProto, fields, varint

# -- The messages of google/pprof's profile.proto, by the numbers of their fields ------------------
#
# A profile has samples, each with values, labels and locations, the innermost first. A location has
# lines, each in a function; texts are numbers of a table.

_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_HIGHEST = 15
_VARINT, _BYTES = 0, 2
_SAMPLE_TYPES = ["allocations", "space"]
"""Values of each sample of JAX's: how many arrays or executables, and their bytes."""
_BUFFER, _EXECUTABLE = "buffer", "executable"
"""What the label `kind` says."""
NO_PROFILE = (
    "it is not a memory profile of JAX, which jax.profiler.save_device_memory_profile writes"
)
DAMAGED = "it is damaged, or was cut off"

_MOST_PARTS = 1_000_000
_MOST_FRAMES = 2_000_000
"""Bounds of the memory that a damaged profile takes: lines of all locations and stacks."""
MOST = 1 << 60
"""More bytes no process has: sums of some figures below it have 64 bits."""

Field = int | bytes


class Frame(NamedTuple):
    """A line of Python on a stack."""

    source_file: str
    function_name: str
    source_line: int | None


Stack = tuple[Frame, ...]
"""From the outermost frame to the innermost."""


class Alive(NamedTuple):
    """What is alive on a device from one stack."""

    device: str
    """Such as cuda:0."""
    stack: Stack


@dataclass
class Held:
    """Arrays that are alive."""

    array_count: int = 0
    total_bytes: int = 0


@dataclass
class MemoryProfile:
    """Everything alive in a process at one moment."""

    arrays: dict[Alive, Held] = field(default_factory=dict)
    code_bytes: int = 0
    """Code of the programs of known size, as far as the device keeps it in its memory."""
    program_count: int = 0
    unsized_count: int = 0
    """Programs whose size the runtime does not know."""


def begins(head: bytes) -> bool:
    """Return whether bytes begin as a pprof proto does: with the types of its samples."""
    number, kind, start, stop = next(fields(head), (0, 0, 0, 0))
    if (number, kind) != (_SAMPLE_TYPE, _BYTES) or not start < stop <= len(head):
        return False
    parts = list(fields(head[start:stop]))
    is_whole = bool(parts) and parts[-1][3] == stop - start
    return is_whole and all(part[0] in (1, 2) and part[1] == _VARINT for part in parts)


def is_profile(data: bytes) -> bool:
    """Return whether the first level of some bytes is that of a pprof proto, whatever it is of."""
    numbers = {number for number, _, _, _ in fields(data)}
    return bool(numbers) and {_SAMPLE_TYPE, _STRING} <= numbers and max(numbers) <= _HIGHEST


def read(data: bytes) -> MemoryProfile:
    """Return what a serialized memory profile holds.

    Raises:
        UnreadableProto: it is something else, or damaged.
    """
    if not data:
        raise UnreadableProto("it is empty")
    if next(islice(fields(data), _MOST_PARTS, None), None) is not None:
        raise UnreadableProto(f"it has more than {_MOST_PARTS:,} parts, as no memory profile")
    if not is_profile(data):
        raise UnreadableProto(f"{NO_PROFILE}, or was cut off")
    parts: dict[int, list[bytes]] = {}
    for number, value in _fields(data):
        if isinstance(value, bytes):
            parts.setdefault(number, []).append(value)
    return _Reader(parts).read()


def _fields(data: bytes) -> Iterator[tuple[int, Field]]:
    """Yield the numbers and bytes of a message's fields; all must make sense, to its end."""
    end = 0
    for number, kind, start, stop in fields(data):
        end = stop
        if stop > len(data):
            break
        if kind == _VARINT:
            yield number, _signed(varint(data, start)[0])
        elif kind == _BYTES:
            yield number, data[start:stop]
    if end != len(data):
        raise UnreadableProto(DAMAGED)


def _signed(number: int) -> int:
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number


def _numbers(value: Field) -> Iterator[int]:
    """Yield the numbers of a repeated field, one or packed."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        if at < 0:
            raise UnreadableProto(DAMAGED)
        yield _signed(number)


class _Reader:
    """The first level of a profile on its way to what it holds."""

    def __init__(self, parts: dict[int, list[bytes]]) -> None:
        self.parts = parts
        self._frame_count = 0
        self.texts = [text.decode(errors="replace") for text in parts.get(_STRING, [])]
        kinds = [self._text(_one(kind, 1)) for kind in parts.get(_SAMPLE_TYPE, [])]
        if kinds != _SAMPLE_TYPES:
            has = ", ".join(kinds)[:80]
            raise UnreadableProto(f"{NO_PROFILE}: its samples are of {has or 'nothing'}")
        functions = [dict(_fields(one)) for one in parts.get(_FUNCTION, [])]
        self.functions = {one.get(1, 0): one for one in functions}
        self.locations = dict(map(self._location, parts.get(_LOCATION, [])))

    def read(self) -> MemoryProfile:
        profile = MemoryProfile()
        for sample in self.parts.get(_SAMPLE, []):
            values, stack, labels = self._sample(sample)
            count, size = values if len(values) == len(_SAMPLE_TYPES) else (-1, 0)
            # `PjRtExecutable::SizeOfGeneratedCodeInBytes` returns -1 where the runtime does not
            # know the size, as on TPU; JAX multiplies it by the count of equal programs.
            is_unsized = labels.get("kind") == _EXECUTABLE and size in (-1, -count)
            if count < 0 or (size < 0 and not is_unsized):
                raise UnreadableProto(DAMAGED)
            if labels.get("kind") == _BUFFER:
                held = profile.arrays.setdefault(Alive(labels.get("device", ""), stack), Held())
                held.array_count += count
                held.total_bytes += size
            elif labels.get("kind") == _EXECUTABLE:
                profile.program_count += count
                profile.code_bytes += max(0, size)
                profile.unsized_count += count if size < 0 else 0
            else:
                kind = labels.get("kind", "no kind")[:80]
                raise UnreadableProto(f"{NO_PROFILE}: a sample is of {kind}")
        size = sum(one.total_bytes + one.array_count for one in profile.arrays.values())
        if size + profile.code_bytes + profile.program_count > MOST:
            raise UnreadableProto("it is damaged: it has more bytes than there can be")
        return profile

    def _sample(self, data: bytes) -> tuple[list[int], Stack, dict[str, str]]:
        values: list[int] = []
        frames: list[Frame] = []
        labels: dict[str, str] = {}
        for number, value in _fields(data):
            if number == 1:
                for key in _numbers(value):
                    if key not in self.locations:
                        raise UnreadableProto(f"it is damaged: location {key} is missing")
                    frames += self.locations[key]
                    self._count(len(self.locations[key]))
            elif number == 2:
                values += _numbers(value)
            elif number == 3:
                label = dict(_fields(_bytes(value)))
                labels[self._text(label.get(1, 0))] = self._text(label.get(2, 0))
        return values, tuple(reversed(frames)), labels

    def _location(self, data: bytes) -> tuple[int, list[Frame]]:
        """Return the number of a location, and its frames, the innermost first."""
        key, frames = 0, []
        for number, value in _fields(data):
            if number == 1 and isinstance(value, int):
                key = value
            elif number == 4:
                line = dict(_fields(_bytes(value)))
                function = self.functions.get(line.get(1, 0))
                if function is None:
                    raise UnreadableProto(f"it is damaged: function {line.get(1, 0)!r} is missing")
                at = line.get(2, 0)
                name = self._text(function.get(2, 0)) or self._text(function.get(3, 0))
                file = self._text(function.get(4, 0))
                self._count(1)
                frames.append(Frame(file, name, at if isinstance(at, int) and at > 0 else None))
        return key, frames

    def _count(self, frame_count: int) -> None:
        self._frame_count += frame_count
        if self._frame_count > _MOST_FRAMES:
            raise UnreadableProto(f"its stacks have more than {_MOST_FRAMES:,} frames in all")

    def _text(self, number: Field) -> str:
        if not isinstance(number, int) or not 0 <= number < max(1, len(self.texts)):
            raise UnreadableProto(f"it is damaged: text {number!r} is missing")
        return self.texts[number] if self.texts else ""


def _one(data: bytes, wanted: int) -> Field:
    return dict(_fields(data)).get(wanted, 0)


def _bytes(value: Field) -> bytes:
    if isinstance(value, int):
        raise UnreadableProto(DAMAGED)
    return value
