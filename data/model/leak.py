"""A loop that keeps what it should not: a copy of the parameters of each step.

The memory profile `profiles/cpu_b8.prof` is of it, by `tests/support/memory_demo.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import train

STEPS = 12


def cache_params(history, params):
    history.append(jax.tree.map(jnp.copy, params))


def main(step, state, tokens):
    history = []
    evaluated = jax.device_put(np.zeros((1000, train.VOCAB), np.float32))
    for _ in range(STEPS):
        state, _ = step(state, tokens)
        cache_params(history, state["params"])
    return state, evaluated
