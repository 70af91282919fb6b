"""Words of frameworks, proved: each checkpoint computes a product again, and compiles."""

import importlib

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import jax.numpy as jnp  # noqa: E402

from bufdb.fitting.counting import work  # noqa: E402
from bufdb.fitting.frameworks import named  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.gradients import file_names  # noqa: E402
from bufdb.fitting.jax_inside import without_dead_code  # noqa: E402

D = 8
X = jnp.ones((2, D))


def of_jax(word):
    def block(x, w):
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    call = word(block) if word else block
    return lambda w: call(X, w).sum(), jnp.ones((D, D))


def of_equinox(word):
    import equinox as eqx

    keys = jax.random.split(jax.random.key(0))
    net = eqx.nn.Sequential([eqx.nn.Linear(D, D, key=key) for key in keys])
    arrays, rest = eqx.partition(net, eqx.is_array)

    def loss(arrays):
        block = eqx.combine(arrays, rest)
        call = word(lambda net, x: jnp.tanh(net(x))) if word else lambda net, x: jnp.tanh(net(x))
        return call(block, X[0]).sum()

    return loss, arrays


def of_nnx(word):
    from flax import nnx

    def block(module, x):
        return jnp.tanh(jnp.tanh(module(x)) @ jnp.ones((D, D)))

    graph, state = nnx.split(nnx.Linear(D, D, rngs=nnx.Rngs(0)))
    call = word(block) if word else block
    return lambda state: call(nnx.merge(graph, state), X).sum(), state


def of_linen(word):
    import flax.linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return jnp.tanh(nn.Dense(D)(jnp.tanh(nn.Dense(D)(x))))

    module = (word(Block) if word else Block)()
    return lambda params: module.apply(params, X).sum(), module.init(jax.random.key(0), X)


def of_haiku(word):
    import haiku as hk

    def block(x):
        return jnp.tanh(hk.Linear(D)(jnp.tanh(hk.Linear(D)(x))))

    made = hk.without_apply_rng(hk.transform(lambda x: (word(block) if word else block)(x)))
    return lambda params: made.apply(params, X).sum(), made.init(jax.random.key(0), X)


ROWS = [
    ("jax", of_jax, "jax"),
    ("equinox", of_equinox, "equinox"),
    ("nnx", of_nnx, "flax.nnx"),
    ("linen", of_linen, "flax.linen"),
    pytest.param("haiku", of_haiku, "haiku", marks=pytest.mark.by_hand),
]


@pytest.mark.parametrize(("name", "make", "module"), ROWS)
def test_a_checkpoint_computes_a_product_again(name, make, module):
    library = pytest.importorskip(module, reason=f"this Python has no {module}")
    word = getattr(library, named(name).checkpoint.rpartition(".")[2])

    def products(word):
        loss, params = make(word)
        step = jax.jit(jax.grad(loss))
        assert step.lower(params).compile()
        traced = jax.make_jaxpr(jax.value_and_grad(loss))(params).jaxpr
        return work(without_dead_code(traced)).count

    assert products(word) > products(None)


@pytest.mark.parametrize("options", [("all",), ("all-except-first",)])
def test_equinox_donates(options):
    eqx = pytest.importorskip("equinox", reason="this Python has no equinox")
    assert options[0] in named("equinox").donation
    step = eqx.filter_jit(lambda x, w: (x + 1, w + 1), donate=options[0])
    text = step.lower(X, jnp.ones((D, D))).lowered.as_text()
    assert text.count("tf.aliasing_output") == {"all": 2, "all-except-first": 1}[options[0]]


@pytest.mark.by_hand
def test_keras_has_a_scope_and_a_dtype(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="this Python has no keras")
    word = named("keras")
    scope = eval(word.checkpoint, {"keras": keras})

    def products(scope):
        with scope:
            net = keras.Sequential([keras.layers.Dense(D, activation="tanh") for _ in range(2)])
        net.build((2, D))
        values = [one.value for one in net.trainable_variables]

        def loss(values):
            return net.stateless_call(values, [], X)[0].sum()

        traced = jax.make_jaxpr(jax.value_and_grad(loss))(values).jaxpr
        assert jax.jit(jax.grad(loss)).lower(values).compile()
        return work(without_dead_code(traced)).count

    assert products(scope) > products(importlib.import_module("contextlib").nullcontext())
    eval(word.dtype, {"keras": keras})
    assert keras.layers.Dense(D).compute_dtype == "bfloat16"


def test_what_a_library_computes_is_a_setting(tmp_path, monkeypatch):
    (tmp_path / "maxtext").mkdir()
    text = "import jax.numpy as jnp\ndef layer(x, w):\n    return jnp.tanh(x @ w)\n"
    (tmp_path / "maxtext" / "layers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    layers = importlib.import_module("maxtext.layers")

    def step(w):
        return jax.grad(lambda w: layers.layer(X, w).sum())(w)

    one = Function(step, (jax.ShapeDtypeStruct((D, D), "float32"),), {}, "step")
    assert any("maxtext/layers.py" in name for name in file_names(one._gradients[0].closed.jaxpr))
    (note,) = [note for note in one.program().notes if "maxtext" in note]
    assert "the layers are maxtext's" in note and "remat_policy=full" in note
