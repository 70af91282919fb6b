"""Gated linear recurrences over a sequence, a scan of time within a scan of layers."""

import jax
import jax.numpy as jnp

LAYERS, LENGTH, BATCH, WIDTH, STATES = 4, 48, 8, 64, 96


def recurrence(decay, inputs):
    def tick(state, u):
        state = decay * state + u
        return state, state

    _, states = jax.lax.scan(tick, jnp.zeros_like(inputs[0]), inputs)
    return states


def layer(x, p):
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    decay = jax.nn.sigmoid(p["decay"])
    inputs = (1 - decay) * (h @ p["in"])
    states = recurrence(decay, inputs)
    gate = jax.nn.silu(h @ p["gate"])
    return x + (gate * states) @ p["out"], None


def loss(params, x):
    x, _ = jax.lax.scan(layer, x, params)
    return jnp.mean(x * x)


def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    params = {
        "decay": shape(LAYERS, STATES), "in": shape(LAYERS, WIDTH, STATES),
        "gate": shape(LAYERS, WIDTH, STATES), "out": shape(LAYERS, STATES, WIDTH),
    }  # fmt: skip
    return params, shape(LENGTH, BATCH, WIDTH)
