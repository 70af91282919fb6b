"""An MLP-mixer: products over patches, then over channels, layers in a scan."""

import jax
import jax.numpy as jnp

LAYERS, BATCH, PATCHES, WIDTH = 4, 16, 64, 64


def norm(x):
    centered = x - jnp.mean(x, -1, keepdims=True)
    return centered * jax.lax.rsqrt(jnp.mean(centered * centered, -1, keepdims=True) + 1e-6)


def layer(x, p):
    across = jnp.einsum("bpc,pq->bqc", norm(x), p["patch_up"])
    x = x + jnp.einsum("bqc,qp->bpc", jax.nn.gelu(across), p["patch_down"])
    within = norm(x) @ p["channel_up"]
    return x + jax.nn.gelu(within) @ p["channel_down"], None


def loss(params, patches):
    x, _ = jax.lax.scan(layer, patches @ params["embed"], params["layers"])
    return jnp.mean((jnp.mean(x, 1) @ params["head"]) ** 2)


def step(params, patches):
    value, grads = jax.value_and_grad(loss)(params, patches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    layers = {
        "patch_up": shape(LAYERS, PATCHES, 2 * PATCHES),
        "patch_down": shape(LAYERS, 2 * PATCHES, PATCHES),
        "channel_up": shape(LAYERS, WIDTH, 4 * WIDTH),
        "channel_down": shape(LAYERS, 4 * WIDTH, WIDTH),
    }
    params = {"embed": shape(48, WIDTH), "layers": layers, "head": shape(WIDTH, 10)}
    return params, shape(BATCH, PATCHES, 48)
