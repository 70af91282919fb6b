"""Small programs that `bufdb fit` takes: forms of scans, calls, checkpoints and gradients.

Each has few equations, so that products can be counted by hand: n is 4 layers, d is 8.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

N, D = 4, 8
PRODUCT = 2 * D**3
"""Operations of x @ w, both [d, d]."""


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    return {"w": shape(N, D, D), "v": shape(N, D, D)}, shape(D, D)


def layer(x, p):
    h = x @ p["w"]
    g = jnp.tanh(h)
    return x + g @ p["v"], None


def scanned(params, x):
    out, _ = jax.lax.scan(layer, x, params)
    return (out**2).sum()


def step(params, x):
    grads = jax.grad(scanned)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def cast(params, x):
    def body(x, p):
        wide = x.astype(jnp.float32)
        return x + (jnp.tanh(wide) @ p["w"]).astype(x.dtype), None

    return jax.lax.scan(body, x.astype(jnp.bfloat16), params)[0].astype(jnp.float32).sum()


def step_cast(params, x):
    return jax.grad(cast)(params, x)


def checkpointed(params, x):
    body = jax.checkpoint(layer, prevent_cse=False)
    return (jax.lax.scan(body, x, params)[0] ** 2).sum()


def step_checkpointed(params, x):
    return jax.grad(checkpointed)(params, x)


def named_layer(x, p):
    h = checkpoint_name(x @ p["w"], "hidden")
    return x + jnp.tanh(h) @ p["v"], None


def named(params, x):
    policy = jax.checkpoint_policies.save_only_these_names("hidden")
    body = jax.checkpoint(named_layer, policy=policy, prevent_cse=False)
    return (jax.lax.scan(body, x, params)[0] ** 2).sum()


def step_named(params, x):
    return jax.grad(named)(params, x)


@jax.jit
def inner(x, w):
    h = x @ w
    return jnp.sin(h)


def with_jit(params, x):
    def body(x, p):
        y = inner(x, p["w"])
        return y + x @ p["v"], None

    return jax.lax.scan(body, x, params)[0].sum()


def step_jit(params, x):
    return jax.grad(with_jit)(params, x)


@partial(jax.jit, donate_argnums=(0,))
def step_jitted(params, x):
    value, grads = jax.value_and_grad(scanned)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def block(x, p):
    return x + jnp.tanh(x @ p["w"]) @ p["v"]


def unrolled(params, x):
    for at in range(N):
        x = block(x, jax.tree.map(lambda leaf, at=at: leaf[at], params))
    return (x**2).sum()


def step_unrolled(params, x):
    return jax.grad(unrolled)(params, x)


@jax.custom_vjp
def gated(x):
    return jnp.tanh(x @ x)


def gated_forward(x):
    y = jnp.tanh(x @ x)
    return y, (x, y)


def gated_backward(saved, g):
    x, y = saved
    d = g * (1 - y * y)
    return (d @ x.T + x.T @ d,)


gated.defvjp(gated_forward, gated_backward)


def with_custom(params, x):
    def body(x, p):
        h = x @ p["w"]
        return gated(h) @ p["v"], None

    return jax.lax.scan(body, x, params)[0].sum()


def step_custom(params, x):
    return jax.grad(with_custom)(params, x)


def stack(ws, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


def halved(ws, x):
    return jax.lax.scan(lambda x, w: (x @ w / 2, x), x, ws)


@jax.custom_vjp
def closed(ws, x):
    return halved(ws, x)[0]


def closed_backward(saved, g):
    ws, xs = saved
    g, grads = jax.lax.scan(
        lambda g, one: (g @ one[0].T / 2, one[1].T @ g / 2), g, (ws, xs), reverse=True
    )
    return grads, g


def closed_forward(ws, x):
    x, xs = halved(ws, x)
    return x, (ws, xs)


closed.defvjp(closed_forward, closed_backward)


@jax.custom_vjp
def again(ws, x):
    return stack(ws, x)


again.defvjp(
    lambda ws, x: (stack(ws, x), (ws, x)),
    lambda saved, g: jax.vjp(stack, *saved)[1](g),
)


def backwards(params, x):
    def body(x, p):
        y, _ = jax.lax.scan(lambda y, _: (jnp.tanh(y @ p["w"]), None), x, None, 3, reverse=True)
        return y @ p["v"], None

    return jax.lax.scan(body, x, params, reverse=True)[0].sum()


def step_backwards(params, x):
    return jax.grad(backwards)(params, x)


def step_closed(params, x):
    return jax.grad(lambda p: closed(p["w"], stack(p["v"], x)).sum())(params)


def step_again(params, x):
    return jax.grad(lambda p: again(p["w"], x).sum())(params)


def with_cond(params, x):
    def body(x, p):
        h = jax.lax.cond(x.sum() > 0, lambda: jnp.sin(x @ p["w"]), lambda: x)
        return h @ p["v"], None

    return jax.lax.scan(body, x, params)[0].sum()


def step_cond(params, x):
    return jax.grad(with_cond)(params, x)


def nested(params, x):
    def body(x, p):
        y, _ = jax.lax.scan(lambda y, _: (jnp.tanh(y @ p["w"]), None), x, None, length=3)
        return y @ p["v"], None

    return jax.lax.scan(body, x, params)[0].sum()


def step_nested(params, x):
    return jax.grad(nested)(params, x)


def headed(params, x):
    def body(x, p):
        heads = jnp.stack([x, 2 * x])
        _, ys = jax.lax.scan(lambda _, h: (None, jnp.tanh(h @ p["w"])), None, heads)
        mixed = ys.sum(0)
        return mixed @ p["v"], None

    return jax.lax.scan(body, x, params)[0].sum()


def step_headed(params, x):
    return jax.grad(headed)(params, x)


def step_accumulated(params, x):
    def body(total, part):
        return jax.tree.map(jnp.add, total, jax.grad(scanned)(params, part)), None

    zero = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(body, zero, jnp.stack([x, x + 1, x + 2]))[0]


def step_vmapped(params, x):
    grads = jax.vmap(jax.grad(scanned), in_axes=(None, 0))(params, jnp.stack([x, x + 1, x + 2]))
    return jax.tree.map(lambda g: g.clip(-1, 1).mean(0), grads)


def step_with_aux(params, x):
    def loss(params, x):
        value = scanned(params, x)
        return value, {"value": value, "note": "no array"}

    (value, aux), grads = jax.value_and_grad(loss, has_aux=True)(params, x)
    return grads, value, aux["value"]


def forward_only(params, x):
    return scanned(params, x)


def walked(x):
    return jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ c, x)
