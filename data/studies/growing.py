"""Programs with one size that grows, for `forecasts.py`.

    python growing.py cpu|gpu [NAME ...]

compiles every program at each of its sizes and prints what XLA reserves, a line of JSON each;
nothing is executed, and no GPU needs to be there.
"""

import json
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from programs import steps

F32 = jnp.float32
DOUBLINGS = 9


def shape(*sizes, dtype=F32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def norm(x):
    return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)


def train(loss, *, is_adam=False):
    """A train step of a loss: of plain descent, or of Adam with its moments."""

    def descend(w, *batch):
        return jax.tree.map(lambda old, slope: old - 0.1 * slope, w, jax.grad(loss)(w, *batch))

    def adam(w, moments, *batch):
        first, second = moments
        slopes = jax.grad(loss)(w, *batch)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, slopes)
        w = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), w, first, second)
        return w, (first, second)

    return adam if is_adam else descend


# A decoder of plain arrays.

WIDTH, HEADS, LAYERS, VOCABULARY = 64, 4, 4, 2048


def decoder_weights(width=WIDTH, vocabulary=VOCABULARY):
    return {
        "embed": shape(vocabulary, width),
        "layers": {
            "qkv": shape(LAYERS, width, 3 * width),
            "out": shape(LAYERS, width, width),
            "up": shape(LAYERS, width, 4 * width),
            "down": shape(LAYERS, 4 * width, width),
        },
    }


def decoder_layer(x, w):
    batch, length, width = x.shape
    q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(batch, length, HEADS, -1), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
    x = x + mixed.reshape(batch, length, width) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def decoder_loss(w, tokens, *, is_scanned=True, is_recomputed=False, chunks=1):
    layer = jax.checkpoint(decoder_layer) if is_recomputed else decoder_layer
    layers = steps.scanned if is_scanned else steps.unrolled
    y = norm(layers(layer, w["layers"], w["embed"][tokens[:, :-1]]))

    def part(hidden, wanted):
        logits = jax.nn.log_softmax(hidden @ w["embed"].T, -1)
        return -jnp.sum(jnp.take_along_axis(logits, wanted[..., None], -1))

    if chunks == 1:
        return part(y, tokens[:, 1:])
    parts = [jnp.moveaxis(a.reshape(a.shape[0], chunks, -1, *a.shape[2:]), 1, 0)
             for a in (y, tokens[:, 1:])]  # fmt: skip
    return jnp.sum(lax.map(jax.checkpoint(lambda both: part(*both)), tuple(parts)))


def decoder(batch, length, width=WIDTH, vocabulary=VOCABULARY, *, is_adam=False, **kinds):
    w = decoder_weights(width, vocabulary)
    tokens = shape(batch, length + 1, dtype=jnp.int32)
    step = train(partial(decoder_loss, **kinds), is_adam=is_adam)
    return step, (w, (w, w), tokens) if is_adam else (w, tokens)


# Convolutions.


def conv(x, w, stride=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def group_norm(x):
    parts = x.reshape(*x.shape[:-1], 4, -1)
    mean = jnp.mean(parts, (1, 2, 4), keepdims=True)
    return ((parts - mean) * lax.rsqrt(jnp.var(parts, (1, 2, 4), keepdims=True) + 1e-5)).reshape(
        x.shape
    )


def unet_loss(w, image, noise):
    x, skips = conv(image + noise, w["in"]), []
    for first, second in w["down"]:
        x = conv(jax.nn.silu(group_norm(conv(x, first))), second)
        skips.append(x)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4
    for first, second in w["up"]:
        x = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        x = conv(jax.nn.silu(group_norm(jnp.concatenate([x, skips.pop()], -1))), first)
        x = conv(jax.nn.silu(group_norm(x)), second)
    return jnp.mean(jnp.square(conv(x, w["out"]) - noise))


def unet(batch, side):
    def pair(before, after):
        return shape(3, 3, before, after), shape(3, 3, after, after)

    w = {
        "in": shape(3, 3, 3, 16),
        "down": [pair(16, 16), pair(16, 32)],
        "up": [pair(64, 32), pair(48, 16)],
        "out": shape(3, 3, 16, 3),
    }
    image = shape(batch, side, side, 3)
    return train(unet_loss), (w, image, image)


def classifier(batch, side=32):
    def loss(w, image, wanted):
        x = image
        for kernel in w["convs"]:
            x = jax.nn.relu(conv(x, kernel, 2))
        logits = jnp.mean(x, (1, 2)) @ w["head"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), wanted[:, None], -1))

    convs = [shape(3, 3, 3, 32), shape(3, 3, 32, 64), shape(3, 3, 64, 64)]
    w = {"convs": convs, "head": shape(64, 100)}
    return train(loss, is_adam=True), (
        w, (w, w), shape(batch, side, side, 3), shape(batch, dtype=jnp.int32),
    )  # fmt: skip


