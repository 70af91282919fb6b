"""A mixture of experts: each token goes to one, by a product with what is chosen."""

import jax
import jax.numpy as jnp

LAYERS, EXPERTS, WIDTH, TOKENS, CAPACITY = 4, 4, 64, 512, 160


def layer(x, p):
    gates = jax.nn.softmax(x @ p["route"], -1)
    chosen = jax.nn.one_hot(jnp.argmax(gates, -1), EXPERTS)
    place = jnp.cumsum(chosen, 0) * chosen - 1
    sent = chosen[..., None] * jax.nn.one_hot(place.astype(jnp.int32), CAPACITY)
    inputs = jnp.einsum("tec,td->ecd", sent, x)
    up = jnp.einsum("ecd,edf->ecf", inputs, p["up"])
    outputs = jnp.einsum("ecf,efd->ecd", jax.nn.gelu(up), p["down"])
    weighted = sent * gates[..., None]
    return x + jnp.einsum("tec,ecd->td", weighted, outputs), None


def loss(params, x):
    x, _ = jax.lax.scan(layer, x, params)
    return jnp.mean(x * x)


def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    n, e, d = LAYERS, EXPERTS, WIDTH
    params = {
        "route": shape(n, d, e), "up": shape(n, e, d, 4 * d), "down": shape(n, e, 4 * d, d),
    }  # fmt: skip
    return params, shape(TOKENS, d)
