"""A training step over a mesh of devices, to see what is divided among them and what is not.

Two axes: `data` over half of the devices or all but two, `model` over two. The large weights are
divided over both, the table of embeddings over none although it could be, the norms over none
because they are small, and the momentum as the weights. A table is closed over, so that it becomes
a constant of the program. With `--offload` what the layers save waits in the memory of the host.
Nothing is executed.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from target import devices

WORDS, WIDTH, INNER, LAYERS, LENGTH = 512, 64, 256, 4, 32
SHAPES = {
    "embedding": ((WORDS, WIDTH), ()),
    "norm": ((LAYERS, WIDTH), ()),
    "w_in": ((LAYERS, WIDTH, INNER), (None, "data", "model")),
    "w_out": ((LAYERS, INNER, WIDTH), (None, "model", "data")),
}
POSITIONS = np.sin(np.arange(LENGTH)[:, None] * np.exp(-np.arange(WIDTH) / 8)).astype(np.float32)


def layer(x, w):
    normed = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w["norm"]
    inner = checkpoint_name(jnp.maximum(normed @ w["w_in"], 0), "inner")
    return x + inner @ w["w_out"], None


def loss(params, tokens, policy=None):
    x = params["embedding"][tokens] + POSITIONS
    layers = {name: params[name] for name in ("norm", "w_in", "w_out")}
    step = layer if policy is None else jax.checkpoint(layer, policy=policy)
    x, _ = lax.scan(step, x, layers)
    return jnp.mean(jax.nn.logsumexp(x @ params["embedding"].T, -1))


def train_step(params, opt_state, tokens, policy=None):
    """One step of gradient descent with momentum."""
    gradients = jax.grad(loss)(params, tokens, policy)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, opt_state["momentum"], gradients)
    params = jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum)
    return params, {"momentum": momentum}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=("cpu", "gpu", "tpu"), default="cpu")
    parser.add_argument("--offload", action="store_true", help="save to the memory of the host")
    args = parser.parse_args()
    hardware = jax.devices() if args.target == "cpu" else devices(args.target)
    mesh = Mesh(np.array(hardware).reshape(-1, 2), ("data", "model"))

    def shaped(shape, axes, dtype=jnp.float32):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    params = {name: shaped(*sizes) for name, sizes in SHAPES.items()}
    tokens = shaped((16, LENGTH), ("data",), jnp.int32)
    policy = None
    if args.offload:
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["inner"],
            offload_src="device",
            offload_dst="pinned_host",
        )
    step = partial(train_step, policy=policy)
    step.__name__ = "offloaded_step" if args.offload else "train_step"
    state = (params, {"momentum": params})
    out = jax.tree.map(lambda leaf: leaf.sharding, state)
    jax.jit(step, donate_argnums=(0, 1), out_shardings=out).lower(*state, tokens).compile()


if __name__ == "__main__":
    main()
