"""Which bodies of fusions somebody asks for: most of a module's instructions are in the others.

Asked for are the operations that it takes to make a large value again (`recompute_costs`), behind
what only moves data too, and in modules with loops the way back from what loops carry
(`value_origins`), which can lead through any.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any

from bufdb.proto.graph import Module
from bufdb.proto.places import Slice, Values
from bufdb.proto.times import Span

_LARGE_PART = 100
"""As in bufdb.assemble.peak.savings: a value is large from this part of the peak on."""
_BEHIND_MOVES = 3
"""So many fusions that only move data stand behind each other at the most."""
_PASSING = frozenset(
    (
        *("bitcast", "broadcast", "concatenate", "copy", "copy-done", "copy-start", "pad"),
        *("dynamic-slice", "dynamic-update-slice", "gather", "get-tuple-element", "opt-barrier"),
        *("reshape", "reverse", "slice", "transpose", "tuple"),
    )
)


def asked_for(
    m: Module, values: Values, ranges: dict[int, Span] | None, assignment: Any
) -> list[int]:
    """Fused computations, in the order of the proto; all where no ranges say which are large."""
    apart = set(m.order)
    fused = [c for c in m.computations if c not in apart]
    if ranges is None or "while" in m.opcode:
        return fused
    wanted: set[int] = set()
    seen: set[int] = set()
    level = [values.places[v][0] for v in _large(ranges, assignment, values.assigned)]
    for _ in range(1 + _BEHIND_MOVES):
        level = _behind(m, level, seen, wanted)
    return [c for c in fused if c in wanted]


def _behind(m: Module, level: list[int], seen: set[int], wanted: set[int]) -> list[int]:
    """What the fusions of a level call is wanted; returns the operands of those fusions."""
    operands: list[int] = []
    while level:
        i = level.pop()
        if i in seen:
            continue
        seen.add(i)
        if m.opcode[i] == "fusion":
            wanted.update(m.instructions[i].called_computation_ids)
            operands += m.operands[i]
        elif m.opcode[i] in _PASSING:
            level += m.operands[i]
    return operands


def _large(ranges: dict[int, Span], assignment: Any, assigned: list[list[Slice]]) -> list[int]:
    """Values with a hundredth of the peak of their memory space, or a little less.

    The peak is at least what is occupied at the instant at which the sizes of live values add up
    to the most.
    """
    fixed: Counter[int] = Counter()
    members: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for number, a in enumerate(assignment.buffer_allocations):
        if a.is_entry_computation_parameter or a.is_constant or a.maybe_live_out:
            fixed[a.color] += a.size
        elif not a.is_thread_local:
            members[a.color] += [
                (number, offset, size, v) for v, size, offset in assigned[number] if v in ranges
            ]
    found: list[int] = []
    for color, some in members.items():
        change = [0] * (2 + max([0, *[ranges[v][1] for _, _, _, v in some]]))
        for _, _, size, v in some:
            change[ranges[v][0]] += size
            change[ranges[v][1] + 1] -= size
        live = list(itertools.accumulate(change))
        most = max(live)
        instant = live.index(most) if most > 0 else 0
        spans = sorted(
            (number, offset, offset + size)
            for number, offset, size, v in some
            if ranges[v][0] <= instant <= ranges[v][1]
        )
        least = (fixed[color] + _union(spans)) // _LARGE_PART
        found += [v for _, _, size, v in some if size >= least]
    return found


def _union(spans: list[tuple[int, int, int]]) -> int:
    """Bytes in sorted spans of allocations, those of several once."""
    total, at, reached = 0, -1, 0
    for number, start, stop in spans:
        if number != at:
            at, reached = number, start
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total
