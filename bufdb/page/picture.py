"""The picture of one module: its buffers over the program."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bufdb.export.tenancy import Stay, pieces
from bufdb.page.comparison import Module
from bufdb.page.values import Fact, Facts

# -- Group values into buffers: the same bytes under several names ---------------------------------
#
# A value merged by a loop or a conditional is a phi; it and its inputs are one buffer. The rule is
# that of `bufdb.memory.buffers`, by which `peak_savings` removes buffers; that module works on
# arrays of all modules at once, which answers do not have.


class Life(NamedTuple):
    """A value at the place of a phi."""

    slot: tuple[int, int, int]
    """Allocation, offset and size."""
    is_phi: bool
    start_time: int
    end_time: int
    positions: Sequence[tuple[str, bool]]
    """Its indexes in tuples, each with whether it is defined there."""


def buffers(lives: Sequence[Life]) -> list[int]:
    """Return, for each value, the first value of its buffer.

    Two values of one place whose lives touch or overlap are linked if both are phis, or if one is
    and the other later appears at the phi's index in a tuple. Linked values form a buffer.
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
    """Return rows with the same key whose lives touch or overlap, by key in order of time."""
    by_key: dict[object, list[int]] = defaultdict(list)
    for row, key in zip(rows, keys, strict=True):
        by_key[key].append(row)
    chains: list[list[int]] = []
    for group in by_key.values():
        reached = None
        for row in sorted(group, key=lambda row: (lives[row].start_time, row)):
            if reached is None or lives[row].start_time > reached + 1:
                chains.append([])
                reached = lives[row].end_time
            chains[-1].append(row)
            reached = max(reached, lives[row].end_time)
    return chains


def _link(first: list[int], rows: Sequence[int]) -> None:
    """Merge the buffers of these rows."""
    roots = {_root(first, row) for row in rows}
    lowest = min(roots)
    for root in roots:
        first[root] = lowest


def _root(first: list[int], row: int) -> int:
    while first[row] != row:
        first[row] = first[first[row]]
        row = first[row]
    return row


# --------------------------------------------------------------------------------------------------
# A module in one memory space as a picture shows it: values, and the rectangles that they fill.
#
# A rectangle is bytes of one value for a while; none overlap, so a picture only adds. At every step
# they add up to `occupancy_steps` and what is held for the whole run, and at the peak each value
# has what `peak_values` says.


class Block(NamedTuple):
    """Bytes of one value for a period."""

    row: int
    """Row of the value."""
    start_time: int
    end_time: int
    """Last instant, inclusive [program order]."""
    offset_bytes: int | None
    """Offset on the axis of all temp allocations; None for what is held for the whole run."""
    size_bytes: int


class Arena(NamedTuple):
    """A temp allocation on the common axis, on which allocations follow each other."""

    allocation_index: int
    base_bytes: int
    size_bytes: int
    """Including what a damaged dump places past its end."""


@dataclass(frozen=True)
class Picture:
    """A page's data of a module in one memory space; lists of values are in the same order."""

    module: Module
    values: list[Fact]
    """Temp values by first instant, then the values that represent other allocations."""
    buffer: list[int]
    """By value, the row of the first value that is the same bytes under another name."""
    uses: list[list[int]]
    """Program order of the users of each value, ascending; -1 where unknown."""
    blocks: list[Block]
    arenas: list[Arena]
    frames: dict[int, tuple[Any, ...]]
    steps: list[tuple[int, str]]
    """Program order and name of the instructions."""
    origins: list[tuple[Any, ...]]
    """Row of the value, then the remaining columns of values.ORIGINS."""
    peaks: list[tuple[Any, ...]]
    savings: list[tuple[Any, ...]]


def picture(facts: Facts, module: Module) -> Picture:
    """Return the picture of a module in `facts`; without a known peak it has no values."""
    place = (module.module_id, module.color or 0)
    values = facts.values.get(place, [])
    number = module.module_id
    arenas = _arenas(facts.arenas.get(place, []), values)
    uses = facts.uses.get(number, {})
    origins = facts.origins.get(number, {})
    return Picture(
        module=module,
        values=values,
        buffer=_buffers(values, facts.positions.get(number, {})),
        uses=[uses.get(fact.value_id, []) if fact.value_id is not None else [] for fact in values],
        blocks=_blocks(values, arenas, module.schedule_length),
        arenas=arenas,
        frames=facts.frames.get(number, {}),
        steps=facts.steps.get(number, []),
        origins=[
            (row, *origins[fact.value_id])
            for row, fact in enumerate(values)
            if fact.value_id is not None and fact.value_id in origins
        ],
        peaks=facts.peaks.get(place, []),
        savings=facts.savings.get(place, []),
    )


def _arenas(allocations: list[tuple[int, int]], values: list[Fact]) -> list[Arena]:
    ends: dict[int, int] = defaultdict(int)
    for fact in values:
        if fact.start_time is not None:
            end = fact.offset_bytes + fact.size_bytes
            ends[fact.allocation_index] = max(ends[fact.allocation_index], end)
    arenas, base = [], 0
    for index, size in allocations:
        size = max(size, ends[index])
        arenas.append(Arena(index, base, size))
        base += size
    return arenas


def _blocks(values: list[Fact], arenas: list[Arena], schedule_length: int) -> list[Block]:
    """Return rectangles in order of time and place; those held for the whole run come last."""
    stays: dict[int, list[Stay]] = defaultdict(list)
    fixed = []
    # The dump's numbers decide which value has a byte, as in peak_values; rows differ from them.
    rows: dict[int | None, int] = {}
    for row, fact in enumerate(values):
        if fact.start_time is None or fact.end_time is None or fact.value_id is None:
            fixed.append(Block(row, 0, schedule_length, None, fact.size_bytes))
            continue
        rows[fact.value_id] = row
        life = (fact.start_time, min(fact.end_time, schedule_length))
        stays[fact.allocation_index].append(
            Stay(fact.offset_bytes, -fact.size_bytes, fact.value_id, *life)
        )
    base = {arena.allocation_index: arena.base_bytes for arena in arenas}
    blocks = [
        Block(
            rows[piece.number],
            piece.start_time,
            piece.end_time,
            base[index] + piece.begin_bytes,
            piece.end_bytes - piece.begin_bytes,
        )
        for index, items in stays.items()
        for piece in pieces(items, schedule_length)
    ]
    blocks.sort(key=lambda block: (block.start_time, block.offset_bytes, block.row))
    return blocks + fixed


def _buffers(values: list[Fact], positions: dict[int, list[tuple[str, bool]]]) -> list[int]:
    """Return, for each value, the row of the first value of its buffer, which may be itself."""
    lives = []
    rows = []
    for row, fact in enumerate(values):
        if fact.value_id in positions and fact.start_time is not None and fact.end_time is not None:
            slot = (fact.allocation_index, fact.offset_bytes, fact.size_bytes)
            life = Life(slot, fact.is_phi, fact.start_time, fact.end_time, positions[fact.value_id])
            lives.append(life)
            rows.append(row)
    first_rows = list(range(len(values)))
    for row, first in zip(rows, buffers(lives), strict=True):
        first_rows[row] = rows[first]
    return first_rows
