"""Layers of flax nnx, made by nnx.vmap and run by nnx.scan."""

import jax
import jax.numpy as jnp
from flax import nnx

LAYERS, WIDTH, LENGTH, BATCH = 4, 128, 128, 4


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.gate = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        h = self.norm(x)
        up = self.up(h)
        gate = jax.nn.silu(self.gate(h))
        return x + self.down(up * gate)


class Stack(nnx.Module):
    def __init__(self, rngs):
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return Layer(rngs)

        self.layers = make(rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x, layer):
            return layer(x)

        return forward(x, self.layers)


graph, state = nnx.split(nnx.eval_shape(lambda: Stack(nnx.Rngs(0))))


def step(state, x):
    def loss(state):
        return jnp.mean(nnx.merge(graph, state)(x) ** 2)

    return jax.value_and_grad(loss)(state)


def args():
    return state, jax.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), jnp.float32)
