"""Watch a loop around the program of data/demo on this CPU, until it runs out of memory.

    python tests/support/memory_demo.py data/profiles/cpu_b8.prof

The CPU has memory enough, so that the last call of train_step fails by itself here, as it would on
a device of 12 MiB. Paths are those of the dumps.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_BYTES = 12 << 20
SNAPSHOTS = (2, 5, 8, 11)
"""Calls of train_step before which a snapshot is taken."""


def main(out: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    sys.path.insert(0, str(ROOT / "data" / "model"))
    import jax
    import leak
    import numpy as np
    import train
    from jax._src.interpreters import pxla

    from bufdb.capture.holders import find
    from bufdb.capture.watched import Watch

    seed = np.float32(0)
    state = jax.jit(train.init)(seed)
    tokens = jax.device_put(np.zeros((8, train.LENGTH + 1), np.int32))
    jitted = jax.jit(train.train_step, static_argnums=2, donate_argnums=0)
    step = jitted.lower(state, tokens, False).compile()
    original, calls = pxla.ExecuteReplicated.__call__, []

    def failing(executed, *args):
        if executed.name == "jit(train_step)":
            calls.append(executed)
            if len(calls) in SNAPSHOTS:
                watch.snapshot(SNAPSHOTS.index(len(calls)), f"step {len(calls) - 1}")
            if len(calls) == leak.STEPS:
                needs = executed.xla_executable.get_compiled_memory_stats()
                size = needs.temp_size_in_bytes
                text = f"RESOURCE_EXHAUSTED: Out of memory allocating {size} bytes."
                error = RuntimeError(text)
                watch.failed(error)  # as JAX's own errors do when they are made
                raise error
        return original(executed, *args)

    pxla.ExecuteReplicated.__call__ = failing
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(Path(folder), LIMIT_BYTES)
        watch.find_holders = find
        watch.start()
        try:
            leak.main(step, state, tokens)
        except RuntimeError as error:
            watch.end(error)
        watch.stop()
        keep(Path(folder) / "memory.prof", Path(out))
        for number in range(len(SNAPSHOTS)):
            of = Path(folder) / f"memory-{number:06d}.prof"
            keep(of, Path(out).with_stem(f"{Path(out).stem}-{number:06d}"))


def keep(taken: Path, out: Path) -> None:
    """Write both files with the paths of the dumps, and without the frames of this file."""
    from pprof_writer import Sample, packed

    from bufdb.proto import pprof
    from bufdb.proto.reader import unpacked

    profile = pprof.read(unpacked(taken.read_bytes()))
    samples = [
        Sample(
            held.total_bytes,
            [(named(f.source_file), f.function_name, f.source_line) for f in stack[::-1]],
            alive.device,
            held.array_count,
        )
        for alive, held in profile.arrays.items()
        for stack in [[f for f in alive.stack if f.source_file != __file__]]
    ]
    out.write_bytes(packed(samples))
    watched = json.loads(taken.with_suffix(".watch.json").read_text())
    number = watched["snapshot"]
    # Not the time on this machine.
    watched["elapsed_seconds"] = 60.0 * (len(SNAPSHOTS) if number is None else number)
    for part in (*(watched["arguments"] or ()), *watched["lost"], *watched["shapes"]):
        part["stack"] = [[named(f), *more] for f, *more in part["stack"] if f != __file__]
        if part.get("holder"):
            part["holder"] = [part["holder"][0], named(part["holder"][1])]
    text = json.dumps(watched, indent=1 if watched["snapshot"] is None else None)
    out.with_name(out.name.replace(".prof", ".watch.json")).write_text(text + "\n")


def named(path: str) -> str:
    path = path.replace(str(ROOT / "data" / "model"), "/home/user/model")
    path = path.replace(str(ROOT), "/home/user/bufdb")
    _, installed, rest = path.rpartition("/lib/python")
    return f"/home/user/venv{installed}{rest}" if installed else path


if __name__ == "__main__":
    main(sys.argv[1])
