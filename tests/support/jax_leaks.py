"""Programs that leak in six ways, for snapshots of their memory: `jax_leaks.py WAY STEPS`."""

import os
import queue
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np

import bufdb

HISTORY, COPIES, STATES = [], [], []


@jax.jit
def train(params, batch):
    return jax.tree.map(lambda leaf: leaf - 1e-3 * batch.sum(), params), batch * 2.0


def metrics(params, batch, number):
    params, loss = train(params, batch)
    HISTORY.append(loss)
    return params


def closure():
    cache = {}

    def evaluate(params, batch, number):
        cache[number] = batch @ params["w"]
        return params

    return evaluate


def copy(params, batch, number):
    COPIES.append(jax.tree.map(jnp.copy, params))
    return params


def optimizer(params, batch, number):
    STATES.append(jax.tree.map(jnp.zeros_like, params))
    return params


class Prefetch:
    def __init__(self):
        self.ready = queue.Queue()

    def __call__(self, params, batch, number):
        self.ready.put(jax.device_put(np.ones((256, 512), np.float32)))
        return params


def retraced():
    steps = {}

    def run(params, batch, number):
        table = jnp.full((256, 512), float(number))
        steps[number] = jax.jit(lambda x: x + table)
        steps[number](batch).block_until_ready()
        return params

    return run


def main(way, steps):
    params, batch = {"w": jnp.ones((512, 256))}, jnp.ones((256, 512))
    ways = {"metrics": metrics, "closure": closure(), "copy": copy, "optimizer": optimizer}
    prefetch, retrace = Prefetch(), retraced()
    ways |= {"prefetch": prefetch, "retraced": retrace}
    with bufdb.watch("t.duckdb", run="r", holders=True, folder="kept", write=print) as seen:
        for number in range(steps):
            params = ways[way](params, batch, number)
            jax.block_until_ready(params)
            seen.mark(f"step {number}")
        if sys.argv[3:] == ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)


main(sys.argv[1], int(sys.argv[2]))
