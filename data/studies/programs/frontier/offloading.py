"""The programs of JAX's page on host offloading: layers in a scan, and a step of Adam.

https://docs.jax.dev/en/latest/notebooks/host-offloading.html
"""

import jax
import jax.numpy as jnp
import optax


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def two_layers(x, w):
    w1, w2 = w
    y = x @ w1
    return y @ w2, None


def scanned(w, x):
    return jnp.sum(jax.lax.scan(two_layers, x, w)[0])


@jax.jit
def activations(w, x):
    return jax.grad(scanned)(w, x)


def activations_args(width=256):
    w = shape(10, width, 4 * width), shape(10, 4 * width, width)
    return w, shape(width, width)


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.044715 * x**3)))


def single_layer(x, w):
    return x @ w


def forward(params, x):
    for i in range(1, 5):
        x = gelu(single_layer(x, params[f"w{i}"]))
    return x


def compute_loss(params, inputs):
    outputs = forward(params, inputs)
    loss = jnp.mean((outputs - inputs) ** 2)
    return loss + 0.001 * sum(jnp.sum(w**2) for w in jax.tree.leaves(params))


def update(params, opt_state, inputs):
    grads = jax.grad(lambda p: compute_loss(p, inputs))(params)
    updates, new_opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), new_opt_state


adam = jax.jit(update, donate_argnums=(0, 1))


def adam_args(width=7168):
    params = {f"w{i}": shape(width, width) for i in range(1, 5)}
    return params, jax.eval_shape(optimizer.init, params), shape(width, width)
