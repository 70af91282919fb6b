"""Chunks of logits that a module of a framework makes: its input is taken, and given in parts."""

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")
pytest.importorskip("flax", reason="this Python has no flax")

import fit_module_heads as programs  # noqa: E402
import numpy as np  # noqa: E402

from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402
from bufdb.fitting.rewrites import jit_for_check  # noqa: E402

PATH = programs.__file__
TEXT = Path(PATH).read_text("utf-8")


def patched(name, has_aux, monkeypatch):
    """Return the patch of a loss in chunks, and the steps as written and of the patched text."""
    monkeypatch.setattr("bufdb.fitting.rewrites.CHECKED_WORK", 1)
    step = programs.step_of(getattr(programs, name), has_aux)
    function = Function(step, programs.args(name), {}, name)
    changes = function.changes(("chunks",))
    (change,) = changes.tried
    program = replace(function.program(), changes=changes.tried)
    made = patch(program, Plan(extra=(change.key,)), {PATH: TEXT})
    twin = ModuleType("patched")
    exec(compile(made.texts.get(PATH, TEXT), PATH, "exec"), twin.__dict__)
    return made, step, twin.step_of(getattr(twin, name), has_aux)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "module", "call"),
    [
        (
            "direct",
            '"__call__" and context.module.path == ("Dense_1",)',
            'at_head(MODELS["direct"].apply, x)(',
        ),
        (
            "tied",
            '"attend" and context.module.path == ("table",)',
            "picked(at_head(tied_apply, x)(",
        ),
        (
            "nested",
            '"__call__" and context.module.path == ("inner", "Dense_1")',
            "at_head(of_nested, x)(params, tokens=",
        ),
    ],
)
def test_the_input_of_a_module_is_taken(name, module, call, monkeypatch):
    has_aux = name == "nested"
    made, step, new = patched(name, has_aux, monkeypatch)
    assert made.is_whole, made.steps
    assert module in made.diff and call in made.diff
    arguments = programs.numbers(programs.args(name))
    both = (jax.tree.leaves(jit_for_check(one)(*arguments)) for one in (new, step))
    for got, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-5)
    text = jax.jit(new).lower(*programs.args(name)).compile().as_text()
    whole = rf"(f32|bf16)\[({programs.B},{programs.S}|{programs.B * programs.S}),{programs.V}\]"
    assert not re.search(whole, text)


@pytest.mark.slow
def test_what_reads_the_input_elsewhere_is_a_step(monkeypatch):
    made, *_ = patched("both", False, monkeypatch)
    assert not made.diff and "__call__ has the decorator nn.compact" in made.steps[0]
