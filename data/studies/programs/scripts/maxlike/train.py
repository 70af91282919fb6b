"""Training in the layout of MaxText: python -m maxlike.train configs/base.yml key=value."""

import functools
import sys

import jax
import jax.numpy as jnp
import optax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from . import decoder, pyconfig


def loss_fn(params, tokens):
    logits = decoder.apply(params, tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def train_step(tx, state, tokens):
    params, opt_state = state
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, opt_state = tx.update(grads, opt_state, params)
    return (optax.apply_updates(params, updates), opt_state), {"learning/loss": loss}


def create_device_mesh(config):
    sizes = [config.ici_data_parallelism, config.ici_fsdp_parallelism]
    rest = jax.device_count() // abs(sizes[0] * sizes[1])
    sizes = [rest if size == -1 else size for size in sizes]
    return Mesh(mesh_utils.create_device_mesh(sizes), ("data", "fsdp"))


def train_loop(config):
    mesh = create_device_mesh(config)
    tx = optax.adamw(config.learning_rate)
    batch = config.per_device_batch_size * jax.device_count()

    def init_state(key):
        params = decoder.init(config, key)
        return params, tx.init(params)

    shapes = jax.eval_shape(init_state, jax.random.key(0))

    def spec(leaf):
        return NamedSharding(mesh, P(None, "fsdp") if leaf.ndim == 3 else P())

    state_shardings = jax.tree.map(spec, shapes)
    data_sharding = NamedSharding(mesh, P(("data", "fsdp")))
    with mesh:
        state = jax.jit(init_state, out_shardings=state_shardings)(jax.random.key(0))
        p_train_step = jax.jit(
            functools.partial(train_step, tx),
            in_shardings=(state_shardings, data_sharding),
            out_shardings=(state_shardings, None),
            donate_argnums=(0,),
        )
        shape = batch, config.max_target_length + 1
        tokens = jnp.arange(shape[0] * shape[1]).reshape(shape) % config.vocab_size
        for step in range(config.steps):
            state, metrics = p_train_step(state, tokens)
            print(step, metrics)


def main(argv):
    train_loop(pyconfig.initialize(argv))


if __name__ == "__main__":
    main(sys.argv)
