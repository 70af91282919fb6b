"""What the traces of plans in calls say of each region."""

from dataclasses import replace

import pytest

from bufdb.fitting.plans import Compiled, Depth, Plan, Program, Region, SearchRequest, Site, Traced
from bufdb.fitting.space import NONE, Space
from bufdb.fitting.sums import ALL, LAST_CALL

HERE = Site("/a/train.py", 1, 0, 1, 9)
REGIONS = (
    Region("call", (HERE,), "stem", HERE, 1, order=(HERE,)),
    Region("call", (HERE,), "block", HERE, 4, order=(HERE,) * 4, sizes=(6, 3, 1, 30)),
)


def space_of(figures: dict[Plan, int]) -> Space:
    """Return a space whose plans were traced to have some live bytes."""

    def trace(plan):
        return Traced(0, figures[plan], 0, 1)

    program = Program("f", None, "gpu", REGIONS, (), (), ("a",), False, False, trace(Plan()))
    request = SearchRequest(None, Compiled(0, 0, True, 1), trace, lambda plan, is_full: None)
    space = Space(program, request)
    for plan in figures:
        space.look(plan, NONE)
    return space


def block(count: int, **others) -> Plan:
    return Plan(calls=(1,), depths=(Depth(1, count, **others),))


@pytest.mark.parametrize(("count", "share"), [(1, 0.6), (2, 0.9), (3, 1.0)])
def test_a_part_of_a_region_saves_what_its_calls_compute(count, share):
    """The last call's bytes are live anyway; all bytes are those that the trace has."""
    space = space_of({Plan(): 900, Plan(calls=(1,)): 400, block(count): 410})
    assert space.parts(block(count)) == {ALL: 490, (1, ""): pytest.approx(500 * share)}
    assert space.parts(Plan(calls=(1,))) == {ALL: 500, (1, ""): 500, (1, LAST_CALL): 1}


def test_other_regions_of_the_plan_are_between_both_ends():
    """A stem spares 200 bytes alone, 100 next to all blocks."""
    both, part = Plan(calls=(0, 1)), replace(block(1), calls=(0, 1))
    figures = {
        Plan(): 900, Plan(calls=(0,)): 700, Plan(calls=(1,)): 400, both: 300, part: 500,
    }  # fmt: skip
    parts = space_of(figures).parts(part)
    assert parts[ALL] == 400
    assert parts[0, ""] == pytest.approx(200 - 0.6 * 100)
    assert parts[1, ""] == pytest.approx(0.6 * 400)
    assert parts[0, LAST_CALL] == 1
    assert (1, LAST_CALL) not in parts


def test_calls_that_save_products_are_the_rest_of_a_part():
    whole, dots = Plan(calls=(1,)), Plan(calls=(1,), with_dots=(1,))
    part = block(2, with_dots=True)
    parts = space_of({Plan(): 900, whole: 400, dots: 700, part: 500}).parts(part)
    assert parts[1, ""] == pytest.approx(0.9 * 500)
    assert parts[1, "products"] == pytest.approx(0.1 * 200)


def test_where_an_end_is_not_traced_a_part_saves_by_its_trace():
    parts = space_of({Plan(): 900, block(1): 700}).parts(block(1))
    assert parts == {ALL: 200, (1, ""): 200}
