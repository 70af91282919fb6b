"""Values that are one buffer, and the values that hold the bytes at an instant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bufdb.columnar.scan import Bools, Ints, Words
from bufdb.columnar.sets import among, distinct
from bufdb.memory.occupancy import running_maximum
from bufdb.memory.ranges import Ranges, numbered, parts

# --------------------------------------------------------------------------------------------------
# Which values share bytes, and which are one buffer: what a loop merges, and what it is made of.
#
# A loop's stack is a broadcast, the body's phi, the fusion in place, the while's phi, and again in
# the next loop: five values, the same bytes. To take one of them away would free nothing.

SLICE_ROWS = 1 << 18
"""Approximate number of positions examined together; intermediate results take their memory."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def shared_slots(ranges: Ranges, is_phi: Bools) -> Ints:
    """Return a number for the bytes of each range that shares them with a phi; -1 for others.

    Only such ranges can be linked, so nothing else is needed of the others.
    """
    if not is_phi.any():
        return np.full(len(is_phi), -1)
    number = numbered(ranges.group, ranges.allocation, ranges.offset, ranges.size)
    has_phi = np.zeros(len(number), np.bool_)
    has_phi[number[is_phi]] = True
    return np.where(has_phi[number] & (np.bincount(number)[number] > 1), number, -1)


def buffers(
    slot: Ints,
    is_phi: Bools,
    start: Ints,
    end: Ints,
    row: Ints,
    index: Words,
    is_defining: Bools,
) -> Ints:
    """For each range the lowest row of its buffer: its own where it is alone in it.

    Two ranges of one slot whose lives touch or overlap are linked if one is a phi and the other a
    phi too, or at a further position in a tuple at the index of the phi: there it went in as
    initial value or as the result of a body. Chains of links are a buffer. Results of different
    instructions in the same place, neither a phi, are two things to the reader.

    Args:
        slot: for each range a number of its allocation, offset and size; -1 is not shared.
        is_phi: for each range whether it is a phi.
        start: first instant of each range.
        end: last instant of each range, not before the first.
        row: the range of each position of a value.
        index: hash of the position's index in a tuple.
        is_defining: whether the position is the value's first, at which it is defined.
    """
    lowest_rows = np.arange(len(slot))
    phis = np.flatnonzero(is_phi & (slot >= 0))
    if not len(phis):
        return lowest_rows
    for some, at in _by_slot(slot, phis, np.flatnonzero(slot[row] >= 0), row):
        one, other = _links(slot, is_phi, start, end, some, (row[at], index[at], is_defining[at]))
        linked, number = np.unique(np.append(one, other), return_inverse=True)
        lowest = _connected(len(linked), number[: len(one)], number[len(one) :])
        lowest_rows[linked] = linked[lowest]
    return lowest_rows


