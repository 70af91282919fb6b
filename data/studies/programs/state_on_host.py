"""A step with Adam whose state is in host memory, moved to the device where it is used.

bufdb explain data/studies/programs/state_on_host.py:moved --args '*args(40, 6144)' \
    --target tpu:v5e:2x2 --devices 1

Needs for a TPU v5e of 15.75 GiB, jax 0.10.2 [MiB]:

    layers, width    on the device: written    moved    at_the_start    in_turn
    8, 1024                             100      101             101        108
    24, 6144                         10,594   10,837               -     13,523
    40, 6144               17,562 (refused)   13,474          13,474          -

XLA moves the state as early as there is room, so it is no less where the step fits as written.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

donated = functools.partial(jax.jit, donate_argnums=(0, 1, 2))


def loss(params, x):
    for p in params:
        x = x + jnp.tanh(x @ p)
    return jnp.mean(x * x)


def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def adam_of_host(p, g, m, v):
    p, m, v = adam(p, g, *jax.device_put((m, v), jax.memory.Space.Device))
    return p, *jax.device_put((m, v), jax.memory.Space.Host)


def updated(update, params, *others):
    return tuple(map(list, zip(*map(update, params, *others), strict=True)))


@donated
def written(params, m, v, x):
    return updated(adam, params, jax.grad(loss)(params, x), m, v)


@donated
def moved(params, m, v, x):
    return updated(adam_of_host, params, jax.grad(loss)(params, x), m, v)


@donated
def at_the_start(params, m, v, x):
    m, v = jax.device_put((m, v), jax.memory.Space.Device)
    params, m, v = updated(adam, params, jax.grad(loss)(params, x), m, v)
    return params, *jax.device_put((m, v), jax.memory.Space.Host)


@donated
def in_turn(params, m, v, x):
    """The state of a layer waits for the update of the one before."""
    before = params[0]

    def update(p, *others):
        nonlocal before
        *others, _ = jax.lax.optimization_barrier((*others, before))
        before, *state = adam_of_host(p, *others)
        return before, *state

    return updated(update, params, jax.grad(loss)(params, x), m, v)


def args(layers=8, width=1024, memory="pinned_host", batch=256):
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))

    def shape(*sizes, **kind):
        sharding = NamedSharding(mesh, PartitionSpec(), **kind)
        return jax.ShapeDtypeStruct(sizes, jnp.float32, sharding=sharding)

    def state():
        return [shape(width, width, memory_kind=memory) for _ in range(layers)]

    return [shape(width, width) for _ in range(layers)], state(), state(), shape(batch, width)
