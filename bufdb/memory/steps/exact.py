"""The same computed with Python's integers: for sizes that 64 bits do not hold."""

from __future__ import annotations

from bisect import bisect_left

from bufdb.columnar.sets import distinct
from bufdb.memory.ranges import Ranges


def exact_steps(r: Ranges) -> list[tuple[int, int]]:
    """(time, union of one group's ranges) wherever it changes, by a segment tree.

    Slow (about 0.1 ms per range) and right for any ranges and sizes whatever.
    """
    changes: dict[int, int] = {}
    for number in distinct(r.allocation).tolist():
        part = r.where(r.allocation == number)
        columns = (part.start, part.end, part.offset, part.size)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        points = sorted({p for _, _, offset, size in rows for p in (offset, offset + size)})
        tree = _Cover(points)
        events: list[tuple[int, int, int, int]] = []
        for start, end, offset, size in rows:
            low, high = bisect_left(points, offset), bisect_left(points, offset + size)
            events += [(start, 1, low, high), (end + 1, -1, low, high)]
        for time, sign, low, high in sorted(events):
            before = tree.length[1]
            tree.add(low, high, sign)
            changes[time] = changes.get(time, 0) + tree.length[1] - before
    steps, occupied = [], 0
    for time, change in sorted(changes.items()):
        occupied += change
        if change:
            steps.append((time, occupied))
    return steps


class _Cover:
    """Length of the union of a changing set of ranges between fixed points."""

    def __init__(self, points: list[int]) -> None:
        self.points = points
        self.leaves = max(1, len(points) - 1)
        self.count = [0] * (4 * self.leaves)
        self.length = [0] * (4 * self.leaves)

    def add(self, low: int, high: int, sign: int) -> None:
        """Put in (sign 1) or take out (-1) the range between two points, given by number."""
        self._add(1, 0, self.leaves, low, high, sign)

    def _add(self, node: int, a: int, b: int, low: int, high: int, sign: int) -> None:
        if high <= a or b <= low:
            return
        if low <= a and b <= high:
            self.count[node] += sign
        else:
            middle = (a + b) // 2
            self._add(2 * node, a, middle, low, high, sign)
            self._add(2 * node + 1, middle, b, low, high, sign)
        if self.count[node]:
            self.length[node] = self.points[b] - self.points[a]
        elif b - a == 1:
            self.length[node] = 0
        else:
            self.length[node] = self.length[2 * node] + self.length[2 * node + 1]
