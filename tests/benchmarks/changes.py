"""Train steps of which one array is given up, for `recompile.py`.

Each named array stands on the line of its name: `drop` leaves the name out of the checkpoint
policy, so that it is computed again; `half` keeps it in bfloat16. Nothing is executed.
"""

import sys

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

HALVED: set[str] = set()


def kept(value, name):
    dtype = jnp.bfloat16 if name in HALVED else jnp.float32
    return checkpoint_name(value.astype(dtype), name).astype(jnp.float32)


def mlp(x, w):
    a = kept(x @ w["a"], "a")
    b = kept(jnp.sin(a), "b")
    c = kept(b @ w["b"], "c")
    d = kept(jnp.tanh(c), "d")
    return kept(x + jnp.cos(d @ w["c"]), "x")


def attention(x, w):
    y = kept(x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5), "y")
    q = kept(jnp.einsum("btd,dhk->bhtk", y, w["q"]), "q")
    k = kept(jnp.einsum("btd,dhk->bhtk", y, w["k"]), "k")
    v = kept(jnp.einsum("btd,dhk->bhtk", y, w["v"]), "v")
    p = kept(jax.nn.softmax(jnp.einsum("bhtk,bhsk->bhts", q, k) / 5.0, axis=-1), "p")
    o = kept(jnp.einsum("bhts,bhsk->bthk", p, v), "o")
    z = kept(x + jnp.einsum("bthk,hkd->btd", o, w["o"]), "z")
    u = kept(z @ w["up"], "u")
    h = kept(jax.nn.gelu(u), "h")
    return kept(z + h @ w["down"], "x")


def scanned(layer, w, x):
    return lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]


def unrolled(layer, w, x):
    for number in range(jax.tree.leaves(w)[0].shape[0]):
        x = layer(x, jax.tree.map(lambda leaf, number=number: leaf[number], w))
    return x


def shapes(**sizes):
    return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}


MLP = (mlp, "abcdx", shapes(a=(8, 72, 96), b=(8, 96, 160), c=(8, 160, 72)),
       shapes(x=(512, 72))["x"])  # fmt: skip
ATTENTION = (attention, "yqkvpozuhx",
             shapes(q=(6, 96, 4, 24), k=(6, 96, 4, 24), v=(6, 96, 4, 24), o=(6, 4, 24, 96),
                    up=(6, 96, 352), down=(6, 352, 96)), shapes(x=(2, 130, 96))["x"])  # fmt: skip
PROGRAMS = {
    "mlp_scan": (scanned, *MLP),
    "attention_scan": (scanned, *ATTENTION),
    "mlp_unrolled": (unrolled, *MLP),
    "attention_unrolled": (unrolled, *ATTENTION),
}


def compile_one(program, change, name):
    """Compile a program without a change ("base"), or with one."""
    layers, layer, names, weights, batch = PROGRAMS[program]
    if change == "half":
        HALVED.add(name)
    saved = [other for other in names if (change, other) != ("drop", name)]
    policy = jax.checkpoint_policies.save_only_these_names(*saved)

    def loss(w, x):
        return jnp.mean(jnp.square(layers(jax.checkpoint(layer, policy=policy), w, x)))

    def step(w, x):
        return jax.tree.map(lambda old, slope: old - 0.1 * slope, w, jax.grad(loss)(w, x))

    jax.jit(step).lower(weights, batch).compile()


if __name__ == "__main__":
    compile_one(*sys.argv[1:])
