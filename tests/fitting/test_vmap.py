"""A vmap in batches, by the text of its call."""

import pytest
from patched import PATH, program, site

from bufdb.fitting.jax_inside import Mapped
from bufdb.fitting.levers.vmap import _change
from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Plan

HEAD = "import jax\n"


def in_four_parts(text: str, call: str):
    """The patch of the call of a vmap over 10."""
    change = _change(Mapped(site(text, call), 10, 40), 4)
    made = program(changes=(change,))
    return patch(made, Plan(extra=(change.key,)), {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("line", "call", "after"),
    [
        ("y = jax.vmap(f)(x)", "jax.vmap(f)(x)", "y = jax.lax.map(f, x, batch_size=3)"),
        ("y = jax.vmap(lambda a: a * w)(x)[0]", "jax.vmap(lambda a: a * w)(x)",
         "y = jax.lax.map(lambda a: a * w, x, batch_size=3)[0]"),
        ("y = jax.vmap(f)(a, b)", "jax.vmap(f)(a, b)",
         "y = jax.lax.map(lambda fit_x: f(fit_x[0], fit_x[1]), (a, b), batch_size=3)"),
        ("y = jax.vmap(f, in_axes=(0, None))(a, b)", "jax.vmap(f, in_axes=(0, None))(a, b)",
         "y = jax.lax.map(lambda fit_x: f(fit_x, b), a, batch_size=3)"),
        ("y = jax.vmap(f, (None, 0, 0))(a, g(b), c)", "jax.vmap(f, (None, 0, 0))(a, g(b), c)",
         "y = jax.lax.map(lambda fit_x: f(a, fit_x[0], fit_x[1]), (g(b), c), batch_size=3)"),
        ("v = jax.vmap(f)\ny = v(x)", "v(x)",
         "v = jax.vmap(f)\ny = jax.lax.map(f, x, batch_size=3)"),
    ],
)  # fmt: skip
def test_a_call_becomes_a_map_in_batches(line, call, after):
    made = in_four_parts(f"{HEAD}{line}\n", call)
    assert made.steps == ()
    assert made.texts[PATH] == f"{HEAD}{after}\n"


@pytest.mark.parametrize(
    ("line", "call", "why"),
    [
        ("y = jax.vmap(f, in_axes=1)(x)", "jax.vmap(f, in_axes=1)(x)", "other axes"),
        ("y = jax.vmap(f, in_axes=n)(x)", "jax.vmap(f, in_axes=n)(x)", "not constants"),
        ("y = jax.vmap(f, out_axes=1)(x)", "jax.vmap(f, out_axes=1)(x)", "other axes"),
        ("y = jax.vmap(f, axis_name='i')(x)", "jax.vmap(f, axis_name='i')(x)", "options"),
        ("y = jax.vmap(f)(*x)", "jax.vmap(f)(*x)", "by star"),
        ("y = jax.vmap(f, (0, None))(a, g(b))", "jax.vmap(f, (0, None))(a, g(b))", "holds a call"),
        ("@jax.vmap\ndef v(x):\n    return x\ny = v(x)", "v(x)", "v is not jax.vmap"),
        ("y = mapped(f)(x)", "mapped(f)(x)", "is not jax.vmap"),
    ],
)
def test_what_a_map_lacks_is_a_step_in_words(line, call, why):
    made = in_four_parts(f"{HEAD}{line}\n", call)
    assert made.diff == ""
    (step,) = made.steps
    assert "call jax.lax.map(…, batch_size=3) in place of jax.vmap" in step
    assert why in step
