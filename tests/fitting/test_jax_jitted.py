"""Steps that flax and equinox jit are traced, compiled and changed like those that JAX jits."""

import functools
import types

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

from bufdb.capture.catching import Caught  # noqa: E402
from bufdb.errors import UsageError  # noqa: E402
from bufdb.fitting.child import Server, _without_later_reads  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.jitted import jitted  # noqa: E402
from bufdb.fitting.levers.donation import shared  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402

N, D = 3, 8
X = jax.ShapeDtypeStruct((64, D), "float32")


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Checkpoints of calls are offered, as on a GPU: the compiler for CPUs would merge them."""
    monkeypatch.setattr(Function, "platform", "gpu")


def of_nnx():
    nnx = pytest.importorskip("flax.nnx", reason="this Python has no flax")

    class Layer(nnx.Module):
        def __init__(self, rngs):
            self.up = nnx.Linear(D, 4 * D, rngs=rngs)
            self.down = nnx.Linear(4 * D, D, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x):
            return x + self.drop(self.down(jax.nn.gelu(self.up(x))))

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([Layer(rngs) for _ in range(N)])

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    def step(model, x, how="mean"):
        assert how == "mean"
        loss, grads = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        nnx.update(model, jax.tree.map(lambda p, g: p - g, nnx.state(model, nnx.Param), grads))
        return loss

    return nnx, step, (nnx.eval_shape(lambda: Model(nnx.Rngs(0))), X)  # computes no weights


def of_equinox():
    eqx = pytest.importorskip("equinox", reason="this Python has no equinox")

    def layer(mlp, x):
        return x + mlp(x)

    class Net(eqx.Module):
        layers: list
        act: types.FunctionType

        def __init__(self, key):
            keys = jax.random.split(key, N)
            self.layers = [eqx.nn.MLP(D, D, 4 * D, 1, key=key) for key in keys]
            self.act = jax.numpy.tanh

        def __call__(self, x):
            for mlp in self.layers:
                x = self.act(layer(mlp, x))
            return x

    def step(net, x, how="mean"):
        assert how == "mean"
        loss, grads = eqx.filter_value_and_grad(lambda net: (jax.vmap(net)(x) ** 2).mean())(net)
        return loss, eqx.apply_updates(net, grads)

    return eqx, step, (eqx.filter_eval_shape(Net, jax.random.key(0)), X)


FORMS = {
    "jit": lambda nnx, step: nnx.jit(step),
    "donate": lambda nnx, step: nnx.jit(step, donate_argnums=0),
    "static": lambda nnx, step: functools.partial(
        nnx.jit(step, static_argnames=("how",)), how="mean"
    ),
    "tree": lambda nnx, step: nnx.jit(step, graph_updates=False),
}


@pytest.mark.parametrize(
    "form", ["jit", "static", "tree", pytest.param("donate", marks=pytest.mark.by_hand)]
)
def test_a_step_of_nnx_jit_has_plans(form, tmp_path):
    nnx, step, args = of_nnx()
    function = Function(FORMS[form](nnx, step), args, {}, "step")
    program = function.program()
    assert [region.function.rpartition(".")[2] for region in program.regions] == ["__call__"]
    assert program.regions[0].lift == "nnx" and program.is_jitted
    is_partial = form == "static"
    assert program.donatable == (() if is_partial or form == "donate" else (0,))
    assert any("hides which arguments" in note for note in program.notes) == is_partial
    plan = Plan(calls=(0,), donated=program.donatable)
    assert function.trace(plan).live_bytes < program.as_written.live_bytes
    assert function.compile(plan, tmp_path, is_full=True) is None
    lowered = function.stage(plan).as_text()
    is_donated = "tf.aliasing_output" in lowered or "jax.buffer_donor" in lowered
    assert is_donated == (not is_partial)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("donate", ["none", "all"])
def test_a_step_of_filter_jit_has_plans(donate, tmp_path):
    eqx, step, args = of_equinox()
    function = Function(eqx.filter_jit(step, donate=donate), args, {"how": "mean"}, "step")
    program = function.program()
    assert [region.function.rpartition(".")[2] for region in program.regions] == ["layer"]
    assert (program.donatable, program.lost) == (((0, 1), ("x",)) if donate == "none" else ((), ()))
    assert function.trace(Plan(calls=(0,))).live_bytes < program.as_written.live_bytes
    assert function.compile(Plan(calls=(0,)), tmp_path, is_full=True) is None
    for donated in ((), program.donatable):
        lowered = function.stage(Plan(donated=donated)).as_text()
        is_donated = "tf.aliasing_output" in lowered or "jax.buffer_donor" in lowered
        assert is_donated == (donate == "all" or donated != ())


@pytest.mark.parametrize(
    ("donate", "args", "kwargs", "donatable", "lost"),
    [
        ("none", ("batch", "net"), {}, (1,), ()),  # the first one stays
        ("none", ("net", "numbers"), {}, (0, 1), ()),  # JAX copies what is NumPy's
        ("none", ("net", "batch", "batch"), {}, (0, 1, 2), ("1", "2")),
        ("none", ("net",), {"x": "batch"}, (0,), ("x",)),
        ("none", ("batch", "net"), {"x": "batch"}, (1,), ("x",)),
        ("warn-except-first", ("net", "batch"), {}, (0,), ()),
        ("all-except-first", ("net",), {"x": "batch"}, (0,), ()),  # as it is given away already
        ("all-except-first", ("batch", "net"), {}, (), ()),
        ("none", ("batch", "batch"), {}, (), ()),  # no output takes one
    ],
)
def test_what_equinox_donates_together(donate, args, kwargs, donatable, lost):
    eqx = pytest.importorskip("equinox", reason="this Python has no equinox")
    values = {"net": jax.numpy.ones((D, D)), "batch": X, "numbers": np.ones((64, D), "float32")}

    names = args

    def step(*args, **kwargs):
        own = args[names.index("net")] if "net" in names else args[0]
        grads = jax.grad(lambda own: (own**2).sum())(own)
        return grads if "net" in names else grads.sum()

    taken = [values[name] for name in args], {at: values[name] for at, name in kwargs.items()}
    program = Function(eqx.filter_jit(step, donate=donate), *taken, "step").program()
    assert (program.donatable, program.lost) == (donatable, lost)


def test_an_array_that_a_call_has_twice_is_not_donated():
    """XLA refuses to run that: at first an average of the parameters is these themselves."""
    a, b = jax.numpy.ones(2), jax.numpy.ones(2)
    assert shared((a, [b, a], b + 1, np.ones(2)), {}) == {0, 1}
    assert shared((a,), {"x": a}) == {0, 1}
    assert shared(([a, a], b), {}) == {0}
    nnx = pytest.importorskip("flax.nnx", reason="this Python has no flax")
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    assert shared((layer, [layer.kernel]), {}) == set()
    assert shared((layer, nnx.clone(layer)), {}) == {0, 1}


@pytest.mark.parametrize("package", ["jax", "equinox"])
def test_a_call_keeps_what_it_has_twice(tmp_path, package):
    module = pytest.importorskip(package, reason=f"this Python has no {package}")
    step = (module.jit if package == "jax" else module.filter_jit)(lambda a, b: (a * 2, b * 3))
    file = tmp_path / "train.py"
    file.write_text("a, b = step(a, b)\n")
    a, b = jax.numpy.ones(2), jax.numpy.ones(2)
    for args, donatable in (((a, b), (0, 1)), ((a, a), ())):
        outer = None if package == "jax" else (step, args, {})
        caught = Caught(None, step, args, {}, (str(file), 1, 7, 1, 17), outer)
        program = _without_later_reads(Function(step, args, {}, "step").program(), caught)
        assert (program.donatable, program.lost) == (donatable, ())
    assert program.notes[-1] == "not donated: a, b, as an array of these is in the call twice"


def test_a_jitted_partial_has_plans():
    def loss(scale, w, x):
        out = jax.lax.scan(lambda h, w: (jax.numpy.tanh(h @ w), None), x, w)[0]
        return scale * (out**2).sum()

    step = jax.jit(functools.partial(jax.grad(loss, argnums=1), 2.0))
    w = jax.ShapeDtypeStruct((N, D, D), "float32")
    assert Function(step, (w, X), {}, "step").program().scans == (0,)


def test_what_another_library_jits_is_refused_in_one_line():
    class Other:
        def lower(self, *args):
            raise AssertionError("not called")

    with pytest.raises(UsageError, match=r"^step is jitted by \S+Other, whose inside"):
        jitted(Other(), "step")


def test_a_plain_function_of_modules_says_how_to_jit_it():
    _, step, args = of_equinox()
    with pytest.raises(UsageError, match=r"argument net of step is not an array.* eqx.filter_jit"):
        Function(step, args, {}, "step")


# -- the note about what a jit donates -------------------------------------------------------------


HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def updated(w, x):
    return w - jax.grad(lambda w: jax.numpy.tanh(x @ w).sum())(w)


def gradient_norm(w, x):
    return (jax.grad(lambda w: jax.numpy.tanh(x @ w).sum())(w) ** 2).sum()


@pytest.mark.parametrize(
    ("function", "options", "note"),
    [
        (updated, {}, ""),
        (updated, {"in_shardings": None}, ""),
        (updated, {"in_shardings": HERE}, "donates, as it has in_shardings"),
        (updated, {"in_shardings": HERE, "donate_argnums": 0}, ""),
        (gradient_norm, {"in_shardings": HERE}, ""),
    ],
)
def test_a_note_on_donation_only_where_an_argument_could_be(function, options, note):
    w, x = jax.numpy.ones((8, 8)), jax.numpy.ones((4, 8))
    notes = Function(jax.jit(function, **options), (w, x), {}, "step").program().notes
    assert all(note in one for one in notes)
    assert bool(notes) == bool(note)


@pytest.mark.parametrize(("ema", "count"), [("w", 1), ("w + 0", 0)])
def test_an_array_twice_in_args_is_a_note(tmp_path, ema, count):
    (tmp_path / "train.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "step = jax.jit(lambda state, x: jax.tree.map(lambda one: one + x, state))\n"
        f"def args(w=jnp.ones(8)):\n    return (w, {ema}), 1.0\n"
    )
    request = {
        "do": "start", "spec": f"{tmp_path / 'train.py'}:step", "args": "args()", "target": None,
        "gradients_only": False, "own": None, "sources": {}, "has_program": True,
    }  # fmt: skip
    program = Server().answer(request)["program"]
    assert program["donatable"] == [0]
    assert sum("an array of state is in --args twice" in one for one in program["notes"]) == count
