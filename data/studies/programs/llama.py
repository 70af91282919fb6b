"""A training step of the shape of Llama 3 8B in plain JAX, its layers in a scan: shapes alone.

bufdb fit data/studies/programs/llama.py:step --args 'args()' --limit 60GiB --target gpu:h100
"""

import jax
import jax.numpy as jnp

LAYERS, WIDTH, HIDDEN, HEADS, GROUPS, VOCABULARY = 32, 4096, 14336, 32, 8, 128256
SIZE = WIDTH // HEADS
LENGTH = 8192


def norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-5)).astype(
        x.dtype
    ) * scale


def rotated(x):
    angles = jnp.outer(jnp.arange(x.shape[1]), 5e5 ** -jnp.linspace(0, 1, SIZE // 2))
    sine, cosine = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return jnp.concatenate(turned, -1).astype(x.dtype)


def attend(q, k, v):
    """Attention of groups of heads to one key each, for one head of a group after another."""
    length = q.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))

    @jax.checkpoint
    def one(_, head):
        scores = jnp.einsum("bqgd,bkgd->bgqk", head, k) / SIZE**0.5
        probs = jax.nn.softmax(jnp.where(mask, scores, -1e9).astype(jnp.float32), -1)
        return _, jnp.einsum("bgqk,bkgd->bqgd", probs.astype(v.dtype), v)

    heads = q.reshape(*q.shape[:2], GROUPS, HEADS // GROUPS, SIZE)
    _, mixed = jax.lax.scan(one, None, jnp.moveaxis(heads, 3, 0))
    return jnp.moveaxis(mixed, 0, 3).reshape(*q.shape[:2], WIDTH)


def layer(x, p):
    batch, length, _ = x.shape
    h = norm(x, p["before_attention"])
    q = rotated((h @ p["q"]).reshape(batch, length, HEADS, SIZE))
    k = rotated((h @ p["k"]).reshape(batch, length, GROUPS, SIZE))
    v = (h @ p["v"]).reshape(batch, length, GROUPS, SIZE)
    x = x + attend(q, k, v) @ p["out"]
    h = norm(x, p["before_hidden"])
    gate = jax.nn.silu(h @ p["gate"])
    return x + (gate * (h @ p["up"])) @ p["down"], None


def loss(params, tokens):
    x, _ = jax.lax.scan(layer, params["embed"][tokens[:, :-1]], params["layers"])
    logits = norm(x, params["after"]) @ params["head"]
    log = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(log, tokens[:, 1:, None], -1))


@jax.jit
def step(params, tokens):
    gradient = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - 1e-4 * g, params, gradient)


def args(batch=1, length=LENGTH, layers=LAYERS):
    def shape(*sizes):
        return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)

    matrices = {
        "q": (WIDTH, WIDTH), "k": (WIDTH, GROUPS * SIZE), "v": (WIDTH, GROUPS * SIZE),
        "out": (WIDTH, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH), "before_attention": (WIDTH,), "before_hidden": (WIDTH,),
    }  # fmt: skip
    params = {
        "layers": {name: shape(layers, *sizes) for name, sizes in matrices.items()},
        "embed": shape(VOCABULARY, WIDTH), "head": shape(WIDTH, VOCABULARY), "after": shape(WIDTH),
    }  # fmt: skip
    return params, jax.ShapeDtypeStruct((batch, length + 1), jnp.int32)
