"""The networks that MONeT (Shah et al., ICLR 2021) was measured on, in plain JAX.

Sizes are those of its paper: images of 224 x 224, of U-Net 416 x 608; f32, no optimizer. Batch
normalization is that of training; GoogleNet has no auxiliary heads, VGG-16 no dropout.
"""

import jax
import jax.numpy as jnp

CLASSES = 1000


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def kernel(size, before, after, groups=1):
    """The shapes of a convolution and its normalization."""
    return {
        "kernel": shape(size, size, before // groups, after),
        "scale": shape(after),
        "shift": shape(after),
    }


def convolved(x, p, stride=1, groups=1):
    return jax.lax.conv_general_dilated(
        x,
        p["kernel"],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def normed(x, p):
    mean, spread = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5) * p["scale"] + p["shift"]


def conv(x, p, stride=1, groups=1):
    return normed(convolved(x, p, stride, groups), p)


def pooled(x, size=3, stride=2):
    steps = (1, stride, stride, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), steps, "SAME")


def error(logits, labels):
    logs = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logs, labels[..., None], -1))


def pictures(batch, size):
    return shape(batch, size, size, 3), jax.ShapeDtypeStruct((batch,), jnp.int32)


# -- ResNet-50 -------------------------------------------------------------------------------------

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def bottleneck(x, p, stride):
    h = jax.nn.relu(conv(x, p["first"]))
    h = jax.nn.relu(conv(h, p["middle"], stride))
    h = conv(h, p["last"])
    return jax.nn.relu(h + (conv(x, p["skip"], stride) if "skip" in p else x))


def resnet_strides():
    return [2 if at == 0 and width > 64 else 1 for width, count in STAGES for at in range(count)]


def resnet_loss(params, images, labels):
    x = pooled(jax.nn.relu(conv(images, params["stem"], 2)))
    for p, stride in zip(params["blocks"], resnet_strides(), strict=True):
        x = bottleneck(x, p, stride)
    return error(jnp.mean(x, (1, 2)) @ params["head"], labels)


@jax.jit
def resnet50(params, images, labels):
    return jax.value_and_grad(resnet_loss)(params, images, labels)


def resnet50_args(batch=184, size=224):
    blocks, before = [], 64
    for width, count in STAGES:
        for at in range(count):
            block = {
                "first": kernel(1, before, width),
                "middle": kernel(3, width, width),
                "last": kernel(1, width, 4 * width),
            }
            if at == 0:
                block["skip"] = kernel(1, before, 4 * width)
            blocks.append(block)
            before = 4 * width
    params = {"stem": kernel(7, 3, 64), "blocks": blocks, "head": shape(before, CLASSES)}
    return params, *pictures(batch, size)


# -- GoogleNet -------------------------------------------------------------------------------------

INCEPTIONS = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
"""Channels of the branches of each block."""
BEFORE_POOLS = (1, 6)
"""Blocks with a pooling after them."""


def inception(x, p):
    one = jax.nn.relu(conv(x, p["one"]))
    three = jax.nn.relu(conv(jax.nn.relu(conv(x, p["to_three"])), p["three"]))
    five = jax.nn.relu(conv(jax.nn.relu(conv(x, p["to_five"])), p["five"]))
    pool = jax.nn.relu(conv(pooled(x, 3, 1), p["pool"]))
    return jnp.concatenate([one, three, five, pool], -1)


def googlenet_loss(params, images, labels):
    x = pooled(jax.nn.relu(conv(images, params["stem"], 2)))
    x = jax.nn.relu(conv(x, params["second"]))
    x = pooled(jax.nn.relu(conv(x, params["third"])))
    for at, p in enumerate(params["blocks"]):
        x = inception(x, p)
        if at in BEFORE_POOLS:
            x = pooled(x)
    return error(jnp.mean(x, (1, 2)) @ params["head"], labels)


@jax.jit
def googlenet(params, images, labels):
    return jax.value_and_grad(googlenet_loss)(params, images, labels)


def googlenet_args(batch=320, size=224):
    blocks, before = [], 192
    for channels in INCEPTIONS:
        one, to_three, three, to_five, five, pool = channels
        blocks.append(
            {
                "one": kernel(1, before, one),
                "to_three": kernel(1, before, to_three),
                "three": kernel(3, to_three, three),
                "to_five": kernel(1, before, to_five),
                "five": kernel(3, to_five, five),
                "pool": kernel(1, before, pool),
            }
        )
        before = one + three + five + pool
    stem = {"stem": kernel(7, 3, 64), "second": kernel(1, 64, 64), "third": kernel(3, 64, 192)}
    return stem | {"blocks": blocks, "head": shape(before, CLASSES)}, *pictures(batch, size)


