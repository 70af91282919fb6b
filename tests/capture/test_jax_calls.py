"""The same text of --args is the same call in every command that takes one, with JAX."""

import sys

import pytest
from places import ROOT

from bufdb.blame import script
from bufdb.capture import child
from bufdb.errors import UsageError
from bufdb.fitting.child import Server

jax = pytest.importorskip("jax", reason="this Python has no jax")

CASES = ROOT.parent / "shared" / "cases"
PROGRAM = """import jax, jax.numpy as jnp

PAIR = (jax.ShapeDtypeStruct((8,), "float32"), jax.ShapeDtypeStruct((4,), "float32"))

def both(n):
    return {"a": jax.ShapeDtypeStruct((n,), "float32"), "b": PAIR}

def shapes(tree):
    return jax.tree_util.tree_map(lambda leaf: jnp.shape(leaf), tree)

def step(*args, **kwargs):
    seen.append(shapes((args, kwargs)))
    return sum((jnp.sum(leaf) for leaf in jax.tree_util.tree_leaves((args, kwargs))), 0.0)

def two(a, b=1.0):
    return step(a, b)

def one(a):
    return step(a)

seen = []
"""
TABLE = [
    ("two", "(f32[8], f32[4])", "(((8,), (4,)), {})"),
    ("two", "(f32[8], f32[4]),", "((((8,), (4,)), ()), {})"),
    ("two", "*[(f32[8], f32[4])]", "((((8,), (4,)), ()), {})"),
    ("two", "PAIR", "(((8,), (4,)), {})"),
    ("two", "[f32[8], f32[4]]", "(([(8,), (4,)], ()), {})"),
    ("two", "*PAIR", "(((8,), (4,)), {})"),
    ("two", "**both(8)", "(((8,), ((8,), (4,))), {})"),
    ("two", "f32[], b=f32[4]", "(((), (4,)), {})"),
    ("one", "PAIR", "((((8,), (4,)),), {})"),
    ("one", "{'x': f32[], 'y': f32[2,3]}", "(({'x': (), 'y': (2, 3)},), {})"),
    ("one", "both(2)", "(({'a': (2,), 'b': ((8,), (4,))},), {})"),
    ("step", "f32[8], x=f32[()]", "(((8,),), {'x': ()})"),
    ("step", "(f32[8], f32[4]),", "((((8,), (4,)),), {})"),
]
WRONG = [
    ("one", "f32[8], f32[4]", "one takes (a); --args gives 2: too many positional arguments"),
    ("one", "", "one takes (a); --args gives none"),
    ("one", "f32[8", "--args 'f32[8' is not Python: "),
    ("one", "g32[8]", "--args 'g32[8]': name 'g32' is not defined"),
    ("ones", "f32[8]", "calls.py has no 'ones'; did you mean 'one'?"),
]


def explain(spec, args, folder):
    question = child.question_of(spec, args, None)
    child.lowered(question.function, question.args, question.kwargs)
    return question.function


def fit(spec, args, folder):
    server = Server()
    request = {"spec": spec, "args": args, "target": None, "sources": {}, "has_program": True}
    server.answer({"do": "start", "gradients_only": False, **request})


def blame(spec, args, folder):
    request = {"spec": spec, "args": args, "target": None, "export": False}
    try:
        script._of_source(request, jax.devices(), folder)
    except script.call.WrongCallError as error:
        raise UsageError(str(error)) from error


@pytest.fixture
def program(tmp_path, monkeypatch):
    (tmp_path / "calls.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture(autouse=True)
def _modules_are_forgotten():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("calls", "sc", "mypkg"):
            del sys.modules[name]


@pytest.mark.parametrize("command", [explain, fit, blame])
def test_a_text_is_the_same_call_in_every_command(program, command):
    for name, args, expected in TABLE:
        command(f"calls.py:{name}", args, program)
        assert str(sys.modules.pop("calls").seen[-1]) == expected, args


@pytest.mark.parametrize("command", [explain, fit, blame])
def test_a_wrong_text_is_the_same_message_in_every_command(program, command):
    for name, args, expected in WRONG:
        with pytest.raises(UsageError) as caught:
            command(f"calls.py:{name}", args, program)
        assert str(caught.value).startswith(expected), args
        sys.modules.pop("calls", None)


@pytest.mark.parametrize(
    ("place", "args"),
    [("scalar-shape/sc.py:f", "f32[], f32[8]"), ("fit-layouts/mypkg/train.py:step", "args(8)")],
)
def test_cases_that_were_refused_are_called(tmp_path, monkeypatch, place, args):
    if not CASES.is_dir():
        pytest.skip("the cases (../shared/cases) are not there")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for command in (explain, fit, blame):
        command(str(CASES / place), args, tmp_path)


@pytest.mark.parametrize(
    ("args", "note"),
    [
        ("f32[4], f32[1024], (s32[8], bf16[16])", "3 of 4 arguments are not used, 4.06 KiB: JAX "),
        ("f32[4], f32[256]", "1 of 2 arguments is not used, 1.00 KiB: JAX leaves them out of"),
        ("f32[4]", None),
    ],
)
def test_arguments_that_are_not_used_are_noted(args, note):
    shapes, _ = child.call.arguments(args, {}).of(max, "max")
    traced = jax.jit(lambda x, *rest: x * 2).trace(*shapes)
    for stage in (traced, traced.lower()):  # as fit and as explain have it
        unused_note = child.unused_note(stage)
        assert unused_note == note or unused_note.startswith(note)
    kept = jax.jit(lambda x, *rest: x * 2, keep_unused=True).trace(*shapes)
    assert child.unused_note(kept) is child.unused_note(kept.lower()) is None
