"""Time the savings of every value and of 300 lines, and the distinct peaks.

    python savings.py [--values 100000] [-n 3]

The values are those of a made-up training step: of the first half one in ten is kept for its
backward pass, the others live for some steps, most of them in place of one that ends, as fusions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bufdb.memory.maxima import hills
from bufdb.memory.occupancy import occupancy
from bufdb.memory.ranges import Ranges
from bufdb.memory.savings import Savings


def step_of(count: int, seed: int = 1) -> Ranges:
    """Temp values of one module, live within `count` steps."""
    source = np.random.default_rng(seed)
    start = np.sort(source.integers(0, count, count))
    is_kept = (source.random(count) < 0.1) & (start < count // 2)
    life = np.where(is_kept, count - 2 * start, source.integers(1, 12, count))
    end = np.minimum(start + life, count)
    size = source.integers(1, 1 << 20, count)
    offset = np.cumsum(size) - size
    in_place = source.random(count) < 0.8
    ended: dict[int, list[int]] = {}
    for value, (begin, last) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if in_place[value] and ended.get(begin):
            before = ended[begin].pop()
            offset[value], size[value] = offset[before], size[before]
        ended.setdefault(last, []).append(value)
    zeros = np.zeros(count, np.int64)
    return Ranges(zeros, zeros, offset, size, start, end)


def seconds(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Least CPU time of some runs, and what the last one gave."""
    least = float("inf")
    for _ in range(times):
        began = time.process_time()
        found = work()
        least = min(least, time.process_time() - began)
    return least, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("-n", type=int, default=3)
    given = parser.parse_args()
    count, times = given.values, given.n
    ranges = step_of(count)
    rows = np.arange(count)
    lines = np.random.default_rng(2).integers(0, 300, count)

    taken, occupied = seconds(lambda: occupancy(ranges, 1, np.array([count])), times)
    print(f"occupancy             {taken:6.3f} s  {len(occupied.time):,} steps")
    taken, found = seconds(
        lambda: hills(occupied.group, occupied.time, occupied.occupied, 1), times
    )
    print(f"distinct peaks        {taken:6.3f} s  {len(found.time):,} peaks")
    taken, savings = seconds(lambda: Savings(ranges, occupied, 1), times)
    print(f"pieces of bytes       {taken:6.3f} s  {len(savings.alone.size):,} pieces")
    taken, saved = seconds(lambda: savings.of(rows, rows, count), times)
    print(f"savings of each value {taken:6.3f} s  {(saved.saving > 0).sum():,} save something")
    taken, saved = seconds(lambda: savings.of(rows, lines, 300), times)
    print(f"savings of 300 lines  {taken:6.3f} s  {(saved.saving > 0).sum():,} save something")
    assert saved.is_known.all()


if __name__ == "__main__":
    main()
