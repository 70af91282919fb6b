"""Needs of plans of calls as sums of what each region saves, fitted to compiled plans.

A trace counts values that XLA never holds, such as those within a fusion, so that what it says of
one function may be wrong by all of it while it is right of another one. So each region has a weight
of its own, bytes of need for a byte that it takes off the trace next to the rest of the plan: at
first that of all plans, with an error nearly as large. A compilation mends the weights of the
regions in its plan. That is a Gaussian process: a plan that is not compiled has an expected need,
and a deviation that says how little the compiled ones know of it.

Invariant: the deviation of a compiled plan is next to nothing, and its expected need its own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Part = tuple[int, str]
"""A region, and what of it a plan does."""
Parts = Mapping[Part, float]
"""By part the bytes that a trace is smaller by it; of a last call 1."""
ALL: Part = (-1, "")
"""The part that has all bytes that a trace is smaller by a plan."""
LAST_CALL = "last"
"""What a part is called that is for the last call of a region: what it computes is live anyway."""
SLOPE = 0.3
"""Deviation of the weight of all bytes, as a share of it."""
WEIGHT = 0.8
"""Deviation of the weight of a region, as a share of that of all bytes."""
LAST_ADDS = 0.01
"""What a last call is expected to add, as a share of the need as written: it saves nothing."""
LAST = 0.04
"""Deviation of that, as the same share."""
OTHER = 0.02
"""Deviation of what no sum has, as where the peak moves, as the same share."""
NEAR = 0.1
"""Share of the need as written by which plans may differ that deviate alike in that."""
EXACT = 0.001
"""Deviation of a compilation, by bytes of alignment."""
LOW, USUAL, HIGH = 0.1, 0.5, 8.0
"""Least, unknown and most bytes of need for a byte of a trace."""


class Guess(NamedTuple):
    """What is known of the need of a plan."""

    need: float
    deviation: float


@dataclass
class Sums:
    """Weights of regions, by the plans that are compiled."""

    written: int
    """Need of the function with what is free, without any part."""
    known: Sequence[tuple[Parts, int]]
    """Parts of compiled plans, and what they need."""
    _slope: float = USUAL
    _lower: list[list[float]] = field(default_factory=list)
    _rest: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slope = self._seen_slope()
        rows = [[self._alike(one, other) for other, _ in self.known] for one, _ in self.known]
        for at, row in enumerate(rows):
            row[at] += (EXACT * self.written) ** 2
        self._lower = _cholesky(rows)
        above = [need - self._expected(parts) for parts, need in self.known]
        self._rest = _upward(self._lower, _downward(self._lower, above))

    def guess(self, parts: Parts) -> Guess:
        """Return what a plan with some parts may need."""
        alike = [self._alike(parts, other) for other, _ in self.known]
        need = self._expected(parts) + sum(map(operator.mul, alike, self._rest))
        seen = sum(one * one for one in _downward(self._lower, alike))
        return Guess(need, math.sqrt(max(self._alike(parts, parts) - seen, 0.0)))

    def _seen_slope(self) -> float:
        """Return bytes of need for a byte of a trace, by the plan that saves most."""
        points = [(parts.get(ALL, 0.0), need) for parts, need in self.known]
        saved, need = max(points, default=(0.0, 0))
        slope = (self.written - need) / saved if saved > 0 else 0.0
        return min(max(slope, LOW), HIGH) if slope > 0 else USUAL

    def _expected(self, parts: Parts) -> float:
        last_calls = sum(share for part, share in parts.items() if part[1] == LAST_CALL)
        saved = self._slope * parts.get(ALL, 0.0)
        return self.written - saved + last_calls * LAST_ADDS * self.written

    def _error(self, part: Part) -> float:
        """Return the deviation of the weight of a part."""
        if part[1] == LAST_CALL:
            return LAST * self.written
        return self._slope * (SLOPE if part == ALL else WEIGHT)

    def _alike(self, one: Parts, other: Parts) -> float:
        """Return how the errors of two plans are the same, as a covariance."""
        both = sum(
            share * other[part] * self._error(part) ** 2
            for part, share in one.items()
            if part in other
        )
        apart = sum(
            abs(one.get(part, 0.0) - other.get(part, 0.0))
            for part in {*one, *other}
            if part[1] != LAST_CALL
        )
        near = math.exp(-self._slope * apart / (NEAR * self.written))
        return both + (OTHER * self.written) ** 2 * near


# -- Linear algebra of a dozen rows ----------------------------------------------------------------


def _cholesky(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the lower triangle whose product with its transpose is a positive matrix."""
    lower: list[list[float]] = []
    for at, row in enumerate(rows):
        own: list[float] = []
        for to in range(at):
            dot = sum(a * b for a, b in zip(own, lower[to], strict=False))
            own.append((row[to] - dot) / lower[to][to])
        own.append(math.sqrt(max(row[at] - sum(one * one for one in own), 1e-12 * row[at], 1e-30)))
        lower.append(own)
    return lower


def _downward(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve a lower triangle."""
    solved: list[float] = []
    for row, value in zip(lower, right, strict=True):
        dot = sum(a * b for a, b in zip(row, solved, strict=False))
        solved.append((value - dot) / row[len(solved)])
    return solved


def _upward(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Solve the transpose of a lower triangle."""
    solved = [0.0] * len(right)
    for at in reversed(range(len(right))):
        dot = sum(lower[to][at] * solved[to] for to in range(at + 1, len(right)))
        solved[at] = (right[at] - dot) / lower[at][at]
    return solved
