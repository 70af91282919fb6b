"""A loop over equal blocks becomes a scan, by its text."""

import pytest
from patched import PATH, program, site

from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Change, Plan

HEAD = "import jax, jax.numpy as jnp\n\ndef loss(params, x, n):\n"


def rolled(lines: str, call: str):
    """The patch of the loop around a call in a function."""
    text = f"{HEAD}{lines}    return x\n"
    change = Change("blocks=4", "", "run as one jax.lax.scan", "", "", (site(text, call),), 4)
    made = patch(program(changes=(change,)), Plan(extra=(change.key,)), {PATH: text}, "/src")
    return made, made.texts.get(PATH, "").removeprefix(HEAD).removesuffix("    return x\n")


OVER_PARAMS = """\
    for p in params:
        # one layer
        x = block(p, x)
""", "block(p, x)", """\
    def fit_block(x, p):
        # one layer
        x = block(p, x)
        return x, None

    fit_parts = jax.tree.map(lambda *fit_a: jnp.stack(fit_a), *params)
    x, _ = jax.lax.scan(fit_block, x, fit_parts)
"""  # fmt: skip
NOTHING_READ = """\
    for _ in range(n):
        x = block(params, x)
""", "block(params, x)", """\
    def fit_block(x, _):
        x = block(params, x)
        return x, None

    x, _ = jax.lax.scan(fit_block, x, length=len(range(n)))
"""  # fmt: skip
A_NUMBER = """\
    for i in range(1, n):
        x = jnp.where(x > i, block(params, x), x)
""", "block(params, x)", """\
    def fit_block(x, i):
        x = jnp.where(x > i, block(params, x), x)
        return x, None

    x, _ = jax.lax.scan(fit_block, x, jnp.arange(1, n))
"""  # fmt: skip
BY_KEY = """\
    for i in range(n):
        x = block(params[f"layer_{i}"], x)
""", 'block(params[f"layer_{i}"], x)', """\
    fit_parts = []
    for i in range(n):
        fit_parts.append(params[f"layer_{i}"])

    def fit_block(x, fit_0):
        x = block(fit_0, x)
        return x, None

    fit_parts = jax.tree.map(lambda *fit_a: jnp.stack(fit_a), *fit_parts)
    x, _ = jax.lax.scan(fit_block, x, fit_parts)
"""  # fmt: skip
FIRST = """\
    for i, p in enumerate(params):
        ticks = jnp.arange(i * n, i * n + n)
        x = block(p, x, ticks)
""", "block(p, x, ticks)", """\
    fit_parts = []
    for i, p in enumerate(params):
        ticks = jnp.arange(i * n, i * n + n)
        fit_parts.append((p, ticks))

    def fit_block(x, fit_part):
        p, ticks = fit_part
        x = block(p, x, ticks)
        return x, None

    fit_parts = jax.tree.map(lambda *fit_a: jnp.stack(fit_a), *fit_parts)
    x, _ = jax.lax.scan(fit_block, x, fit_parts)
"""  # fmt: skip
SEVERAL = """\
    total = 0.0
    for p, q in zip(params, params):
        h, aux = block(p, x)
        x = x + h @ q
        total += aux
    x = x * total
""", "block(p, x)", """\
    total = 0.0

    def fit_block(fit_carry, fit_part):
        x, total = fit_carry
        p, q = fit_part
        h, aux = block(p, x)
        x = x + h @ q
        total += aux
        return (x, total), None

    fit_parts = jax.tree.map(lambda *fit_a: jnp.stack(fit_a), *zip(params, params))
    (x, total), _ = jax.lax.scan(fit_block, (x, total), fit_parts)
    x = x * total
"""  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "call", "after"), [OVER_PARAMS, NOTHING_READ, A_NUMBER, BY_KEY, FIRST, SEVERAL]
)
def test_a_loop_becomes_a_scan(lines, call, after):
    made, text = rolled(lines, call)
    assert made.steps == ()
    assert text == after


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x = block(p, x)\n        outs.append(x)", "line 6 does what the body of a scan cannot"),
        ("x = block(p, x)\n        if n: break", "line 6 does what the body of a scan cannot"),
        ("x = block(p, x)\n        params[0] = x", "line 6 changes an object"),
        ("y = block(p, x)", "hand nothing on"),
    ],
)
def test_what_no_scan_does_is_a_step_in_words(body, why):
    made, _ = rolled(f"    for p in params:\n        {body}\n", "block(p, x)")
    assert made.diff == ""
    (step,) = made.steps
    assert "by hand, run as one jax.lax.scan" in step
    assert why in step


def test_a_loop_that_chooses_a_function_is_a_step_in_words():
    lines = """\
    def other(p, x):
        return x
    for i in range(n):
        block = jax.checkpoint(other) if i % 2 else other
        x = block(params, x)
"""
    made, _ = rolled(lines, "block(params, x)")
    (step,) = made.steps
    assert made.diff == "" and "line 7 makes a function for each time" in step


def test_calls_in_no_loop_are_a_step_in_words():
    made, _ = rolled("    x = [block(p, x) for p in params][-1]\n", "block(p, x)")
    (step,) = made.steps
    assert "no `for` of its function repeats it" in step
