"""Chunks as a patch: the text computes the same in parts, or says why it is not edited."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_heads as programs  # noqa: E402
import numpy as np  # noqa: E402

from bufdb.fitting.alike import require_alike, write  # noqa: E402
from bufdb.fitting.edits import Refused  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.gradients import Gradient  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402
from bufdb.fitting.rewrites import jit_for_check  # noqa: E402

PATH = programs.__file__
TEXT = Path(PATH).read_text("utf-8")
V = programs.V


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """The change of the trace is checked by test_jax_also.py."""
    monkeypatch.setattr("bufdb.fitting.rewrites.CHECKED_WORK", 1)


def patched(name, has_aux=False):
    """Return the patch of a loss in chunks, and the step of the patched text."""
    step = programs.step_of(getattr(programs, name), has_aux)
    function = Function(step, programs.args(), {}, name)
    changes = function.changes(("chunks",))
    assert not changes.notes
    (change,) = changes.tried
    program = replace(function.program(), changes=changes.tried)
    made = patch(program, Plan(extra=(change.key,)), {PATH: TEXT})
    if not made.is_whole:
        return made, None
    twin = ModuleType("patched")
    exec(compile(made.texts[PATH], PATH, "exec"), twin.__dict__)
    return made, twin.step_of(getattr(twin, name), has_aux)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("name", "outs"),
    [
        ("masked", "losses"),
        ("tied", "z, ce, hits"),
        ("helped", "means"),
        ("summed", "sums, values"),
        ("in_one", "values"),
        ("shifted", "nll"),
        ("flat", "values, values_2"),
        ("weighted", "sums"),
        ("with_default", "losses"),
        ("of_examples", "values"),
        ("of_forward", "values"),
    ],
)
def test_a_wide_loss_is_put_into_a_function(name, outs):
    has_aux = name in ("tied", "summed")
    made, step = patched(name, has_aux)
    assert made.is_whole, made.steps
    arguments = programs.numbers(programs.args())
    written = programs.step_of(getattr(programs, name), has_aux)
    got, wanted = (jit_for_check(one)(*arguments) for one in (step, written))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)
        assert one.dtype == other.dtype
    added = [line[1:] for line in made.diff.splitlines() if line.startswith("+")]
    (call,) = (line for line in added if " = in_chunks(chunk, 8, " in line)
    assert sorted(call.partition(" = ")[0].strip().split(", ")) == sorted(outs.split(", "))
    # What is wide is within the function alone.
    text = jax.make_jaxpr(step)(*programs.args()).pretty_print(name_stack=False)
    assert not re.search(rf"f32\[{programs.B},\d+,{V}\]|f32\[{programs.B * programs.S},{V}\]", text)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("of_library", "the call does not show forward"),
        ("of_decorated", "decorated has the decorator compact, and is not taken apart"),
        ("of_jitted", "its lines are in no function of the files that has all of them"),
        ("scaled", "has a number that grows with the batch"),
        ("shaped", "logits is wide, and line"),
        ("looped", "its lines are in a loop"),
        ("sized", "`logits / count` has a number that grows with the batch"),
    ],
)
def test_what_the_text_does_not_show_is_a_step_by_hand(name, reason):
    made, _ = patched(name)
    assert not made.diff and len(made.steps) == 1
    assert ": by hand, put these lines into a function f" in made.steps[0]
    assert reason in made.steps[0]


def test_a_function_that_returns_logits_is_taken_apart():
    made, step = patched("of_forward")
    arguments = programs.numbers(programs.args())
    written = programs.step_of(programs.of_forward)
    both = (jax.tree.leaves(jit_for_check(one)(*arguments)) for one in (step, written))
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)
    twin = ModuleType("patched")
    exec(compile(made.texts[PATH], PATH, "exec"), twin.__dict__)
    params, batch = arguments
    both = (
        jit_for_check(functools.partial(one.forward, scale=0.5))(params, batch["tokens"])
        for one in (twin, programs)
    )
    np.testing.assert_allclose(*both, rtol=1e-5)  # for others that call it
    assert '+    head, x = forward_in_two(params, batch["tokens"], scale=0.5)' in made.diff
    assert "+        logits = head(x)" in made.diff


def test_a_comment_and_the_lines_between_stay():
    made, _ = patched("tied", has_aux=True)
    assert "     # Logits of the tied table.\n" in made.diff
    assert "loss = ce.mean() + 1e-4 * (z**2).mean()  # with a z loss" in made.diff


def gradient(loss, *consts):
    x = jax.ShapeDtypeStruct((4,), np.float32)
    recorded = []

    def outside(*consts):
        recorded.append(jax.make_jaxpr(lambda w: loss(w, *consts))(x))
        return 0

    jax.eval_shape(outside, *consts)
    return Gradient(recorded[0], 1)


def test_losses_of_two_texts_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr("bufdb.fitting.rewrites.CHECKED_WORK", 10**6)
    path, row = tmp_path / "numbers.npz", jax.ShapeDtypeStruct((4,), np.float32)
    one = gradient(lambda w, a, b: (w * a - 2 * b).sum() ** 2, row, row)
    assert write([one], path)
    require_alike([gradient(lambda w, a, b: (-2 * b + a * w).sum() ** 2, row, row)], path)
    # The same with its constants in another order, and what a helper traces before it.
    other = gradient(lambda w, b, a: (-2 * b + a * w).sum() ** 2, row, row)
    require_alike([one, other], path)
    for wrong in (lambda w, a, b: (w * a - 2 * b).mean() ** 2, lambda w, a, b: (w * a).sum() ** 2):
        with pytest.raises(Refused, match="it computes something else"):
            require_alike([gradient(wrong, row, row)], path)
    with pytest.raises(Refused, match="it has other outputs or inputs"):
        require_alike([gradient(lambda w, a: (w * a)[:2], row)], path)


PROGRAM = """
import jax
import jax.numpy as jnp


