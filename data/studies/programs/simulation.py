"""Simulations and their gradients: trajectories, stencils, particles."""

import jax
import jax.numpy as jnp
from jax import lax
from programs.program import HALF, Change, Program, on

F32 = jnp.float32


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, F32)


def slope(x):
    return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8.0  # line: slope


def runge_kutta(x, dt):
    first = slope(x)  # line: first
    second = slope(x + dt / 2 * first)  # line: second
    third = slope(x + dt / 2 * second)  # line: third
    fourth = slope(x + dt * third)  # line: fourth
    return x + dt / 6 * (first + 2 * second + 2 * third + fourth)  # line: sum


def lorenz_of(devices, is_checkpointed=False, wrap="", steps=200):
    """Gradients of a trajectory of Lorenz-96."""
    step = jax.checkpoint(runge_kutta) if is_checkpointed else runge_kutta

    def body(x, _):
        x = step(x, 0.01)
        return x, x

    def loss(theta, starts, seen):
        def path(start):
            return lax.scan(body, start * theta, None, length=steps)[1]  # line: path

        return jnp.mean((jax.vmap(path)(starts) - seen) ** 2)  # line: loss

    arguments = shape(), shape(64, 40), shape(64, steps, 40)
    return jax.value_and_grad(loss), on(devices[0], arguments), ()


def heat_of(devices, wrap="", donated=(), dtype=F32):
    """Gradients of what a field becomes by diffusion and reaction."""

    def laplacian(u):
        return (
            jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
        )

    def react(u):
        return u * (1 - u) * jnp.exp(-u)  # line: react

    reacted = jax.checkpoint(react) if wrap == "react" else react

    def body(u, _):
        return u + 0.1 * laplacian(u) + 0.01 * jnp.tanh(reacted(u)), None  # line: tanh

    body = jax.checkpoint(body) if wrap == "body" else body

    def loss(u, seen):
        return jnp.mean((lax.scan(body, u, None, length=40)[0] - seen) ** 2)

    def step(u, seen):
        return u - 0.1 * jax.grad(loss)(u, seen)

    field = jax.ShapeDtypeStruct((256, 256), dtype)
    return step, on(devices[0], (field, field)), donated


def particles_of(devices, chunks=1, donated=()):
    """Particles that attract each other: forces of all pairs, in one piece or in chunks."""

    def pull(some, all_):
        way = all_[None] - some[:, None]  # line: way
        square = jnp.sum(way**2, -1) + 1e-3  # line: square
        return jnp.einsum("ij,ijk->ik", square**-1.5, way)  # line: pull

    def forces(x):
        if chunks == 1:
            return pull(x, x)
        return lax.map(lambda part: pull(part, x), x.reshape(chunks, -1, 3)).reshape(x.shape)

    def step(x, v):
        def body(state, _):
            x, v = state
            x = x + 0.01 * v
            v = v + 0.01 * jnp.sin(jnp.sort(forces(x), -1))
            return (x, v), None

        return lax.scan(body, (x, v), None, length=10)[0]

    return step, on(devices[0], (shape(1024, 3),) * 2), donated


def kernel_of(devices, chunks=1):
    """Regression by a kernel: all pairs of points, in one piece or in chunks."""

    def part_of(points, weights, seen):
        def part(some):
            square = jnp.sum(some**2, -1)[:, None] - 2 * some @ points.T + jnp.sum(points**2, -1)
            return jnp.tanh(jnp.exp(-square) @ weights)  # line: kernel

        return part

    def predict(points, weights, places):
        part = part_of(points, weights, places)
        if chunks == 1:
            return part(places)
        return lax.map(part, places.reshape(chunks, -1, places.shape[-1])).reshape(len(places), -1)

    return predict, on(devices[0], (shape(4096, 16), shape(4096, 8), shape(2048, 16))), ()


def wave_of(devices, donated=()):
    """A wave, forward alone: two fields from call to call."""

    def step(now, before):
        def body(state, _):
            now, before = state
            spread = jnp.roll(now, 1, 0) + jnp.roll(now, -1, 0) - 2 * now
            return (2 * now - before + 0.1 * spread, now), None

        return lax.scan(body, (now, before), None, length=20)[0]

    return step, on(devices[0], (shape(512, 512),) * 2), donated


PROGRAMS = {
    "lorenz": Program(
        lorenz_of,
        {
            "all of it in bf16": HALF,
            "jax.checkpoint around a step": Change("residual", "slope", {"is_checkpointed": True}),
        },
    ),
    "heat": Program(
        heat_of,
        {
            "all of it in bf16": HALF,
            "jax.checkpoint around the body": Change("block", "", {"wrap": "body"}),
            "jax.checkpoint around react": Change("residual", "react", {"wrap": "react"}),
            "donate": Change("donate", "", {"donated": (0,)}),
        },
    ),
    "particles": Program(
        particles_of,
        {
            "all of it in bf16": HALF,
            "forces in 8 chunks": Change("chunk", "", {"chunks": 8}),
            "donate": Change("donate", "", {"donated": (0, 1)}),
        },
    ),
    "kernel": Program(
        kernel_of,
        {"all of it in bf16": HALF, "points in 8 chunks": Change("chunk", "", {"chunks": 8})},
    ),
    "wave": Program(
        wave_of, {"all of it in bf16": HALF, "donate": Change("donate", "", {"donated": (0, 1)})}
    ),
}
