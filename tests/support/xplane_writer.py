"""Profiles as `jax.profiler` writes them (XSpace), from planes, lines and events as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Stats = Mapping[str, str | int]


@dataclass(frozen=True)
class Event:
    """One event, in picoseconds from the beginning of its line."""

    name: str
    start: int
    duration: int
    stats: Stats = field(default_factory=dict)
    display_name: str = ""
    metadata_stats: Stats = field(default_factory=dict)
    """Stats shared by all events of this name."""


@dataclass(frozen=True)
class Line:
    name: str
    events: Sequence[Event]
    timestamp_ns: int = 1_000


@dataclass(frozen=True)
class Plane:
    name: str
    lines: Sequence[Line] = ()
    programs: Mapping[int, str] = field(default_factory=dict)
    """Metadata of programs: their names, by id."""


def varint(number: int) -> bytes:
    number %= 1 << 64
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def text(tag: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(tag << 3 | 2) + varint(len(data)) + data


def space(planes: Sequence[Plane]) -> bytes:
    """Return a serialized XSpace."""
    return b"".join(text(1, _plane(plane)) for plane in planes)


def _plane(plane: Plane) -> bytes:
    names: dict[str, int] = {}
    kinds: dict[tuple[str, str], int] = {}
    of_kind: dict[int, Stats] = {}

    def stats(tag: int, values: Stats) -> bytes:
        # Text is a reference to a name, as XLA writes it.
        encoded = []
        for key, value in values.items():
            head = number(1, names.setdefault(key, len(names) + 1))
            if isinstance(value, str):
                encoded.append(head + number(7, names.setdefault(value, len(names) + 1)))
            else:
                encoded.append(head + number(4, value))
        return b"".join(text(tag, stat) for stat in encoded)

    lines = []
    for at, line in enumerate(plane.lines):
        events = []
        for event in line.events:
            kind = kinds.setdefault((event.name, event.display_name), len(kinds) + 1)
            of_kind[kind] = event.metadata_stats
            parts = number(1, kind) + number(2, event.start) + number(3, event.duration)
            events.append(text(4, parts + stats(4, event.stats)))
        head = number(1, at) + text(2, line.name) + number(3, line.timestamp_ns)
        lines.append(text(3, head + b"".join(events)))
    metadata = [
        text(
            4,
            number(1, kind)
            + text(
                2,
                number(1, kind)
                + text(2, name)
                + (text(4, shown) if shown else b"")
                + stats(5, of_kind[kind]),
            ),
        )
        for (name, shown), kind in kinds.items()
    ]
    metadata += [
        text(4, number(1, key) + text(2, number(1, key) + text(2, f"{name}({key})")))
        for key, name in plane.programs.items()
    ]
    named = [
        text(5, number(1, key) + text(2, number(1, key) + text(2, name)))
        for name, key in names.items()
    ]
    return b"".join([text(2, plane.name), *lines, *metadata, *named])
