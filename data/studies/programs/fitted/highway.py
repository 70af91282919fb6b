"""Highway layers of convolutions over a sequence, dilated twice in each, layers in a scan."""

import jax
import jax.numpy as jnp

LAYERS, BATCH, LENGTH, WIDTH = 4, 8, 96, 48


def conv(x, kernel, dilation):
    """Causal: an output sees nothing later."""
    pad = dilation * (kernel.shape[0] - 1)
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1,),
        ((pad, 0),),
        rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )


def layer(x, p):
    near = conv(x, p["near"], 1)
    far = conv(jnp.tanh(near), p["far"], 8)
    carry = jax.nn.sigmoid(x @ p["carry"])
    mixed = jnp.tanh(far) * jax.nn.sigmoid(near @ p["gate"])
    return carry * x + (1 - carry) * (mixed @ p["out"]), None


def loss(params, x):
    y, _ = jax.lax.scan(layer, x, params)
    return jnp.mean((y[:, :-1] - x[:, 1:]) ** 2)


def step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    params = {at: shape(LAYERS, WIDTH, WIDTH) for at in ("carry", "gate", "out")}
    params |= {at: shape(LAYERS, 3, WIDTH, WIDTH) for at in ("near", "far")}
    return params, shape(BATCH, LENGTH, WIDTH)
