"""The bytes at the peak as flame graphs: speedscope's JSON, and collapsed stacks.

Speedscope's format is in src/lib/file-format-spec.ts of its repository. Collapsed stacks are lines
for Brendan Gregg's flamegraph.pl, outermost frame first: `a;b;c 4096`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bufdb.export.shown import Function
from bufdb.export.values import Frame, Held

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"

Stack = tuple[Frame, ...]


def by_stack(held: Iterable[Held]) -> dict[Stack, int]:
    """Return the bytes of each call stack (outermost frame first), in descending order."""
    sums: dict[Stack, int] = {}
    for item in held:
        stack = item.frames[::-1]
        sums[stack] = sums.get(stack, 0) + item.held_bytes
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def collapsed(held: Iterable[Held]) -> str:
    """Return a line for each call stack with its bytes."""
    sums: dict[str, int] = {}
    for stack, size in by_stack(held).items():
        name = ";".join(_on_a_line(frame.label) for frame in stack)
        sums[name] = sums.get(name, 0) + size
    return "".join(f"{name} {size}\n" for name, size in sums.items())


def speedscope(shown: Iterable[tuple[Function, Iterable[Held]]], exporter: str) -> str:
    """Return a file with a profile for each function; weights are the bytes at its peak."""
    numbers: dict[Frame, int] = {}
    profiles: list[dict[str, Any]] = []
    for function, held in shown:
        sums = by_stack(held)
        profiles.append(
            {
                "type": "sampled",
                "name": function.title,
                "unit": "bytes",
                "startValue": 0,
                "endValue": sum(sums.values()),
                "samples": [
                    [numbers.setdefault(frame, len(numbers)) for frame in stack] for stack in sums
                ],
                "weights": list(sums.values()),
            }
        )
    document = {
        "$schema": SPEEDSCOPE_SCHEMA,
        "name": profiles[0]["name"] if len(profiles) == 1 else f"{len(profiles)} functions",
        "exporter": exporter,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in numbers]},
        "profiles": profiles,
    }
    return json.dumps(document) + "\n"


def _frame(frame: Frame) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": frame.name or frame.label}
    if frame.file:
        fields["file"] = frame.file
    if frame.line:
        fields["line"] = frame.line
    return fields


def _on_a_line(text: str) -> str:
    """Escape a text so that it ends neither a frame nor a line."""
    return "".join(
        "," if letter == ";" else letter if letter.isprintable() else ascii(letter)[1:-1]
        for letter in text
    )
