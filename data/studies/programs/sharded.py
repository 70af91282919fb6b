"""Programs for four devices: what each of them holds whole could be spread, or gathered in turn."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from programs.program import HALF, Change, Program

F32 = jnp.float32
DEVICES = 4


def mesh_of(devices):
    return Mesh(np.array(devices[:DEVICES]), ("d",))


def placed(mesh, tree, spec):
    """The shapes of a tree; spec says of an array where it lies."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            x.shape, x.dtype, sharding=NamedSharding(mesh, spec(x.shape))
        ),
        tree,
    )


def whole(_):
    return P()


def spread(shape):
    """Along the largest dimension that four divides."""
    sizes = [size if size % DEVICES == 0 else 0 for size in shape]
    if not sizes or not max(sizes):
        return P()
    return P(*("d" if place == sizes.index(max(sizes)) else None for place in range(len(sizes))))


def rows(shape):
    return P("d", *(None for _ in shape[1:])) if shape else P()


def shape(*sizes, dtype=F32):
    return jax.ShapeDtypeStruct(sizes, dtype)


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(6):
            x = x + nn.Dense(256, use_bias=False)(nn.gelu(nn.Dense(1024, use_bias=False)(x)))
        return x


def train_of(devices, weights_at=whole, state_at=whole, donated=(0, 1)):
    """Data parallel: weights and moments of adam on every device, or spread over them."""
    mesh, model, optimizer = mesh_of(devices), Perceptron(), optax.adam(1e-3)

    def step(weights, state, x):
        slopes = jax.grad(lambda w: jnp.mean(model.apply(w, x) ** 2))(weights)
        updates, state = optimizer.update(slopes, state, weights)
        new = optax.apply_updates(weights, updates), state
        return lax.with_sharding_constraint(
            new, jax.tree.map(lambda x: x.sharding, (weights_, state_))
        )

    weights_ = jax.eval_shape(model.init, jax.random.key(0), shape(64, 256))
    state_ = placed(mesh, jax.eval_shape(optimizer.init, weights_), state_at)
    weights_ = placed(mesh, weights_, weights_at)
    return step, (weights_, state_, placed(mesh, shape(64, 256), rows)), donated


def infer_of(devices, weights_at=whole):
    """Forward alone, the weights on every device or spread."""
    mesh, model = mesh_of(devices), Perceptron()
    weights = jax.eval_shape(model.init, jax.random.key(0), shape(64, 256))
    arguments = placed(mesh, weights, weights_at), placed(mesh, shape(256, 256), rows)
    return model.apply, arguments, ()


def lookup_of(devices, table_at=whole):
    """Embeddings of a large table."""
    mesh = mesh_of(devices)

    def look(table, tokens, w):
        return jnp.tanh(table[tokens] @ w)

    arguments = (
        placed(mesh, shape(32768, 128), table_at),
        placed(mesh, shape(256, dtype=jnp.int32), rows),
        placed(mesh, shape(128, 128), whole),
    )
    return look, arguments, ()


def attend_of(devices, cache_at=whole):
    """One token over a cache that every device has, or a share of its heads."""
    mesh = mesh_of(devices)

    def attend(x, keys, values):
        scores = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", x, keys), -1)
        return jnp.einsum("bht,bthd->bhd", scores, values)

    def by_heads(sizes):
        return P(None, "d") if len(sizes) == 3 else P(None, None, "d")

    at = by_heads if cache_at == "heads" else cache_at
    cache = shape(4, 1024, 8, 64)
    arguments = placed(mesh, shape(4, 8, 64), at), placed(mesh, cache, at), placed(mesh, cache, at)
    return attend, arguments, ()


def momentum_of(devices, at=whole, donated=(0, 1)):
    """An optimizer alone, its arrays on every device or spread."""
    mesh = mesh_of(devices)

    def step(weights, momentum, slopes):
        momentum = 0.9 * momentum + slopes
        new = weights - 0.1 * momentum
        return lax.with_sharding_constraint((new, momentum), NamedSharding(mesh, at(new.shape)))

    return step, placed(mesh, (shape(1024, 1024),) * 3, at), donated


def gather_of(devices, is_together=True, layers=6, size=256, is_trained=False):
    """Weights in shares, gathered before the layers or one layer at a time."""
    mesh = mesh_of(devices)

    def together(w, x):
        for leaf in [lax.all_gather(leaf, "d", tiled=True) for leaf in w]:
            x = jnp.tanh(x @ leaf)
        return x

    def in_turn(w, x):
        def body(x, leaf):
            return jnp.tanh(x @ lax.all_gather(leaf, "d", tiled=True)), None

        return lax.scan(jax.checkpoint(body) if is_trained else body, x, w)[0]

    run = jax.shard_map(
        together if is_together else in_turn, mesh=mesh,
        in_specs=(P(None, "d"), P("d")), out_specs=P("d"), check_vma=False,
    )  # fmt: skip

    def trained(w, x):
        return jax.grad(lambda w: jnp.sum(run(w, x) ** 2))(w)

    arguments = (
        placed(mesh, shape(layers, size, size), lambda _: P(None, "d")),
        placed(mesh, shape(64, size), rows),
    )
    return trained if is_trained else run, arguments, ()


FSDP = {"weights_at": spread, "state_at": spread}
TURN = {"is_together": False}
GATHERED = {"gather one layer at a time": Change("gather", "", TURN)}
PROGRAMS = {
    "replicated": Program(
        train_of,
        {
            "weights and moments spread": Change("shard", "", FSDP),
        },
    ),
    "replicated_infer": Program(
        infer_of, {"weights spread": Change("shard", "", {"weights_at": spread})}
    ),
    "replicated_lookup": Program(
        lookup_of,
        {"all of it in bf16": HALF, "table spread": Change("shard", "", {"table_at": spread})},
    ),
    "replicated_cache": Program(
        attend_of,
        {
            "all of it in bf16": HALF,
            "cache spread by heads": Change("shard", "", {"cache_at": "heads"}),
        },
    ),
    "replicated_momentum": Program(
        momentum_of, {"all spread": Change("shard", "", {"at": spread})}
    ),
    "gathered": Program(gather_of, GATHERED),
    "gathered_deep": Program(gather_of, GATHERED, {"layers": 12, "size": 128}),
    "gathered_wide": Program(gather_of, GATHERED, {"layers": 4, "size": 512}),
    "gathered_train": Program(
        gather_of, {"all of it in bf16": HALF} | GATHERED, {"is_trained": True}
    ),
}
