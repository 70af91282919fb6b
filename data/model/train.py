"""A small language model and its training step, compiled but never run.

    python train.py --batch 8 [--remat] [--no-eval] [--target cpu|gpu|tpu]

Three functions are compiled, as a training script would have them: init, train_step
(Adam, donated state) and eval_step. Set XLA_FLAGS=--xla_dump_to=DIR to see what XLA
makes of them. jax is the only dependency. The sizes are odd, so that layouts with tiles
need padding.
"""

import argparse

import jax
import jax.numpy as jnp
from jax import lax

WIDTH = 64
HIDDEN = 256
VOCAB = 500
LENGTH = 100
RATE = 1e-3


def init(seed):
    def weight(rows, columns):
        """Numbers that look random enough; a real generator would fill the dumps."""
        count = jnp.arange(rows * columns, dtype=jnp.float32)
        return jnp.sin(count * count + seed).reshape(rows, columns) * rows**-0.5

    params = {
        "embed": weight(VOCAB, WIDTH),
        "qkv": weight(WIDTH, 3 * WIDTH),
        "up": weight(WIDTH, HIDDEN),
        "down": weight(HIDDEN, WIDTH),
    }
    zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
    return {"params": params, "mean": zeros, "square": zeros, "step": jnp.zeros((), jnp.int32)}


def normalize(x):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(params, x):
    query, key, value = jnp.split(x @ params["qkv"], 3, axis=-1)
    scores = jnp.einsum("bqd,bkd->bqk", query, key) * WIDTH**-0.5
    causal = jnp.where(jnp.tri(LENGTH), 0, -1e9)
    weights = jax.nn.softmax(scores + causal)
    return jnp.einsum("bqk,bkd->bqd", weights, value)


def mlp(params, x):
    hidden = jnp.maximum(x @ params["up"], 0)
    return hidden @ params["down"]


def forward(params, tokens):
    x = params["embed"][tokens]
    x = x + attention(params, x)
    x = x + mlp(params, x)
    return normalize(x)


def cross_entropy(embed, x, targets):
    log_probs = jax.nn.log_softmax(x @ embed.T)
    return -jnp.sum(log_probs * jax.nn.one_hot(targets, VOCAB))


def loss(params, tokens, remat):
    """The mean over all positions, one example of the batch after another."""

    def add_example(total, example):
        return total + cross_entropy(params["embed"], *example), None

    x = forward(params, tokens[:, :-1])
    body = jax.checkpoint(add_example) if remat else add_example
    total, _ = lax.scan(body, 0.0, (x, tokens[:, 1:]))
    return total / x[..., 0].size


def adam_update(param, grad, mean, square, step):
    mean = 0.9 * mean + 0.1 * grad
    square = 0.999 * square + 0.001 * grad * grad
    scale = jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return param - RATE * scale * mean / (jnp.sqrt(square) + 1e-8), mean, square


def train_step(state, tokens, remat):
    value, grads = jax.value_and_grad(loss)(state["params"], tokens, remat)
    step = state["step"] + 1
    time = step.astype(jnp.float32)
    leaves, tree = jax.tree_util.tree_flatten(state["params"])
    updated = [
        adam_update(param, grad, mean, square, time)
        for param, grad, mean, square in zip(
            leaves,
            tree.flatten_up_to(grads),
            tree.flatten_up_to(state["mean"]),
            tree.flatten_up_to(state["square"]),
            strict=True,
        )
    ]
    params, mean, square = (tree.unflatten(part) for part in zip(*updated, strict=True))
    return {"params": params, "mean": mean, "square": square, "step": step}, value


def eval_step(params, tokens):
    logits = forward(params, tokens[:, :-1]) @ params["embed"].T
    return jnp.mean(jnp.argmax(logits, axis=-1) == tokens[:, 1:])


def compile_all(batch, remat, with_eval, placement):
    """Compile the functions for a placement, a sharding; None is the default device."""

    def array(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=placement)

    seed = array((), jnp.float32)
    tokens = array((batch, LENGTH + 1), jnp.int32)
    shapes = jax.eval_shape(init, seed)
    state = jax.tree_util.tree_map(lambda x: array(x.shape, x.dtype), shapes)
    jax.jit(init).lower(seed).compile()
    step = jax.jit(train_step, static_argnums=2, donate_argnums=0)
    step.lower(state, tokens, remat).compile()
    if with_eval:
        jax.jit(eval_step).lower(state["params"], tokens).compile()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--remat", action="store_true", help="recompute the logits")
    parser.add_argument("--no-eval", action="store_true", help="leave out eval_step")
    parser.add_argument("--target", choices=["cpu", "gpu", "tpu"], default="cpu")
    args = parser.parse_args()
    placement = None
    if args.target != "cpu":
        from target import one_device

        placement = one_device(args.target)
    compile_all(args.batch, args.remat, not args.no_eval, placement)


if __name__ == "__main__":
    main()
