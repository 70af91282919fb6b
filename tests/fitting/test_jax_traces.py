"""Traces that earlier calls made: which are used, and when a program is another one."""

import importlib.util
import json
import sys
from dataclasses import replace

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_programs as programs  # noqa: E402

from bufdb import user_cache  # noqa: E402
from bufdb.fitting import losses  # noqa: E402
from bufdb.fitting.child import Server  # noqa: E402
from bufdb.fitting.derived import Derived  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.losses import Losses  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402
from bufdb.fitting.session import Apart, MistracedError  # noqa: E402

PROGRAM = """import jax
import jax.numpy as jnp


@jax.custom_vjp
def gated(x):
    return jnp.tanh(x)


def backward(x, g):
    return (g * jnp.cos(x),)


gated.defvjp(lambda x: (jnp.tanh(x), x), backward)


def layer(x, w):
    return gated(x @ w) * 2, None


def step(w, x):
    return jax.grad(lambda w: jax.lax.scan(layer, x, w)[0].sum())(w)


def args():
    return jnp.ones((4, 8, 8)), jnp.ones((8, 8))
"""
NOTHING = Plan(scans=(0,))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """The plans that JAX traces."""
    plans, trace = [], Losses._traced_now

    def traced(self, plan):
        plans.append(plan)
        return trace(self, plan)

    monkeypatch.setattr(Losses, "_traced_now", traced)
    return plans


def traced(place, text=PROGRAM, name="train"):
    """The trace of a plan of a program with a text, kept for later."""
    path = place / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    # Not by the loader: bytecode of a text of the same size and second would count.
    exec(compile(text, path, "exec"), vars(module))
    function = Function(module.step, module.args(), {}, name)
    function.program()
    got = function.trace(NOTHING)
    function._losses.write()
    return got


def test_what_an_earlier_call_traced_is_not_traced_again(place, made):
    first = traced(place)
    assert NOTHING in made
    made.clear()
    assert traced(place) == first and made == []


def test_what_is_computed_again_is_read_once(place, monkeypatch):
    def lines():
        function = Function(programs.step, programs.args(), {}, "step")
        function.program()
        return function.recomputed(NOTHING)

    first = lines()
    monkeypatch.setattr(Losses, "_recomputed_now", None)
    assert lines() == first != ()


def derived(monkeypatch):
    """What is derived of plans of a program with nothing traced before."""
    monkeypatch.setattr(losses, "TRACED", 0)
    function = Function(programs.step, programs.args(), {}, "step")
    names = [one.name for one in function.program().switches if one.lever == "saved"]
    plans = [Plan((0,), tuple(names[:count])) for count in range(len(names) + 1)]
    got = [function.trace(plan) for plan in plans]
    function._losses.write()
    return got


def test_what_an_earlier_call_derived_is_not_derived_again(place, monkeypatch):
    first = derived(monkeypatch)
    monkeypatch.setattr(Losses, "_apart", None)
    assert derived(monkeypatch) == first


def test_what_was_derived_wrongly_is_not_kept(place, monkeypatch):
    right = derived(monkeypatch)
    for path in (place / "cache" / "compiled").glob("*.traces"):
        path.unlink()
    figures = Derived.figures

    def doubled(self, *names):
        made = figures(self, *names)
        return replace(made, work=made.work.times(2))

    with monkeypatch.context() as patched:
        patched.setattr(Derived, "figures", doubled)
        with pytest.raises(MistracedError):
            derived(patched)
    assert derived(monkeypatch) == right


def test_without_a_cache_each_call_traces(place, made, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, user_cache.OFF)
    traced(place)
    made.clear()
    traced(place)
    assert NOTHING in made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gated(x @ w) * 2", "gated(x @ w) * 3"),  # an equation
        ("def layer", "\n\ndef layer"),  # where it was written
        ("g * jnp.cos(x)", "g * jnp.sin(x)"),  # the rule of a function of its own
        ("(4, 8, 8)", "(5, 8, 8)"),  # a shape
    ],
)
def test_another_program_has_other_traces(place, made, old, new):
    traced(place)
    made.clear()
    assert old in PROGRAM
    traced(place, PROGRAM.replace(old, new))
    assert NOTHING in made


def test_another_setting_of_jax_has_other_traces(place, made):
    traced(place)
    made.clear()
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        traced(place)
    finally:
        jax.config.update("jax_default_matmul_precision", None)
    assert NOTHING in made


def test_a_damaged_file_is_traced_again(place, made):
    first = traced(place)
    for path in (place / "cache" / "compiled").glob("*.traces"):
        path.write_bytes(path.read_bytes()[:-1])
    made.clear()
    assert traced(place) == first and NOTHING in made


def test_what_changes_the_text_is_traced_each_time(place, made):
    plan = Plan(extra=("as written",))
    for _ in range(2):
        function = Function(programs.step, programs.args(), {}, "step")
        function.program()
        function._losses.changes[plan.extra] = [lambda replay: replay.run]
        function.trace(plan)
        function._losses.write()
    assert made.count(plan) == 2


class Answered(Apart):
    """A session whose child is this process."""

    def _started(self, texts, *, has_program):
        self.server, self.requests = Server(), []
        return self._ask(
            {"do": "start", "spec": self.spec, "args": self.args, "target": None,
             "gradients_only": False, "own": None, "sources": {}, "has_program": has_program},
        )  # fmt: skip

    def _ask(self, request, ask=None):
        self.requests.append(request["do"])
        return json.loads(json.dumps(self.server.answer(request)))


def test_known_traces_come_with_the_program(place, made):
    (place / "train.py").write_text(PROGRAM)

    def session():
        own = Answered(f"{place / 'train.py'}:step", "args()", None, place)
        own.program()
        return own

    plans = NOTHING, Plan(scans=(0,), saved=("fit_0",))
    first = session()
    got = [first.trace(plan) for plan in plans]
    assert first.requests.count("trace") == 1  # that which saves nothing is traced for the program
    first.recomputed(NOTHING)  # what is known is kept then
    made.clear()
    second = session()
    assert [second.trace(plan) for plan in plans] == got
    assert second.requests == ["start"] and made == []
