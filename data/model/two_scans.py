"""Functions that scan over arrays of the same shapes, compiled in one process.

JAX traces once for each shape what a scan inserts into its stacks; from then on every scan of the
process has the line of the first. Marks as in loops.py: sizes of the arrays that a line makes.
"""

import argparse

import jax
import jax.numpy as jnp
from jax import lax


def first(w, x):
    def layer(x, w):
        return jnp.tanh(x @ w["a"] @ w["b"]), None  #: 24 40 ~24 ~40

    return lax.scan(layer, x, w)[0].sum()


def second(w, x):
    def layer(x, w):
        a = jnp.exp(x @ w["a"])  #: 24 ~40
        return jnp.sin(a @ w["b"]), None  #: 40 ~24

    return lax.scan(layer, x, w)[0].sum()


def third(w, x):
    def layer(x, w):
        a = jnp.cos(x @ w["a"])  #: 24 ~40
        return x + a @ w["b"], None  #: 40 ~24

    return lax.scan(jax.checkpoint(layer), x, w)[0].sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=["first", "second", "third"])
    shape = jax.ShapeDtypeStruct
    w = {"a": shape((6, 40, 24), jnp.float32), "b": shape((6, 24, 40), jnp.float32)}
    for name in parser.parse_args().programs:
        gradient = jax.grad(globals()[name])
        gradient.__name__ = name
        jax.jit(gradient).lower(w, shape((32, 40), jnp.float32)).compile()


if __name__ == "__main__":
    main()
