"""The first of the calls of a function, by the text of the loop that makes them."""

from dataclasses import replace

import pytest
from patched import PATH, calls, program, site

from bufdb.fitting.levers.depth import Depths
from bufdb.fitting.loops import first_calls
from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Depth, Plan, Site

HEAD = "import jax\n"
PLACES = tuple(Site(PATH, line, 0, line, 9) for line in range(1, 5))


def first_two_of_four(loop: str, **known):
    """The patch of a loop with block(p, x) in it, called four times."""
    text = f"{HEAD}def loss(ps, x):\n    {loop}"
    place = site(text, "block(p, x)")
    region = calls(place, order=(place,) * 4, **known)
    plan = Plan(calls=(0,), depths=(Depth(0, 2),))
    return patch(program([region]), plan, {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("head", "after", "counter"),
    [
        ("for p in ps:", "for fit_i, p in enumerate(ps):", "fit_i"),
        ("for p in (ps):", "for fit_i, p in (enumerate(ps)):", "fit_i"),
        ("for i, p in enumerate(ps):", "for i, p in enumerate(ps):", "i"),
        ("for i, p in enumerate(ps, 1):", "for fit_i, (i, p) in enumerate(enumerate(ps, 1)):",
         "fit_i"),
        ("for i in range(4):", "for i in range(4):", "i"),
        ("for i in range(2, 6):", "for fit_i, i in enumerate(range(2, 6)):", "fit_i"),
        ("for p, q in zip(ps, qs):", "for fit_i, (p, q) in enumerate(zip(ps, qs)):", "fit_i"),
        ("for (p, q) in pairs:", "for fit_i, (p, q) in enumerate(pairs):", "fit_i"),
    ],
)  # fmt: skip
def test_a_loop_counts_its_iterations(head, after, counter):
    made = first_two_of_four(f"{head}\n        x = block(p, x)\n")
    assert made.steps == ()
    _, _, first, second = made.texts[PATH].splitlines()
    assert first.strip() == after
    assert f" if {counter} < 2 else block(p, x)" in second
    arrays = {"parameters": ("p", "x"), "arrays": ("p", "x")}
    made = first_two_of_four(f"{head}\n        x = block(p, x)\n", **arrays)
    assert f"x = (jax.checkpoint(block) if {counter} < 2 else block)(p, x)" in made.texts[PATH]


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("return block(p, x)\n", "no loop of its function calls it"),
        ("for q in qs:\n        for p in ps:\n            x = block(p, x)\n", "in several loops"),
        ("for p in ps:\n        if p:\n            x = block(p, x)\n", "once in each iteration"),
        ("while p:\n        x = block(p, x)\n", "once in each iteration"),
        ("return [block(p, x) for p in ps]\n", "once in each iteration"),
        ("for p in ps:\n        x = block(p, x)\n        break\n", "once in each iteration"),
        ("for p in block(p, x):\n        pass\n", "once in each iteration"),
    ],
)
def test_what_does_not_count_is_said_in_words(loop, why):
    made = first_two_of_four(loop)
    assert made.diff == ""
    assert "in the first 2 iterations checkpoint" in made.steps[0]
    assert why in made.steps[0]


def test_a_counter_that_the_loop_assigns_is_none():
    made = first_two_of_four("for i in range(4):\n        i = block(p, x)\n")
    assert "for fit_i, i in enumerate(range(4)):" in made.texts[PATH]


def test_the_others_may_save_their_products():
    text = (
        f"{HEAD}def loss(p, x):\n    for q in p:\n        x = block(q, x)\n    return block(p, x)\n"
    )
    places = site(text, "block(q, x)"), site(text, "block(p, x)")
    region = calls(
        *places, order=(places[0],) * 3 + places[1:], arrays=("p", "x"), parameters=("p", "x")
    )
    plan = Plan(calls=(0,), depths=(Depth(0, 2, with_dots=True),))
    made = patch(program([region]), plan, {PATH: text}, "/src").texts[PATH]
    policy = "jax.checkpoint_policies.dots_saveable"
    assert f"jax.checkpoint(block, policy=None if fit_i < 2 else {policy})(q, x)" in made
    assert f"return jax.checkpoint(block, policy={policy})(p, x)" in made


def test_between_two_checkpoints_the_first_save_nothing():
    region = calls(*PLACES, order=PLACES, has_products=True)
    known = program([region])
    cheap, dear = Plan(calls=(0,), with_dots=(0,)), Plan(calls=(0,))
    middle = Depths().between(known, cheap, dear, 0.5)
    assert middle == replace(dear, depths=(Depth(0, 2, with_dots=True),))
    more = Depths().between(known, middle, dear, 0.5)
    assert more == replace(dear, depths=(Depth(0, 3, with_dots=True),))
    assert Depths().between(known, Plan(), cheap, 0.5) == replace(cheap, depths=(Depth(0, 2),))


def test_the_first_calls_are_those_of_the_first_places():
    a, b = Site(PATH, 1, 0, 1, 9), Site(PATH, 2, 0, 2, 9)
    assert first_calls((a, b), 1) == {a: None}
    assert first_calls((a, a, b, b), 3) == {a: None, b: 1}
    assert first_calls((a, b, a, b), 3) == {a: None, b: 1}
    assert first_calls((a, a), 1) == {a: 1}
