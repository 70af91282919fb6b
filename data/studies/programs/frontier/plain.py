"""Layers without attention or convolutions: in a scan, and called in a row."""

import jax
import jax.numpy as jnp


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def layer(x, w):
    h = jax.nn.gelu(x @ w["up"])
    return x + h @ w["down"], None


def carry(ws, x):
    """The gradient through a scan whose carry is most of what is saved without `up`."""

    def loss(ws):
        return jnp.mean(jax.lax.scan(layer, x, ws)[0].astype(jnp.float32) ** 2)

    return jax.grad(loss)(ws)


def carry_args(batch=32768, layers=24, width=512):
    kind = {"dtype": jnp.bfloat16}
    up, down = (layers, width, 4 * width), (layers, 4 * width, width)
    return {"up": shape(*up, **kind), "down": shape(*down, **kind)}, shape(batch, width, **kind)


def block(p, x):
    h = jax.nn.gelu(x @ p["first"])
    h = jnp.tanh(h @ p["middle"])
    return x + h @ p["last"]


def half(ps, x):
    """The gradient through eight equal blocks."""

    def loss(ps):
        y = x
        for p in ps:
            y = block(p, y)
        return jnp.mean(y * y)

    return jax.grad(loss)(ps)


def half_args(batch=16384, layers=8, width=256):
    one = {"first": shape(width, 4 * width), "middle": shape(4 * width, 4 * width)}
    return [one | {"last": shape(4 * width, width)}] * layers, shape(batch, width)
