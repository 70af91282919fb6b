"""A program of equinox: blocks called one after another, which hold functions next to arrays."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

N, D = 4, 8


class Block(eqx.Module):
    up: jax.Array
    down: jax.Array
    act: Callable

    def __call__(self, x):
        return x + self.act(x @ self.up) @ self.down


class Net(eqx.Module):
    blocks: list

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def step(arrays, x):
    def loss(arrays, x):
        net = Net([Block(up, down, jnp.tanh) for up, down in arrays])
        return (net(x) ** 2).sum()

    return jax.grad(loss)(arrays, x)


def args():
    one = jax.ShapeDtypeStruct((D, D), jnp.float32)
    return [(one, one)] * N, jax.ShapeDtypeStruct((16, D), jnp.float32)
