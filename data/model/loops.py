"""Small programs with loops whose saved arrays have sizes of their own.

A comment `#: 24 ~40` names sizes of the arrays that this line alone may make: what the loop saves
or carries; sizes after `~` are of cotangents, which may also have a line that uses the array.
Thus each buffer of a loop has a right line (tests/rows/test_loops.py). Nothing is executed.
"""

import argparse

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name


def shapes(**sizes):
    return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}


def _layer(x, w):
    a = checkpoint_name(x @ w["a"], "kept")  #: 24 ~40
    b = jnp.sin(a)  #: 24 ~24
    return x + jnp.sum(b, 1, keepdims=True), None  #: 40


def _loss(layer, w, x):
    return jnp.sum(lax.scan(layer, x, w)[0])


LAYERS = shapes(a=(6, 40, 24))
BATCH = shapes(x=(32, 40))["x"]


def layers(w, x):
    """Layers that save everything."""
    return jax.grad(lambda w: _loss(_layer, w, x))(w)


def layers_named(w, x):
    """Layers that save named values and their input."""
    policy = jax.checkpoint_policies.save_only_these_names("kept")
    return jax.grad(lambda w: _loss(jax.checkpoint(_layer, policy=policy), w, x))(w)


def nested(w, x):
    """Layers in blocks, whose activations are returned: a stack of stacks."""

    def layer(x, w):
        a = jnp.sin(x @ w["a"])  #: 24
        return x + jnp.sum(a, 1, keepdims=True), a  #: 40

    def block(x, w):
        y, kept = lax.scan(layer, x, w)
        return jnp.cos(y), kept  #: 40

    return lax.scan(block, x, w)


def accumulated(w, batches):
    """Gradients summed up over four batches."""

    def one(total, x):
        grads = jax.grad(lambda w: _loss(_layer, w, x))(w)
        return jax.tree.map(jnp.add, total, grads), None  #: 24 40

    return lax.scan(one, jax.tree.map(jnp.zeros_like, w), batches)[0]


def decode(w, x):
    """A cache of keys and values that each step writes one row of."""

    def step(at, state):
        keys, values, x = state
        keys = keys.at[at].set(x @ w["k"])  #: 24
        values = values.at[at].set(x @ w["v"])  #: 56
        weights = jnp.einsum("bk,tbk->bt", x @ w["k"], keys)
        return keys, values, x + jnp.einsum("bt,tbv->bv", weights, values)[:, :40]  #: 40

    state = jnp.zeros((64, 4, 24)), jnp.zeros((64, 4, 56)), x
    return lax.fori_loop(0, 64, step, state)[2]


PROGRAMS = {
    "layers": (layers, LAYERS, BATCH),
    "layers_named": (layers_named, LAYERS, BATCH),
    "nested": (nested, shapes(a=(3, 2, 40, 24)), BATCH),
    "accumulated": (accumulated, LAYERS, shapes(x=(4, 32, 40))["x"]),
    "decode": (
        decode,
        shapes(k=(40, 24), v=(40, 56)),
        shapes(x=(4, 40))["x"],
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help="default: all")
    parser.add_argument("--target", choices=["cpu", "gpu", "tpu"], default="cpu")
    parser.add_argument("--executables", help="folder that the compiled programs are written to")
    args = parser.parse_args()
    placement = None
    if args.target != "cpu":
        from target import one_device

        placement = one_device(args.target)
    for name in args.programs or PROGRAMS:
        function, *inputs = PROGRAMS[name]
        placed = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placement), inputs
        )
        compiled = jax.jit(function).lower(*placed).compile()
        if args.executables is not None:
            from pathlib import Path

            data = compiled.runtime_executable().serialize()
            Path(args.executables, f"jit_{name}.executable").write_bytes(data)


if __name__ == "__main__":
    main()
