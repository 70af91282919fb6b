"""Savings from donating parameters to outputs of their size, including early contents of outputs.

An output's allocation may hold something long before the result, such as gradients stacked by a
loop. Until the last read of the parameter that gives its bytes, those need bytes elsewhere:

    saving = output bytes + max U(t) - max (U(t) + E(t))

U(t) are the occupied temp bytes at t, E(t) the output's bytes while a value of its allocation is
live before the parameter's last use, else 0. Several donations add up their bytes and their E.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Ints
from bufdb.memory.maxima import Steps, highest
from bufdb.memory.occupancy import accumulated
from bufdb.memory.ranges import numbered


@dataclass(frozen=True)
class Spans:
    """When values of the outputs' allocations are live; only the output's own size matters."""

    output: Ints
    """Number of the output."""
    start: Ints
    end: Ints
    """Last instant, itself included."""


@dataclass(frozen=True)
class Donated:
    """What each set of donations saves; 64-bit integers, or Python's where those may fail."""

    saving: Ints
    """Below 0 where early contents need more than the output's bytes at the peak free."""
    peak: Ints
    """Highest point of what is occupied, less the bytes that the outputs no longer need."""
    peak_time: Ints
    """First instant of that."""


def donors(
    group: Ints, size: Ints, is_output: Bools, last_use: Ints, least: int = 0
) -> tuple[Ints, Ints]:
    """Return pairs (row of a parameter, row of an output) of one group and size.

    The outputs in order of their rows take the parameter that is read for the shortest time, the
    first of equal ones; each parameter gives its bytes once.

    Args:
        group: the memory space of the module of each allocation.
        size: its size [bytes].
        is_output: whether it is an output; else a parameter that is not donated.
        last_use: last instant of a parameter's values; -1 if it has none, and so gives nothing.
        least: sizes up to this are ignored.
    """
    fits = (size > least) & (is_output | (last_use >= 0))
    rows = np.flatnonzero(fits)
    key = numbered(group[rows], size[rows])
    order = np.lexsort((rows, np.where(is_output[rows], 0, last_use[rows]), key))
    rows, key = rows[order], key[order]
    parameters, taken = np.flatnonzero(~is_output[rows]), np.flatnonzero(is_output[rows])
    # The n-th parameter of a size goes to its n-th output.
    ranks = [
        np.arange(len(some)) - np.searchsorted(key[some], key[some]) for some in (parameters, taken)
    ]
    width = len(rows) + 1
    _, one, other = np.intersect1d(
        key[parameters] * width + ranks[0], key[taken] * width + ranks[1], return_indices=True
    )
    parameter, output = rows[parameters[one]], rows[taken[other]]
    order = np.argsort(output)
    return parameter[order], output[order]


def donated(
    occupied: Steps,
    peak: Ints,
    group: Ints,
    size: Ints,
    last_use: Ints,
    spans: Spans,
    sets: Ints,
    count: int,
) -> Donated:
    """Return what sets of donations save, each set by itself.

    Args:
        occupied: occupied temp bytes of each group.
        peak: their maximum.
        group: the group of each pair.
        size: the size of its output [bytes].
        last_use: the last use of its parameter.
        spans: when values of the output's allocation are live; `output` is the number of the pair.
        sets: the set that each pair belongs to; a set has pairs of one group, and one at least.
        count: number of sets.
    """
    begin, stop = spans.start, np.minimum(spans.end + 1, last_use[spans.output])
    early = stop > begin
    pair, begin, stop = spans.output[early], begin[early], stop[early]
    ones = np.ones(len(pair), np.int64)
    owner, time, live = accumulated(
        np.concatenate([pair, pair]),
        np.concatenate([begin, stop]),
        np.concatenate([ones, -ones]),
    )
    kind: Any = occupied.value.dtype
    total = np.abs(size.astype(np.float64)).sum() + peak.astype(np.float64).max(initial=0)
    if total >= 2.0**62:
        kind = object
    held = np.where(live > 0, size[owner], 0).astype(kind)
    before = np.append(np.zeros(1, kind), held[:-1])
    before[np.append(True, owner[1:] != owner[:-1])[: len(owner)]] = 0
    falls = Steps(*accumulated(sets[owner], time, before[: len(held)] - held)).from_zero(count)
    group_of = np.zeros(count, np.int64)
    group_of[sets] = group
    curves = Steps(occupied.owner, occupied.time, occupied.value.astype(kind))
    most, instant = highest(curves.from_zero(len(peak)), falls, group_of)
    freed = np.zeros(count, kind)
    np.add.at(freed, sets, size.astype(kind))
    return Donated(freed + peak.astype(kind)[group_of] - most, most - freed, instant)
