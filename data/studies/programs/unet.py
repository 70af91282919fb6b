"""A diffusion UNet of flax nnx, NHWC, with GroupNorm and attention in the middle."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from programs.program import Change, Program, on

CHANNELS, WIDENED, BATCH, SIZE = 16, (1, 2, 4), 8, 32


class Residual(nnx.Module):
    def __init__(self, before, after, time, rngs):
        self.first_norm = nnx.GroupNorm(before, num_groups=8, rngs=rngs)
        self.first = nnx.Conv(before, after, (3, 3), rngs=rngs)
        self.time = nnx.Linear(time, after, rngs=rngs)
        self.second_norm = nnx.GroupNorm(after, num_groups=8, rngs=rngs)
        self.second = nnx.Conv(after, after, (3, 3), rngs=rngs)
        self.skip = nnx.Conv(before, after, (1, 1), rngs=rngs) if before != after else None

    def __call__(self, x, time, wrap):
        def silu(norm, x):
            return jax.nn.silu(norm(x))

        silu = nnx.remat(silu) if wrap == "silu" else silu
        h = self.first(silu(self.first_norm, x))  # line: first
        h = h + self.time(time)[:, None, None]
        h = self.second(silu(self.second_norm, h))  # line: second
        return h + (self.skip(x) if self.skip is not None else x)


class Attention(nnx.Module):
    def __init__(self, channels, rngs):
        self.norm = nnx.GroupNorm(channels, num_groups=8, rngs=rngs)
        self.qkv = nnx.Linear(channels, 3 * channels, rngs=rngs)
        self.out = nnx.Linear(channels, channels, rngs=rngs)

    def __call__(self, x):
        b, h, w, c = x.shape
        q, k, v = jnp.split(self.qkv(self.norm(x)).reshape(b, h * w, 3 * c), 3, -1)
        a = jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", q, k) * c**-0.5, -1)
        return x + self.out(jnp.einsum("bqk,bkc->bqc", a, v).reshape(b, h, w, c))


class UNet(nnx.Module):
    def __init__(self, rngs):
        time, c = 4 * CHANNELS, CHANNELS
        self.time = nnx.Linear(CHANNELS, time, rngs=rngs)
        self.first = nnx.Conv(3, CHANNELS, (3, 3), rngs=rngs)
        down, skips = [], []
        for factor in WIDENED:
            down.append(Residual(c, CHANNELS * factor, time, rngs))
            c = CHANNELS * factor
            skips.append(c)
        self.down = nnx.List(down)
        self.before = Residual(c, c, time, rngs)
        self.attention = Attention(c, rngs)
        self.after = Residual(c, c, time, rngs)
        up = []
        for factor in reversed(WIDENED):
            up.append(Residual(c + skips.pop(), CHANNELS * factor, time, rngs))
            c = CHANNELS * factor
        self.up = nnx.List(up)
        self.last_norm = nnx.GroupNorm(c, num_groups=8, rngs=rngs)
        self.last = nnx.Conv(c, 3, (3, 3), rngs=rngs)

    def __call__(self, x, t, wrap):
        half = CHANNELS // 2
        angles = t[:, None] * jnp.exp(-jnp.arange(half) * jnp.log(10000.0) / half)
        time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)
        time = jax.nn.silu(self.time(time))

        def block(module, x, time):
            return module(x, time, wrap)

        block = nnx.remat(block) if wrap == "block" else block
        middle = nnx.remat(lambda m, x: m(x)) if wrap == "block" else lambda m, x: m(x)

        def upsample(h):
            return jax.image.resize(  # line: resize
                h, (h.shape[0], 2 * h.shape[1], 2 * h.shape[2], h.shape[3]), "nearest"
            )

        upsample = jax.checkpoint(upsample) if wrap == "resize" else upsample
        h, skips = self.first(x), []
        for module in self.down:
            h = block(module, h, time)
            skips.append(h)
            h = nnx.avg_pool(h, (2, 2), strides=(2, 2))
        h = block(self.after, middle(self.attention, block(self.before, h, time)), time)
        for module in self.up:
            h = block(module, jnp.concatenate([upsample(h), skips.pop()], -1), time)
        return self.last(jax.nn.silu(self.last_norm(h)))


def loss(model, x, t, noise, wrap):
    kept = jnp.cos(t * jnp.pi / 2)[:, None, None, None] ** 2
    mixed = jnp.sqrt(kept) * x + jnp.sqrt(1 - kept) * noise
    return jnp.mean((model(mixed, t, wrap) - noise) ** 2)


def build():
    model = UNet(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-4), wrt=nnx.Param)


def make(devices, wrap="", donated=(0,)):
    definition, state = nnx.split(nnx.eval_shape(build))

    def step(state, x, t, noise):
        model, optimizer = nnx.merge(definition, state)
        value, slopes = nnx.value_and_grad(partial(loss, wrap=wrap))(model, x, t, noise)
        optimizer.update(model, slopes)
        return nnx.split((model, optimizer))[1], value

    images = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), jnp.float32)
    arguments = state, images, jax.ShapeDtypeStruct((BATCH,), jnp.float32), images
    return step, on(devices[0], arguments), donated


def sample_of(devices, donated=()):
    """Steps of a sampler: no gradients."""
    definition, state = nnx.split(nnx.eval_shape(lambda: UNet(nnx.Rngs(0))))

    def sample(state, x):
        model = nnx.merge(definition, state)

        def denoise(x, t):
            return x - 0.02 * model(x, jnp.full(BATCH, t), ""), None

        return jax.lax.scan(denoise, x, jnp.linspace(1.0, 0.0, 50))[0]

    images = jax.ShapeDtypeStruct((BATCH, SIZE, SIZE, 3), jnp.float32)
    return sample, on(devices[0], (state, images)), donated


PROGRAMS = {
    "unet": Program(
        make,
        {
            "nnx.remat of each block": Change("block", "Residual()", {"wrap": "block"}),
            "nnx.remat of norm and silu": Change("recompute", "first", {"wrap": "silu"}),
            "jax.checkpoint around resize": Change("recompute", "resize", {"wrap": "resize"}),
        },
        targets=("cpu", "gpu"),
    ),
    "unet_kept": Program(
        make, {"donate": Change("donate", "", {"donated": (0,)})}, {"donated": ()}, ("cpu",)
    ),
    "unet_sample": Program(
        sample_of, {"donate": Change("donate", "", {"donated": (1,)})}, targets=("cpu",)
    ),
}