# Decoding and simulation.


def decode(batch, length, *, is_carried=False):
    heads, size = 4, 16

    def layer(x, w, keys, values, place):
        q, k, v = ((x @ w[name]).reshape(-1, heads, size) for name in "qkv")
        keys = lax.dynamic_update_slice(keys, k[:, None], (0, place, 0, 0))
        values = lax.dynamic_update_slice(values, v[:, None], (0, place, 0, 0))
        scores = jnp.einsum("bhd,bthd->bht", q, keys)
        scores = jnp.where(jnp.arange(length) <= place, scores, -1e9)
        mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores, -1), values)
        return x + mixed.reshape(-1, heads * size) @ w["o"], keys, values

    def stacked(w, cache, token, place):
        def body(x, inputs):
            x, *kept = layer(x, *inputs, place)
            return x, tuple(kept)

        x, cache = lax.scan(body, w["embed"][token], (w["layers"], *cache))
        return cache, jnp.argmax(x @ w["embed"].T, -1)

    def carried(w, cache, token, place):
        def body(state, weights):
            x, keys, values, index = state
            x, key, value = layer(x, weights, keys[index], values[index], place)
            keys = lax.dynamic_update_index_in_dim(keys, key, index, 0)
            values = lax.dynamic_update_index_in_dim(values, value, index, 0)
            return (x, keys, values, index + 1), None

        x, *cache, _ = lax.scan(body, (w["embed"][token], *cache, 0), w["layers"])[0]
        return tuple(cache), jnp.argmax(x @ w["embed"].T, -1)

    width = heads * size
    w = {"embed": shape(4000, width), "layers": dict.fromkeys("qkvo", shape(6, width, width))}
    cache = shape(6, batch, length, heads, size)
    token, place = shape(batch, dtype=jnp.int32), shape(dtype=jnp.int32)
    return carried if is_carried else stacked, (w, (cache, cache), token, place)


def simulation(batch, steps, *, is_recomputed=False):
    def slope(x):
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8.0

    def advance(x, _):
        one = slope(x)
        two = slope(x + 0.005 * one)
        three = slope(x + 0.005 * two)
        x = x + 0.01 / 6 * (one + 2 * two + 2 * three + slope(x + 0.01 * three))
        return x, x

    body = jax.checkpoint(advance) if is_recomputed else advance

    def loss(factor, starts, seen):
        paths = jax.vmap(lambda x: lax.scan(body, x * factor, None, length=steps)[1])(starts)
        return jnp.mean(jnp.square(paths - seen))

    return jax.value_and_grad(loss), (shape(), shape(batch, 40), shape(batch, steps, 40))


def diffusion(side):
    def loss(start, rate):
        def body(field, _):
            near = sum(jnp.roll(field, by, axis) for by in (1, -1) for axis in (0, 1))
            return field + rate * (near - 4 * field), None

        return jnp.sum(lax.scan(body, start, None, length=20)[0])

    return jax.grad(loss), (shape(side, side), shape())


# The rest.


def mlp(batch, width=256):
    def loss(w, x):
        for matrix in w:
            x = jax.nn.relu(x @ matrix)
        return jnp.mean(jnp.square(x))

    w = [shape(width, width)] * 4
    return train(loss, is_adam=True), (w, (w, w), shape(batch, width))


