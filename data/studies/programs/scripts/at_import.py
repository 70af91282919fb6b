"""Autoencoder in the layout of a notebook: it parses arguments and trains where it is imported."""

import argparse
import itertools

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
args = parser.parse_args()

widths = [256, 128, 64, 32, 64, 128, 256]
keys = jax.random.split(jax.random.PRNGKey(0), len(widths))
pairs = list(itertools.pairwise(widths))
params = [0.1 * jax.random.normal(k, pair) for k, pair in zip(keys, pairs, strict=False)]
data = jax.random.normal(keys[-1], (args.batch, 256))


def dense(x, w):
    return jnp.tanh(x @ w)


def loss(params, x):
    h = x
    for w in params:
        h = dense(h, w)
    return ((h - x) ** 2).mean()


@jax.jit
def update(params, x):
    grads = jax.grad(loss)(params, x)
    return [w - 0.1 * g for w, g in zip(params, grads, strict=False)]


for _step in range(2):
    params = update(params, data)
print(loss(params, data))
