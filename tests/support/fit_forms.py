"""Forms of statements, scans and blocks whose plans are patched: each function takes params, x.

`test_jax_patch.py` patches them under several plans, and traces what comes out.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name as note
from jax.sharding import PartitionSpec as P

N, D = 4, 8


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def args():
    return {"w": shape(N, D, D), "v": shape(N, D, D)}, shape(D, D)


def run(body, params, x):
    def loss(params, x):
        y, _ = lax.scan(body, x, params)
        return (y * y).sum()

    return jax.grad(loss)(params, x)


def step_relu(params, x):
    def body(x, p):
        h = x @ p["w"]
        return x + jax.nn.relu(h), None

    return run(body, params, x)


# fmt: off
def step_several_lines(params, x):
    def body(x, p):
        h = jnp.tanh(
            x
            @ p["w"]  # the product
        )
        g = (h
             .reshape(D * D)
             .reshape(D, D))
        return g * \
            jnp.sin(h), None

    return run(body, params, x)


# fmt: on
def step_lambda(params, x):
    return run(lambda x, p: (jnp.sin(jnp.cos(x @ p["w"])), None), params, x)


class Layer:
    def __init__(self):
        self.scale = 2.0

    def __call__(self, x, p):
        return self.inner(x @ p["w"]), None

    def inner(self, h):
        return jnp.sin(h) * self.scale


def step_method(params, x):
    return run(Layer(), params, x)


def step_generator(params, x):
    def body(x, p):
        q, k = (jnp.sin(a) for a in jnp.split(x @ p["w"], 2, -1))
        return jnp.concatenate([q * k, q], -1), None

    return run(body, params, x)


def step_comprehension(params, x):
    def body(x, p):
        parts = [jnp.sin(x @ p[name]) for name in sorted(p)]
        return sum(parts), None

    return run(body, params, x)


def step_augmented(params, x):
    def body(x, p):
        h = x @ p["w"]
        h *= jnp.sin(h)
        h += 1.0
        return h * h, None

    return run(body, params, x)


def step_walrus(params, x):
    def body(x, p):
        if (h := x @ p["w"]) is not None:
            g = jnp.sin(h)
        return g * h, None

    return run(body, params, x)


def step_starred(params, x):
    def pair(h):
        return jnp.sin(h), jnp.cos(h)

    def body(x, p):
        return jnp.multiply(*pair(x @ p["w"])), None

    return run(body, params, x)


def step_chain(params, x):
    def body(x, p):
        return (x @ p["w"] + x @ p["v"] + jnp.sin(x)) / 2, None

    return run(body, params, x)


def step_helper_twice(params, x):
    def twice(h):
        return jnp.sin(jnp.exp(h))

    def body(x, p):
        return twice(twice(x @ p["w"])), None

    return run(body, params, x)


# fmt: off
def step_unicode(params, x):
    def körper(x, p):
        ü = x @ p["w"]; ö = jnp.sin(ü) * len("∑→")  # noqa: E702
        return ö * ü, None

    return run(körper, params, x)


# fmt: on
def step_softmax(params, x):
    def body(x, p):
        h = jnp.einsum("ij,jk->ik", x, p["w"])
        a = jax.nn.softmax(h)
        return jnp.where(h > 0, a, h) @ p["v"], None

    return run(body, params, x)


def step_conditional(params, x):
    def body(x, p):
        h = lax.cond(x[0, 0] > 0, lambda: jnp.sin(x @ p["w"]), lambda: jnp.cos(x @ p["w"]))
        return h * h, None

    return run(body, params, x)


def step_checkpoint_inside(params, x):
    @jax.checkpoint
    def piece(h):
        return jnp.sin(jnp.exp(h))

    def body(x, p):
        return x + piece(x @ p["w"]), None

    return run(body, params, x)


def step_checkpoint_inline(params, x):
    def body(x, p):
        return x + jax.checkpoint(lambda h: jnp.sin(jnp.exp(h)))(x @ p["w"]), None

    return run(body, params, x)


def step_checkpoint_outside(params, x):
    def body(x, p):
        h = note(x @ p["w"], "mine")
        return jnp.sin(h) @ p["v"], None

    policy = jax.checkpoint_policies.save_only_these_names("mine")
    kept = jax.checkpoint(body, policy=policy, prevent_cse=False)

    def loss(params, x):
        return (lax.scan(kept, x, params)[0] ** 2).sum()

    return jax.grad(loss)(params, x)


@partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
def decorated(x, p):
    return jnp.sin(x @ p["w"]) @ p["v"], None


def step_checkpoint_decorated(params, x):
    def loss(params, x):
        return (jax.lax.scan(f=decorated, init=x, xs=params)[0] ** 2).sum()

    return jax.grad(loss)(params, x)


def step_checkpoint_of_heads(params, x):
    def heads(x, w):
        @jax.checkpoint
        def head(_, h):
            return None, jnp.sin(jnp.cos(h @ w))

        return lax.scan(head, None, jnp.stack([x, 2 * x]))[1].sum(0)

    def body(x, p):
        return x + jnp.tanh(heads(x, p["w"])) @ p["v"], None

    return jax.grad(lambda params: lax.scan(body, x, params)[0].sum())(params)


def step_fori(params, x):
    def loss(params, x):
        def body(i, x):
            return jnp.sin(x @ params["w"][i]) @ params["v"][i]

        return (lax.fori_loop(0, N, body, x) ** 2).sum()

    return jax.grad(loss)(params, x)


def step_map(params, x):
    def loss(params, x):
        def body(p):
            return jnp.sin(x @ p["w"]) @ p["v"]

        return (lax.map(body, params) ** 2).sum()

    return jax.grad(loss)(params, x)


def step_two_scans(params, x):
    def shared(h):
        return jnp.sin(jnp.tanh(h))

    def first(x, p):
        return shared(x @ p["w"]), None

    def second(x, p):
        return shared(x @ p["v"]) * x, None

    def loss(params, x):
        x, _ = jax.lax.scan(first, x, params)
        x, _ = jax.lax.scan(second, x, params)
        return (x * x).sum()

    return jax.grad(loss)(params, x)


def block(x, w, v):
    return x + jnp.tanh(x @ w) @ v


def half(x, ws):
    for w in ws:
        x = jnp.tanh(x @ w)
    return x


def whole(params, x):
    return _squares(other_half(half(x, params["w"]), params["v"]))


def other_half(x, ws):
    for w in ws:
        x = jnp.tanh(x @ w)
    return x


def _squares(x):
    return (x * x).sum()


def step_halves(params, x):
    return jax.grad(whole)(params, x)


def tower(x, ws):
    for w in ws:
        h = jnp.tanh(x @ w)
        x = x + jnp.cos(h)
    return x


def step_towers(params, x):
    def loss(params, x):
        return _squares(tower(x, params["w"]) * tower(jnp.cos(x), params["v"]))

    return jax.grad(loss)(params, x)


def step_skips(params, x):
    def loss(params, x):
        skips = []
        for w in params["w"]:
            skips.append(x)
            x = jnp.tanh(x @ w)
        for v in params["v"]:
            h = jnp.sin(x) * jnp.cos(x)
            # What the first half kept, the last first.
            x = half(h + jnp.exp(skips.pop()), [v])
        return _squares(x)

    return jax.grad(loss)(params, x)


def step_loop_body(params, x):
    def loss(params, x):
        kept = []
        for w, v in zip(params["w"], params["v"], strict=True):
            kept.append(x)
            h = jnp.tanh(x @ w)
            # The last values of the layer.
            x = x + h @ v
        return (x * x).sum() + kept[0].sum()

    return jax.grad(loss)(params, x)


def step_repeated_lines(params, x):
    def loss(params, x):
        h = jnp.tanh(x @ params["w"][0])
        x = x + h @ params["v"][0]
        h = jnp.tanh(x @ params["w"][1])
        x = x + h @ params["v"][1]
        h = jnp.tanh(x @ params["w"][2])
        x = x + h @ params["v"][2]
        return (x * x).sum()

    return jax.grad(loss)(params, x)


def step_one_line(params, x):
    def loss(params, x):
        x = x + jnp.tanh(jnp.sin(jnp.cos(x @ params["w"][0]))) @ params["v"][0]
        h = x @ params["w"][1]
        h = jnp.tanh(h * jnp.sin(h) * jnp.cos(h))
        return (h * h).sum()

    return jax.grad(loss)(params, x)


def step_blocks(params, x):
    def loss(params, x):
        for at in range(N):
            x = block(x, params["w"][at], v=params["v"][at])
        return (x * x).sum()

    return jax.grad(loss)(params, x)


def step_blocks_in_blocks(params, x):
    def loss(params, x):
        x = block(block(x, params["w"][0], params["v"][0]), params["w"][1], params["v"][1])
        x = block(block(x, params["w"][2], params["v"][2]), params["w"][3], params["v"][3])
        return (x * x).sum()

    return jax.grad(loss)(params, x)


class Net:
    def layer(self, x, w, v):
        return x + jnp.tanh(x @ w) @ v

    def __call__(self, params, x):
        for w, v in zip(params["w"], params["v"], strict=True):
            x = self.layer(x * 2.0, w, v)
        return x


def step_methods(params, x):
    return jax.grad(lambda params, x: (Net()(params, x) ** 2).sum())(params, x)


def chosen_block(x, weights, depth, *, kind="tanh", scale=None):
    h = jnp.tanh(x @ weights[0]) if kind == "tanh" else x
    return x + (h if depth < N else x) @ weights[1]


def step_static_arguments(params, x):
    """Calls with trees of arrays, and values of Python by place and by name."""

    def loss(params, x):
        for at in range(N):
            x = chosen_block(x, (params["w"][at], params["v"][at]), at, kind="tanh")
        return (x * x).sum()

    return jax.grad(loss)(params, x)


# -- shards ----------------------------------------------------------------------------------------


def sharded(local, params, x):
    """Each device has some rows of x."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    specs = (P(), P("rows"))
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P())(params, x)


def step_scan_in_shard_map(params, x):
    def body(x, p):
        h = x @ p["w"]
        return x + (jnp.tanh(h) - jax.lax.pmean(h, "rows")) @ p["v"], None

    def local(params, x):
        return jax.lax.pmean((jax.lax.scan(body, x, params)[0] ** 2).sum(), "rows")

    return jax.grad(partial(sharded, local))(params, x)


def step_blocks_in_shard_map(params, x):
    def local(params, x):
        for at in range(3):
            x = block(x, params["w"][at], params["v"][at])
        return jax.lax.pmean((x**2).sum(), "rows")

    return jax.grad(partial(sharded, local))(params, x)