def attention(length):
    def mix(q, k, v):
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8, -1) @ v

    return mix, (shape(2, 4, length, 32),) * 3


def sample(batch):
    def draw(logits, key):
        best, _ = lax.top_k(logits, 50)
        kept = jnp.where(logits < best[:, -1:], -1e9, logits)
        ranked = jnp.cumsum(jax.nn.softmax(jnp.sort(kept, -1), -1), -1)
        kept = jnp.where(ranked > 0.05, kept, -1e9)
        return jax.random.categorical(jax.random.wrap_key_data(key), kept)

    return draw, (shape(batch, 4000), shape(2, dtype=jnp.uint32))


def experts(batch):
    def loss(w, x):
        chosen = jax.nn.one_hot(jnp.argmax(x @ w["gate"], -1), 8)
        place = (jnp.cumsum(chosen, 0) * chosen).astype(jnp.int32)
        sent = jax.nn.one_hot(place - 1, max(1, x.shape[0] // 4)) * chosen[..., None]
        inside = jnp.einsum("tec,td->ecd", sent, x)
        inside = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", inside, w["up"]))
        return jnp.mean(jnp.einsum("tec,ecf,efd->td", sent, inside, w["down"]) ** 2)

    w = {"gate": shape(64, 8), "up": shape(8, 64, 128), "down": shape(8, 128, 64)}
    return train(loss), (w, shape(batch, 64))


def pairs(batch):
    def loss(w, left, right):
        scores = norm(left @ w) @ norm(right @ w).T
        return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(scores, -1)))

    return train(loss), (shape(128, 64), shape(batch, 128), shape(batch, 128))


def spectrum(length):
    def loss(w, x):
        return jnp.mean(jnp.abs(jnp.fft.irfft(jnp.fft.rfft(x) * w) - x))

    return jax.grad(loss), (shape(length // 2 + 1), shape(8, length))


def recurrent(length):
    def loss(w, x):
        def cell(state, now):
            gates = jax.nn.sigmoid(now @ w["in"] + state @ w["state"])
            one, two = jnp.split(gates, 2, -1)
            state = one * state + (1 - one) * jnp.tanh(two)
            return state, state

        return jnp.mean(lax.scan(cell, jnp.zeros((16, 64)), x)[1] ** 2)

    w = {"in": shape(64, 128), "state": shape(64, 128)}
    return train(loss), (w, shape(length, 16, 64))


def of_steps(name, batch):
    """A program of `programs/steps.py` as it is, with another batch."""
    layers, layer, vocabulary = steps.families()[name]
    step, weights = steps.step_of(layers, layer, vocabulary)
    return step, (weights, shape(batch, *steps.LAYERS[layer][2][1:]))


def linen(batch, *, is_recomputed=False):
    import flax.linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(4)(h, mask=nn.make_causal_mask(x[..., 0]))
            return x + nn.Dense(64)(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x)))), None

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            embed = nn.Embed(VOCABULARY, 64)
            layer = nn.remat(Layer, prevent_cse=False) if is_recomputed else Layer
            layers = nn.scan(
                layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4
            )
            return embed.attend(layers()(embed(tokens), None)[0])

    model = Model()
    tokens = shape(batch, 64, dtype=jnp.int32)
    w = jax.eval_shape(model.init, jax.random.key(0), tokens)

    def loss(w, tokens):
        logits = jax.nn.log_softmax(model.apply(w, tokens)[:, :-1], -1)
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))

    return train(loss, is_adam=True), (w, (w, w), tokens)


def residual(batch):
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, size, rngs):
            self.norm = nnx.GroupNorm(size, num_groups=4, rngs=rngs)
            self.first = nnx.Conv(size, size, (3, 3), rngs=rngs)
            self.second = nnx.Conv(size, size, (3, 3), rngs=rngs)

        def __call__(self, x):
            return x + self.second(jax.nn.silu(self.first(jax.nn.silu(self.norm(x)))))

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.start = nnx.Conv(3, 32, (3, 3), rngs=rngs)
            self.blocks = nnx.List([Block(32, rngs) for _ in range(3)])

        def __call__(self, x):
            x = self.start(x)
            for block in self.blocks:
                x = nnx.avg_pool(block(x), (2, 2), strides=(2, 2))
            return x

    outline, w = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))))

    def loss(w, image):
        return jnp.mean(nnx.merge(outline, w)(image) ** 2)

    return train(loss), (w, shape(batch, 32, 32, 3))


