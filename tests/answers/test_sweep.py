"""The end of a sweep: which `scaling` answers are reported, and what fits for all functions."""

import pytest
from small_db import Module, insert

from bufdb import resources
from bufdb.answers import sweep
from bufdb.answers import sweep as report
from bufdb.query.catalogue import Catalogue

QUERY = Catalogue([resources.query_folder()]).find(sweep.QUERY)
MIB = 2**20


@pytest.fixture
def report_lines(con):
    """Return the report for functions given as peaks by batch and length; all are selected."""

    def report_of(peaks, labels=("batch",), limit=None, functions=None, lengths=(1,)):
        number = 0
        for batch in (1, 2, 3, 4):
            for length in lengths:
                run = f"b{batch}-{length}"
                insert(con, "run_labels", run_name=run, label="batch", label_value=str(batch))
                insert(con, "run_labels", run_name=run, label="length", label_value=str(length))
                for function, peak in peaks.items():
                    number += 1
                    module = Module(con, number, run, function, platform="cpu")
                    module.allocation(0, "output", peak(batch, length))
                    module.value(0, 0, 0, 1)
                    module.close()
        curves = sweep.curves(con, QUERY, labels, limit)
        return report.lines(curves, set(peaks) if functions is None else functions, limit)

    return report_of


@pytest.mark.slow
def test_the_function_that_leaves_least_decides(report_lines):
    lines = report_lines(
        {
            "step": lambda batch, _: (10 + 2 * batch) * MIB,
            "init": lambda batch, _: 5 * MIB,
            "eval": lambda batch, _: 6 * batch * MIB,
        },
        limit=60 * MIB,
        functions={"step"},
    )
    # eval is the limit although step is the largest in every run: both curves are reported.
    assert lines == [
        "need of eval (length=1): 0 B + 6.00 MiB * batch, within 0.0%, from 4 sizes, 1 to 4",
        "need of step (length=1): 10.0 MiB + 2.00 MiB * batch, within 0.0%, from 4 sizes, 1 to 4",
        "largest batch that fits 60.0 MiB: 9 to 10 (length=1), by eval; "
        "4 is sure: it was compiled; beyond 8 it is a guess",
    ]


def test_what_does_not_grow_binds_only_where_it_does_not_fit(report_lines):
    peaks = {"init": lambda batch, _: 5 * MIB}
    constant = "need of init (length=1): 5.00 MiB at every batch, within 0.0%, from 4 sizes, 1 to 4"
    assert report_lines(peaks, limit=60 * MIB) == [constant]


def test_what_does_not_fit_at_any_size(report_lines):
    lines = report_lines({"init": lambda batch, _: 5 * MIB}, limit=MIB)
    assert lines[1:] == ["largest batch that fits 1.00 MiB: none (length=1), by init"]


@pytest.mark.slow
def test_functions_without_a_curve_are_named_next_to_a_largest(report_lines):
    jumps = (10, 40, 10, 90)
    lines = report_lines(
        {"step": lambda batch, _: batch * MIB, "odd": lambda batch, _: jumps[batch - 1]},
        limit=60 * MIB,
        functions={"step"},
    )
    assert lines[1:] == [
        "no curve over batch: neither a line nor a parabola is within max_error of every figure: "
        "odd (length=1)",
        "largest batch that fits 60.0 MiB: 57 to 63 (length=1), by step; "
        "4 is sure: it was compiled; beyond 8 it is a guess",
    ]


@pytest.mark.slow
def test_two_labels_have_their_product_where_it_makes_a_curve(report_lines):
    lines = report_lines(
        {"step": lambda batch, length: (1 + batch * length) * MIB},
        labels=("batch", "length"),
        limit=60 * MIB,
        lengths=(1, 2, 5),
    )
    assert lines[-4:] == [
        "need of step: 1.00 MiB + 1.00 MiB * batch * length, within 0.0%, from 10 sizes, 1 to 20",
        *(
            f"largest batch that fits 60.0 MiB: {ends} (length={length}), by step; "
            "beyond batch * length = 40 it is a guess"
            for ends, length in (("56 to 61", 1), ("28 to 30", 2), ("11 to 12", 5))
        ),
    ]
    sure = "4 is sure: it was compiled; beyond 8 it is a guess"
    assert f"largest batch that fits 60.0 MiB: 27 to 30 (length=2), by step; {sure}" in lines[:-4]


# -- curves made up, without a database ------------------------------------------------------------


