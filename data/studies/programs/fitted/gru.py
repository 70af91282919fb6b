"""A GRU over a sequence."""

import jax
import jax.numpy as jnp

LENGTH, BATCH, WIDTH = 64, 64, 128


def cell(params, h, x):
    reset = jax.nn.sigmoid(x @ params["wr"] + h @ params["ur"])
    update = jax.nn.sigmoid(x @ params["wz"] + h @ params["uz"])
    new = jnp.tanh(x @ params["wn"] + (reset * h) @ params["un"])
    return (1 - update) * new + update * h


def loss(params, xs):
    def body(h, x):
        h = cell(params, h, x)
        return h, h

    _, hs = jax.lax.scan(body, jnp.zeros((BATCH, WIDTH)), xs)
    return jnp.mean((hs @ params["out"]) ** 2)


def step(params, xs):
    value, grads = jax.value_and_grad(loss)(params, xs)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def args():
    square = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    names = ("wr", "ur", "wz", "uz", "wn", "un", "out")
    return dict.fromkeys(names, square), jax.ShapeDtypeStruct((LENGTH, BATCH, WIDTH), jnp.float32)
