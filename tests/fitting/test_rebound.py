"""Which arguments of a call its statement binds again, so that nothing reads them later."""

import ast

import pytest

from bufdb.fitting.plans import Site
from bufdb.fitting.rebound import made, rebound


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("w = step(w, x)", {0}),
        ("w, s = step(w, s, x)", {0, 1}),
        ("(w, (s, _)), loss = step(w, s, x)", {0, 1}),
        ("self.w: dict = step(self.w, x)", {0}),
        ("w = w - 0.1 * step(w, x)", set()),
        ("w = step(w, f(w))", set()),
        ("w += step(w, x)", set()),
        ("new = step(w, x)", set()),
        ("step(w, x)", set()),
        ("w = step(*w, x)", set()),
        ("w[0] = step(w[0], x)", set()),
        ("w = step(x, w=w)", set()),
    ],
)
def test_arguments_that_a_statement_assigns(text, numbers):
    site, count = call_of(text)
    assert rebound("a.py", text, site, count) == numbers
    moved = {number + 1 for number in numbers}
    assert rebound("a.py", text, site, count + 1) == moved  # of a method


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("step(w, jnp.ones(2), jnp.array(x))", {1, 2}),
        ("step(w, jax.random.split(key)[0], jax.random.fold_in(key, 1))", {2}),
        ("step(w, jnp.asarray(x), x[1:], f(x))", set()),
        ("step(jnp.array(x, copy=False), jax.random.key_data(key))", set()),
        ("step(jax.random.wrap_key_data(x), jax.random.clone(key))", set()),
        ("step(*w, jnp.ones(2))", set()),
    ],
)
def test_arguments_that_are_made_in_a_call(text, numbers):
    text = f"import jax\nimport jax.numpy as jnp\n{text}"
    site, count = call_of(text)
    assert made("a.py", text, site, count) == numbers


def call_of(text):
    """Return the place of the call of step, and how many positional arguments it has."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    node = next(call for call in calls if ast.unparse(call.func) == "step")
    columns = node.col_offset, node.end_lineno, node.end_col_offset
    return Site("a.py", node.lineno, *columns, ""), len(node.args)


def test_a_place_without_a_call_rebinds_nothing():
    for text, end in (("w = step(w)", 3), ("w = (", 3)):
        site = Site("a.py", 1, 0, 1, end, "")
        assert rebound("a.py", text, site, 1) == made("a.py", text, site, 1) == set()
