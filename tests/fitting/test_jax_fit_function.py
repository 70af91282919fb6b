"""A function under plans: what a trace says, against products and bytes counted by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_forms as forms  # noqa: E402
import fit_programs as programs  # noqa: E402
from fit_programs import PRODUCT, D, N  # noqa: E402

from bufdb.errors import UsageError  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.jax_inside import Obeyed, obeyed  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402

STACK = 4 * N * D * D
"""Bytes of one f32[8, 8] of each layer."""
STEPS = [name for name in dir(programs) if name.startswith("step")]


def function(name, args=None, **how):
    args = programs.args() if args is None else args
    return Function(getattr(programs, name), args, {}, name, **how)


@pytest.fixture(scope="module")
def scanned():
    step = function("step")
    return step, step.program()


def texts(program):
    return {switch.name: _text(switch.site) for switch in program.switches}


def _text(site):
    line = Path(site.file).read_bytes().splitlines()[site.line - 1]
    return line[site.column : site.end_column].decode()


def test_switches_are_expressions_whose_values_cross(scanned):
    _, program = scanned
    assert list(texts(program).values()) == [
        'x @ p["w"]',
        "jnp.tanh(h)",
        'x + g @ p["v"]',
        'g @ p["v"]',
    ]
    assert {one.saved_bytes for one in program.switches} == {STACK}
    (region,) = program.regions
    assert (region.kind, region.function, region.count) == ("scan", "layer", N)
    assert _text(region.sites[0]) == "jax.lax.scan(layer, x, params)"
    assert program.donatable == (0,) and program.argument_names == ("params", "x")


def test_products_and_residuals_are_those_counted_by_hand(scanned):
    function, program = scanned
    name = {text: name for name, text in texts(program).items()}
    written, nothing = function.trace(Plan()), function.trace(Plan(scans=(0,)))
    # Forward two products a layer; backward two for each of them.
    assert (written.work, written.product_count) == (N * 6 * PRODUCT, N * 6)
    # Saved is the carry; x @ w is computed again, g @ v is not needed.
    assert nothing.work == N * 7 * PRODUCT
    assert nothing.residual_bytes == STACK
    one = function.trace(Plan(scans=(0,), saved=(name['x @ p["w"]'],)))
    assert (one.work, one.residual_bytes) == (N * 6 * PRODUCT, 2 * STACK)
    assert one.residual_bytes < written.residual_bytes


def test_what_is_computed_again_is_known_by_line(scanned):
    function, program = scanned
    name = {text: name for name, text in texts(program).items()}
    sites = function.recomputed(Plan(scans=(0,)))
    assert {'x @ p["w"]', "jnp.tanh(h)"} == {_text(site) for site in sites}
    sites = function.recomputed(Plan(scans=(0,), saved=(name['x @ p["w"]'],)))
    assert {"jnp.tanh(h)"} == {_text(site) for site in sites}
    assert function.recomputed(Plan()) == ()


def test_a_checkpoint_of_the_source_is_a_starting_point():
    step = function("step_checkpointed")
    program = step.program()
    assert step.trace(Plan()).work == N * 7 * PRODUCT
    everything = tuple(one.name for one in program.switches)
    assert step.trace(Plan(scans=(0,), saved=everything)).work == N * 6 * PRODUCT
    (region,) = program.regions
    assert len(region.remats) == 1


def test_names_of_the_source_are_kept():
    step = function("step_named")
    program = step.program()
    named = [one for one in program.switches if one.is_named]
    assert [one.name for one in named] == ["hidden"]
    one, written = step.trace(Plan(scans=(0,), saved=("hidden",))), step.trace(Plan())
    assert (one.work, one.residual_bytes) == (written.work, written.residual_bytes)
    assert step.trace(Plan(scans=(0,))).work == N * 7 * PRODUCT


def test_within_a_jitted_function_of_the_user_values_have_names():
    step = function("step_jit")
    program = step.program()
    assert {"x @ w", "jnp.sin(h)"} <= set(texts(program).values())
    name = {text: name for name, text in texts(program).items()}["x @ w"]
    assert step.trace(Plan(scans=(0,))).work == N * 7 * PRODUCT
    assert step.trace(Plan(scans=(0,), saved=(name,))).work == N * 6 * PRODUCT


def test_a_custom_vjp_is_atomic():
    step = function("step_custom")
    program = step.program()
    assert program.regions[0].has_products
    saved = tuple(one.name for one in program.switches)
    written = step.trace(Plan())
    assert step.trace(Plan(scans=(0,), saved=saved)).work == written.work + N * PRODUCT
    assert step.trace(Plan(scans=(0,), saved=saved, with_dots=(0,))).work == written.work


def test_arguments_that_are_not_used_are_noted():
    def step(*args):
        return programs.step(*args[:-1])

    step_function = Function(
        step, (*programs.args(), jax.ShapeDtypeStruct((256,), "float32")), {}, "step"
    )
    (note,) = (note for note in step_function.program().notes if "not used" in note)
    assert note.startswith("1 of 4 arguments is not used, 1.00 KiB: ")


def test_a_scan_within_a_custom_vjp_stays():
    program = function("step_closed").program()
    (note,) = (one for one in program.notes if one.startswith("the scan"))
    place = "fit_programs.py:" + str(line_of("return jax.lax.scan(lambda x, w: (x @ w / 2"))
    assert note.startswith(f"the scan at {place} is within a custom_vjp, ")
    assert [region.function for region in program.regions] == ["stack.<locals>.<lambda>"]


def test_a_gradient_of_a_gradient_has_its_own_lines():
    program = function("step_again").program()
    (region,) = program.regions
    assert region.sites[0].line == line_of("return jax.lax.scan(lambda x, w: (jnp.tanh")
    (unused,) = program.notes
    assert "x @ w" in texts(program).values() and "not used" in unused


def line_of(text):
    lines = Path(programs.__file__).read_text("utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.strip().startswith(text))


@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this jax has no JAX_REMAT3")
@pytest.mark.parametrize("name", ["step", "step_checkpointed", "step_named"])
def test_remat3_changes_no_trace(name):
    def traced():
        step = function(name)
        program = step.program()
        every = tuple(one.name for one in program.switches)
        plans = [Plan(), Plan(scans=(0,)), Plan(scans=(0,), saved=every[:1])]
        plans.append(Plan(scans=(0,), saved=every))
        return every, [(one.work, one.residual_bytes) for one in map(step.trace, plans)]

    before = traced()
    jax.config.update("jax_remat3", True)
    try:
        assert traced() == before
    finally:
        jax.config.update("jax_remat3", False)


@pytest.mark.parametrize("works", [(False, False), (True, False), (True, True)])
def test_what_policies_do_under_remat3_decides(monkeypatch, works):
    for lever in ("host", "products"):
        monkeypatch.setattr(f"bufdb.fitting.levers.{lever}.obeyed", lambda: Obeyed(*works))
    monkeypatch.setattr(Function, "platform", "gpu")
    program = function("step_custom").program()
    assert (program.has_host_memory, program.regions[0].has_products) == works
    assert sum("JAX_REMAT3" in note for note in program.notes) == works.count(False)


def test_without_remat3_policies_do_all():
    assert obeyed() == (True, True)


@pytest.mark.skipif(not hasattr(jax.config, "jax_remat3"), reason="this jax has no JAX_REMAT3")
def test_under_remat3_a_policy_that_moves_to_the_host_is_tried():
    jax.config.update("jax_remat3", True)
    try:
        assert obeyed()[0] == (jax.__version_info__ >= (0, 12))
    finally:
        jax.config.update("jax_remat3", False)


def test_a_scan_within_a_scan_is_a_region_of_its_own():
    step = function("step_nested")
    program = step.program()
    outer, inner = (1, 0) if program.regions[0].within else (0, 1)
    assert program.regions[inner].within == (outer,)
    assert [program.regions[at].count for at in (outer, inner)] == [N, 3 * N]
    assert any(set(one.regions) == {0, 1} for one in program.switches)
    traced = {step.trace(Plan(scans=which)).residual_bytes for which in ((0,), (1,), (0, 1))}
    assert len(traced) == 3


def test_what_an_inner_backward_pass_stacks_is_no_residual():
    step = function("step_headed")
    program = step.program()
    (total,) = (name for name, text in texts(program).items() if text == "ys.sum(0)")
    traced = step.trace(Plan(scans=(0, 1), saved=(total,)))
    assert traced.residual_bytes == 2 * STACK  # that, and what the layers hand on


def test_a_scan_in_reverse_saves_what_one_in_order_does():
    ahead, back = function("step_nested"), function("step_backwards")
    names = [tuple(one.name for one in each.program().switches) for each in (ahead, back)]
    assert len(names[0]) == len(names[1])
    for scans in ((), (0,), (0, 1)):
        for some in (0, 1, len(names[0])):
            kept = [switch_names[:some] if scans else () for switch_names in names]
            one, other = ahead.trace(Plan(scans, kept[0])), back.trace(Plan(scans, kept[1]))
            assert replace(other, saved=one.saved) == one
            assert len(other.saved) == len(one.saved)


def test_a_gradient_in_a_loop_counts_as_often_as_it_runs():
    once, thrice = function("step").trace(Plan()), function("step_accumulated").trace(Plan())
    assert thrice.work == 3 * once.work
    nothing = function("step_accumulated").trace(Plan(scans=(0,)))
    assert nothing.work - thrice.work == 3 * N * PRODUCT


def test_gradients_of_a_vmap_are_there_at_the_same_time():
    one, three = function("step"), function("step_vmapped")
    for plan in (Plan(), Plan(scans=(0,))):
        alone, vmapped = one.trace(plan), three.trace(plan)
        assert vmapped.work == 3 * alone.work and vmapped.residual_bytes == 3 * alone.residual_bytes
    # One after another they are not.
    assert (
        function("step_accumulated").trace(Plan()).residual_bytes
        == one.trace(Plan()).residual_bytes
    )


def test_offloaded_bytes_count():
    """It cost nothing, so that everything went there."""
    step = function("step_cast")
    (wide,) = [n for n, text in texts(step.program()).items() if text == "x.astype(jnp.float32)"]
    traced = step.trace(Plan(scans=(0,), offloaded=(wide,)))
    assert (traced.residual_bytes, traced.host_bytes) == (0, STACK)


def test_what_goes_to_the_host_counts_as_often_as_it_goes():
    once, thrice = (
        function(name).trace(Plan(scans=(0,), offloaded=("fit_0",))).host_bytes
        for name in ("step", "step_accumulated")
    )
    assert thrice == 3 * once > 0


def test_calls_are_regions_where_the_compiler_keeps_them(monkeypatch):
    monkeypatch.setattr(Function, "platform", "gpu")
    step = function("step_unrolled")
    program = step.program()
    (region,) = [one for one in program.regions if one.function == "block"]
    assert (region.kind, region.count, len(region.sites)) == ("call", N, 1)
    calls = (program.regions.index(region),)
    written, plan = step.trace(Plan()), step.trace(Plan(calls=calls))
    assert plan.work == written.work + N * PRODUCT
    assert plan.live_bytes < written.live_bytes


def test_a_function_that_is_called_once_is_a_region(monkeypatch):
    """One that computes nearly all, or next to nothing, is none; the last one saves nothing."""
    monkeypatch.setattr(Function, "platform", "gpu")
    step = Function(forms.step_halves, programs.args(), {}, "step_halves")
    program = step.program()
    known = [(one.function, one.count, one.is_stretch) for one in program.regions]
    assert known == [("half", N, True), ("half", 1, False), ("other_half", N, True)]
    written, plan = step.trace(Plan()), step.trace(Plan(calls=(1,)))
    assert plan.work == written.work + N * PRODUCT
    assert plan.live_bytes < written.live_bytes


def test_the_body_of_a_loop_is_one_region_in_each_call(monkeypatch):
    monkeypatch.setattr(Function, "platform", "gpu")
    step = Function(forms.step_towers, forms.args(), {}, "step_towers")
    program = step.program()
    known = [(one.function, one.count, one.is_stretch, one.within) for one in program.regions]
    layers = len(forms.args()[0]["w"])
    assert known == [("tower", 2 * layers, True, (1,)), ("tower", 2, False, ())]


def test_lines_that_take_modules_out_of_a_list_stay(monkeypatch):
    nnx = pytest.importorskip("flax.nnx", reason="this Python has no flax")
    monkeypatch.setattr(Function, "platform", "gpu")

    def loss(layers, x):
        left = list(layers)
        for _ in range(N):
            h = jax.numpy.sin(x) * jax.numpy.cos(x)
            x = jax.numpy.sin(left.pop()(h)) + jax.numpy.cos(h)
        return (x * x).sum()

    def step(layers, x):
        return nnx.grad(loss)(layers, x)

    layers = nnx.List([nnx.Linear(D, D, rngs=nnx.Rngs(0)) for _ in range(N)])
    regions = Function(step, (layers, jax.numpy.ones((D, D))), {}, "step").program().regions
    assert not any(one.is_stretch for one in regions)


def test_next_to_a_scan_what_is_called_once_is_none(monkeypatch):
    monkeypatch.setattr(Function, "platform", "gpu")

    def loss(params, x):
        x, _ = jax.lax.scan(programs.layer, forms.half(x, params["w"]), params)
        return (x * x).sum()

    def step(params, x):
        return jax.grad(loss)(params, x)

    regions = Function(step, programs.args(), {}, "step").program().regions
    assert [one.kind for one in regions] == ["scan"]


def test_calls_on_a_cpu_are_left_with_a_note():
    program = function("step_unrolled").program()
    assert not program.regions
    assert any("block" in note and "merges" in note for note in program.notes)


@pytest.mark.parametrize("name", STEPS)
def test_every_plan_of_every_form_is_traced(name):
    step = function(name)
    program = step.program()
    everything = tuple(one.name for one in program.switches)
    nothing = step.trace(Plan(scans=program.scans))
    least = step.trace(Plan(scans=program.scans, saved=everything))
    assert nothing.work >= least.work
    assert nothing.residual_bytes <= least.residual_bytes


@pytest.mark.parametrize(
    ("name", "args"), [("forward_only", ()), ("walked", (programs.shape(D, D),))]
)
def test_what_has_no_gradient_has_a_note(name, args):
    named_function = function(name, args) if args else function(name)
    program = named_function.program()
    assert not program.regions and not program.on_demand
    assert f"{name} takes no gradient" in program.notes[0]
    refused = named_function.changes(["microbatch"])
    assert refused.notes[0].startswith("--also microbatch: it takes no gradient")


def test_an_argument_that_is_no_array_is_refused_in_one_line():
    with pytest.raises(UsageError, match="argument x of step is not an array: it has a str"):
        function("step", (programs.args()[0], "train"))


def test_of_a_loss_alone_its_gradient_is_taken():
    alone = function("forward_only", gradients_only=True)
    assert alone.trace(Plan()).work == N * 6 * PRODUCT


def test_names_that_save_nothing_in_effect_are_known(scanned):
    function, program = scanned
    everything = tuple(one.name for one in program.switches)
    traced = function.trace(Plan(scans=(0,), saved=everything))
    assert traced.saved is not None and 0 < len(traced.saved) < len(everything)
    less = function.trace(Plan(scans=(0,), saved=traced.saved))
    assert less.residual_bytes == traced.residual_bytes and less.work == traced.work


def test_a_scan_that_is_not_differentiated_is_no_region():
    def loss(w, x):
        rows, _ = jax.lax.scan(lambda c, row: (c + row, c), x[0], x)
        return ((x @ w) ** 2).sum() + jax.lax.stop_gradient(rows).sum()

    args = programs.shape(D, D), programs.shape(D, D)
    assert Function(jax.grad(loss), args, {}, "f").program().regions == ()


def test_a_gradient_within_a_shard_map_is_refused_with_its_line():
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("rows",))
    spec = jax.sharding.PartitionSpec
    specs = {"mesh": mesh, "in_specs": (spec(), spec("rows")), "out_specs": spec()}

    def called(params, x):
        return jax.grad(programs.scanned)(params, x)

    path, at = Path(__file__).name, called.__code__.co_firstlineno + 1
    refused = r"f takes its gradient within a shard_map, or a vmap that names its axis \({}:{}\); "
    with pytest.raises(UsageError, match=refused.format(path, at)):
        Function(jax.shard_map(called, **specs), programs.args(), {}, "f")
    # No expression of the user's is being evaluated: the loss is the next best.
    path, at = "fit_programs.py", programs.scanned.__code__.co_firstlineno
    with pytest.raises(UsageError, match=refused.format(path, at)):
        Function(jax.shard_map(jax.grad(programs.scanned), **specs), programs.args(), {}, "f")