# -- MobileNet-V2 ----------------------------------------------------------------------------------

INVERTED = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, blocks and the first one's stride, of each stage."""


def inverted(x, p, stride):
    h = jax.nn.relu6(conv(x, p["up"])) if "up" in p else x
    h = jax.nn.relu6(conv(h, p["depth"], stride, h.shape[-1]))
    h = conv(h, p["down"])
    return x + h if x.shape == h.shape else h


def mobilenet_strides():
    return [stride if at == 0 else 1 for *_, count, stride in INVERTED for at in range(count)]


def mobilenet_loss(params, images, labels):
    x = jax.nn.relu6(conv(images, params["stem"], 2))
    for p, stride in zip(params["blocks"], mobilenet_strides(), strict=True):
        x = inverted(x, p, stride)
    x = jax.nn.relu6(conv(x, params["last"]))
    return error(jnp.mean(x, (1, 2)) @ params["head"], labels)


@jax.jit
def mobilenet(params, images, labels):
    return jax.value_and_grad(mobilenet_loss)(params, images, labels)


def mobilenet_args(batch=272, size=224):
    blocks, before = [], 32
    for expansion, after, count, _ in INVERTED:
        for _ in range(count):
            width = expansion * before
            up = {"up": kernel(1, before, width)} if expansion > 1 else {}
            depth = kernel(3, width, width, groups=width)
            blocks.append(up | {"depth": depth, "down": kernel(1, width, after)})
            before = after
    params = {"stem": kernel(3, 3, 32), "blocks": blocks, "last": kernel(1, before, 1280)}
    return params | {"head": shape(1280, CLASSES)}, *pictures(batch, size)


# -- VGG-16 ----------------------------------------------------------------------------------------

WIDTHS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
"""Channels of the convolutions."""
LAST = (1, 3, 6, 9, 12)
"""Those with a pooling after them."""


def filtered(x, p):
    return jax.nn.relu(convolved(x, p) + p["shift"])


def vgg_loss(params, images, labels):
    x = images
    for at, p in enumerate(params["layers"]):
        x = filtered(x, p)
        if at in LAST:
            x = pooled(x, 2)
    x = x.reshape(x.shape[0], -1)
    for weights in params["hidden"]:
        x = jax.nn.relu(x @ weights)
    return error(x @ params["head"], labels)


@jax.jit
def vgg16(params, images, labels):
    return jax.value_and_grad(vgg_loss)(params, images, labels)


def vgg16_args(batch=176, size=224):
    layers, before = [], 3
    for width in WIDTHS:
        layers.append({"kernel": shape(3, 3, before, width), "shift": shape(width)})
        before = width
    hidden = [shape(512 * (size // 32) ** 2, 4096), shape(4096, 4096)]
    params = {"layers": layers, "hidden": hidden, "head": shape(4096, CLASSES)}
    return params, *pictures(batch, size)


# -- U-Net -----------------------------------------------------------------------------------------


def double(x, p):
    return jax.nn.relu(conv(jax.nn.relu(conv(x, p["first"])), p["second"]))


def unet_loss(params, images, masks):
    x, kept = double(images, params["stem"]), []
    for p in params["down"]:
        kept.append(x)
        x = double(pooled(x, 2), p)
    for p in params["up"]:
        b, h, w, c = x.shape
        x = jax.image.resize(x, (b, 2 * h, 2 * w, c), "bilinear")
        x = double(jnp.concatenate([kept.pop(), x], -1), p)
    return jnp.mean((x @ params["head"] - masks) ** 2)


@jax.jit
def unet(params, images, masks):
    return jax.value_and_grad(unet_loss)(params, images, masks)


def unet_args(batch=11, height=416, width=608):
    def block(before, after, between=None):
        between = between or after
        return {"first": kernel(3, before, between), "second": kernel(3, between, after)}

    params = {
        "stem": block(3, 64),
        "down": [block(64, 128), block(128, 256), block(256, 512), block(512, 512)],
        "up": [block(1024, 256, 512), block(512, 128, 256), block(256, 64, 128), block(128, 64)],
        "head": shape(64, 1),
    }
    return params, shape(batch, height, width, 3), shape(batch, height, width, 1)
