"""Small scans whose carry has several parts, or whose body is written in another way."""

import jax
import jax.numpy as jnp

N, D = 4, 8


def args():
    return jax.ShapeDtypeStruct((N, D, D), jnp.float32), jax.ShapeDtypeStruct((D, D), jnp.float32)


def wide(x, w):
    return x + jnp.tanh(x @ w)


def gradient(body, ws, carry):
    def loss(ws):
        out, _ = jax.lax.scan(body, carry, ws)
        return (jax.tree.leaves(out)[0] ** 2).sum()

    return jax.grad(loss)(ws)


def counted(c, w):
    """A carry with a number that is no float."""
    x, count = c
    return (wide(x, w) * (1 + count * 0), count + 1), None


def step_counted(ws, x):
    return gradient(counted, ws, (x, jnp.int32(0)))


def drawn(c, w):
    x, key = c
    key, own = jax.random.split(key)
    return (wide(x, w) * jax.random.bernoulli(own, 0.9, x.shape), key), None


def step_drawn(ws, x):
    return gradient(drawn, ws, (x, jax.random.key(0)))


@jax.checkpoint
def checkpointed(h, w):
    return wide(h, w), None


def step_checkpointed(ws, x):
    def loss(ws):
        return (jax.lax.scan(checkpointed, x, ws)[0] ** 2).sum()

    return jax.grad(loss)(ws)


def step_reversed(ws, x):
    def body(x, w):
        return wide(x, w), None

    def loss(ws):
        return (jax.lax.scan(body, x, ws, reverse=True)[0] ** 2).sum()

    return jax.grad(loss)(ws)


def step_lambda(ws, x):
    return gradient(lambda x, w: (wide(x, w), None), ws, x)


# fmt: off
def one_line(x, w): return wide(x, w), None
# fmt: on


def step_one_line(ws, x):
    return gradient(one_line, ws, x)


def step_two_reads(ws, x):
    return gradient(lambda x, w: (x + jnp.tanh(x @ w), None), ws, x)


def step_two_lambdas(ws, x):
    return gradient(lambda x, w: (wide(x, w), None), jax.tree.map(lambda w: 2 * w, ws), x)


def step_repeated(ws, x):
    return gradient(lambda x, w: (sum(wide(x, w + i) for i in range(2)), None), ws, x)


def as_many_rows_as_layers(ws, x):
    return jax.lax.scan(lambda x, w: (wide(x, w), x), x[:N], ws)
