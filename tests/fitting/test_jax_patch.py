"""Patched programs traced: what they save and compute is what the plan says, form by form."""

import ast
import random
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_forms as forms  # noqa: E402
from patched import git_apply, loaded  # noqa: E402

from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402

STEPS = [name for name in dir(forms) if name.startswith("step")]
PATH = str(Path(forms.__file__))


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Checkpoints of calls are offered, as on a GPU: the compiler for CPUs would merge them."""
    monkeypatch.setattr(Function, "platform", "gpu")


def plans(program):
    """Nothing saved, all, half of it at random, one; each kind of call, one with its dots saved.

    And of calls that nest, both.
    """
    names = [switch.name for switch in program.switches if switch.lever == "saved"]
    scans = program.scans
    if scans:
        chosen = random.Random(0).sample(names, (len(names) + 1) // 2)
        half = tuple(name for name in names if name in chosen)
        for saved in dict.fromkeys([(), tuple(names), half, tuple(names[:1])]):
            yield Plan(scans, saved)
    if len(scans) > 1:
        yield Plan(scans[:1], tuple(names[:1]))
    for call in program.calls:
        yield Plan(calls=(call,))
    for call in program.calls[:1]:
        yield Plan(calls=(call,), with_dots=(call,))
        for around in set(program.regions[call].within) & set(program.calls):
            yield Plan(calls=tuple(sorted((call, around))), nested=(call,))


def compared(name, folder, module=forms, args=None):
    """Yield each plan with its trace, the trace of the patched text, and the patch."""
    args = module.args() if args is None else args
    path = str(Path(module.__file__))
    text = Path(path).read_bytes().decode()
    function = Function(getattr(module, name), args, {}, name)
    program = function.program()
    for plan in plans(program):
        made = patch(program, plan, {path: text}, str(Path(path).parent))
        wanted = function.trace(plan)
        if made.steps:
            yield plan, wanted, None, made
            continue
        ast.parse(made.texts[path])
        other = loaded(made.texts[path], folder)
        yield plan, wanted, Function(getattr(other, name), args, {}, name).trace(Plan()), made


def figures(traced):
    return traced.residual_bytes, traced.work, traced.product_count


@pytest.mark.parametrize("name", STEPS)
def test_a_patch_saves_and_computes_what_the_plan_says(name, tmp_path):
    count = 0
    for plan, wanted, got, made in compared(name, tmp_path):
        assert made.steps == (), plan
        assert figures(got) == figures(wanted), (plan, made.diff)
        if plan.calls:
            assert got.live_bytes == wanted.live_bytes
        count += 1
    assert count


def test_a_patch_with_everything_applies_and_keeps_the_rest(tmp_path):
    function = Function(forms.step_augmented, forms.args(), {}, "step_augmented")
    program = function.program()
    text = Path(PATH).read_text("utf-8")
    saved = tuple(switch.name for switch in program.switches)
    made = patch(program, Plan(program.scans, saved), {PATH: text}, str(Path(PATH).parent))
    after = git_apply(tmp_path, {"fit_forms.py": text}, made.diff)
    assert after == {"fit_forms.py": made.texts[PATH]}
    assert len(made.diff.splitlines()) < 40


# -- flax ------------------------------------------------------------------------------------------

FLAX = (
    "step_named", "step_unnamed", "step_checkpointed", "step_in_setup", "step_unrolled",
    "step_nnx_scan", "step_nnx_scan_by_call", "step_nnx_blocks", "step_nnx_dropping",
    "step_counting", "step_written_out", "step_nnx_written_out",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("step_nnx_dropping_methods", "step_nnx_dropping_functions")
    ),
    pytest.param("step_counting_in_setup", marks=pytest.mark.by_hand),
)  # fmt: skip


@pytest.mark.parametrize("name", FLAX)
def test_a_patch_of_flax_saves_and_computes_what_the_plan_says(name, tmp_path):
    pytest.importorskip("flax", reason="this Python has no flax")
    import fit_flax_forms as flax_forms

    count = 0
    for plan, wanted, got, made in compared(name, tmp_path, flax_forms):
        assert made.steps == (), plan
        assert figures(got) == figures(wanted), (plan, made.diff)
        count += 1
    assert count


def test_calls_read_as_people_write_them():
    text, diffs = Path(PATH).read_text("utf-8"), []
    for name in ("step_blocks", "step_static_arguments", "step_methods"):
        program = Function(getattr(forms, name), forms.args(), {}, name).program()
        of_calls = [Plan(calls=(call,)) for call in program.calls]
        diffs.append("".join(patch(program, plan, {PATH: text}).diff for plan in of_calls))
    assert (
        '+            x = jax.checkpoint(block)(x, params["w"][at], v=params["v"][at])' in diffs[0]
    )
    form = "jax.checkpoint({partial}(chosen_block, kind={kind}), static_argnums=(2,))(x, ("
    assert form.format(partial="partial", kind='"tanh"') in diffs[1]
    assert "jax.checkpoint(self.layer)(x * 2.0, w, v)" in diffs[2]


def test_calls_of_equinox_are_filtered(tmp_path):
    eqx = pytest.importorskip("equinox", reason="this Python has no equinox")
    import fit_equinox_forms as equinox_forms

    count = 0
    for plan, wanted, got, made in compared("step", tmp_path, equinox_forms):
        assert figures(got) == figures(wanted), (plan, made.diff)
        policy = ", policy=jax.checkpoint_policies.dots_saveable" if plan.with_dots else ""
        assert f"+            x = eqx.filter_checkpoint(block{policy})(x)" in made.diff
        count += 1
    assert count and eqx