PROGRAMS = {
    "mlp, batch": (mlp, 8),
    "mlp, width": (lambda width: mlp(64, width), 16),
    "decoder, batch": (lambda batch: decoder(batch, 64, is_adam=True), 1),
    "decoder recomputed, batch": (lambda batch: decoder(batch, 64, is_recomputed=True), 1),
    "decoder unrolled, batch": (lambda batch: decoder(batch, 64, is_scanned=False), 1),
    "decoder in chunks, batch": (lambda batch: decoder(batch, 64, chunks=8), 1),
    "decoder, length": (lambda length: decoder(2, length), 16),
    "decoder recomputed, length": (lambda length: decoder(2, length, is_recomputed=True), 16),
    "decoder unrolled, length": (lambda length: decoder(2, length, is_scanned=False), 16),
    "decoder, width": (lambda width: decoder(2, 64, width), 16),
    "decoder, vocabulary": (lambda size: decoder(2, 64, vocabulary=size), 256),
    "U-Net, batch": (lambda batch: unet(batch, 32), 1),
    "U-Net, side": (lambda side: unet(2, side), 8),
    "classifier, batch": (classifier, 2),
    "decode, batch": (lambda batch: decode(batch, 256), 1),
    "decode, length": (lambda length: decode(4, length), 32),
    "decode carried, batch": (lambda batch: decode(batch, 256, is_carried=True), 1),
    "decode carried, length": (lambda length: decode(4, length, is_carried=True), 32),
    "simulation, batch": (lambda batch: simulation(batch, 100), 4),
    "simulation, steps": (lambda steps: simulation(16, steps), 8),
    "simulation recomputed, steps": (lambda n: simulation(16, n, is_recomputed=True), 8),
    "diffusion, side": (diffusion, 16),
    "attention, length": (attention, 16),
    "sampling, batch": (sample, 1),
    "experts, batch": (experts, 16),
    "pairs, batch": (pairs, 8),
    "spectrum, length": (spectrum, 64),
    "recurrent, length": (recurrent, 4),
    **{
        f"{name} of steps.py, batch": (partial(of_steps, name), smallest)
        for name, smallest in {
            "mlp_scan": 8, "mlp_unrolled": 8, "mlp_scan_1600": 8,
            "attention_scan": 1, "attention_unrolled": 1, "attention_scan_1600": 1,
        }.items()
    },
}  # fmt: skip
"""A function from a size to a program and its arguments, and the smallest size, by name."""
if find_spec("flax") is not None:
    PROGRAMS["linen, batch"] = (linen, 1)
    PROGRAMS["linen recomputed, batch"] = (partial(linen, is_recomputed=True), 1)
    PROGRAMS["nnx, batch"] = (residual, 1)


def need(program, arguments, placement):
    """Return the bytes that XLA reserves for a program."""
    placed = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placement), arguments
    )
    memory = jax.jit(program).lower(*placed).compile().memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )


def sizes(smallest):
    """A size, half as much again, twice, three times, …: enough for points and for the truth."""
    doubled = [smallest * 2**power for power in range(DOUBLINGS)]
    between = [size * 3 // 2 for size in doubled[1:4]]
    return sorted(doubled + between)


def main(backend, names):
    placement = None
    if backend != "cpu":
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data" / "model"))
        from target import one_device

        placement = one_device(backend)
    for name in names or PROGRAMS:
        make, smallest = PROGRAMS[name]
        try:
            needs = {size: need(*make(size), placement) for size in sizes(smallest)}
        except jax.errors.JaxRuntimeError as error:  # XLA for GPU finds no tiles for some widths
            print(f"{backend} {name} is left out: {str(error)[:200]}", file=sys.stderr)
            continue
        for size, need_bytes in needs.items():
            row = {"program": name, "backend": backend, "size": size, "need": need_bytes}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
