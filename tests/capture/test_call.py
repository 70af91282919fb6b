"""Arguments as text: as in a call, or as a tuple of all; and messages about wrong ones."""

import inspect

import pytest

from bufdb.capture.child import arguments
from bufdb.errors import UsageError

PAIR = (1, 2)
NAMES = {"pair": PAIR, "both": lambda n: (n, n + 1), "named": lambda n: {"b": n}, "x": 5}


def two(a, b, *, c=3):
    pass


def one(a):
    pass


def none():
    pass


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (two, "*both(16)", ((16, 17), {})),
        (two, "both(16)", ((16, 17), {})),
        (two, "(x, x)", ((5, 5), {})),
        (two, "x,\n  x", ((5, 5), {})),
        (two, "x, b=2", ((5,), {"b": 2})),
        (two, "a=1, **named(3), c=x", ((), {"a": 1, "b": 3, "c": 5})),
        (two, "*pair, c=4", ((1, 2), {"c": 4})),
        (two, "*[x], x", ((5, 5), {})),
        (one, "x", ((5,), {})),
        (one, "pair", ((PAIR,), {})),
        (one, "pair,", ((PAIR,), {})),
        (one, "*[pair]", ((PAIR,), {})),
        (one, "[x, x]", (([5, 5],), {})),
        (none, "", ((), {})),
        (max, "x, x", ((5, 5), {})),  # may have no signature
    ],
)
def test_what_is_called(function, text, expected):
    assert arguments(text, NAMES).of(function, "f") == expected


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        (two, "", r"f takes \(a, b, \*, c=3\); --args gives none$"),
        (two, "x", r"--args gives 1: missing a required argument: 'b'"),
        (two, "x, x, d=1", r"--args gives 2, d=: got an unexpected keyword argument 'd'"),
        (none, "x", r"f takes no arguments; --args gives 1: too many positional arguments"),
        (lambda a, b=list(range(99)): a, "", r"f takes \(a, b=\.\.\.\);"),
        (two, "y", r"--args 'y': name 'y' is not defined"),
        (two, "x,(", r"--args 'x,\(' is not Python: '\(' was never closed"),
        (two, "1) + (2", r"is not Python: unmatched '\)'"),
        (two, "x)(x", r"is not Python: unmatched '\)'"),
        (two, "*", r"is not Python"),
    ],
)
def test_what_is_refused(function, text, message):
    with pytest.raises(UsageError, match=message):
        arguments(text, NAMES).of(function, "f")


def test_annotations_are_left_out():
    def f(a: inspect.Signature, b: "int" = 1):
        pass

    with pytest.raises(UsageError, match=r"f takes \(a, b=1\);"):
        arguments("", {}).of(f, "f")
