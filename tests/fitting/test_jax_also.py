"""Changes for parts of the batch: equal to rounding, or refused with the reason."""

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_parts as programs  # noqa: E402
import numpy as np  # noqa: E402

import bufdb  # noqa: E402
from bufdb.errors import UsageError  # noqa: E402
from bufdb.fitting.also import batch, divided  # noqa: E402
from bufdb.fitting.edits import Refused  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.gradients import Gradient  # noqa: E402
from bufdb.fitting.levers.chunks import Chunks  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Change, Plan  # noqa: E402
from bufdb.fitting.rewrites import (  # noqa: E402
    _SOON,
    Pair,
    _apart,
    _known_options,
    compared,
    jit_for_check,
    joined,
    split,
)

MEANS = ["step", "step_closure", "step_jitted", "step_one_hot", "step_flat", "step_shifted"]
B, S, D, V, N = programs.B, programs.S, programs.D, programs.V, programs.N


def prepared(name, kind, args=None):
    """A function with the changes of a kind to it, which take seconds: once for equal arguments."""
    return ready(name, kind) if args is None else made_ready(name, kind, args)


@functools.cache
def ready(name, kind):
    return made_ready(name, kind, programs.args())


def made_ready(name, kind, args):
    function = Function(getattr(programs, name), args, {}, name)
    function.program()
    return function, function.changes((kind,))


def arrays(args):
    draw = np.random.default_rng(1)

    def array(one):
        if one.dtype == np.int32:
            return jax.numpy.asarray(draw.integers(0, V, one.shape), one.dtype)
        return jax.numpy.asarray(draw.normal(0, 0.5, one.shape), one.dtype)

    return jax.tree.map(array, args)


def assert_same(got, wanted):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6)


def run(function, plan, values):
    return function.stage(plan).compile(compiler_options=_SOON)(*values)


@pytest.mark.sample(0, 5)
@pytest.mark.parametrize("kind", ["microbatch", "chunks"])
@pytest.mark.parametrize("name", MEANS)
def test_what_is_computed_is_equal_to_rounding(name, kind):
    function, changes = prepared(name, kind)
    values = arrays(programs.args())
    wanted = jit_for_check(getattr(programs, name))(*values)
    assert changes.tried and not changes.notes
    for change in changes.tried[-1:]:
        assert change.ground == "checked on 4 random examples: equal to 1e-04"
        assert_same(run(function, Plan(extra=(change.key,)), values), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["microbatch", pytest.param("chunks", marks=pytest.mark.by_hand)])
def test_with_a_plan_it_is_still_equal(kind):
    function, changes = prepared("step", kind)
    values = arrays(programs.args())
    plan = Plan(scans=(0,), extra=(changes.tried[-1].key,))
    assert_same(run(function, plan, values), jit_for_check(programs.step)(*values))


def test_a_product_in_chunks_is_twice_as_wide_as_its_input():
    """As advice wants it of a vocabulary, see tests/queries/test_advice.py."""
    assert prepared("step", "chunks", programs.args(vocabulary=2 * D))[1].tried
    narrower = prepared("step", "chunks", programs.args(vocabulary=2 * D - 1))[1]
    assert not narrower.tried and "is much wider than its input" in " ".join(narrower.notes)


@pytest.mark.slow
def test_only_chunks_repeat_the_wide_product():
    function, _ = prepared("step", "microbatch")
    function.changes(("chunks",))
    written = function.trace(Plan()).work
    assert function.trace(Plan(extra=("microbatch=4",))).work == written
    head = 2 * B * S * D * V
    assert function.trace(Plan(extra=("chunks=4",))).work == written + head


@pytest.mark.slow
def test_the_lines_of_the_wide_piece_are_named():
    _, changes = prepared("step", "chunks")
    (change,) = changes.tried
    texts = Path(programs.__file__).read_text("utf-8").splitlines()
    lines = [texts[site.line - 1] for site in change.sites]
    assert 'params["head"]' in lines[0] and "log_softmax" in lines[1]
    assert f"[{B}, {S}, {V}]" in change.what


