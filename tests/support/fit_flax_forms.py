"""Modules of flax whose plans are patched: scans and blocks, with and without checkpoints."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

N, D = 4, 8
WRITTEN = 2
"""Layers of a loop of Python, each of which is traced."""


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        h = nn.Dense(2 * D)(nn.LayerNorm()(x))
        return x + nn.Dense(D)(nn.gelu(h)), None


class Lone(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        h = nn.Dense(2 * D)(x)
        return x + nn.Dense(D)(jnp.tanh(h)), None


OPTIONS = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": N}


class Named(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.scan(Block, **OPTIONS)(name="layers")(x, None)[0]


class Unnamed(nn.Module):
    @nn.compact
    def __call__(self, x):
        stack = nn.scan(Lone, variable_axes={"params": 0}, split_rngs={"params": True}, length=N)
        return stack()(x, None)[0]


class Checkpointed(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block, prevent_cse=False)
        return nn.scan(block, **OPTIONS)()(x, None)[0]


class InSetup(nn.Module):
    def setup(self):
        self.layers = nn.scan(Block, **OPTIONS)()

    def __call__(self, x):
        return self.layers(x, None)[0]


class Function(nn.Module):
    """A scan of a function of a module, whose carry has two parts."""

    @nn.compact
    def __call__(self, x):
        def body(module, carry, _):
            x, count = carry
            return (module(x, None)[0], count + 1), None

        return nn.scan(body, **OPTIONS)(Block(), (x, jnp.int32(0)), None)[0][0]


class Unrolled(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(WRITTEN):
            x, _ = Block()(x, None)
        return x


class WrittenOut(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(WRITTEN):
            h = nn.gelu(nn.Dense(2 * D)(x))
            x = x + nn.Dense(D)(h)
        return x


def args():
    return (jax.ShapeDtypeStruct((4, D), jnp.float32),)


def linen(model):
    """A step of a module of linen; its parameters are made from their shapes."""

    def step(x):
        shapes = jax.eval_shape(model.init, jax.random.key(0), x)
        params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.1, leaf.dtype), shapes)
        return jax.grad(lambda params: (model.apply(params, x) ** 2).sum())(params)

    return step


step_named = linen(Named())
step_unnamed = linen(Unnamed())
step_checkpointed = linen(Checkpointed())
step_in_setup = linen(InSetup())
step_function = linen(Function())
step_unrolled = linen(Unrolled())
step_written_out = linen(WrittenOut())


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(D, 2 * D, rngs=rngs), nnx.Linear(2 * D, D, rngs=rngs)

    def __call__(self, x):
        h = self.up(x)
        return x + self.down(jax.nn.gelu(h))


class Stack(nnx.Module):
    def __init__(self, rngs):
        @nnx.split_rngs(splits=N)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return Layer(rngs)

        self.layers = make(rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x, layer):
            return layer(x)

        return forward(x, self.layers)


class StackByCall(Stack):
    def __call__(self, x):
        def forward(x, layer):
            return layer(x)

        return nnx.scan(forward, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)


class Blocks(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([Layer(rngs) for _ in range(WRITTEN)])

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class DroppingWrittenOut(Blocks):
    def __init__(self, rngs):
        super().__init__(rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            h = self.drop(jax.nn.gelu(layer.up(x)))
            x = x + layer.down(h)
        return x


def by_nnx(kind):
    def step(x):
        model = kind(nnx.Rngs(0))
        grads = nnx.grad(lambda model: (model(x) ** 2).sum())(model)
        return grads, nnx.state(model)

    return step


class Dropping(nnx.Module):
    """A layer whose call changes the count of its random numbers."""

    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(D, 2 * D, rngs=rngs), nnx.Linear(2 * D, D, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x, scale=1.0):
        return self.forward(x, scale)

    def forward(self, x, scale, *, deep=True):
        h = self.down(jax.nn.gelu(self.up(x)))
        return x + scale * self.drop(h) if deep else h


def dropped(layer, x, rate, rngs):
    h = layer.down(jax.nn.gelu(layer.up(x)))
    return x + nnx.Dropout(rate)(h, rngs=rngs)


class DroppingBlocks(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([Dropping(rngs) for _ in range(WRITTEN)])
        self.rngs = rngs.fork()

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x, 0.5)
        return x


class DroppingMethods(DroppingBlocks):
    def __call__(self, x):
        for at in range(WRITTEN):
            x = self.layers[at].forward(2 * x, 0.5, deep=True)
        return x


class DroppingFunctions(DroppingBlocks):
    def __call__(self, x):
        for layer in self.layers:
            x = dropped(layer, x + 0, rate=0.1, rngs=self.rngs)
        return x


class Counting(nn.Module):
    """A layer whose call changes its statistics."""

    @nn.compact
    def __call__(self, x, train):
        h = nn.BatchNorm(use_running_average=not train)(nn.Dense(D)(x))
        return x + nn.Dropout(0.1, deterministic=not train)(nn.gelu(h))


class CountingBlocks(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(WRITTEN):
            x = Counting()(x, train=True)
        return x


class CountingInSetup(nn.Module):
    def setup(self):
        self.layers = [Counting() for _ in range(WRITTEN)]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x, True)
        return x


def counting(model):
    """A step of a module of linen whose state changes, too."""

    def step(x):
        keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
        shapes = jax.eval_shape(model.init, keys, x)
        state = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.1, leaf.dtype), shapes)

        def loss(params):
            variables = {**state, "params": params}
            rngs = {"dropout": jax.random.key(2)}
            out, stats = model.apply(variables, x, rngs=rngs, mutable=["batch_stats"])
            return (out**2).sum(), stats

        return jax.value_and_grad(loss, has_aux=True)(state["params"])

    return step


step_counting = counting(CountingBlocks())
step_counting_in_setup = counting(CountingInSetup())
step_nnx_dropping = by_nnx(DroppingBlocks)
step_nnx_dropping_methods = by_nnx(DroppingMethods)
step_nnx_dropping_functions = by_nnx(DroppingFunctions)
step_nnx_scan = by_nnx(Stack)
step_nnx_scan_by_call = by_nnx(StackByCall)
step_nnx_blocks = by_nnx(Blocks)
step_nnx_written_out = by_nnx(DroppingWrittenOut)
