"""Small programs of JAX and the same with one piece of advice followed.

    XLA_FLAGS=--xla_dump_to=DIR python jax_changes.py cpu|tpu

compiles them, `NAME` and `NAME_changed` for each: for the CPU those of test_jax_advice.py, for a
TPU, which need not be there, those of test_jax_tpu.py. Nothing is executed.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

F32, BF16 = jnp.float32, jnp.bfloat16
POLICIES = jax.checkpoint_policies
WIDE = jax.ShapeDtypeStruct((256, 512), F32)
SQUARE = jax.ShapeDtypeStruct((512, 512), F32)


def donate(w, slope):
    return w - 0.1 * slope


def donate_copied(w, x):
    return w @ x


def layer(x, w):
    a = name(x @ w, "kept")
    return x + name(jnp.sin(a), "dropped") @ w


def step_of(layers, policy):
    def loss(w, x):
        return jnp.sum(jnp.square(layers(jax.checkpoint(layer, policy=policy), w, x)))

    return lambda w, x: jax.tree.map(lambda old, slope: old - 0.1 * slope, w, jax.grad(loss)(w, x))


def scanned(layer, w, x):
    return lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]


def unrolled(layer, w, x):
    for number in range(w.shape[0]):
        x = layer(x, w[number])
    return x


LAYERS = jax.ShapeDtypeStruct((6, 64, 64), F32), jax.ShapeDtypeStruct((1024, 64), F32)


def dtype_of(kind):
    def dtype(x):
        first = jnp.sin(x).astype(kind)
        y = lax.fori_loop(0, 4, lambda _, y: jnp.sin(y) + y, x + first.max().astype(BF16))
        return (first * y).sum()

    return dtype


def copy_of(is_kept):
    def body(i, carry):
        y, total = carry
        return y.at[i].add(total), total + 1.0

    def copy(x):
        first = x @ x
        y, total = lax.fori_loop(0, 8, body, (first, first.sum()))
        return (y * first).sum() if is_kept else y.sum() + total

    return copy


def late_of(is_late):
    def late(x, w):
        early = jnp.tanh(x @ w)
        total = early.sum()
        y = lax.fori_loop(0, 4, lambda _, y: jnp.sin(y @ w) + y, x + total)
        return (early * y).sum() if is_late else y.sum() + total

    return late


TABLE = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)


def constant(x):
    return x @ TABLE


def constant_changed(x):
    return x @ jnp.sin(lax.iota(F32, x.size)).reshape(x.shape)


def gather_of(is_together, mesh):
    def gather_all(w, x):
        whole = [lax.all_gather(leaf, "d", tiled=True) for leaf in w]
        for leaf in whole:
            x = jnp.tanh(x @ leaf)
        return x

    def gather_each(w, x):
        def body(x, leaf):
            return jnp.tanh(x @ lax.all_gather(leaf, "d", tiled=True)), None

        return lax.scan(body, x, w)[0]

    gather = gather_all if is_together else gather_each
    return jax.shard_map(
        gather, mesh=mesh, in_specs=(P(None, "d"), P("d")), out_specs=P("d"), check_vma=False
    )


def temps(x, w, v):
    """Two arrays of a loop, alive together."""
    y = jnp.tanh(x @ w)
    y = lax.fori_loop(0, 3, lambda _, y: jnp.sin(y @ v) + y, y)
    return (y * y).sum()


def stacks(x, w):
    def last(w):
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0].sum()

    return jax.grad(last)(w)


def f32(*shapes):
    return tuple(jax.ShapeDtypeStruct(shape, F32) for shape in shapes)


def padded_programs():
    """Arrays that fill tiles of 8 x 128 badly, and how that changes."""
    sizes = {
        "arguments": (donate, [(129, 129)] * 2, [(128, 128)] * 2),
        "merged": (donate, [(4096, 3, 3)] * 2, [(4096 * 3 * 3,)] * 2),
        "exchanged": (donate, [(4096, 3, 3)] * 2, [(3, 3, 4096)] * 2),
        "rounded_up": (donate, [(129, 129)] * 2, [(136, 256)] * 2),
        "temps": (
            temps,
            [(4096, 256), (256, 129), (129, 129)],
            [(4096, 256), (256, 128), (128, 128)],
        ),
        "stacks": (stacks, [(256, 129), (6, 129, 129)], [(256, 128), (6, 128, 128)]),
    }
    by_name = {}
    for title, (function, base, changed) in sizes.items():
        by_name[title] = (function, f32(*base), ())
        by_name[f"{title}_changed"] = (function, f32(*changed), ())
    return by_name


def factor(w, x):
    return jnp.maximum(w @ x, 0)


def no_factor(w, x, slope):
    return w - 0.1 * (x @ slope)


def tpu_programs():
    """Return the programs that compile differently for a TPU, or that need one."""
    by_name = padded_programs()
    functions = {"factor": (factor, (SQUARE,) * 2), "no_factor": (no_factor, (SQUARE,) * 3)}
    for title, (function, arguments) in functions.items():
        by_name[title] = (function, arguments, ())
        by_name[f"{title}_changed"] = (function, arguments, (0,))
    same = ("donate", "copy", "late")
    return by_name | {name: of for name, of in programs().items() if name.startswith(same)}


def programs():
    """Return by name: the function, its arguments, and the donated ones."""
    keep = POLICIES.save_only_these_names
    offload = POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=["kept"],
        names_which_can_be_offloaded=["dropped"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    mixed = (jax.ShapeDtypeStruct((2048, 512), BF16),)
    return {
        "donate": (donate, (SQUARE, SQUARE), ()),
        "donate_changed": (donate, (SQUARE, SQUARE), (0,)),
        "donate_copied": (donate_copied, (SQUARE, SQUARE), ()),
        "donate_copied_changed": (donate_copied, (SQUARE, SQUARE), (0,)),
        "residual": (step_of(scanned, keep("kept", "dropped")), LAYERS, ()),
        "residual_changed": (step_of(scanned, keep("kept")), LAYERS, ()),
        "recompute": (step_of(unrolled, keep("kept", "dropped")), LAYERS, ()),
        "recompute_changed": (step_of(unrolled, keep("kept")), LAYERS, ()),
        "offload": (step_of(scanned, keep("kept", "dropped")), LAYERS, ()),
        "offload_changed": (step_of(scanned, offload), LAYERS, ()),
        "dtype": (dtype_of(F32), mixed, ()),
        "dtype_changed": (dtype_of(BF16), mixed, ()),
        "copy": (copy_of(True), (SQUARE,), ()),
        "copy_changed": (copy_of(False), (SQUARE,), ()),
        "late": (late_of(True), (WIDE, SQUARE), ()),
        "late_changed": (late_of(False), (WIDE, SQUARE), ()),
        "constant": (constant, (SQUARE,), ()),
        "constant_changed": (constant_changed, (SQUARE,), ()),
    }


def mesh_programs():
    """The same, of programs for four devices."""
    by_name = {}
    mesh = Mesh(np.array(jax.devices()), ("d",))
    w = jax.ShapeDtypeStruct((6, 512, 512), F32, sharding=NamedSharding(mesh, P(None, "d")))
    rows = jax.ShapeDtypeStruct((32, 512), F32, sharding=NamedSharding(mesh, P("d")))
    for title, is_together in (("gather", True), ("gather_changed", False)):
        by_name[title] = (gather_of(is_together, mesh), (w, rows), ())
    return by_name


def main(target):
    placed = None
    if target == "tpu":
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data" / "model"))
        from target import one_device

        placed = one_device(target)
    by_name = tpu_programs() if placed else programs() | mesh_programs()
    for title, (function, arguments, donated) in by_name.items():

        def program(*arrays, function=function):
            return function(*arrays)

        program.__name__ = title
        arguments = [
            jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=placed or one.sharding)
            for one in arguments
        ]
        jax.jit(program, donate_argnums=donated).lower(*arguments).compile()


if __name__ == "__main__":
    main(*sys.argv[1:])
