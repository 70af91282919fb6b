"""Stretches of statements: which ones, and the names that go in and come out."""

import ast
from textwrap import indent

import pytest

from bufdb.fitting.edits import Refused
from bufdb.fitting.stretches import item_of, stretch_at, stretches_of


def stretches(tmp_path, body):
    """First and last line from 1, reads and writes of each stretch of a function with this body."""
    path = tmp_path / "loss.py"
    path.write_text(f"def loss(ps, x):\n{indent(body, '    ')}", "utf-8")
    return {
        (one.first_line - 1, one.last_line - 1): (" ".join(one.reads), " ".join(one.writes))
        for one in stretches_of(str(path), 1)
    }


def test_the_body_of_a_loop_is_one(tmp_path):
    body = "for p in ps:\n    z = f(x @ p)\n    x = x + z\nreturn x\n"
    assert stretches(tmp_path, body) == {(2, 3): ("x p", "x")}


def test_of_nested_loops_each_has_its_own(tmp_path):
    body = "for p in ps:\n    for q in p:\n        x = f(x, q)\n    x = g(x)\nreturn x\n"
    assert stretches(tmp_path, body) == {(3, 3): ("x q", "x"), (4, 4): ("x", "x")}


def test_a_loop_may_be_within_a_scope(tmp_path):
    body = "with scope():\n    for p in ps:\n        z = f(x, p)\n        x = z\nreturn x\n"
    assert stretches(tmp_path, body) == {(3, 4): ("x p", "x")}


def test_repeated_statements_are_as_long_as_their_period(tmp_path):
    body = "y = f(x, 1)\na = g(y, ps.u)\nx = a + y\nb = g(x, ps.u)\nz = b + x\nreturn z\n"
    assert stretches(tmp_path, body) == {
        (1, 1): ("x", "y"),
        (2, 3): ("y ps", "x"),
        (4, 5): ("x ps", "z"),
    }
    other = body.replace("b = g(x, ps.u)", "b = h(x)[0]")
    assert set(stretches(tmp_path, other)) == {(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("x = f(x)", ("x", "x")),
        ("x += f(ps)", ("ps x", "x")),
        ("if ps:\n    x = f(y)", ("ps y x", "x")),
        ("with scope('a'):\n    z = f(ps)\n    x = z", ("ps", "x")),
        ("x, z = f(ps), 1", ("ps", "x")),
        ("x = [f(z) for z in ps][0]", ("z ps", "x")),
        ("x = x.at[0].add(jnp.ones(3))", ("x", "x")),
    ],
)
def test_names_are_those_read_before_and_after(tmp_path, line, names):
    body = f"y = ps\ny.append(0)\n{line}\nreturn x\n"
    made = stretches(tmp_path, body)
    assert made.pop((1, 1)) == ("ps", "y")
    assert list(made.values()) == [names]


@pytest.mark.parametrize(
    "line",
    [
        "x.append(1)", "x.pop()", "y = x.pop(z)", "y = x.pop() + x.pop()", "y = x.pop() + x[0]",
        "y = [x.pop() for z in ps]", "y = ps or x.pop()", "y = ps.x.pop()", "x[0] = 1", "x.a = 1",
        "(y := f(x))", "y = (z := f(x))", "print(x)", "y = next(x)", "y = super().f(x)",
        "if x:\n    return x", "global y", "y = locals()", "with x:\n    x.append(1)",
    ],
)  # fmt: skip
def test_what_acts_on_more_than_names_is_in_none(tmp_path, line):
    assert stretches(tmp_path, f"{line}\nreturn x\n") == {}


def test_an_item_that_is_taken_goes_in_in_the_place_of_its_list(tmp_path):
    body = "y = f(x.pop(), ps)\nz = y + g(x)\nx = z\nreturn x\n"
    assert stretches(tmp_path, body) == {
        (1, 1): ("ps", "y"),
        (2, 2): ("y x", "z"),
        (3, 3): ("z", "x"),
    }
    tree = ast.parse(f"def loss(ps, x):\n{indent(body, '    ')}")
    (call,) = stretch_at(tree, 2, 2).taken
    assert item_of(call, {"x": [1, 2]}) == 2
    assert item_of(call, {"x": []}) is item_of(call, {}) is ...


@pytest.mark.parametrize("line", ["x = [1, 2]", "x += [1]", "y = len(x)"])
def test_lines_that_name_the_list_are_apart(tmp_path, line):
    made = stretches(
        tmp_path, f"x = ps\nfor p in ps:\n    z = f(x.pop(), p)\n    {line}\nreturn x\n"
    )
    assert {lines for lines in made if lines[0] > 2} == {(3, 3), (4, 4)}


def test_a_list_of_another_function_gives_no_items(tmp_path):
    assert stretches(tmp_path, "y = f(kept.pop())\nreturn y\n") == {}


def test_a_list_that_other_names_have_gives_no_known_item():
    call, held = ast.parse("x.pop()").body[0].value, [1]
    assert item_of(call, {"x": held}) == 1
    for other in (held, [held], {"a": held}):
        assert item_of(call, {"x": held, "y": other}) is ...


def test_a_list_that_functions_read_gives_no_items(tmp_path):
    body = "def more():\n    return len(x)\ny = f(x.pop(), more())\nreturn y\n"
    assert stretches(tmp_path, body) == {}


def test_a_name_that_is_only_for_itself_does_not_come_out(tmp_path):
    body = "for p in ps:\n    z = f(p)\n    x = x + z\nz = g(x)\nreturn z\n"
    assert stretches(tmp_path, body)[2, 3] == ("p x", "x")
    body = "for p in ps:\n    x = x + z\n    z = f(p)\nreturn x\n"
    assert stretches(tmp_path, body)[2, 3] == ("x z p", "x z")


def test_a_file_that_has_changed_is_refused():
    tree = ast.parse("def loss(x):\n    x = f(x)\n    return x\n")
    assert stretch_at(tree, 2, 2).writes == ("x",)
    with pytest.raises(Refused, match="others"):
        stretch_at(tree, 2, 3)
