"""A neural ODE by the method of Runge and Kutta, its steps in a scan."""

import jax
import jax.numpy as jnp

STEPS, BATCH, WIDTH = 32, 128, 128


def field(params, y):
    h = jnp.tanh(y @ params["first"])
    return h @ params["second"]


def loss(params, y):
    def body(y, _):
        a = field(params, y)
        b = field(params, y + a / (2 * STEPS))
        c = field(params, y + b / (2 * STEPS))
        d = field(params, y + c / STEPS)
        y += (a + 2 * b + 2 * c + d) / (6 * STEPS)
        return y, None

    y, _ = jax.lax.scan(body, y, None, length=STEPS)
    return jnp.mean(y * y)


def step(params, y):
    return jax.grad(loss)(params, y)


def args():
    square = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
    y = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32)
    return {"first": square, "second": square}, y
