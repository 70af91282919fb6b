"""A function goes in, what holds its memory comes out: no flags, no files, nothing is run.

    python explain.py

Needs JAX and bufdb. Figures are exact for what XLA compiled on this machine; they differ from
one version of XLA to the next.
"""

import jax
import jax.numpy as jnp

import bufdb


def loss(w, x):
    hidden = jnp.tanh(x @ w["up"])
    return jnp.mean((hidden @ w["down"] - x) ** 2)


def step(w, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x))


def shapes(batch):
    """Arguments without values: a model of any size can be explained on a laptop."""
    array = jax.ShapeDtypeStruct
    w = {"up": array((512, 2048), jnp.float32), "down": array((2048, 512), jnp.float32)}
    return w, array((batch, 512), jnp.float32)


def main():
    print(bufdb.explain(step, *shapes(batch=256)))

    with bufdb.connect() as db:
        for batch in (128, 256):
            lowered = jax.jit(step, donate_argnums=0).lower(*shapes(batch))
            db.ingest(lowered, run=f"b{batch}", labels={"batch": batch})
        print(db.diff("b128", "b256"))
        print(db.what_if("step", run="b256", keep="1/2", without=["op:*tanh*"]))
        for source, held in db.query("peak-by", run="b256", top_n=3).project(
            "part, held_bytes"
        ).fetchall():  # fmt: skip
            print(f"{held:>12,} bytes {source}")


if __name__ == "__main__":
    main()
