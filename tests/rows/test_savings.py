"""Rows of peak_savings: which values belong together, and whose bytes they are."""

import numpy as np
import pytest

from bufdb.columnar.scan import Block, Text
from bufdb.memory import savings
from bufdb.memory.buffers import own_bytes
from bufdb.memory.occupancy import occupancy
from bufdb.memory.ranges import Ranges
from bufdb.read.used_values import UsedValues
from bufdb.rows.peak_savings import Grouping, PeakSavings, Temps
from bufdb.rows.residuals import Residuals


class Known:
    """A context in which the peaks of some modules are known."""

    def __init__(self, *known):
        self.known, self.findings = np.array(known), []

    def having(self, fact):
        assert fact == "is_peak_known"
        return self.known

    def find(self, module, severity, code, message):
        self.findings.append((module, severity, code))


def prepared(context, rows, fixed=(100, 1000), is_phi=()):
    """The values (group, offset, size, start, end) of memory spaces 0 and 3 of modules 0 and 1.

    In the index each value has a row before its own, which is of no temp value.
    """
    group, offset, size, start, end = np.array(rows, np.int64).T
    ranges = Ranges(group, group * 0, offset, size, start, end)
    occupied = occupancy(ranges, 2, np.array([99, 99]))
    at = occupied.peak_time[group]
    live = np.flatnonzero((start <= at) & (at <= end))
    held = np.zeros(len(rows), np.int64)
    held[live] = own_bytes(group[live], offset[live], size[live])
    phi = np.isin(np.arange(len(rows)), is_phi)
    groups, row = np.array([[0, 0], [1, 3]]), np.arange(len(rows)) * 2 + 1
    temps = Temps(groups, np.array(fixed, object), ranges, occupied, row, phi, held)
    return Kept(context, np.arange(2 * len(rows)) + 500, temps)


class Kept(PeakSavings):
    """Savings of values that no loop stacks."""

    def rows(self, groupings=()):
        return super().rows(groupings, Residuals(), np.zeros(len(self.row), np.bool_))


def savings_of(columns):
    """Return (module, color, name or value, held, saving, peak without, when)"""
    name, value = columns["name"], columns["value_id"]
    names = [
        name.labels[code] if name.labels[code] is not None else number
        for code, number in zip(name.codes.tolist(), value.values.tolist(), strict=True)
    ]
    figures = ("held_bytes", "saving_bytes", "peak_bytes_without", "peak_time_without")
    rest = [columns[figure].tolist() for figure in figures]
    places = columns["module"].tolist(), columns["color"].tolist()
    return sorted(zip(*places, names, *rest, strict=True), key=str)


ROWS = [
    (0, 0, 10, 0, 9),
    (0, 10, 20, 3, 5),
    (0, 30, 5, 5, 5),
    (0, 40, 28, 8, 9),
    (1, 0, 7, 2, 4),
    (1, 7, 2, 1, 1),
]


LINES = Grouping("line", np.array([0, 1, -1, 1, 0, -1]), ["a", "b"])
"""a is the first value of both modules, b the second and fourth of one."""


def test_each_value_at_the_peak_has_a_row_with_the_fixed_bytes():
    (values,) = prepared(Known(True, True), ROWS).rows()
    assert savings_of(values) == [
        (0, 0, 501, 10, 10, 128, 8),
        (0, 0, 507, 28, 3, 135, 5),
        (1, 3, 509, 7, 5, 1002, 1),
    ]


def test_a_name_has_values_away_from_the_peak_too():
    _, lines = prepared(Known(True, True), ROWS).rows([LINES])
    assert lines["what"].labels == ["line"]
    assert savings_of(lines) == [
        (0, 0, "a", 10, 10, 128, 8),
        (0, 0, "b", 28, 23, 115, 5),  # without its 20 bytes at 5, where 35 were occupied
        (1, 3, "a", 7, 5, 1002, 1),
    ]


def test_modules_whose_peak_became_unknown_have_no_rows():
    values, lines = prepared(Known(False, True), ROWS).rows([LINES])
    assert savings_of(values) == [(1, 3, 509, 7, 5, 1002, 1)]
    assert savings_of(lines) == [(1, 3, "a", 7, 5, 1002, 1)]
    assert list(prepared(Known(False, False), ROWS).rows([LINES])) == []


STACK = [(0, 50, 8, 0, 3), (0, 50, 8, 3, 9), (0, 0, 4, 4, 6)]
"""Zeros, which a loop carries on as a phi, and one unrelated value."""


def read():
    """Return a round of used values with positions: the zeros enter at {5}, where the phi is."""
    text = Block(b"{5}{}{5}{7}\n")
    positions = {
        "head": np.array([0, 1, 1, 2]),
        "ordinal": np.array([0, 0, 1, 0]),
        "shape_index": Text(text, np.array([0, 3, 5, 8]), np.array([3, 5, 8, 11])),
    }
    return UsedValues(positions=positions, rows=np.array([3, 1, -1]))


def test_what_a_loop_carries_on_saves_with_what_it_began_with():
    apart, whole = (prepared(Known(True, True), STACK, is_phi=[1]) for _ in range(2))
    whole.see_uses(read())
    (values,), (linked,) = apart.rows(), whole.rows()
    assert savings_of(values) == [(0, 0, 503, 8, 4, 108, 0), (0, 0, 505, 4, 4, 108, 0)]
    assert savings_of(linked) == [(0, 0, 503, 8, 8, 104, 4), (0, 0, 505, 4, 4, 108, 0)]


def test_a_buffer_is_whose_name_holds_its_bytes_at_the_peak():
    kept = prepared(Known(True, True), STACK, is_phi=[1])
    kept.see_uses(read())
    _, lines = kept.rows([Grouping("line", np.array([0, 1, -1]), ["zeros", "loop"])])
    assert savings_of(lines) == [(0, 0, "loop", 8, 8, 104, 4)]


def test_what_takes_too_long_has_no_rows_and_a_notice(monkeypatch):
    monkeypatch.setattr(savings, "_PAIRS", 0)
    monkeypatch.setattr(savings, "_PAIRS_EACH", 1)
    context = Known(True, True)
    rows = [(0, 0, 4, 0, 9), (0, 2, 4, 3, 9), (0, 6, 4, 3, 5), ROWS[4], ROWS[5]]
    (values,) = prepared(context, rows).rows()
    assert savings_of(values) == [(1, 3, 507, 7, 5, 1002, 1)]
    assert context.findings == [(0, "notice", "savings_unknown")]


@pytest.mark.parametrize("fixed", [2**62, 2**63 + 5])
def test_the_peak_without_may_need_more_than_64_bits(fixed):
    rows = [(0, 0, 2**62, 0, 9), (0, 2**62, 2**62 - 1, 3, 5), (1, 0, 8, 0, 3)]
    (values,) = prepared(Known(True, True), rows, fixed=(fixed, 0)).rows()
    assert savings_of(values) == [
        (0, 0, 501, 2**62, 2**62, fixed + 2**62 - 1, 3),
        (0, 0, 503, 2**62 - 1, 2**62 - 1, fixed + 2**62, 0),
        (1, 3, 505, 8, 8, 0, 0),
    ]
