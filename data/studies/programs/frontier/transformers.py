"""Transformers in plain JAX: layers called in a row, in a scan, in a scan of scans, on devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HEAD = 64


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def attention(x, p, is_causal):
    b, t, d = x.shape
    q, k, v = (a.reshape(b, t, -1, HEAD) for a in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / HEAD**0.5
    if is_causal:
        scores = jnp.where(jnp.tri(t, dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(b, t, d) @ p["out"]


def block(x, p, is_causal=True):
    x = x + attention(norm(x, p["first"]), p, is_causal)
    return x + jax.nn.gelu(norm(x, p["second"]) @ p["up"]) @ p["down"]


def score(x, table, targets):
    logs = jax.nn.log_softmax(x @ table.T)
    return -jnp.mean(jnp.take_along_axis(logs, targets[..., None], -1))


# -- layers called in a row: GPT-2 small, and a vision transformer ---------------------------------


def gpt2_loss(params, tokens):
    x = params["embed"][tokens] + params["places"]
    for p in params["layers"]:
        x = block(x, p)
    return score(norm(x, params["scale"]), params["embed"], jnp.roll(tokens, -1, 1))


@jax.jit
def gpt2(params, tokens):
    return jax.value_and_grad(gpt2_loss)(params, tokens)


def vit_loss(params, patches, labels):
    x = patches @ params["embed"] + params["places"]
    for p in params["layers"]:
        x = block(x, p, False)
    return score(jnp.mean(norm(x, params["scale"]), 1), params["head"], labels)


@jax.jit
def vit(params, patches, labels):
    return jax.value_and_grad(vit_loss)(params, patches, labels)


# -- layers in a scan, also in groups --------------------------------------------------------------


def layer(x, p):
    return block(x, p), None


def decoder_loss(params, tokens):
    x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
    return score(norm(x, params["scale"]), params["embed"], jnp.roll(tokens, -1, 1))


@jax.jit
def decoder(params, tokens):
    return jax.value_and_grad(decoder_loss)(params, tokens)


def group(x, ps):
    return jax.lax.scan(layer, x, ps)


def nested_loss(params, tokens):
    x, _ = jax.lax.scan(group, params["embed"][tokens], params["layers"])
    return score(norm(x, params["scale"]), params["embed"], jnp.roll(tokens, -1, 1))


@jax.jit
def nested(params, tokens):
    return jax.value_and_grad(nested_loss)(params, tokens)


# -- arguments -------------------------------------------------------------------------------------


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def ids(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.int32)


def weights(width, *stack):
    """The shapes of a layer, or of a stack of layers."""
    return {
        "qkv": shape(*stack, width, 3 * width),
        "out": shape(*stack, width, width),
        "up": shape(*stack, width, 4 * width),
        "down": shape(*stack, 4 * width, width),
        "first": shape(*stack, width),
        "second": shape(*stack, width),
    }


def gpt2_args(batch=8, length=1024, width=768, layers=12, vocabulary=50257):
    params = {"embed": shape(vocabulary, width), "places": shape(length, width)}
    params |= {"layers": [weights(width)] * layers, "scale": shape(width)}
    return params, ids(batch, length)


def vit_args(batch=128, patches=256, width=384, layers=12, classes=1000):
    params = {"embed": shape(768, width), "places": shape(patches, width)}
    params |= {"layers": [weights(width)] * layers, "scale": shape(width)}
    return params | {"head": shape(classes, width)}, shape(batch, patches, 768), ids(batch)


def decoder_args(batch=8, length=1024, width=1024, stack=(24,), vocabulary=32000):
    params = {"embed": shape(vocabulary, width), "scale": shape(width)}
    return params | {"layers": weights(width, *stack)}, ids(batch, length)


def nested_args(batch=8, length=1024, width=1024, stack=(4, 6), vocabulary=32000):
    return decoder_args(batch, length, width, stack, vocabulary)


def fsdp_args(batch=32, length=1024, width=1024, stack=(24,), vocabulary=32000):
    """Those of a decoder on eight devices: the batch, and of each weight its largest axis."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    params, tokens = decoder_args(batch, length, width, stack, vocabulary)

    def placed(x, at):
        spec = P(*("data" if axis == at else None for axis in range(len(x.shape))))
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    def spread(x, first=0):
        return placed(x, first + int(np.argmax(x.shape[first:])))

    layers = jax.tree.map(lambda x: spread(x, len(stack)), params.pop("layers"))
    return jax.tree.map(spread, params) | {"layers": layers}, placed(tokens, 0)
