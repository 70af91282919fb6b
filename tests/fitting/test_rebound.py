"""Which arguments of a call its statement binds again, so that nothing reads them later."""

import ast

import pytest

from bufdb.fitting.plans import Site
from bufdb.fitting.rebound import rebound


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
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    node = next(call for call in calls if ast.unparse(call.func) == "step")
    site = Site("a.py", node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, "")
    assert rebound("a.py", text, site) == numbers


def test_a_place_without_a_call_rebinds_nothing():
    assert rebound("a.py", "w = step(w)", Site("a.py", 1, 0, 1, 3, "")) == set()
    assert rebound("a.py", "w = (", Site("a.py", 1, 0, 1, 3, "")) == set()
