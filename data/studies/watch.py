"""What snapshots of a process cost: milliseconds each, and as a share of the time of steps.

    python watch.py [--arrays 100,1000,10000] [--every 0.5] [--seconds 4]

A process with some arrays of 4 KiB, and a step of some milliseconds on this CPU: the time of a
snapshot on the processor (the median of several), with and without a search for holders, its share
of the interval (the most by which steps take longer, since the thread shares the processor and the
interpreter with them), and how many steps a second are made less while snapshots are taken every so
often in a thread, which only a machine without other work shows.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from bufdb.capture import holders, watched
from bufdb.capture.snapshots import REST, Snapshots


def cost(watch: watched.Watch, count: int) -> float:
    """Return the time of the processor that a snapshot takes, in ms: the median of several."""
    times = []
    for _ in range(count):
        began = time.thread_time()
        watch.snapshot(0, None)
        times.append(time.thread_time() - began)
    return statistics.median(times) * 1e3


def share(took_ms: float, every: float) -> float:
    """Return the share of the time in which a snapshot is taken, after rests of the thread."""
    return took_ms / (took_ms + max(every * 1e3, REST * took_ms))


def throughput(step, x, seconds: float) -> float:
    """Return the steps per second."""
    count, end = 0, time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < end:
        step(x).block_until_ready()
        count += 1
    return count / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", default="100,1000,10000")
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.ones((1024, 1024))
    step(x).block_until_ready()
    print(
        "arrays  snapshot_ms  with_holders_ms  of_interval  of_60s  file_bytes  steps_per_second"
        "  while_watched  ratio"
    )
    for count in map(int, options.arrays.split(",")):
        kept = [jnp.full((1024,), float(number)) for number in range(count)]
        jax.block_until_ready(kept)
        with tempfile.TemporaryDirectory() as folder:
            watch = watched.Watch(Path(folder))
            watch.snapshot(0, None)
            plain = cost(watch, 7)
            size = sum(path.stat().st_size for path in Path(folder).iterdir())
            watch.find_holders = holders.find
            searched = cost(watch, 5)
            watch.find_holders = None
            pairs = []
            for _ in range(3):  # by turns: the machine may be busy
                bare = throughput(step, x, options.seconds / 3)
                snapshots = Snapshots(watched, watch, options.every)
                snapshots.start()
                pairs.append((bare, throughput(step, x, options.seconds / 3)))
                snapshots.stop()
        bare, busy = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{count:6}  {plain:11.2f}  {searched:15.1f}  {share(plain, options.every):11.3%}"
            f"  {share(plain, 60):6.3%}  {size:10}  {bare:16.1f}"
            f"  {busy:13.1f}  {bare / busy - 1:+5.1%}"
        )
        del kept


main()
