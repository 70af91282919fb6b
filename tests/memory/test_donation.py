"""Savings of donation, against the rule instant by instant."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bufdb.memory.donation import Spans, donated, donors
from bufdb.memory.maxima import Steps

LAST = 12


@st.composite
def cases(draw: st.DrawFn):
    """Occupied bytes of two groups, and pairs (group, size, last use, spans, set)."""
    curves = [draw(st.lists(st.integers(0, 9), min_size=LAST, max_size=LAST)) for _ in range(2)]
    time = st.integers(0, LAST - 1)
    spans = st.lists(st.tuples(time, time).map(sorted), max_size=3)
    pair = st.tuples(st.integers(0, 1), st.integers(1, 9), time, spans, st.integers(0, 1))
    return curves, draw(st.lists(pair, min_size=1, max_size=5))


def numbers(pairs):
    """A set holds pairs of one group: its number and the group's make its own."""
    names = sorted({(pair[0], pair[4]) for pair in pairs})
    return [names.index((pair[0], pair[4])) for pair in pairs], len(names)


def by_rule(curves, pairs):
    sets, count = numbers(pairs)
    savings = []
    for number in range(count):
        own_pairs = [pair for pair, owner in zip(pairs, sets, strict=True) if owner == number]
        curve, freed = curves[own_pairs[0][0]], sum(pair[1] for pair in own_pairs)
        needed = [
            height
            + sum(
                size
                for _, size, use, spans, _ in own_pairs
                if time < use and any(start <= time <= end for start, end in spans)
            )
            for time, height in enumerate(curve)
        ]
        most = max(needed)
        savings.append((freed + max(curve) - most, most - freed, needed.index(most)))
    return savings


def donation_savings(curves, pairs, scale=1):
    sets, count = numbers(pairs)
    rows = [(n, start, end) for n, pair in enumerate(pairs) for start, end in pair[3]]
    group = np.repeat(np.arange(len(curves)), LAST)
    heights = np.array(curves, np.int64).reshape(-1) * scale
    result = donated(
        Steps(group, np.tile(np.arange(LAST), len(curves)), heights),
        np.array([max(curve) for curve in curves]) * scale,
        *(np.array([pair[n] for pair in pairs]) * (scale if n == 1 else 1) for n in range(3)),
        Spans(*np.array(rows, np.int64).reshape(-1, 3).T),
        np.array(sets),
        count,
    )
    return list(zip(*(column.tolist() for column in vars(result).values()), strict=True))


@pytest.mark.slow
@settings(max_examples=100)
@given(case=cases())
def test_donation_saves_what_the_rule_says(case):
    assert donation_savings(*case) == by_rule(*case)


@settings(max_examples=50)
@given(case=cases())
def test_sizes_near_the_end_of_64_bits(case):
    scale = 2**59 + 1
    expected = [(saving * scale, most * scale, time) for saving, most, time in by_rule(*case)]
    assert donation_savings(*case, scale) == expected


def test_early_contents_need_bytes_elsewhere():
    """Gradients in the output from 2 on, while the parameter is read until 5; the peak is at 3."""
    curve = [4, 4, 4, 9, 4, 4, 4, 4, 4, 4, 4, 4]
    assert donation_savings([curve], [(0, 3, 5, [(2, 9)], 0)]) == [(0, 9, 3)]
    assert donation_savings([curve], [(0, 3, 2, [(2, 9)], 0)]) == [(3, 6, 3)]


def test_the_parameter_read_shortest_gives_first():
    group = np.array([0, 0, 0, 0, 0, 1, 1])
    size = np.array([8, 8, 8, 8, 4, 8, 8])
    is_output = np.array([False, False, True, True, True, True, False])
    last_use = np.array([9, 5, 0, 0, 0, 0, -1])
    parameter, output = donors(group, size, is_output, last_use)
    assert list(zip(parameter.tolist(), output.tolist(), strict=True)) == [(1, 2), (0, 3)]
    assert donors(group, size, is_output, last_use, least=8)[0].tolist() == []
