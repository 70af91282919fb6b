"""A decoder of flax linen: layers by nn.scan or one after another, adamw."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name as name
from programs.program import Change, Program, on

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 2048, 128, 6, 4, 128, 4
NAMES = ("norm", "qkv", "probs", "mixed", "up", "gelu")
F32, BF16 = jnp.float32, jnp.bfloat16


def rest(*without):
    """A policy that saves all names but some."""
    return jax.checkpoint_policies.save_only_these_names(*(n for n in NAMES if n not in without))


def offload(*names):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[n for n in NAMES if n not in names],
        names_which_can_be_offloaded=list(names),
        offload_src="device",
        offload_dst="pinned_host",
    )


def attend(q, k, v):
    t = q.shape[1]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])  # line: scores
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)  # line: mask
    probs = name(jax.nn.softmax(scores, axis=-1), "probs")  # line: softmax
    return jnp.einsum("bhqk,bkhd->bqhd", probs, v)  # line: mixed


class GeluDense(nn.Module):
    width: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, h):
        return nn.Dense(self.width, use_bias=False, dtype=self.dtype, name="down")(nn.gelu(h))


class Block(nn.Module):
    dtype: jnp.dtype
    wrap: str

    @nn.compact
    def __call__(self, x, _):
        b, t, d = x.shape
        dense = partial(nn.Dense, use_bias=False, dtype=self.dtype)

        def wrapped(what, function):
            return jax.checkpoint(function, prevent_cse=False) if what in self.wrap else function

        h = name(nn.LayerNorm(dtype=self.dtype, use_bias=False)(x), "norm")  # line: norm
        qkv = name(dense(3 * d, name="qkv")(h), "qkv")  # line: qkv
        q, k, v = jnp.split(qkv.reshape(b, t, HEADS, -1), 3, axis=-1)
        core = wrapped("attend", attend)
        mixed = name(core(q, k, v).reshape(b, t, d), "mixed")
        x = x + dense(d, name="proj")(mixed)
        h = nn.LayerNorm(dtype=self.dtype, use_bias=False)(x)
        h = name(dense(4 * d, name="up")(h), "up")  # line: up
        if "mlp" in self.wrap:
            return x + nn.remat(GeluDense, prevent_cse=False)(d, self.dtype)(h), None
        h = name(wrapped("gelu", nn.gelu)(h), "gelu")  # line: gelu
        return x + dense(d, name="down")(h), None


class Decoder(nn.Module):
    dtype: jnp.dtype
    wrap: str
    policy: object
    is_scanned: bool

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, WIDTH, name="embed", dtype=self.dtype)(tokens)
        block = Block
        if self.policy is not None:
            policy = None if self.policy == "full" else self.policy
            block = nn.remat(Block, policy=policy, prevent_cse=not self.is_scanned)
        if self.is_scanned:
            layers = nn.scan(
                block, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS
            )
            x, _ = layers(self.dtype, self.wrap)(x, None)
        else:
            for _ in range(LAYERS):
                x, _ = block(self.dtype, self.wrap)(x, None)  # line: block
        return nn.LayerNorm(dtype=self.dtype, use_bias=False)(x)


def make(
    devices, dtype=F32, wrap="", policy=None, is_scanned=True, chunks=1, donated=(0, 1), batch=BATCH
):
    model = Decoder(dtype, wrap, policy, is_scanned)
    optimizer = optax.adamw(1e-3)

    def loss_of(parameters, h, y):
        logits = h @ parameters["params"]["embed"]["embedding"].T.astype(dtype)  # line: logits
        return optax.softmax_cross_entropy_with_integer_labels(  # line: loss
            logits.astype(F32), y
        ).sum()

    def loss(parameters, tokens):
        h, y = model.apply(parameters, tokens[:, :-1]), tokens[:, 1:]
        if chunks == 1:
            return loss_of(parameters, h, y) / y.size
        b, t, d = h.shape
        parts = (
            h.reshape(b, chunks, t // chunks, d).swapaxes(0, 1),
            y.reshape(b, chunks, t // chunks).swapaxes(0, 1),
        )
        add = jax.checkpoint(lambda total, part: (total + loss_of(parameters, *part), None))
        return jax.lax.scan(add, 0.0, parts)[0] / y.size

    def step(parameters, state, tokens):
        value, slopes = jax.value_and_grad(loss)(parameters, tokens)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    parameters = jax.eval_shape(
        model.init, jax.random.key(0), jax.ShapeDtypeStruct((batch, LENGTH), jnp.int32)
    )
    arguments = (
        parameters,
        jax.eval_shape(optimizer.init, parameters),
        jax.ShapeDtypeStruct((batch, LENGTH + 1), jnp.int32),
    )
    return step, on(devices[0], arguments), donated


LINES = {n: "softmax" if n == "probs" else n for n in NAMES}
"""Line by name."""
WRAPPED = {
    "jax.checkpoint around gelu": ("gelu", {"wrap": "gelu"}),
    "jax.checkpoint around the attention": ("softmax", {"wrap": "attend"}),
    "nn.remat of gelu and the layer after it": ("gelu", {"wrap": "mlp"}),
}
CHUNKED = Change("chunk", "", {"chunks": 8})
BLOCK = Change("block", "", {"policy": "full"})
DONATED = Change("donate", "", {"donated": (0, 1)})
HALF = Change("dtype", "", {"dtype": BF16})


def wrapped(kind, **others):
    return {what: Change(kind, at, options | others) for what, (at, options) in WRAPPED.items()}


PROGRAMS = {
    "lm_scan": Program(
        make,
        wrapped("residual")
        | {
            "nn.remat of the block": BLOCK,
            "loss in 8 chunks": CHUNKED,
            "all of it in bf16": HALF,
        },
    ),
    "lm_scan_kept": Program(
        make, wrapped("residual", donated=()) | {"donate": DONATED}, {"donated": ()}, ("cpu", "gpu")
    ),
    "lm_scan_policy": Program(
        make,
        {
            f"policy without {n}": Change("residual", at, {"policy": rest(n)})
            for n, at in LINES.items()
        }
        | {
            f"{n} offloaded": Change("offload", at, {"policy": offload(n)})
            for n, at in LINES.items()
        }
        | {
            "loss in 8 chunks": CHUNKED,
        },
        {"policy": rest()},
    ),
    "lm_scan_full": Program(
        make,
        {"loss in 8 chunks": CHUNKED, "all of it in bf16": HALF},
        {"policy": "full", "batch": 8},
        ("cpu",),
    ),
    "lm_scan_bf16": Program(
        make, wrapped("residual") | {"loss in 8 chunks": CHUNKED}, {"dtype": BF16}, ("cpu",)
    ),
    "lm_unrolled": Program(
        make,
        wrapped("recompute")
        | {
            "nn.remat of each block": Change("block", "Block()", {"policy": "full"}),
            "loss in 8 chunks": CHUNKED,
        },
        {"is_scanned": False},
        ("cpu", "gpu"),
    ),
    "lm_unrolled_kept": Program(
        make, {"donate": DONATED}, {"donated": (), "is_scanned": False}, ("cpu",)
    ),
}
