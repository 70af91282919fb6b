"""Networks that are neither a decoder nor a UNet: convolutions, recurrent, mixed precision, MLP."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax
from programs.program import HALF, Change, Program, on

F32, BF16 = jnp.float32, jnp.bfloat16


def shape(*sizes, dtype=F32):
    return jax.ShapeDtypeStruct(sizes, dtype)


# -- residual convolutions of linen ------------------------------------------------------------


class Bottleneck(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, x):
        h = nn.Conv(self.channels, (3, 3), use_bias=False)(x)  # line: conv
        h = nn.relu(nn.GroupNorm(8)(h))  # line: relu
        h = nn.Conv(self.channels, (3, 3), use_bias=False)(h)
        h = nn.GroupNorm(8)(h)  # line: second norm
        return nn.relu(x + h)


class Classifier(nn.Module):
    is_checkpointed: bool

    @nn.compact
    def __call__(self, x):
        block = nn.remat(Bottleneck) if self.is_checkpointed else Bottleneck
        x = nn.Conv(32, (3, 3), strides=2)(x)
        for _ in range(6):
            x = block(32)(x)
        return nn.Dense(100)(jnp.mean(x, (1, 2)))


def classifier_of(devices, is_checkpointed=False, donated=(0, 1)):
    model, optimizer = Classifier(is_checkpointed), optax.sgd(0.1, momentum=0.9)

    def loss(weights, images, labels):
        logits = model.apply(weights, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(weights, state, images, labels):
        slopes = jax.grad(loss)(weights, images, labels)
        updates, state = optimizer.update(slopes, state, weights)
        return optax.apply_updates(weights, updates), state

    images = shape(16, 64, 64, 3)
    weights = jax.eval_shape(model.init, jax.random.key(0), images)
    arguments = weights, jax.eval_shape(optimizer.init, weights), images, shape(16, dtype=jnp.int32)
    return step, on(devices[0], arguments), donated


# -- a recurrent network over time -------------------------------------------------------------


def recurrent_of(devices, is_checkpointed=False, is_wrapped=False, donated=(0,)):
    """An LSTM by nn.scan over 64 steps."""

    class Cell(nn.Module):
        @nn.compact
        def __call__(self, carry, x):
            c, h = carry
            gates = nn.Dense(4 * 128)(jnp.concatenate([x, h], -1))
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)  # line: cell
            h = (jax.checkpoint(hidden) if is_wrapped else hidden)(o, c)
            return (c, h), h

    cell = nn.remat(Cell, prevent_cse=False) if is_checkpointed else Cell
    model = nn.scan(
        cell, variable_broadcast="params", split_rngs={"params": False}, in_axes=0, out_axes=0
    )()
    start = shape(128, 128), shape(128, 128)
    weights = jax.eval_shape(model.init, jax.random.key(0), start, shape(64, 128, 64))

    def loss(weights, start, x):
        return jnp.sum(model.apply(weights, start, x)[1] ** 2)

    def step(weights, start, x):
        slopes = jax.grad(loss)(weights, start, x)
        return jax.tree.map(lambda w, s: w - 0.1 * s, weights, slopes)

    return step, on(devices[0], (weights, start, shape(64, 128, 64))), donated


# -- a vision transformer of nnx in mixed precision --------------------------------------------


class Encoder(nnx.Module):
    def __init__(self, width, rngs):
        self.first = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.Linear(width, 3 * width, use_bias=False, dtype=BF16, rngs=rngs)
        self.out = nnx.Linear(width, width, use_bias=False, dtype=BF16, rngs=rngs)
        self.second = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, use_bias=False, dtype=BF16, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, use_bias=False, dtype=BF16, rngs=rngs)

    def __call__(self, x, kind, wrap):
        b, t, d = x.shape

        def attend(x):
            q, k, v = jnp.split(self.attention(x).reshape(b, t, 4, 3 * d // 4), 3, -1)
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(kind[0])  # line: scores
            probs = jax.nn.softmax(scores * d**-0.5, -1)  # line: softmax
            return jnp.einsum("bhqk,bkhd->bqhd", probs.astype(BF16), v).reshape(b, t, d)

        def activate(h):
            return jax.nn.gelu(h.astype(kind[1])).astype(BF16)  # line: gelu

        activate = nnx.remat(activate) if wrap == "gelu" else activate
        attend = nnx.remat(attend) if wrap == "attention" else attend
        x = x + self.out(attend(self.first(x).astype(BF16)))
        return x + self.down(activate(self.up(self.second(x).astype(BF16))))


class Vision(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Linear(48, 128, dtype=BF16, rngs=rngs)
        self.layers = nnx.List([Encoder(128, rngs) for _ in range(4)])
        self.head = nnx.Linear(128, 100, dtype=BF16, rngs=rngs)

    def __call__(self, x, kind, wrap):
        x = self.patches(x)
        layer = (
            nnx.remat(lambda m, x: m(x, kind, ""))
            if wrap == "block"
            else (lambda m, x: m(x, kind, wrap))
        )
        for module in self.layers:
            x = layer(module, x)
        return self.head(x.mean(1))


def vision_of(devices, kind=(F32, F32), wrap="", donated=(0,)):
    definition, state = nnx.split(nnx.eval_shape(lambda: Vision(nnx.Rngs(0))))

    def loss(model, x, labels):
        logits = model(x, kind, wrap).astype(F32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(state, x, labels):
        model = nnx.merge(definition, state)
        slopes = nnx.grad(loss)(model, x, labels)
        return jax.tree.map(lambda w, s: w - 0.1 * s, state, nnx.state(slopes))

    arguments = state, shape(8, 196, 48, dtype=BF16), shape(8, dtype=jnp.int32)
    return step, on(devices[0], arguments), donated


# -- a perceptron without a loop, and a large vocabulary ---------------------------------------


def perceptron_of(devices, wrap="", chunks=1, donated=(0,), classes=8192):
    """Ten layers one after another, and logits of many classes."""

    def layer(x, w):
        h = x @ w["up"]  # line: up
        return x + jnp.sin(h) * jax.nn.sigmoid(h) @ w["down"]  # line: activate

    block = jax.checkpoint(layer) if wrap == "block" else layer

    def score(head, x, labels):
        logits = x @ head  # line: logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).sum()  # line: loss

    def loss(weights, x, labels):
        for w in weights["layers"]:
            x = block(x, w)
        if chunks == 1:
            return score(weights["head"], x, labels)
        parts = x.reshape(chunks, -1, x.shape[-1]), labels.reshape(chunks, -1)
        one = jax.checkpoint(lambda part: score(weights["head"], *part))
        return jnp.sum(lax.map(one, parts))

    def step(weights, x, labels):
        slopes = jax.grad(loss)(weights, x, labels)
        return jax.tree.map(lambda w, s: w - 0.1 * s, weights, slopes)

    layers = [{"up": shape(64, 256), "down": shape(256, 64)} for _ in range(10)]
    weights = {"layers": layers, "head": shape(64, classes)}
    arguments = weights, shape(1024, 64), shape(1024, dtype=jnp.int32)
    return step, on(devices[0], arguments), donated


def contrast_of(devices, chunks=1):
    """Pair every text with every image: a loss over all pairs."""

    def part_of(texts):
        def part(some):
            images, places = some
            scores = images @ texts.T * 20.0  # line: pairs
            return optax.softmax_cross_entropy_with_integer_labels(scores, places).sum()

        return part

    def loss(weights, images, texts):
        part = part_of(texts @ weights["texts"])
        images = images @ weights["images"]
        places = jnp.arange(len(images))
        if chunks == 1:
            return part((images, places))
        parts = images.reshape(chunks, -1, images.shape[-1]), places.reshape(chunks, -1)
        return jnp.sum(lax.map(jax.checkpoint(part), parts))

    weights = {n: shape(256, 64) for n in ("texts", "images")}
    arguments = weights, shape(2048, 256), shape(2048, 256)
    return jax.grad(loss), on(devices[0], arguments), ()


# -- arrays that are part of the program -------------------------------------------------------

ANGLES = np.sin(np.arange(2048)[:, None] * np.exp(-np.arange(256) / 32)).astype(np.float32)


def positions_of(devices, is_table=True):
    """Positions from a table in the program, or computed where they are used."""

    def encode(w, x):
        if is_table:
            angles = jnp.asarray(ANGLES)  # line: table
        else:
            angles = jnp.sin(jnp.arange(2048.0)[:, None] * jnp.exp(-jnp.arange(256.0) / 32))
        return jnp.tanh((x + angles) @ w)  # line: add

    return encode, on(devices[0], (shape(256, 256), shape(2, 2048, 256))), ()


def hidden(o, c):
    return jax.nn.sigmoid(o) * jnp.tanh(c)  # line: hidden


BLOCKS = {"wrap": "block"}
PROGRAMS = {
    "classifier": Program(
        classifier_of,
        {"nn.remat of each block": Change("block", "Bottleneck()", {"is_checkpointed": True})},
        targets=("cpu", "gpu"),
    ),
    "classifier_kept": Program(
        classifier_of,
        {"donate": Change("donate", "", {"donated": (0, 1)})},
        {"donated": ()},
        ("cpu", "gpu"),
    ),
    "recurrent": Program(
        recurrent_of,
        {
            "nn.remat of the cell": Change("block", "", {"is_checkpointed": True}),
            "jax.checkpoint around the new state": Change(
                "residual", "hidden", {"is_wrapped": True}
            ),
        },
    ),
    "vision": Program(
        vision_of,
        {
            "nnx.remat of each layer": Change("block", "Encoder()", BLOCKS),
            "nnx.remat of gelu": Change("recompute", "gelu", {"wrap": "gelu"}),
            "nnx.remat of the attention": Change("recompute", "softmax", {"wrap": "attention"}),
            "softmax in bf16": Change("dtype", "scores|softmax", {"kind": (BF16, F32)}),
            "gelu in bf16": Change("dtype", "gelu", {"kind": (F32, BF16)}),
        },
        targets=("cpu",),
    ),
    "vision_kept": Program(
        vision_of, {"donate": Change("donate", "", {"donated": (0,)})}, {"donated": ()}, ("cpu",)
    ),
    "perceptron": Program(
        perceptron_of,
        {
            "all of it in bf16": HALF,
            "jax.checkpoint around each layer": Change("block", "layer()", BLOCKS),
            "loss in 8 chunks": Change("chunk", "", {"chunks": 8}),
        },
    ),
    "perceptron_narrow": Program(
        perceptron_of,
        {
            "all of it in bf16": HALF,
            "jax.checkpoint around each layer": Change("block", "layer()", BLOCKS),
        },
        {"classes": 128},
    ),
    "contrast": Program(
        contrast_of,
        {"all of it in bf16": HALF, "scores in 8 chunks": Change("chunk", "", {"chunks": 8})},
    ),
    "positions": Program(
        positions_of,
        {
            "all of it in bf16": HALF,
            "computed where they are used": Change("constant", "", {"is_table": False}),
        },
    ),
}
