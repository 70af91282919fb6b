"""The transformer with its layers one after another, and a jit that donates nothing."""

import jax
import jax.numpy as jnp

LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY = 4, 128, 4, 256, 8, 512


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def attention(x, p):
    b, t, d = x.shape
    q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
    q, k, v = (a.reshape(b, t, HEADS, d // HEADS) for a in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // HEADS) ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
    return mixed.reshape(b, t, d) @ p["out"]


def feed_forward(x, p):
    return jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def block(x, p):
    x = x + attention(x, p)
    return x + feed_forward(x, p)


def loss(params, tokens):
    x = params["embed"][tokens]
    for p in params["layers"]:
        x = block(x, p)
    return -jnp.mean(jax.nn.log_softmax(norm(x) @ params["embed"].T)[..., 0])


@jax.jit
def step(params, tokens):
    grads = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    d = WIDTH
    one = {
        "qkv": shape(d, 3 * d),
        "out": shape(d, d),
        "up": shape(d, 4 * d),
        "down": shape(4 * d, d),
    }
    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    return {"embed": shape(VOCABULARY, d), "layers": [one] * LAYERS}, tokens
