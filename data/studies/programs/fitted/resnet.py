"""A convolutional net: residual blocks in a scan, then the mean of its channels."""

import jax
import jax.numpy as jnp

BLOCKS, BATCH, SIZE, CHANNELS, GROUPS, CLASSES = 4, 4, 16, 32, 4, 10


def conv(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def norm(x, scale):
    b, h, w, c = x.shape
    parts = x.reshape(b, h, w, GROUPS, c // GROUPS)
    mean = jnp.mean(parts, (1, 2, 4), keepdims=True)
    spread = jnp.var(parts, (1, 2, 4), keepdims=True)
    return ((parts - mean) * jax.lax.rsqrt(spread + 1e-5)).reshape(x.shape) * scale


def block(x, p):
    h = jax.nn.relu(norm(x, p["first_scale"]))
    h = conv(h, p["first"])
    h = jax.nn.relu(norm(h, p["second_scale"]))
    return x + conv(h, p["second"]), None


def loss(params, images):
    x = conv(images, params["stem"])
    x, _ = jax.lax.scan(block, x, params["blocks"])
    logits = jnp.mean(x, (1, 2)) @ params["head"]
    return -jnp.mean(jax.nn.log_softmax(logits)[:, 0])


def step(params, images):
    value, grads = jax.value_and_grad(loss)(params, images)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    kernel = shape(BLOCKS, 3, 3, CHANNELS, CHANNELS)
    scale = shape(BLOCKS, CHANNELS)
    blocks = {"first": kernel, "second": kernel, "first_scale": scale, "second_scale": scale}
    params = {"stem": shape(3, 3, 3, CHANNELS), "blocks": blocks, "head": shape(CHANNELS, CLASSES)}
    return params, shape(BATCH, SIZE, SIZE, 3)