def curve(function="f", others="", **cells):
    """Return a row of `scaling` over batch: by default a line whose largest batch is unknown."""
    row = {"function_name": function, "compilation_place": 1, "other_labels": others}
    row |= {"second_size": None, "model": "linear", "fixed_bytes": MIB, "slope_bytes": MIB}
    row |= {"size_count": 3, "min_size": 1, "max_size": 4, "unknown_count": 0}
    row |= {"max_error_ratio": 0.0, "low_largest_size": None, "high_largest_size": None}
    row |= {"no_fit_reason": None, "unknown_reason": None, "guess_reason": None}
    row |= {"measured_largest_size": None, **cells}
    return sweep.Curve(("batch",), row)


def lines_of(*curves):
    return report.lines({("batch",): curves}, {"f", "g"}, 8 * MIB)


def test_the_least_of_each_end_counts_where_all_have_to_fit():
    lines = lines_of(
        curve("f", low_largest_size=9, high_largest_size=11),
        curve("g", low_largest_size=8, high_largest_size=12),
    )
    assert lines[-1] == "largest batch that fits 8.00 MiB: 8 to 11, by g"
    lines = lines_of(
        *(curve(f"g{n}", f"x={n}", low_largest_size=n, high_largest_size=n) for n in (0, 1))
    )
    assert lines[-2:] == [
        "largest batch that fits 8.00 MiB: none (x=0), by g0",
        "largest batch that fits 8.00 MiB: 1 (x=1), by g1",
    ]


def test_compiled_sizes_are_sure_and_far_ones_a_guess():
    far = {"low_largest_size": 30, "high_largest_size": 36, "guess_reason": "far"}
    curves = {("batch",): [curve("f", "x=1", measured_largest_size=4.0, **far)]}
    calls = []

    def proof(label, size, others):
        calls.append((label, size, others))
        return "bufdb capture"

    assert report.lines(curves, {"f"}, 8 * MIB, proof)[1:] == [
        "largest batch that fits 8.00 MiB: 30 to 36 (x=1), by f; "
        "4 is sure: it was compiled; beyond 8 it is a guess",
        "to verify: bufdb capture",
    ]
    assert calls == [("batch", 30, "x=1")]


def test_a_largest_of_two_functions_may_be_unsure():
    lines = lines_of(curve("f", low_largest_size=9, measured_largest_size=4.0))
    assert lines[-1] == (
        "largest batch that fits 8.00 MiB: 9 or more, by f; 4 is sure: it was compiled"
    )
    both = [
        curve("f", low_largest_size=9, measured_largest_size=4.0),
        curve("g", low_largest_size=3, high_largest_size=3, measured_largest_size=2.0),
    ]
    assert lines_of(*both)[-1].endswith(": 3, by g; 2 is sure: it was compiled")
    both[1] = curve("g", low_largest_size=0, high_largest_size=0)
    assert lines_of(*both)[-1].endswith(": none, by g")


def test_no_curve_or_no_largest_has_a_reason():
    reason = "fewer than 3 sizes"
    odd = [curve(f"f{n}", "x=1", model=None, no_fit_reason=reason) for n in range(6)]
    assert lines_of(*odd) == [
        f"no curve over batch: {reason}: f0 (x=1), f1 (x=1), f2 (x=1), f3 (x=1) and 2 more"
    ]
    assert lines_of(curve(model=None, unknown_reason="no live ranges", compilation_place=2)) == [
        "no curve over batch: no live ranges: f, compilation 2"
    ]
    assert lines_of(curve(unknown_count=2)) == [
        "need of f: 1.00 MiB + 1.00 MiB * batch, within 0.0%, from 3 sizes, 1 to 4, "
        "2 more of unknown need",
        "no largest batch: without one of the sizes the curve does not grow: f",
    ]


def test_a_curve_may_bend_and_fall_and_many_are_counted():
    bent = curve(model="quadratic", slope_bytes=-2 * MIB, square_factor=3 * MIB)
    assert lines_of(bent)[0].startswith(
        "need of f: 1.00 MiB - 2.00 MiB * batch + 3.00 MiB * batch^2"
    )
    lines = report.lines(
        {("batch",): [curve(f"f{n}") for n in range(15)]}, {f"f{n}" for n in range(15)}, None
    )
    assert (len(lines), lines[-1]) == (report.MOST + 1, "and 3 more of these")


@pytest.mark.slow
def test_a_product_that_makes_no_curve_is_left_out(report_lines):
    lines = report_lines(
        {"step": lambda batch, length: (batch + length) * MIB},
        labels=("batch", "length"),
        lengths=(1, 20, 50),
    )
    assert len(lines) == 3 + 4 and not any("batch * length" in line for line in lines)


@pytest.mark.slow
def test_many_of_a_kind_are_counted(report_lines):
    peaks = {f"f{number:02}": lambda batch, _: batch * MIB for number in range(15)}
    lines = report_lines(peaks)
    assert len(lines) == report.MOST + 1
    assert lines[-1] == "and 3 more of these"
