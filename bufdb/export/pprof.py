"""The bytes at the peak as a profile for pprof, like jax.profiler.device_memory_profile's.

The messages are those of proto/profile.proto in google/pprof. Sample types have the names that JAX
uses (allocations, space), so that pprof can subtract one such profile from another (`-diff_base`):
frames are the same from run to run, and everything else is in labels.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from bufdb.export import wire
from bufdb.export.shown import Function
from bufdb.export.values import Frame, Held

_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING, _COMMENT, _DEFAULT = 1, 2, 4, 5, 6, 13, 14
"""Fields of Profile."""


class _Tables:
    """The strings, functions and locations that samples refer to, in order of their first use."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {"": 0}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[Frame, int] = {}

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def function(self, frame: Frame) -> int:
        key = (frame.name or frame.label, frame.file)
        return self.functions.setdefault(key, len(self.functions) + 1)

    def location(self, frame: Frame) -> int:
        return self.locations.setdefault(frame, len(self.locations) + 1)


def profile(function: Function, held: Iterable[Held]) -> bytes:
    """Return a gzipped profile with an allocation per value, of the bytes it holds at the peak.

    Raises:
        BufdbError: a size does not fit into 64 bits.
    """
    tables = _Tables()
    types = [("allocations", "count"), ("space", "bytes")]
    parts = [
        wire.message(_SAMPLE_TYPE, _pair(tables.string(kind), tables.string(unit)))
        for kind, unit in types
    ]
    parts += [wire.message(_SAMPLE, _sample(tables, item)) for item in held]
    for frame, number in tables.locations.items():
        line = wire.integer(1, tables.function(frame)) + wire.integer(2, frame.line)
        parts.append(wire.message(_LOCATION, wire.integer(1, number) + wire.message(4, line)))
    for (name, file), number in tables.functions.items():
        texts = wire.integer(2, tables.string(name)) + wire.integer(4, tables.string(file))
        parts.append(wire.message(_FUNCTION, wire.integer(1, number) + texts))
    comment = f"{function.title}, peak {function.peak_bytes} bytes"
    if function.peak_time is not None:
        comment += f" at {function.peak_time}"
    parts.append(wire.packed(_COMMENT, [tables.string(comment)]))
    parts.append(wire.integer(_DEFAULT, tables.string("space")))
    parts += [wire.text(_STRING, text) for text in tables.strings]
    return gzip.compress(b"".join(parts), mtime=0)


def _pair(first: int, second: int) -> bytes:
    return wire.integer(1, first) + wire.integer(2, second)


def _sample(tables: _Tables, item: Held) -> bytes:
    labels = {"kind": item.allocation_kind}
    if item.value is not None:
        labels |= {
            "instruction": item.value.name,
            "opcode": item.value.opcode,
            "shape": item.value.shape,
            "op": item.value.op_path,
        }
    parts = [
        wire.packed(1, [tables.location(frame) for frame in item.frames]),
        wire.packed(2, [1, item.held_bytes]),
    ]
    parts += [
        wire.message(3, _pair(tables.string(key), tables.string(text)))
        for key, text in labels.items()
        if text
    ]
    return b"".join(parts)
