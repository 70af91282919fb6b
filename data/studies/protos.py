"""Measure how fast protos are read: MB per CPU second of the derivation and of the whole ingest.

    python protos.py make DIR [--layers 1300]      # a training step without loops; needs jax, CPU
    python protos.py run FILE.hlo.pb... [-n 3] [--xprof PYTHON]

`make` unrolls as many layers as are asked for, about 45 kB of proto each. `--xprof` names a Python
with the package xprof, whose conversion for its memory viewer is measured in turn: both as whole
processes, from start to exit, and from the second file on in a process that has done it before.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
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


def run(paths: list[Path], repeats: int, xprof: str | None) -> None:
    """The best of some repetitions, each of a file alone."""
    from bufdb.proto import sections

    names = "derive", "again", "process", *(("xprof again", "xprof process") if xprof else ())
    print(f"{'file':40} {'MB':>6} {' '.join(f'{name:>13}' for name in names)}  MB per CPU second")
    for path in paths:
        size = path.stat().st_size / 1e6
        data = path.read_bytes()
        seconds = {"derive": min(_cpu(partial(sections.read, data)) for _ in range(repeats))}
        pythons = {"": sys.executable, **({"xprof ": xprof} if xprof else {})}
        for _ in range(repeats):
            for prefix, python in pythons.items():
                kind = "xprof" if prefix else "bufdb"
                whole = _children(partial(_convert, python, kind, path, 1))
                again = float(_convert(python, kind, path, 2).split()[-1])
                seconds[f"{prefix}process"] = min(whole, seconds.get(f"{prefix}process", whole))
                seconds[f"{prefix}again"] = min(again, seconds.get(f"{prefix}again", again))
        cells = " ".join(f"{size / seconds[name]:13.1f}" for name in names)
        print(f"{path.name[:40]:40} {size:6.1f} {cells}")


def _convert(python: str, kind: str, path: Path, times: int) -> str:
    """Return the output of a separate process: CPU seconds of each repetition."""
    command = [python, __file__, "convert", kind, str(path), "--times", str(times)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def convert(kind: str, path: Path, times: int) -> None:
    """Convert a file some times, in this process."""
    work = _with_bufdb if kind == "bufdb" else _with_xprof
    print(*(f"{_cpu(partial(work, path)):.3f}" for _ in range(times)))


def _with_bufdb(path: Path) -> None:
    from bufdb.ingest.ingest import ingest

    _ingest(ingest, path)


def _with_xprof(path: Path) -> None:
    from xprof.convert import _pywrap_profiler_plugin as xprof

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "h.xplane.pb").write_bytes(b"")
        (Path(folder) / "m.hlo_proto.pb").symlink_to(path.resolve())
        arguments = [f"{folder}/h.xplane.pb"], "memory_viewer", {"module_name": "m"}
        text, is_done = xprof.xspace_to_tools_data(*arguments)
        assert is_done and b"heapSizes" in text[:100]


def _children(work) -> float:
    """CPU seconds of the processes that some work starts, the system's too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


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
    running.add_argument("--xprof")
    one = commands.add_parser("convert")
    one.add_argument("kind", choices=["bufdb", "xprof"])
    one.add_argument("file", type=Path)
    one.add_argument("--times", type=int, default=1)
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.layers)
    elif args.command == "convert":
        convert(args.kind, args.file, args.times)
    else:
        run(args.files, args.n, args.xprof)


if __name__ == "__main__":
    main()