def _by_slot(slot: Ints, phis: Ints, at: Ints, row: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the phis of some slots, and the positions of values in them, slice by slice.

    Args:
        slot: as in `buffers`.
        phis: the phis that have one.
        at: the positions of ranges that have one.
        row: the range of each position.
    """
    if len(at) <= SLICE_ROWS:
        yield phis, at
        return
    phis, at = phis[np.argsort(slot[phis])], at[np.argsort(slot[row[at]])]
    of_phis, of_positions = slot[phis], slot[row[at]]
    # Slices begin where a slot does.
    lasts = distinct(of_positions[SLICE_ROWS - 1 :: SLICE_ROWS])
    bounds = (np.searchsorted(slots, lasts, "right") for slots in (of_phis, of_positions))
    first = [0, 0]
    for after in zip(*(column.tolist() for column in bounds), strict=True):
        yield phis[first[0] : after[0]], at[first[1] : after[1]]
        first = list(after)
    yield phis[first[0] :], at[first[1] :]


def _links(
    slot: Ints,
    is_phi: Bools,
    start: Ints,
    end: Ints,
    phis: Ints,
    positions: tuple[Ints, Words, Bools],
) -> tuple[Ints, Ints]:
    """Return the pairs of linked ranges among these phis and the ranges at these positions."""
    links = [(phis, phis[_chains(slot[phis], start[phis], end[phis])[0]])]
    row, index, is_defining = positions
    place = numbered(slot[row], index)
    merges = is_defining & is_phi[row]
    if merges.any():
        goal, source = row[merges], row[~is_defining]
        links += _into(goal, place[merges], source, place[~is_defining], start, end)
    one, other = (np.concatenate(ends) for ends in zip(*links, strict=True))
    return one, other


def labels_of_buffers(buffer: Ints, label: Ints, holds: Bools) -> Ints:
    """Return the label of each range's buffer: each buffer has one, so labels divide the buffers.

    Args:
        buffer: for each range the lowest row of its buffer.
        label: for each range a number from 0, or -1; ranges of a buffer may have different ones.
        holds: the ranges that hold their bytes at the peak, one of a buffer at most; its label
        counts. In a buffer without one, the first label does.
    """
    whole = np.full(len(buffer), -1, label.dtype)
    labelled = np.flatnonzero(label >= 0)[::-1]
    # The last write stays.
    whole[buffer[labelled]] = label[labelled]
    whole[buffer[holds]] = label[holds]
    return whole[buffer]


def _chains(key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return chains of intervals of one key that touch or overlap.

    Returns:
        For each interval the first of its chain, and the first of each chain in order of key and
        start.
    """
    order = np.lexsort((start, key))
    ordered = key[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    reached = running_maximum(end[order], np.cumsum(is_new) - 1)
    is_new[1:] |= start[order][1:] > reached[:-1] + 1
    firsts = order[is_new]
    head = np.empty(len(order), np.int64)
    head[order] = firsts[np.cumsum(is_new) - 1]
    return head, firsts


def _into(
    goal: Ints, goal_key: Ints, source: Ints, source_key: Ints, start: Ints, end: Ints
) -> list[tuple[Ints, Ints]]:
    """Return links between phis and the ranges of their key that touch them.

    The phis of one key make chains, ascending and apart; a source touches some in a row, which are
    thus linked to it and to each other: as many links as chains and sources, however many pairs.
    """
    head, firsts = _chains(goal_key, start[goal], end[goal])
    chain, key, begin = goal[firsts], goal_key[firsts], start[goal][firsts]
    last = np.full(len(goal), -1)
    np.maximum.at(last, head, end[goal])
    # Chains are looked up by key and time, in ranks that keep both apart in one integer.
    times = distinct(np.concatenate([begin, last[firsts]]))
    width = len(times) + 1
    lasts = key * width + np.searchsorted(times, last[firsts])
    begins = key * width + np.searchsorted(times, begin)
    at = source_key * width
    first = np.searchsorted(lasts, at + np.searchsorted(times, start[source] - 1))
    after = np.searchsorted(begins, at + np.searchsorted(times, end[source] + 1, "right"))
    met = np.flatnonzero(after > first)
    joins = np.zeros(len(chain) + 1, np.int64)
    np.add.at(joins, first[met], 1)
    np.add.at(joins, after[met] - 1, -1)
    joined = np.flatnonzero(np.cumsum(joins)[:-1] > 0)
    return [
        (goal, goal[head]),
        (source[met], chain[first[met]]),
        (chain[joined], chain[joined + 1]),
    ]


def _connected(count: int, one: Ints, other: Ints) -> Ints:
    """Return for each of `count` things the lowest one that links lead to."""
    lowest = np.arange(count)
    while True:
        a, b = lowest[one], lowest[other]
        apart = a != b
        if not apart.any():
            return lowest
        one, other, a, b = one[apart], other[apart], a[apart], b[apart]
        np.minimum.at(lowest, np.maximum(a, b), np.minimum(a, b))
        while True:
            further = lowest[lowest]
            if (further == lowest).all():
                break
            lowest = further


def places(parts: list[Ints], is_carrier: Bools) -> Ints:
    """Return a number for the place of each row, the same for equal rows; -1 where no carrier is.

    Args:
        parts: the columns that make up a place.
        is_carrier: which rows are carriers.
    """
    mixed: Words = np.zeros(len(is_carrier), np.uint64)
    for part in parts:
        mixed = (mixed ^ part.astype(np.uint64)) * _FACTOR
        mixed ^= mixed >> np.uint64(29)
    candidates = np.flatnonzero(among(mixed, mixed[is_carrier]))
    columns = [part[candidates] for part in parts]
    order = np.lexsort(columns)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = np.any([part[order][1:] != part[order][:-1] for part in columns], axis=0)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(is_new) - 1
    number[~np.isin(number, number[is_carrier[candidates]])] = -1
    numbers = np.full(len(is_carrier), -1)
    numbers[candidates] = number
    return numbers


def sharers(place: Ints, start: Ints, end: Ints, is_carrier: Bools) -> Ints:
    """Return the row of a carrier in each range's place with a common instant, -1 without one.

    Args:
        place: number of the place; rows with -1 share with no other.
        start: first instant.
        end: last instant, itself included; ranges that end before they begin share with no other.
        is_carrier: which rows are carriers; such a row may find itself.
    """
    shared = np.full(len(place), -1)
    rows = np.flatnonzero((place >= 0) & (start <= end))
    carriers = rows[is_carrier[rows]]
    if not len(carriers):
        return shared
    carriers = carriers[np.lexsort((carriers, start[carriers], place[carriers]))]
    times = distinct(np.concatenate([start[carriers], end[rows]]))
    keys = place[carriers] * len(times) + np.searchsorted(times, start[carriers])
    segment = np.unique(place[carriers], return_inverse=True)[1]
    highest = running_maximum(end[carriers], segment)
    # The one that lives longest of those that began by then; a place's first is always one.
    is_highest = end[carriers] == highest
    longest = np.maximum.accumulate(np.where(is_highest, np.arange(len(carriers)), 0))
    wanted = place[rows] * len(times) + np.searchsorted(times, end[rows])
    at = np.searchsorted(keys, wanted, side="right") - 1
    shares = (at >= 0) & (place[carriers[at]] == place[rows]) & (highest[at] >= start[rows])
    shared[rows[shares]] = carriers[longest[at[shares]]]
    return shared


# -- Who holds the bytes at one instant: every byte counts for one range ---------------------------


def own_bytes(allocation: Ints, offset: Ints, size: Ints) -> Ints:
    """Return for each range how many of its bytes no range before it in the same allocation has.

    The order is that of the offsets; of equal ones the larger comes first, then the earlier row.
    So the sum over an allocation is the union of its ranges. Ends must fit into 64 bits and sizes
    be 0 or more: in a module whose peak is known they lie within the allocation.
    """
    if not len(size):
        return size
    order = np.lexsort((-size, offset, allocation))
    begin = offset[order]
    end = begin + size[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = allocation[order][1:] != allocation[order][:-1]
    covered = running_maximum(end, np.cumsum(is_first) - 1)
    before = np.concatenate([begin[:1], covered[:-1]])
    fresh = np.where(is_first, begin, np.maximum(begin, before))
    held = np.empty(len(order), np.int64)
    held[order] = np.maximum(end - fresh, 0)
    return held


def largest_rows(allocation: Ints, size: Ints, allocations: int) -> Ints:
    """For each allocation the row of its largest range, the first of equal ones; -1 without one."""
    largest = np.full(allocations, np.iinfo(np.int64).min)
    for part in parts(len(size)):
        np.maximum.at(largest, allocation[part], size[part])
    is_largest = np.empty(len(size), np.bool_)
    for part in parts(len(size)):
        is_largest[part] = size[part] == largest[allocation[part]]
    largest_of = np.full(allocations, -1)
    rows = np.flatnonzero(is_largest)[::-1]
    # The last write stays.
    largest_of[allocation[rows]] = rows
    return largest_of