def layer(x, w):
    return jnp.tanh(x @ w), None


def loss(params, tokens, labels):
    x = jax.lax.scan(layer, params["embed"][tokens], params["layers"])[0]
    logits = x @ params["head"]
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, labels[..., None], axis=-1).mean()


@jax.jit
def step(params, tokens, labels):
    value, grads = jax.value_and_grad(loss)(params, tokens, labels)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def args(batch):
    def shape(*sizes, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(sizes, dtype)

    tokens = shape(batch, 16, dtype=jnp.int32)
    return {"embed": shape(256, 16), "head": shape(16, 256),
        "layers": shape(12, 16, 16)}, tokens, tokens
"""


@pytest.fixture
def lm(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "lm.py").write_text(PROGRAM)

    def fit(*options):
        words = ("fit", "lm.py:step", "--args", "*args(64)", "--format", "json", "--db", "d.duckdb")
        code, out, _ = call(*words, *options)
        answer = json.loads(out)
        best = next((one for one in answer["plans"] if one["rank"] == answer["best"]), None)
        return code, answer, best

    return fit


def test_chunks_and_layers_that_are_written_out_are_one_plan(monkeypatch):
    monkeypatch.setattr(Function, "platform", "gpu")
    function = Function(programs.step_of(programs.layered), programs.args(), {}, "layered")
    (change,) = function.changes(("chunks",)).tried
    program = replace(function.program(), changes=(change,))
    chunks = function.trace(Plan(extra=(change.key,)))
    plan = Plan(calls=program.calls, extra=(change.key,))
    both = function.trace(plan)
    assert len(program.calls) == 1 and both.live_bytes < chunks.live_bytes
    assert both.work > chunks.work
    made = patch(program, plan, {PATH: TEXT})
    assert made.is_whole, made.steps
    twin = ModuleType("patched")
    exec(compile(made.texts[PATH], PATH, "exec"), twin.__dict__)
    step = twin.step_of(twin.layered)
    assert Function(step, programs.args(), {}, "layered").trace(Plan()).work == both.work
    arguments = programs.numbers(programs.args())
    both = (
        jax.tree.leaves(jit_for_check(one)(*arguments))
        for one in (step, programs.step_of(programs.layered))
    )
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_chunks_and_a_checkpoint_are_one_plan(lm):
    code, answer, best = lm("--limit", "1600KiB", "--also", "chunks")
    assert code == 0 and best["is_verified"] and best["need_bytes"] <= 1600 << 10
    assert "chunks" in best["changes"][0] and best["recomputed_lines"]
    assert "in_chunks(chunk, 8, x, labels)" in answer["patch"]
    assert "lm.py:7" in " ".join(best["recomputed_lines"])
    assert "jax.checkpoint" in answer["patch"].partition("def in_chunks")[0]
    # The product of the logits is done again, and counted.
    assert best["extra_work_ratio"] > 0
