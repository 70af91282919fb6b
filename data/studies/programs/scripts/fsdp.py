"""Fully sharded training on eight devices: a mesh of jax.devices(), and NamedSharding."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def main(depth=8, width=128, batch=2048, steps=2):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "fsdp"))
    rows = NamedSharding(mesh, P(("data", "fsdp"), None))
    weights = NamedSharding(mesh, P(None, "fsdp", None))

    def layer(x, w):
        x = x + jax.nn.gelu(x @ w)
        return jax.lax.with_sharding_constraint(x, rows), None

    def loss_fn(params, x):
        out, _ = jax.lax.scan(layer, x, params)
        return jnp.mean(out**2)

    optimizer = optax.adamw(1e-3)

    def train_step(params, opt_state, x):
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    params = jax.device_put(jnp.ones((depth, width, width)) / width, weights)
    opt_state = jax.jit(optimizer.init)(params)
    step_fn = jax.jit(train_step, donate_argnums=(0, 1))
    x = jax.device_put(jnp.ones((batch, width)), rows)
    for step in range(steps):
        params, opt_state, loss = step_fn(params, opt_state, x)
        print(step, float(loss))


if __name__ == "__main__":
    main()
