"""What a scan hands from one iteration to the next, in host memory: traced, patched, found."""

from pathlib import Path
from types import SimpleNamespace

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_carries as carries  # noqa: E402
import fit_forms as forms  # noqa: E402
import fit_programs as programs  # noqa: E402
from fit_programs import D, N  # noqa: E402
from patched import loaded  # noqa: E402

from bufdb.fitting.counting import carried, carried_inputs  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402

STACK = 4 * N * D * D
"""Bytes of one f32[8, 8] of each layer."""


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """The target has host memory."""
    monkeypatch.setattr(Function, "platform", "gpu")


def parameters(program):
    return [one for one in program.switches if one.lever == "carried"]


def moved(module, name):
    """A function, its plan that moves every carry, and the patch of that."""
    path = Path(module.__file__)
    function = Function(getattr(module, name), module.args(), {}, name)
    program = function.program()
    names = tuple(one.name for one in parameters(program))
    assert names
    plan = Plan(program.scans, offloaded=names)
    made = patch(program, plan, {str(path): path.read_text("utf-8")}, str(path.parent))
    return function, plan, made


def is_moved_alike(module, name, tmp_path, carry_bytes):
    """Check that the patch moves what the plan does, at least the carries of all layers."""
    function, plan, made = moved(module, name)
    assert made.steps == ()
    other = loaded(next(iter(made.texts.values())), tmp_path)
    got = Function(getattr(other, name), module.args(), {}, name).trace(Plan())
    wanted = function.trace(plan)
    assert wanted.host_bytes >= carry_bytes
    for figure in ("host_bytes", "residual_bytes", "work"):
        assert getattr(got, figure) == getattr(wanted, figure), made.diff


def test_the_carry_of_a_scan_goes_to_the_host():
    function = Function(programs.step, programs.args(), {}, "step")
    (switch,) = parameters(function.program())
    assert (switch.name, switch.saved_bytes, switch.regions) == ("x_in", STACK, (0,))
    text = Path(switch.site.file).read_text().splitlines()
    assert text[switch.site.line - 1] == "def layer(x, p):"
    nothing, away = function.trace(Plan((0,))), function.trace(Plan((0,), offloaded=("x_in",)))
    assert (nothing.residual_bytes, nothing.host_bytes) == (STACK, 0)
    assert (away.residual_bytes, away.host_bytes) == (0, STACK)
    assert away.work == nothing.work


def test_without_host_memory_nothing_is_carried_to_it(monkeypatch):
    monkeypatch.setattr(Function, "platform", "cpu")
    program = Function(programs.step, programs.args(), {}, "step").program()
    assert parameters(program) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (forms, "step_several_lines"), (forms, "step_fori"), (forms, "step_two_scans"),
        (forms, "step_checkpoint_inside"), (forms, "step_checkpoint_outside"),
        (forms, "step_scan_in_shard_map"), (carries, "step_counted"), (carries, "step_drawn"),
        (carries, "step_checkpointed"), (carries, "step_reversed"), (carries, "step_lambda"),
        (carries, "step_one_line"), (carries, "step_two_lambdas"),
    ],
)  # fmt: skip
def test_a_patch_moves_the_carry_as_the_plan_does(module, name, tmp_path):
    is_moved_alike(module, name, tmp_path, STACK)


@pytest.mark.parametrize(
    "name",
    ["step_named", "step_unnamed", "step_checkpointed", "step_in_setup", "step_function",
     "step_nnx_scan", "step_nnx_scan_by_call"],
)  # fmt: skip
def test_a_patch_moves_the_carry_of_a_scan_of_flax(name, tmp_path):
    pytest.importorskip("flax", reason="this Python has no flax")
    import fit_flax_forms as flax_forms

    is_moved_alike(flax_forms, name, tmp_path, 4 * flax_forms.N * 4 * flax_forms.D)


@pytest.mark.parametrize("name", ["step_two_reads", "step_repeated"])
def test_a_body_without_a_place_for_a_name_is_a_step_in_words(name):
    _, _, made = moved(carries, name)
    (step,) = made.steps
    assert 'put x = checkpoint_name(x, "x_in") at the beginning of' in step


def test_a_carry_of_as_many_rows_as_layers_is_no_stack():
    traced = jax.make_jaxpr(carries.as_many_rows_as_layers)(*carries.args())
    eqn = next(one for one in traced.jaxpr.eqns if one.primitive.name == "scan")
    params = {key: value for key, value in eqn.params.items() if key != "num_carry"}
    without = SimpleNamespace(invars=eqn.invars, outvars=eqn.outvars, params=params)
    for one in (eqn, without):  # JAX 0.12 does not have the number
        assert carried(one) == 1
        assert [tuple(var.aval.shape) for var in carried_inputs(one)] == [(N, D)]


CASES = Path(__file__).parents[2].parent / "shared" / "cases"


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are in another repository")
def test_the_plan_of_a_case_moves_as_much_as_the_one_by_hand(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(CASES / "fit-anchors")
    import carry

    args = carry.args(64)
    function = Function(carry.step, args, {}, "step")
    plan = Plan(function.program().scans, offloaded=("x_in",))
    by_hand = Function(carry.step_off, args, {}, "step_off").trace(Plan())
    wanted = function.trace(plan)
    path = Path(carry.__file__)
    made = patch(function.program(), plan, {str(path): path.read_text("utf-8")})
    patched = loaded(made.texts[str(path)], tmp_path)
    got = Function(patched.step, args, {}, "step").trace(Plan())
    for figure in ("host_bytes", "residual_bytes", "work"):
        figures = {getattr(one, figure) for one in (by_hand, wanted, got)}
        assert len(figures) == 1, figure
