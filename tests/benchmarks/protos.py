"""How fast protos are read: megabytes per CPU second of the derivation, and of the whole ingest.

    python protos.py make DIR [--layers 1300]      # a training step without loops; needs jax, CPU
    python protos.py run FILE.hlo.pb... [-n 3]

`make` unrolls as many layers as are asked for, about 45 kB of proto each. XProf converts such a
file at about 32 MB per CPU second.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path


def make(folder: Path, layers: int) -> None:
    """Compile a step whose module is dumped as text and as proto."""
    flags = "--xla_dump_hlo_as_text --xla_dump_hlo_as_proto --xla_backend_optimization_level=0"
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} {flags}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    def layer(x, weights):
        up, bias, down, gain = weights
        mean = x.mean(-1, keepdims=True)
        spread = ((x - mean) ** 2).mean(-1, keepdims=True)
        h = jax.nn.gelu(((x - mean) * jax.lax.rsqrt(spread + 1e-5) * gain + bias) @ up)
        return jnp.tanh(jax.nn.softmax(h @ h.T) @ h @ down)

    def loss(all_weights, x):
        for weights in all_weights:
            x = layer(x, weights)
        return (x**2).mean()

    def step(all_weights, x):
        value, gradient = jax.value_and_grad(loss)(all_weights, x)
        return jax.tree.map(lambda a, b: a - 0.1 * b, all_weights, gradient), value

    shapes = [(32, 64), (32,), (64, 32), (32,)]
    one = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    x = jax.ShapeDtypeStruct((16, 32), jnp.float32)
    jax.jit(step, donate_argnums=0).lower([one] * layers, x).compile()


def run(paths: list[Path], repeats: int) -> None:
    """The best of some repetitions, each of a file alone."""
    from bufdb.ingest.ingest import ingest
    from bufdb.proto import sections

    print(f"{'file':40} {'MB':>6} {'derive':>8} {'ingest':>8}  MB per CPU second")
    for path in paths:
        size = path.stat().st_size / 1e6
        data = path.read_bytes()
        derive = min(_cpu(partial(sections.texts, data)) for _ in range(repeats))
        whole = min(_cpu(partial(_ingest, ingest, path)) for _ in range(repeats))
        print(f"{path.name[:40]:40} {size:6.1f} {size / derive:8.1f} {size / whole:8.1f}")


def _ingest(ingest, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / path.name).symlink_to(path.resolve())
        ingest(f"{folder}/a.duckdb", [Path(folder) / path.name])


def _cpu(work) -> float:
    """CPU seconds, of the system's too."""
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    making.add_argument("--layers", type=int, default=1300)
    running = commands.add_parser("run")
    running.add_argument("files", type=Path, nargs="+")
    running.add_argument("-n", type=int, default=3)
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.layers)
    else:
        run(args.files, args.n)


if __name__ == "__main__":
    main()
