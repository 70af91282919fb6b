"""Which bodies of fusions somebody asks for: most of a module's instructions are in the others.

Asked for are the operations that it takes to make a large value again (`recompute_costs`), behind
what only moves data too, and in modules with loops the way back from what loops carry
(`value_origins`), which can lead through any.
"""

from __future__ import annotations

import numpy as np

from bufdb.columnar.sets import distinct
from bufdb.proto.given.assignment import Assignment
from bufdb.proto.graph import Module
from bufdb.proto.places import Slices, Values
from bufdb.proto.times import Live, exact, instant_of_most

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


def asked_for(m: Module, values: Values, ranges: Live | None, assignment: Assignment) -> list[int]:
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
            wanted.update(m.given.called.get(i, ()))
            operands += m.operands[i]
        elif m.opcode[i] in _PASSING:
            level += m.operands[i]
    return operands


def _large(ranges: Live, assignment: Assignment, slices: Slices) -> list[int]:
    """Values with a hundredth of the peak of their memory space, or a little less.

    The peak is at least what is occupied at the instant at which the sizes of live values add up
    to the most.
    """
    given, starts, ends = assignment.allocations, ranges.start, ranges.end
    kinds = ("is_entry_computation_parameter", "is_constant", "maybe_live_out")
    is_fixed = np.any([given[kind] != 0 for kind in kinds], axis=0)
    is_temp = ~is_fixed & (given["is_thread_local"] == 0)
    mine = is_temp[slices.allocation] & (starts[slices.value] >= 0)
    colors = given["color"]
    found: list[int] = []
    for color in distinct(colors[is_temp]):
        rows = np.flatnonzero(mine & (colors[slices.allocation] == color))
        v, size = slices.value[rows], slices.size[rows]
        instant = instant_of_most(starts[v], ends[v] + 1, exact(size.tolist()))
        live = rows[(starts[v] <= instant) & (instant <= ends[v])]
        spans = zip(
            slices.allocation[live].tolist(),
            slices.offset[live].tolist(),
            slices.size[live].tolist(),
            strict=True,
        )
        occupied = _union(sorted((a, offset, offset + bytes) for a, offset, bytes in spans))
        fixed = sum(given["size"][is_fixed & (colors == color)].tolist())
        found += v[size >= (fixed + occupied) // _LARGE_PART].tolist()
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
