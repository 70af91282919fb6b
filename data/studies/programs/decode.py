"""Programs that carry state from layer to layer or from call to call: caches, states, moments."""

import jax
import jax.numpy as jnp
from jax import lax
from programs.program import HALF, Change, Program, on

LAYERS, SIZE, WIDTH, VOCABULARY, LENGTH, BATCH = 4, 32, 128, 2000, 512, 4
F32, BF16 = jnp.float32, jnp.bfloat16


def shape(*sizes, dtype=F32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def attended(x, w, keys, values, position, write, read):
    """A layer with its cache, which write and read place."""
    k, v = ((x @ w[n]).reshape(x.shape[0], -1, keys.shape[-1]) for n in "kv")
    q = (x @ w["q"]).reshape(*k.shape[:2], -1, k.shape[-1])
    keys, values = write(keys, k), write(values, v)
    scores = jnp.einsum("bghd,btgd->bght", q, read(keys)) * k.shape[-1] ** -0.5  # line: scores
    scores = jnp.where(jnp.arange(read(keys).shape[1]) <= position, scores, -1e9)
    probs = jax.nn.softmax(scores.astype(F32), -1).astype(x.dtype)
    mixed = jnp.einsum("bght,btgd->bghd", probs, read(values))  # line: mixed
    x = x + mixed.reshape(x.shape) @ w["o"]
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"], keys, values


def decode_of(
    devices, is_carry=False, donated=(), dtype=F32, cache_dtype=None, groups=1, batch=BATCH,
    length=LENGTH, size=SIZE,
):  # fmt: skip
    """One token: the cache as xs and ys of the layers, or as their carry."""

    def by_slices(weights, cache, tokens, position):
        def layer(x, one):
            w, keys, values = one

            def write(cache, new):
                return lax.dynamic_update_slice(  # line: write
                    cache, new[:, None].astype(cache.dtype), (0, position, 0, 0)
                )

            x, keys, values = attended(
                x, w, keys, values, position, write, lambda c: c.astype(x.dtype)
            )
            return x, (keys, values)

        x = weights["embedding"][tokens]
        x, cache = lax.scan(layer, x, (weights["layers"], *cache))  # line: layers
        return cache, jnp.argmax(x @ weights["embedding"].T, -1)

    def by_carry(weights, cache, tokens, position):
        def layer(carry, w):
            x, keys, values, i = carry

            def write(cache, new):
                return lax.dynamic_update_slice(
                    cache, new[None, :, None].astype(cache.dtype), (i, 0, position, 0, 0)
                )

            x, keys, values = attended(
                x, w, keys, values, position, write, lambda c: c[i].astype(x.dtype)
            )
            return (x, keys, values, i + 1), None

        carry = weights["embedding"][tokens], *cache, 0
        (x, *cache, _), _ = lax.scan(layer, carry, weights["layers"])
        return tuple(cache), jnp.argmax(x @ weights["embedding"].T, -1)

    kv = WIDTH // groups
    layers = {n: shape(LAYERS, WIDTH, WIDTH, dtype=dtype) for n in "qo"}
    layers |= {n: shape(LAYERS, WIDTH, kv, dtype=dtype) for n in "kv"}
    layers |= {
        "up": shape(LAYERS, WIDTH, 4 * WIDTH, dtype=dtype),
        "down": shape(LAYERS, 4 * WIDTH, WIDTH, dtype=dtype),
    }
    cache = shape(LAYERS, batch, length, kv // size, size, dtype=cache_dtype or dtype)
    weights = {"embedding": shape(VOCABULARY, WIDTH, dtype=dtype), "layers": layers}
    arguments = weights, (cache, cache), shape(batch, dtype=jnp.int32), shape(dtype=jnp.int32)
    function = by_carry if is_carry else by_slices
    return function, on(devices[0], arguments), donated


def states_of(devices, is_carry=False, donated=()):
    """A recurrent network of several layers and one step of its states."""

    def cell(x, state, w):
        gates = x @ w["x"] + state @ w["h"]
        update, new = jnp.split(gates, 2, -1)
        update = jax.nn.sigmoid(update)
        return update * state + (1 - update) * jnp.tanh(new)

    def by_slices(weights, states, x):
        def layer(x, one):
            w, state = one
            state = cell(x, state, w)
            return x + state, state

        return lax.scan(layer, x, (weights, states))  # line: states

    def by_carry(weights, states, x):
        def layer(carry, w):
            x, states, i = carry
            state = cell(x, states[i], w)
            return (x + state, states.at[i].set(state), i + 1), None

        (x, states, _), _ = lax.scan(layer, (x, states, 0), weights)
        return x, states

    weights = {n: shape(LAYERS, 64, 128) for n in "xh"}
    arguments = weights, shape(LAYERS, 4096, 64), shape(4096, 64)
    return by_carry if is_carry else by_slices, on(devices[0], arguments), donated


def moments_of(devices, is_carry=False, donated=()):
    """An optimizer that updates layer after layer."""

    def update(weight, slope, first, second):
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * slope**2
        weight = weight - 0.001 * first @ jnp.eye(512) / (jnp.sqrt(second) + 1e-8)
        return weight, first, second

    def by_slices(weights, slopes, first, second):
        def layer(total, one):
            weight, first, second = update(*one)
            return total + jnp.sum(first**2), (weight, first, second)

        return lax.scan(layer, 0.0, (weights, slopes, first, second))  # line: moments

    def by_carry(weights, slopes, first, second):
        def layer(carry, one):
            total, state, i = carry
            (slope,) = one
            weight, first, second = update(state[0][i], slope, state[1][i], state[2][i])
            state = tuple(
                old.at[i].set(new) for old, new in zip(state, (weight, first, second), strict=True)
            )
            return (total + jnp.sum(first**2), state, i + 1), None

        (total, state, _), _ = lax.scan(layer, (0.0, (weights, first, second), 0), (slopes,))
        return total, state

    one = shape(8, 512, 512)
    return by_carry if is_carry else by_slices, on(devices[0], (one,) * 4), donated


def window_of(devices, is_carry=False, donated=()):
    """A filter of many channels, each with the window of what it has seen."""

    def by_slices(windows, taps, x):
        def channel(total, one):
            window, tap, new = one
            window = jnp.concatenate([window[1:], new[None]], 0)
            return total + jnp.tanh(window * tap[:, None]).sum(0), window

        return lax.scan(channel, jnp.zeros(x.shape[1:]), (windows, taps, x))  # line: windows

    def by_carry(windows, taps, x):
        def channel(carry, one):
            total, windows, i = carry
            tap, new = one
            window = jnp.concatenate([windows[i, 1:], new[None]], 0)
            total = total + jnp.tanh(window * tap[:, None]).sum(0)
            return (total, windows.at[i].set(window), i + 1), None

        carry = jnp.zeros(x.shape[1:]), windows, 0
        (total, windows, _), _ = lax.scan(channel, carry, (taps, x))
        return total, windows

    arguments = shape(16, 64, 2048), shape(16, 64), shape(16, 2048)
    return by_carry if is_carry else by_slices, on(devices[0], arguments), donated


def carried(donated):
    return Change("carry", "", {"is_carry": True, "donated": donated})


CARRIED = {"cache as the carry, donated": carried((1,))}
DONATED = {"donate": Change("donate", "", {"donated": (1,)})}
PROGRAMS = {
    "decode": Program(
        decode_of,
        {"all of it in bf16": HALF}
        | CARRIED
        | {
            "donate": Change("donate", "", {"donated": (1,)}),
        },
    ),
    "decode_donated": Program(decode_of, CARRIED, {"donated": (1,)}),
    "decode_grouped": Program(
        decode_of, {"all of it in bf16": HALF} | CARRIED, {"groups": 4, "batch": 16}
    ),
    "decode_heads_128": Program(
        decode_of, {"all of it in bf16": HALF} | CARRIED | DONATED, {"size": 128, "batch": 8}
    ),
    "decode_bf16": Program(decode_of, CARRIED | DONATED, {"dtype": BF16, "length": 1024}),
    "decode_carry": Program(
        decode_of,
        {
            "donate": Change("donate", "", {"donated": (1,)}),
        },
        {"is_carry": True},
    ),
    "states": Program(
        states_of,
        {
            "all of it in bf16": HALF,
            "states as the carry, donated": carried((1,)),
            "donate": Change("donate", "", {"donated": (1, 2)}),
        },
    ),
    "moments": Program(
        moments_of,
        {
            "all of it in bf16": HALF,
            "weights and moments as the carry, donated": carried((0, 2, 3)),
            "donate": Change("donate", "", {"donated": (0, 2, 3)}),
        },
    ),
    "window": Program(
        window_of, {"all of it in bf16": HALF, "windows as the carry, donated": carried((0,))}
    ),
}
