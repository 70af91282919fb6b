"""The largest value that fits, found by compiling at few values."""

import pytest

from bufdb.fitting.plans import (
    Answer,
    Compiled,
    Plan,
    PlanResult,
    Program,
    Region,
    Site,
    Traced,
)
from bufdb.fitting.vary import largest, moved, of_plans

LIMIT = 1000


def largest_of(need, start=8, limit=LIMIT):
    seen = []

    def compiled(value):
        seen.append(value)
        return need(value)

    return largest(compiled, limit, start), seen


@pytest.mark.parametrize(("fixed", "slope"), [(0, 10), (100, 7), (900, 1), (990, 3), (3, 997)])
def test_of_a_line_both_sides_are_compiled(fixed, slope):
    size, seen = largest_of(lambda value: fixed + slope * value)
    assert size.value == (LIMIT - fixed) // slope
    assert size.is_proved and size.next_need_bytes > LIMIT
    assert size.need_bytes is None or size.need_bytes <= LIMIT
    assert len(seen) == len(set(seen)) <= 9


def test_a_curve_and_what_xla_refuses_are_bisected():
    size, seen = largest_of(lambda value: value * value if value < 30 else None)
    assert (size.value, size.next_value, size.next_need_bytes) == (29, 30, None)
    assert size.is_proved and len(seen) <= 10


def test_a_need_that_jumps_is_proved_all_the_same():
    size, _ = largest_of(lambda value: 10 * value + (400 if value >= 40 else 0))
    assert (size.value, size.next_value) == (60, 61)


def test_none_fits():
    size, _ = largest_of(lambda value: 5000 + value)
    assert (size.value, size.need_bytes, size.next_value, size.is_proved) == (0, None, 1, True)


def test_what_does_not_grow_ends():
    size, seen = largest_of(lambda value: 10)
    assert size.next_value is None and not size.is_proved and len(seen) == 16


def test_a_plan_is_moved_to_a_program_with_other_regions():
    def program(*lines):
        regions = tuple(
            Region("scan", (Site("a.py", line, 0, line, 9),), "body", None, 2) for line in lines
        )
        traced = Traced(0, 0, 0, 0)
        return Program("f", None, "cpu", regions, (), (), (), False, False, traced)

    plan = Plan(scans=(1,), saved=("fit_0",))
    assert moved(plan, program(3, 7), program(7)) == Plan(scans=(0,), saved=("fit_0",))


def test_what_xla_gave_up_does_not_fit():
    program = Program("f", None, "cpu", (), (), (), (), False, False, Traced(0, 0, 0, 0))
    written = Compiled(20, 20, True, 1.0, refusal="it has less")
    answer = Answer(program, 100, written, (), None, None, 1, 0)
    (size,) = of_plans(answer, 8, lambda value, rank, move: 2 * value if value < 6 else None)
    assert (size.value, size.next_need_bytes) == (5, None)


def test_sizes_are_found_for_plans_without_parts_of_the_batch():
    program = Program("f", None, "cpu", (), (), (), (), False, False, Traced(0, 0, 0, 0))
    plans = [Plan(extra=("microbatch=2",)), Plan(donated=(0,))]
    rows = tuple(
        PlanResult(rank, True, False, 10, 10, 0.0, (), (), (), True, plan=plan)
        for rank, plan in enumerate(plans, 1)
    )
    answer = Answer(program, 100, Compiled(20, 20, True, 1.0), rows, 1, None, 2, 0)
    sizes = of_plans(answer, 8, lambda value, rank, move: 11 * value)
    assert [one.rank for one in sizes] == [None, 2]
