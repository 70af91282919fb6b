"""A scanned transformer with names and a policy, which saves less than it could."""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name

LAYERS, WIDTH, LENGTH, BATCH = 4, 128, 128, 4


def layer(x, p):
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    q, k, v = (name(h @ p[at], at) for at in ("q", "k", "v"))
    probs = name(jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / WIDTH**0.5, -1), "probs")
    x = x + jnp.einsum("bqk,bkd->bqd", probs, v) @ p["o"]
    up = name(x @ p["up"], "up")
    return x + jax.nn.silu(up) @ p["down"], None


saved = jax.checkpoint_policies.save_only_these_names("q", "k")


def loss(params, x):
    body = jax.checkpoint(layer, policy=saved, prevent_cse=False)
    x, _ = jax.lax.scan(body, x, params)
    return jnp.mean(x * x)


def step(params, x):
    return jax.value_and_grad(loss)(params, x)


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    d = WIDTH
    params = {at: shape(LAYERS, d, d) for at in ("q", "k", "v", "o")}
    params |= {"up": shape(LAYERS, d, 4 * d), "down": shape(LAYERS, 4 * d, d)}
    return params, shape(BATCH, LENGTH, d)
