"""Profile the program of data/demo on this CPU, and keep what of it names instructions.

    python tests/support/profile_demo.py data/profiles/cpu_b8.xplane.pb.gz

Compiled as `data/make.py` compiles cpu_b8, with the jax of those dumps. What is left out are names
of the machine, Python's own events, and events that name no instruction.
"""

import gzip
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 3


def main(out: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    sys.path.insert(0, str(ROOT / "data" / "model"))
    import jax
    import numpy as np
    import train

    seed = np.float32(0)  # without a program of its own, so that modules have the same numbers
    init = jax.jit(train.init).lower(seed).compile()
    shapes = jax.eval_shape(train.init, seed)
    tokens = jax.ShapeDtypeStruct((8, train.LENGTH + 1), np.int32)
    step = jax.jit(train.train_step, static_argnums=2, donate_argnums=0)
    step = step.lower(shapes, tokens, False).compile()
    evaluate = jax.jit(train.eval_step).lower(shapes["params"], tokens).compile()
    state, tokens = init(seed), np.zeros(tokens.shape, tokens.dtype)
    state, _ = step(state, tokens)
    jax.block_until_ready((state, evaluate(state["params"], tokens)))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(RUNS):
                state, _ = step(state, tokens)
                jax.block_until_ready(state)
            jax.block_until_ready(evaluate(state["params"], tokens))
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
        Path(out).write_bytes(gzip.compress(kept(data), mtime=0))


def kept(data) -> bytes:
    from xplane_writer import Event, Line, Plane, space

    names = ("hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal")
    planes = []
    for plane in data.planes:
        lines = []
        for line in plane.lines:
            events = [(event, dict(event.stats)) for event in line.events]
            events = [(event, stats) for event, stats in events if "hlo_op" in stats]
            begin = int(min((event.start_ns for event, _ in events), default=0))
            lines.append(
                Line(
                    f"thread {len(lines)}",
                    [
                        Event(
                            event.name,
                            round(1000 * (event.start_ns - begin)),
                            round(1000 * event.duration_ns),
                            {name: stats[name] for name in names if name in stats},
                        )
                        for event, stats in events
                    ],
                )
            )
        lines = [line for line in lines if line.events]
        planes += [Plane(plane.name, lines)] if lines else []
    return space(planes)


if __name__ == "__main__":
    main(sys.argv[1])