def items(args):
    params, tokens, labels = args
    return {"params": params}, {"tokens": tokens, "labels": labels}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [pytest.param("step", tuple, marks=pytest.mark.by_hand), ("step_items", items)],
)
def test_a_patch_takes_the_gradient_in_microbatches(name, form):
    args = form(programs.args(batch=9))
    function, changes = prepared(name, "microbatch", args)
    program = replace(function.program(), changes=changes.tried)
    path = programs.__file__
    plan = Plan(scans=(0,), extra=("microbatch=3",), donated=program.donatable)
    made = patch(program, replace(plan, donated=()), {path: Path(path).read_text("utf-8")})
    assert made.is_whole and made.diff.count("microbatched(") == 2
    twin = ModuleType("patched")
    exec(compile(made.texts[path], path, "exec"), twin.__dict__)
    values = arrays(args)
    both = jit_for_check(getattr(twin, name)), jit_for_check(getattr(programs, name))
    assert_same(*(each(*values) for each in both))


@pytest.mark.parametrize("name", ["step_closure", "step_sum"])
def test_where_the_loss_may_see_the_batch_the_patch_is_words(name):
    path = programs.__file__
    text = Path(path).read_text("utf-8")
    function = Function(getattr(programs, name), programs.args(), {}, name)
    site = function._gradients[0].site
    change = Change("microbatch=2", "", "in parts", "", "", (site,), 2, ("tokens", "labels"))
    program = replace(function.program(), changes=(change,))
    made = patch(program, Plan(extra=("microbatch=2",)), {path: text})
    assert not made.diff and "by hand, in parts" in made.steps[0]
    assert "the loss is not a function of the module" in made.steps[0]


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("step_sum", "microbatch", "computes something else: on 4 random examples"),
        *(
            pytest.param(name, "microbatch", "computes something else", marks=pytest.mark.by_hand)
            for name in ("step_masked", "step_padded", "step_centered")
        ),
        ("step_centered", "chunks", "no product outside of scans is much wider"),
        ("step_across", "chunks", "reduced over the batch before it is narrow"),
        ("step_logits", "chunks", "the wide value is an output of the loss, too"),
    ],
)
def test_what_would_compute_something_else_is_refused(name, kind, reason):
    _, changes = prepared(name, kind)
    assert changes.tried == ()
    assert reason in changes.notes[0] and changes.notes[0].startswith(f"--also {kind}: ")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("step_measured", "microbatch"),
        ("step_scaled", "chunks"),
        pytest.param("step_measured", "chunks", marks=pytest.mark.by_hand),
    ],
)
def test_metrics_that_are_means_or_sums(name, kind):
    function, changes = prepared(name, kind)
    values = arrays(programs.args())
    wanted = jit_for_check(getattr(programs, name))(*values)
    assert not changes.notes and changes.tried[-1].ground.startswith("checked on 4")
    result = run(function, Plan(extra=(changes.tried[-1].key,)), values)
    assert_same(result, wanted)
    types = [one.dtype for one in jax.tree.leaves(wanted)]
    assert [one.dtype for one in jax.tree.leaves(result)] == types


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("step_rooted", r"auxiliary output \['perplexity'\] differs by [0-9.]+%"),
        ("step_ranked", r"auxiliary output \['largest'\] is an integer that is no sum"),
    ],
)
def test_a_metric_that_is_neither_is_named(name, reason):
    _, changes = prepared(name, "microbatch")
    assert changes.tried == () and re.search(reason, changes.notes[0])


def test_what_lets_the_logits_out_and_what_reads_them():
    texts = Path(programs.__file__).read_text("utf-8").splitlines()
    leaves, reads = (
        next(at for at, line in enumerate(texts, 1) if line.endswith(f"# {word}"))
        for word in ("leaves", "reads")
    )
    _, changes = prepared("step_leaking", "chunks")
    assert f"fit_parts.py:{leaves} returns it for fit_parts.py:{reads};" in changes.notes[0]
    assert "return metrics in its place, means or sums over the batch" in changes.notes[0]


