"""Plans that a user would write by hand: a program with one of its functions replaced."""

import functools
import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


def module_of(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def by_hand(path, function, block, is_scanned, hand):
    """The function of a module with a plan by hand, and the module.

    `block` is the function that is a layer, in the module or in a class of it.
    """
    module = module_of(path)
    owner, name = module, block
    if "." in block:
        kind, name = block.split(".")
        owner = getattr(module, kind)
    step = getattr(module, function)
    if hand == "4 microbatches":
        return in_microbatches(step, 4), module
    if hand in ("queries in 8 parts", "both"):
        module.attention = in_rows(module.HEAD, 8)
        if hand != "both":
            return step, module
        hand = "whole block"
    if hand == "loss in 8 chunks":
        module.score = in_chunks(module.score, 8)
    elif hand == "every second block" and is_scanned:
        jax.lax.scan = in_pairs(getattr(owner, name), jax.lax.scan)
    else:
        name = "group" if hand == "whole group" else name
        setattr(owner, name, HANDS[hand](getattr(owner, name), not is_scanned))
    return step, module


def checkpointed(block, prevent_cse, policy=None):
    def arrays(values):
        return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values))

    @functools.wraps(block)
    def checkpointed_block(*values):
        if not arrays(values[0]):  # a module of flax.nnx
            from flax import nnx

            return nnx.remat(block, prevent_cse=prevent_cse)(*values)
        static = tuple(at for at, value in enumerate(values) if not arrays(value))
        how = {"prevent_cse": prevent_cse, "policy": policy, "static_argnums": static}
        return jax.checkpoint(block, **how)(*values)

    return checkpointed_block


def every_second(block, prevent_cse):
    again, calls = checkpointed(block, prevent_cse), []

    @functools.wraps(block)
    def one_of_two(*values):
        calls.append(1)
        return (again if len(calls) % 2 else block)(*values)

    return one_of_two


def in_pairs(layer, scan):
    """A scan that runs two layers at a time, the first one checkpointed."""
    again = jax.checkpoint(layer, prevent_cse=False)

    def two(x, weights):
        first, second = (jax.tree.map(lambda w, at=at: w[at], weights) for at in (0, 1))
        return layer(again(x, first)[0], second)[0], None

    def scan_in_pairs(body, x, weights=None, **how):
        if body is not layer:
            return scan(body, x, weights, **how)
        pairs = jax.tree.map(lambda w: w.reshape(len(w) // 2, 2, *w.shape[1:]), weights)
        return scan(two, x, pairs)

    return scan_in_pairs


def saving_products(block, prevent_cse):
    return checkpointed(block, prevent_cse, jax.checkpoint_policies.dots_saveable)


def with_offloaded_inputs(layer, prevent_cse):
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["inputs"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    named = functools.wraps(layer)(lambda x, w: layer(checkpoint_name(x, "inputs"), w))
    return jax.checkpoint(named, policy=policy, prevent_cse=prevent_cse)


HANDS = {
    "whole block": checkpointed,
    "whole group": checkpointed,
    "every second block": every_second,
    "dots_saveable": saving_products,
    "offloaded inputs": with_offloaded_inputs,
}


def in_parts(count, tree):
    return jax.tree.map(lambda a: a.reshape(count, len(a) // count, *a.shape[1:]), tree)


def in_chunks(score, count):
    """The mean of a loss over parts of the batch, whose logits exist for one part at a time."""

    def in_turn(x, table, targets):
        part = jax.checkpoint(lambda one: score(one[0], table, one[1]))
        return jnp.mean(jax.lax.map(part, in_parts(count, (x, targets))))

    return in_turn


def in_rows(head, count):
    """Attention of `transformers.py` whose scores exist for one part of the queries at a time."""

    def attention(x, p, is_causal):
        b, t, d = x.shape
        q, k, v = (a.reshape(b, t, -1, head) for a in jnp.split(x @ p["qkv"], 3, -1))

        @jax.checkpoint
        def rows(part):
            first, queries = part
            scores = jnp.einsum("bqhd,bkhd->bhqk", queries, k) / head**0.5
            if is_causal:
                places = first + jnp.arange(t // count)
                scores = jnp.where(places[:, None] >= jnp.arange(t), scores, -jnp.inf)
            return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

        parts = q.reshape(b, count, t // count, -1, head).swapaxes(0, 1)
        results = jax.lax.map(rows, (jnp.arange(count) * (t // count), parts))
        return results.swapaxes(0, 1).reshape(b, t, d) @ p["out"]

    return attention


def in_microbatches(step, count):
    """The mean of the results of a step for parts of the batch."""

    def accumulated(params, *batch):
        def add(total, part):
            return jax.tree.map(jnp.add, total, step(params, *part)), None

        parts = in_parts(count, batch)
        one = jax.eval_shape(step, params, *jax.tree.map(lambda a: a[0], parts))
        zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), one)
        total, _ = jax.lax.scan(add, zero, parts)
        return jax.tree.map(lambda a: a / count, total)

    return accumulated
