"""Messages along the edges of a graph, layers in a scan."""

import jax
import jax.numpy as jnp

LAYERS, NODES, EDGES, WIDTH, KINDS = 4, 256, 1024, 64, 8


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def loss(params, nodes, sources, targets):
    def layer(x, p):
        h = norm(x)
        pairs = h[sources] @ p["source"] + h[targets] @ p["target"]
        messages = jax.nn.silu(pairs)
        scores = jnp.exp(jnp.tanh(messages @ p["score"]))
        sums = jax.ops.segment_sum(scores * messages, targets, NODES)
        total = jax.ops.segment_sum(scores, targets, NODES)
        update = jnp.tanh((sums / (total + 1e-6)) @ p["update"])
        gate = jax.nn.sigmoid(h @ p["gate"])
        return x + gate * update, None

    x, _ = jax.lax.scan(layer, nodes, params["layers"])
    return -jnp.mean(jax.nn.log_softmax(x @ params["head"])[:, 0])


def step(params, nodes, sources, targets):
    value, grads = jax.value_and_grad(loss)(params, nodes, sources, targets)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    d = WIDTH
    layers = {at: shape(LAYERS, d, d) for at in ("source", "target", "update", "gate")}
    edges = jax.ShapeDtypeStruct((EDGES,), jnp.int32)
    return (
        {"layers": layers | {"score": shape(LAYERS, d, 1)}, "head": shape(d, KINDS)},
        shape(NODES, d),
        edges,
        edges,
    )
