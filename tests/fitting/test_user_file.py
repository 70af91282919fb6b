"""A function of a user's file, and what varies in its arguments, without a command line."""

from pathlib import Path

import pytest

from bufdb.errors import UsageError
from bufdb.fitting.answer_text import Sizes
from bufdb.fitting.plans import Answer, Compiled, Program, Traced
from bufdb.fitting.user_file import UserFunction, Varied, exit_code, varied
from bufdb.fitting.vary import Largest

PROGRAM = Program("f", None, "cpu", (), (), (), (), False, False, Traced(0, 0, 0, 0))


@pytest.mark.parametrize(
    ("vary", "args", "limit", "message"),
    [
        ("b", "args(8)", 100, r"--vary b wants {b} in --args, such as 'args({b})'"),
        ("b=2", "args({b})", None, "--vary b=2 wants a --limit"),
        ("b=0", "args({b})", 100, "START a number from 1 on; got b=0"),
        ("b=x", "args({b})", 100, "START a number from 1 on; got b=x"),
        ("b=-1", "args({b})", 100, "START a number from 1 on; got b=-1"),
    ],
)
def test_what_cannot_vary_is_a_usage_error(vary, args, limit, message):
    with pytest.raises(UsageError) as caught:
        varied(vary, args, limit)
    assert message in str(caught.value)


def test_a_session_has_the_value_in_its_arguments(tmp_path):
    value = varied("b=24", "args({b}, {b}, {c})", 100)
    assert value == Varied("b", 24) and varied("b", "{b}", 100).start == 8
    function = UserFunction("lm.py:f", "args({b}, {b}, {c})", "v5e", True, varied=value)
    session = function.session(tmp_path, 32)
    assert session.args == "args(32, 32, {c})"
    assert (session.target, session.gradients_only, session.folder) == ("v5e", True, tmp_path)
    assert (value.label(24), value.label(32)) == ("", "b=32")
    assert UserFunction("lm.py:f", "args({b})").session(Path()).args == "args({b})"


@pytest.mark.parametrize(
    ("need", "limit", "is_complete", "largest", "code"),
    [
        (20, 100, True, None, 0),
        (200, None, True, None, 0),
        (200, 100, True, None, 1),
        (200, 100, False, None, 124),
        (200, 100, True, 4, 0),
        (200, 100, False, 0, 124),
        (20, 100, True, 0, 1),
    ],
)
def test_the_exit_code_is_whether_something_fits(need, limit, is_complete, largest, code):
    written = Compiled(need, need, True, 1.0)
    answer = Answer(PROGRAM, limit, written, (), None, None, 1, 0, is_complete=is_complete)
    sizes = None
    if largest is not None:
        sizes = Sizes("b", [Largest(None, largest, None, largest + 1, None)])
    assert exit_code(answer, sizes) == code
