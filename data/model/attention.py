"""A step of one attention layer, whose scores grow with the square of the length of the text.

Nothing is executed: the step is compiled for shapes, and XLA dumps what it plans.
"""

import argparse

import jax
import jax.numpy as jnp

HEADS, WIDTH, VOCABULARY = 4, 16, 100


def loss(params, tokens):
    x = params["embed"][tokens]
    query, key, value = (jnp.einsum("btd,dhk->bthk", x, params[name]) for name in "qkv")
    scores = jnp.einsum("bqhk,bthk->bhqt", query, key)
    weights = jax.nn.softmax(scores)
    mixed = jnp.einsum("bhqt,bthk->bqhk", weights, value)
    logits = jnp.einsum("bthk,hkv->btv", mixed, params["out"])
    return -jnp.mean(jax.nn.log_softmax(logits)[..., 0])


def attention_step(params, tokens):
    return jax.tree.map(
        lambda old, slope: old - 0.1 * slope, params, jax.grad(loss)(params, tokens)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, required=True)
    length = parser.parse_args().length
    heads = (HEADS * WIDTH, HEADS, WIDTH)
    sizes = {"embed": (VOCABULARY, HEADS * WIDTH), "out": (HEADS, WIDTH, VOCABULARY)}
    sizes |= dict.fromkeys("qkv", heads)
    params = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}
    tokens = jax.ShapeDtypeStruct((2, length), jnp.int32)
    jax.jit(attention_step, donate_argnums=0).lower(params, tokens).compile()


if __name__ == "__main__":
    main()