def test_what_is_no_number_is_not_equal():
    x = jax.ShapeDtypeStruct((4,), np.float32)
    one = Gradient(jax.make_jaxpr(lambda w: (w * w).sum())(x), 1)

    def written(closed, inputs):
        return list(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *inputs))

    def changed(closed, inputs):
        return [value * np.nan for value in written(closed, inputs)]

    assert compared(one, written, written)
    with pytest.raises(Refused, match="on 4 random examples, it is not finite"):
        compared(one, written, changed)
    first, second = np.ones(1), np.full(1, np.nan)
    for got in ([first, second], [second, first]):
        assert np.isnan(_apart([first, first], got)).tolist() == [np.isnan(one[0]) for one in got]


def test_an_option_of_another_compiler_is_left_out(monkeypatch):
    monkeypatch.setattr("bufdb.fitting.rewrites._SOON", {"xla_no_such_option": True})
    assert _known_options.__wrapped__() == {}


@pytest.mark.parametrize(
    ("size", "counts"),
    [(16, [2, 4, 8]), (12, [2, 4, 12]), (15, [3, 15]), (11, [11]), (34, [2]), (17, []), (1, [])],
)
def test_a_batch_is_divided_by_what_divides_it(size, counts):
    assert divided(size) == counts


@pytest.mark.parametrize(("size", "first"), [(16, 8), (12, 4), (15, 3), (11, 11)])
def test_chunks_are_as_many_as_eight(size, first):
    assert Chunks().counts(size)[0] == first


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (programs.args(batch=17), "the batch of 17 has no equal parts"),
        ((*programs.args()[:2], programs.args(batch=1)[1]), "are not one batch (t 8, n 1)"),
        ((programs.args()[0], {"a": programs.shape(8), "b": programs.shape(4)}, 1), "axes 4 and 8"),
    ],
)  # fmt: skip
def test_where_the_batch_is_not_clear_a_note_says_so(args, reason):
    def step(p, t, n):
        return jax.grad(lambda p: (p["head"] ** 2).sum())(p)

    function = Function(step, args, {}, "step")
    function._args = args
    assert reason in function.changes(("microbatch",)).notes[0]


def sharded(size, devices):
    mesh = jax.sharding.AbstractMesh((devices,), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    return jax.ShapeDtypeStruct((size, 2), "float32", sharding=rows)


def test_devices_share_each_part_equally():
    shares = batch((sharded(16, 4),), {}, ("x",), ())
    assert (shares.size, shares.devices) == (16, 4)
    pair = Pair(None, None, 2, (), shares.devices)
    array = np.arange(3 * 16).reshape(3, 16)
    parts = split(array, 1, pair)
    assert parts[0, 0].tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert np.array_equal(joined(parts, 1, pair), array)
    with pytest.raises(Refused, match="batch of 4 has no equal parts on each of 4 devices"):
        batch((sharded(4, 4),), {}, ("x",), ())


def data_parallel(devices=4):
    mesh = jax.sharding.AbstractMesh((devices,), ("data",))
    specs = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("data")
    return [jax.sharding.NamedSharding(mesh, one) for one in specs]


def test_in_shardings_say_how_the_batch_is_sharded():
    whole, rows = data_parallel()
    step = jax.jit(programs.step, in_shardings=(whole, *[rows] * (len(programs.args()) - 1)))
    (change, *_) = Function(step, programs.args(), {}, "step").changes(("microbatch",)).tried
    # A batch of 4 would not divide by the devices of the jit; its check has none.
    assert (change.devices, change.ground) == (4, "checked on 4 random examples: equal to 1e-04")


def test_what_shards_the_batch_unseen_is_refused():
    def step(count, params, *rest):
        return programs.step(params, *rest)

    whole, rows = data_parallel()
    shardings = whole, *[rows] * (len(programs.args()) - 1)
    jitted = jax.jit(step, static_argnums=0, in_shardings=shardings)
    changes = Function(jitted, (1, *programs.args()), {}, "step").changes(("microbatch",))
    assert "in_shardings hide how the batch is sharded" in changes.notes[0]


def test_a_loss_within_a_shard_map_is_not_put_in_chunks():
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("data")

    def local(params, x):
        logits = x @ params["head"]
        loss = jax.nn.logsumexp(logits, axis=-1).mean()
        return jax.lax.pmean(loss, "data")

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(whole, rows), out_specs=whole)
    args = (
        {"head": jax.ShapeDtypeStruct((4, 64), "float32")},
        jax.ShapeDtypeStruct((16, 4), "float32"),
    )
    changes = Function(jax.grad(mapped), args, {}, "step").changes(("chunks",))
    assert changes.notes == ("--also chunks: the loss is within a shard_map",)


