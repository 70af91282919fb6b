"""Functions with a derivative of their own, whose residuals are counted by hand."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

N, B, D = 3, 4, 8


@jax.custom_vjp
def gated(x, w):
    return forward(x, w)[0]


def forward(x, w):
    h = jnp.tanh(x @ w)
    gate = checkpoint_name(jax.nn.sigmoid(x), "gate")
    return h * gate, (x, w, h, gate)


def backward(saved, g):
    x, w, h, gate = saved
    inner = g * gate * (1 - h * h)
    return inner @ w.T + g * h * gate * (1 - gate), x.T @ inner


gated.defvjp(forward, backward)


@jax.custom_gradient
def turned(x):
    slope = jnp.cos(x)
    return jnp.sin(x), lambda g: g * slope


def args():
    return jax.ShapeDtypeStruct((N, D, D), jnp.float32), jax.ShapeDtypeStruct((B, D), jnp.float32)


def in_a_row(layer):
    def step(ws, x):
        def loss(ws):
            y = jnp.sin(x)
            for w in ws:
                y = layer(y, w)
            return (y**2).sum()

        return jax.grad(loss)(ws)

    return step


def call(x, w):
    return gated(x, w)


gate_alone = jax.checkpoint_policies.save_only_these_names("gate")
call_checkpointed, call_kept = jax.checkpoint(call), jax.checkpoint(call, policy=gate_alone)
step, step_checkpointed = in_a_row(call), in_a_row(call_checkpointed)


def step_scan(ws, x):
    def body(x, w):
        return gated(x, w), None

    def loss(ws):
        return (jax.lax.scan(body, jnp.sin(x), ws)[0] ** 2).sum()

    return jax.grad(loss)(ws)


def step_mapped(ws, x):
    def loss(ws):
        return (jax.vmap(gated, (None, 0))(jnp.sin(x), ws) ** 2).sum()

    return jax.grad(loss)(ws)


def step_shared(ws, x):
    """Two calls save the same argument."""

    def loss(w):
        y = jnp.cos(x)
        return (gated(y, w) + gated(y, -w)).sum()

    return jax.grad(loss)(jnp.zeros((D, D)))


def step_turned(ws, x):
    return jax.grad(lambda ws: turned(turned(x @ ws)).sum())(ws)


def step_of_a_constant(ws, x):
    """Nothing that is differentiated reaches the call."""
    return jax.grad(lambda ws: (ws * gated(x, x.T @ x).sum()).sum())(ws)
