"""Residual network whose optimizer accumulates: optax.MultiSteps, several batches a step."""

import jax
import jax.numpy as jnp
import optax


def init(key, width=128, depth=8):
    return {"layers": 0.05 * jax.random.normal(key, (depth, width, width))}


def layer(x, w):
    return x + jnp.tanh(x @ w) @ w.T, None


def loss_fn(params, batch):
    out, _ = jax.lax.scan(layer, batch, params["layers"])
    return jnp.mean((out - batch) ** 2)


def main(micro_batches=4, steps=2):
    optimizer = optax.MultiSteps(optax.adamw(1e-3), every_k_schedule=micro_batches)
    params = init(jax.random.key(0))
    opt_state = optimizer.init(params)

    @jax.jit
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    batches = jax.random.normal(jax.random.key(1), (micro_batches, 1024, 128))
    for _ in range(steps):
        for batch in batches:
            params, opt_state, loss = train_step(params, opt_state, batch)
        print(float(loss))


if __name__ == "__main__":
    main()
