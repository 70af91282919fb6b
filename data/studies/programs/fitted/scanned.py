"""A transformer in plain JAX, its layers in a scan."""

import jax
import jax.numpy as jnp

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY = 4, 128, 4, 128, 4, 512


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(x, p):
    b, t, d = x.shape
    q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
    q, k, v = (a.reshape(b, t, HEADS, d // HEADS) for a in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // HEADS) ** 0.5
    probs = jax.nn.softmax(scores, -1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(b, t, d)
    x = x + mixed @ p["out"]
    up = norm(x) @ p["up"]
    return x + jax.nn.gelu(up) @ p["down"], None


def loss(params, tokens):
    x = params["embed"][tokens]
    x, _ = jax.lax.scan(layer, x, params["layers"])
    logits = norm(x) @ params["embed"].T
    return -jnp.mean(jax.nn.log_softmax(logits)[..., 0])


def step(params, tokens):
    value, grads = jax.value_and_grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    d = WIDTH
    layers = {
        "qkv": shape(LAYERS, d, 3 * d), "out": shape(LAYERS, d, d),
        "up": shape(LAYERS, d, 4 * d), "down": shape(LAYERS, 4 * d, d),
    }  # fmt: skip
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    return {"embed": shape(VOCABULARY, d), "layers": layers}, tokens
