"""Classifier in the layout of haiku's mnist example: update is a closure of main()."""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax


class TrainingState(NamedTuple):
    params: hk.Params
    opt_state: optax.OptState


def net_fn(images):
    x = images.astype(jnp.float32) / 255.0
    mlp = hk.Sequential([
        hk.Flatten(),
        hk.Linear(300), jax.nn.relu,
        hk.Linear(300), jax.nn.relu,
        hk.Linear(100), jax.nn.relu,
        hk.Linear(10),
    ])  # fmt: skip
    return mlp(x)


def main():
    network = hk.without_apply_rng(hk.transform(net_fn))
    optimiser = optax.adam(1e-3)

    def loss(params, images, labels):
        logits = network.apply(params, images)
        one_hot = jax.nn.one_hot(labels, 10)
        return -jnp.mean(jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))

    @jax.jit
    def update(state, images, labels):
        grads = jax.grad(loss)(state.params, images, labels)
        updates, opt_state = optimiser.update(grads, state.opt_state)
        return TrainingState(optax.apply_updates(state.params, updates), opt_state)

    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (4096, 28, 28, 1), np.uint8)
    labels = rng.integers(0, 10, (4096,))
    params = network.init(jax.random.PRNGKey(0), images)
    state = TrainingState(params, optimiser.init(params))
    for _ in range(2):
        state = update(state, images, labels)


if __name__ == "__main__":
    main()
