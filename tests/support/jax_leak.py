"""A program that keeps what it should not, for bufdb capture --watch: `jax_leak.py WHAT`."""

import sys

import jax
import jax.numpy as jnp

HISTORY = []


@jax.jit
def step(params, batch):
    return jnp.tanh(batch @ params) @ params.T + params.sum()


@jax.jit
def huge(params, batch):
    return jnp.zeros((1 << 46,)) + params.sum() + batch.sum()


def cache_metrics(batch):
    HISTORY.append(batch * 2)


def main(what):
    params, batch, unused = jnp.ones((512, 512)), jnp.ones((256, 512)), jnp.ones((100, 100))
    for _ in range(6):
        jax.block_until_ready(step(params, batch))
        cache_metrics(batch)
    if what == "fail":
        jax.block_until_ready(huge(params, batch))
    elif what == "put":
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 77 bytes.")
    return unused


KEPT = main(sys.argv[1])
