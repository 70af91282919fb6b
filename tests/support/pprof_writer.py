"""Memory profiles as `jax.profiler.save_device_memory_profile` writes them, from values."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass

from xplane_writer import number, varint

Frames = Sequence[tuple[str, str, int]]
"""File, function and line, the innermost first."""


@dataclass(frozen=True)
class Sample:
    size: int
    frames: Frames = ()
    device: str = "cpu:0"
    count: int = 1
    kind: str = "buffer"


def field(tag: int, data: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(data)) + data


def profile(
    samples: Sequence[Sample],
    types: Sequence[str] = ("allocations", "space"),
    *,
    is_packed: bool = True,
) -> bytes:
    """A serialized profile, not compressed."""
    texts = [""]

    def text(value: str) -> int:
        if value not in texts:
            texts.append(value)
        return texts.index(value)

    functions: dict[tuple[str, str], int] = {}
    locations: dict[tuple[str, str, int], int] = {}
    parts = [field(1, number(1, text(name)) + number(2, text("count"))) for name in types]
    for sample in samples:
        for frame in sample.frames:
            functions.setdefault(frame[:2], len(functions) + 1)
            locations.setdefault(frame, len(locations) + 1)
        ids = [locations[frame] for frame in sample.frames]
        values = [sample.count, sample.size, *[0] * (len(types) - 2)][: len(types)]
        packed = b"".join(map(varint, ids)), b"".join(map(varint, values))
        if is_packed:
            body = field(1, packed[0]) + field(2, packed[1])
        else:
            body = b"".join(number(1, one) for one in ids)
            body += b"".join(number(2, one) for one in values)
        labels = [("kind", sample.kind)]
        labels += [("device", sample.device)] if sample.kind == "buffer" else []
        for key, value in labels:
            body += field(3, number(1, text(key)) + number(2, text(value)))
        parts.append(field(2, body))
    for (file, function, line), key in locations.items():
        of = functions[file, function]
        parts.append(field(4, number(1, key) + field(4, number(1, of) + number(2, line))))
    for (file, function), key in functions.items():
        named = number(2, text(function)) + number(3, text(function)) + number(4, text(file))
        parts.append(field(5, number(1, key) + named))
    return b"".join(parts) + b"".join(field(6, one.encode()) for one in texts)


def packed(samples: Sequence[Sample], types: Sequence[str] = ("allocations", "space")) -> bytes:
    """The same as a file has it."""
    return gzip.compress(profile(samples, types), mtime=0)