def normed(x, is_mixed):
    """Over the batch, or over an example."""
    return (x - x.mean(0)) / (1 + x.var(0)) if is_mixed else x - x.mean(1, keepdims=True)


@pytest.mark.parametrize("form", ["layers", "scan"])
@pytest.mark.parametrize("is_mixed", [True, False])
def test_what_mixes_examples_is_refused_unrun(monkeypatch, form, is_mixed):
    """The check on four examples would show it; a loss that is too large for that is not run."""
    monkeypatch.setattr("bufdb.fitting.rewrites.CHECKED_WORK", 0)

    def loss(ws, x):
        def layer(x, w):
            return jax.nn.relu(normed(x @ w, is_mixed)), None

        if form == "scan":
            x, _ = jax.lax.scan(layer, x, ws)
        else:
            for w in ws:
                x, _ = layer(x, w)
        return (x * x).mean()

    args = programs.shape(3, D, D), programs.shape(8, D)
    changes = Function(jax.grad(loss), args, {}, "step").changes(("microbatch",))
    assert bool(changes.tried) != is_mixed
    if is_mixed:
        assert "test_jax_also.py:" in changes.notes[0] and "batch normalization" in changes.notes[0]
    else:
        assert "too large to check here" in changes.tried[0].ground


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("kind", ["microbatch", "chunks"])
def test_floats_of_two_bytes_are_compared_as_float32(kind):
    args = jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one.shape, "bfloat16") if one.dtype == "float32" else one,
        programs.args(length=64),
    )
    _, changes = prepared("step_shifted", kind, args)
    assert changes.tried[0].ground.endswith("equal to 1e-04")


@pytest.mark.slow
def test_what_is_too_large_to_run_says_what_it_assumes(monkeypatch):
    monkeypatch.setattr("bufdb.fitting.rewrites.CHECKED_WORK", 1)
    _, changes = made_ready("step_sum", "microbatch", programs.args())
    assert changes.tried[0].ground.startswith("assumes that the loss is a mean over the batch")


def planned(kind):
    answer = bufdb.fit(programs.step, *programs.args(32, 32, 512), budget_compiles=4, also=(kind,))
    assert json.dumps(answer.data)
    return answer.data, {row.plan.extra[0]: row for row in answer.plans if row.plan.extra}


@pytest.mark.by_hand  # test_jax_fit_command.py compiles a plan with microbatches
def test_microbatches_are_compiled_and_listed():
    data, parts = planned("microbatch")
    written = data["as_written"]["need_bytes"]
    assert parts["microbatch=2"].is_compiled and parts["microbatch=2"].need_bytes < 0.7 * written
    assert parts["microbatch=2"].extra_work_ratio == 0
    plan = next(one for one in data["plans"] if "microbatches" in "".join(one["changes"]))
    assert "gradient at fit_parts.py:" in plan["changes"][0]


@pytest.mark.by_hand  # test_jax_chunks.py compiles a plan with chunks
def test_chunks_are_compiled_and_listed():
    data, chunks = planned("chunks")
    written = data["as_written"]["need_bytes"]
    assert chunks["chunks=8"].is_compiled and chunks["chunks=8"].need_bytes < 0.5 * written


def test_another_kind_is_refused_in_one_line():
    with pytest.raises(UsageError, match="expected microbatch or chunks"):
        bufdb.fit(programs.step, *programs.args(), also=("pipeline",))
