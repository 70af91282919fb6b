"""Which values are one buffer, that is the same bytes under several names.

What a loop or a conditional merges is a phi, and it and what goes into it are one. The rule is that
of `bufdb.memory.buffers`, by which `peak_savings` takes buffers away; that one works on arrays of
all modules at once, and what answers a question has no arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Life(NamedTuple):
    """A value that has the place of a phi."""

    slot: tuple[int, int, int]
    """Allocation, offset and size."""
    is_phi: bool
    start_time: int
    end_time: int
    positions: Sequence[tuple[str, bool]]
    """Index in a tuple at which it is seen, and whether it is defined there."""


def buffers(lives: Sequence[Life]) -> list[int]:
    """For each value the first of its buffer.

    Two values of one place whose lives touch or overlap are linked if both are phis, or one is and
    the other is seen further on at the phi's index in a tuple. Chains of links are a buffer.
    """
    first = list(range(len(lives)))
    phis = [row for row, life in enumerate(lives) if life.is_phi]
    for chain in _chains(lives, phis, [lives[row].slot for row in phis]):
        _link(first, chain)
    goals: dict[tuple[object, str], list[int]] = defaultdict(list)
    sources: dict[tuple[object, str], list[int]] = defaultdict(list)
    for row, life in enumerate(lives):
        for index, is_defining in life.positions:
            if is_defining and life.is_phi:
                goals[life.slot, index].append(row)
            elif not is_defining:
                sources[life.slot, index].append(row)
    for key, rows in goals.items():
        chains = _chains(lives, rows, [key] * len(rows))
        ends = [max(lives[row].end_time for row in chain) for chain in chains]
        starts = [lives[chain[0]].start_time for chain in chains]
        for source in sources.get(key, ()):
            life = lives[source]
            met = chains[
                bisect_left(ends, life.start_time - 1) : bisect_right(starts, life.end_time + 1)
            ]
            _link(first, [source, *(chain[0] for chain in met)])
        for chain in chains:
            _link(first, chain)
    return [_root(first, row) for row in range(len(lives))]


def _chains(lives: Sequence[Life], rows: list[int], keys: list[object]) -> list[list[int]]:
    """Rows of one key whose lives touch or overlap, by key in order of time."""
    by_key: dict[object, list[int]] = defaultdict(list)
    for row, key in zip(rows, keys, strict=True):
        by_key[key].append(row)
    found: list[list[int]] = []
    for group in by_key.values():
        reached = None
        for row in sorted(group, key=lambda row: (lives[row].start_time, row)):
            if reached is None or lives[row].start_time > reached + 1:
                found.append([])
                reached = lives[row].end_time
            found[-1].append(row)
            reached = max(reached, lives[row].end_time)
    return found


def _link(first: list[int], rows: Sequence[int]) -> None:
    """Make one of all that hangs together with these rows."""
    roots = {_root(first, row) for row in rows}
    lowest = min(roots)
    for root in roots:
        first[root] = lowest


def _root(first: list[int], row: int) -> int:
    while first[row] != row:
        first[row] = first[first[row]]
        row = first[row]
    return row
