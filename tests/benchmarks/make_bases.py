"""Make two families of genuine dumps that `make_inputs.py` can multiply; needs jax.

`unrolled_N` is a training step of an N-layer transformer, unrolled, its weights stacked in one
array per kind (many uses per value). `scanned_N` is a training loop on the device with 3N arrays
in the loop's state (the dump repeats the tuple with every element). Nothing is executed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

UNROLLED = (1, 2, 4, 8, 20)
SCANNED = (4, 8, 16, 30, 60)
KEPT = ("-assignment.txt", "-values.txt", "-live-range.txt")
WIDTH, HEADS, VOCABULARY = 64, 4, 256


def unrolled(layers: int) -> None:
    import jax
    import jax.numpy as jnp

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-6) * scale + bias

    def layer(p: Any, i: int, x: Any) -> Any:
        h = norm(x, p["scale1"][i], p["bias1"][i])
        q, k, v = (jnp.einsum("bsd,dhe->bshe", h, p[name][i]) for name in "qkv")
        scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / 4
        causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
        x = x + jnp.einsum("bqhe,hed->bqd", jnp.einsum("bhqk,bkhe->bqhe", weights, v), p["o"][i])
        h = norm(x, p["scale2"][i], p["bias2"][i])
        return x + jax.nn.gelu(h @ p["up"][i]) @ p["down"][i]

    def loss(p: Any, tokens: Any) -> Any:
        x = p["embedding"][tokens]
        for i in range(layers):
            with jax.named_scope(f"layer_{i}"):
                x = layer(p, i, x)
        logits = jax.nn.log_softmax((x @ p["embedding"].T)[:, :-1])
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()

    def train_step(p: Any, m: Any, v: Any, step: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, tokens)
        size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / size), grads)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)

        def update(a: Any, b: Any, c: Any) -> Any:
            root = jnp.sqrt(c / (1 - 0.99**step)) + 1e-8
            return a - 1e-3 * (b / (1 - 0.9**step) / root + 0.01 * a)

        return jax.tree.map(update, p, m, v), m, v, step + 1, value

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    depth = WIDTH // HEADS
    params = {name: array(layers, WIDTH, HEADS, depth) for name in "qkv"}
    params |= {name: array(layers, WIDTH) for name in ("scale1", "bias1", "scale2", "bias2")}
    params |= {"o": array(layers, HEADS, depth, WIDTH), "embedding": array(VOCABULARY, WIDTH)}
    params |= {"up": array(layers, WIDTH, 4 * WIDTH), "down": array(layers, 4 * WIDTH, WIDTH)}
    tokens = jax.ShapeDtypeStruct((4, 32), jnp.int32)
    step = jax.jit(train_step, donate_argnums=(0, 1, 2))
    step.lower(params, params, params, array(), tokens).compile()


def scanned(leaves: int) -> None:
    import jax
    import jax.numpy as jnp

    def body(_: Any, state: Any) -> Any:
        params, m, v = state
        grads = jax.grad(lambda ps: sum(jnp.sum(jnp.tanh(p) ** 2) for p in ps))(params)
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.99 * a + 0.01 * g * g for a, g in zip(v, grads, strict=True)]
        rates = (1e-3 * a / (jnp.sqrt(b) + 1e-8) for a, b in zip(m, v, strict=True))
        return [p - r for p, r in zip(params, rates, strict=True)], m, v

    def train_loop(params: Any, m: Any, v: Any) -> Any:
        return jax.lax.fori_loop(0, 100, body, (params, m, v))

    shapes = [jax.ShapeDtypeStruct((8 + k % 7, 8), jnp.float32) for k in range(leaves)]
    jax.jit(train_loop).lower(shapes, shapes, shapes).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="directory to make; a run below it per program")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        kind, size = args.only.split("_")
        (unrolled if kind == "unrolled" else scanned)(int(size))
        return
    for name in [f"unrolled_{n}" for n in UNROLLED] + [f"scanned_{n}" for n in SCANNED]:
        flags = f"--xla_dump_to={args.out / name} --xla_backend_optimization_level=0"
        flags += " --xla_llvm_disable_expensive_passes=true"
        env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, __file__, str(args.out), "--only", name]
        subprocess.run(command, env=env, check=True)
        for file in (args.out / name).rglob("*"):
            if file.is_file() and not file.name.endswith(KEPT):
                file.unlink()
        print(name, sum(file.stat().st_size for file in (args.out / name).glob("*")), flush=True)


if __name__ == "__main__":
    main()
