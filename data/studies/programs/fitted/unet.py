"""A UNet of flax nnx: residual blocks of two widths, and back."""

import jax
import jax.numpy as jnp
from flax import nnx

CHANNELS, SIZE, BATCH = 16, 32, 4


class Residual(nnx.Module):
    def __init__(self, before, after, rngs):
        self.norm = nnx.GroupNorm(before, num_groups=8, rngs=rngs)
        self.first = nnx.Conv(before, after, (3, 3), rngs=rngs)
        self.second = nnx.Conv(after, after, (3, 3), rngs=rngs)
        self.skip = nnx.Conv(before, after, (1, 1), rngs=rngs)

    def __call__(self, x):
        h = self.first(jax.nn.silu(self.norm(x)))
        return self.skip(x) + self.second(jax.nn.silu(h))


class UNet(nnx.Module):
    def __init__(self, rngs):
        c = CHANNELS
        self.first = nnx.Conv(3, c, (3, 3), rngs=rngs)
        self.down = nnx.List([Residual(c, c, rngs), Residual(c, 2 * c, rngs)])
        self.middle = Residual(2 * c, 2 * c, rngs)
        self.up = nnx.List([Residual(4 * c, c, rngs), Residual(2 * c, c, rngs)])
        self.last = nnx.Conv(c, 3, (3, 3), rngs=rngs)

    def __call__(self, x):
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nnx.avg_pool(x, (2, 2), (2, 2))
        x = self.middle(x)
        for block in self.up:
            x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
            x = jnp.concatenate([x, kept.pop()], -1)
            x = block(x)
        return self.last(x)


graph, state = nnx.split(nnx.eval_shape(lambda: UNet(nnx.Rngs(0))))


def step(state, x):
    def loss(state):
        return jnp.mean((nnx.merge(graph, state)(x) - x) ** 2)

    return jax.value_and_grad(loss)(state)


def args():
    return state, jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), jnp.float32)
