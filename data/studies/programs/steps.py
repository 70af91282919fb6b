"""Train steps with named arrays, and one change of them each.

- `drop a` leaves the name out of the checkpoint policy, so that it is computed again;
- `half a` keeps it in bfloat16;
- `donate` gives the weights' bytes to the new weights;
- `chunk` computes logits and their loss in CHUNKS parts, one after another.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name as name
from programs.program import Change, Program, on

CHUNKS = 4
F32 = jnp.float32


def mlp(t, x, w):
    a = name((x @ w["a"]).astype(t["a"]), "a").astype(F32)
    b = name(jnp.sin(a).astype(t["b"]), "b").astype(F32)
    c = name((b @ w["b"]).astype(t["c"]), "c").astype(F32)
    d = name(jnp.tanh(c).astype(t["d"]), "d").astype(F32)
    return name(x + jnp.cos(d @ w["c"]), "x")


def attention(t, x, w):
    r = lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)
    y = name((x * r).astype(t["y"]), "y").astype(F32)
    q = name(jnp.einsum("btd,dhk->bhtk", y, w["q"]).astype(t["q"]), "q").astype(F32)
    k = name(jnp.einsum("btd,dhk->bhtk", y, w["k"]).astype(t["k"]), "k").astype(F32)
    v = name(jnp.einsum("btd,dhk->bhtk", y, w["v"]).astype(t["v"]), "v").astype(F32)
    s = jnp.einsum("bhtk,bhsk->bhts", q, k) / 5.0
    p = name(jax.nn.softmax(s, axis=-1).astype(t["p"]), "p").astype(F32)
    o = name(jnp.einsum("bhts,bhsk->bthk", p, v).astype(t["o"]), "o").astype(F32)
    z = name((x + jnp.einsum("bthk,hkd->btd", o, w["o"])).astype(t["z"]), "z").astype(F32)
    u = name((z @ w["up"]).astype(t["u"]), "u").astype(F32)
    h = name(jax.nn.gelu(u).astype(t["h"]), "h").astype(F32)
    return name(z + h @ w["down"], "x")


def score(head, y):
    return jnp.sum(jnp.square(name(jax.nn.softmax(y @ head), "logits")))


def scanned(layer, w, x):
    return lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]


def unrolled(layer, w, x):
    for number in range(jax.tree.leaves(w)[0].shape[0]):
        x = layer(x, jax.tree.map(lambda leaf, number=number: leaf[number], w))
    return x


def shapes(**sizes):
    return {key: jax.ShapeDtypeStruct(size, F32) for key, size in sizes.items()}


LAYERS = {
    mlp: ("abcdx", shapes(a=(8, 72, 96), b=(8, 96, 160), c=(8, 160, 72)), (512, 72)),
    attention: (
        "yqkvpozuhx",
        shapes(q=(6, 96, 4, 24), k=(6, 96, 4, 24), v=(6, 96, 4, 24), o=(6, 4, 24, 96),
               up=(6, 96, 352), down=(6, 352, 96)),
        (2, 130, 96),
    ),
}  # fmt: skip
"""Names, weights of all layers and the shape of a batch, by layer."""
GIVEN_UP = {mlp: ["a+c", "b+d"], attention: ["p+h", "q+k+v"]}
VOCABULARIES = (200, 400, 800, 1600, 3200)


def families():
    """Return by program: how layers are combined, the layer, and the number of logits or 0."""
    by_program = {}
    for layer in LAYERS:
        by_program[f"{layer.__name__}_scan"] = (scanned, layer, 0)
        by_program[f"{layer.__name__}_unrolled"] = (unrolled, layer, 0)
        for size in VOCABULARIES:
            by_program[f"{layer.__name__}_scan_{size}"] = (scanned, layer, size)
    return by_program


def changes(layer, vocabulary):
    if vocabulary:
        return ["chunk", "donate"]
    return [
        *(f"drop {names}" for names in [*LAYERS[layer][0], *GIVEN_UP[layer]]),
        *(f"half {letter}" for letter in LAYERS[layer][0] if letter != "x"),
        "donate",
    ]


def line_of(layer, letter):
    """The line on which a layer gives an array its name, as FILE:LINE."""
    text = Path(__file__).read_text(encoding="utf-8")
    end = text.index(f'"{letter}")', text.index(f"def {layer.__name__}("))
    return f"{Path(__file__).name}:{text[:end].count(chr(10)) + 1}"


def step_of(layers, layer, vocabulary, change=""):
    """The step with a change, and its weights."""
    names, weights, _ = LAYERS[layer]
    kind, _, given_up = change.partition(" ")
    if vocabulary:
        weights = weights | shapes(head=(*LAYERS[layer][2][-1:], vocabulary))
    saved = set(names) - (set(given_up.split("+")) if kind == "drop" else set())
    types = dict.fromkeys(names, F32) | ({given_up: jnp.bfloat16} if kind == "half" else {})
    policy = jax.checkpoint_policies.save_only_these_names(*sorted(saved))
    # A function of its own for each change: jax keeps what it has traced by function.
    own_layer = partial(layer, types)

    def loss(w, x):
        stacked = {key: leaf for key, leaf in w.items() if key != "head"}
        y = layers(jax.checkpoint(own_layer, policy=policy), stacked, x)
        if not vocabulary:
            return jnp.mean(jnp.square(y))
        y = y.reshape(-1, y.shape[-1])
        if kind != "chunk":
            return score(w["head"], y)
        parts = y.reshape(CHUNKS, -1, y.shape[-1])
        return jnp.sum(lax.map(jax.checkpoint(lambda part: score(w["head"], part)), parts))

    def step(w, x):
        return jax.tree.map(lambda old, slope: old - 0.1 * slope, w, jax.grad(loss)(w, x))

    return step, weights


def make(devices, layers, layer, vocabulary, change=""):
    step, weights = step_of(layers, layer, vocabulary, change)
    arguments = on(devices[0], (weights, shapes(x=LAYERS[layer][2])["x"]))
    return step, arguments, (0,) if change == "donate" else ()


def change_of(layers, layer, what):
    kind, _, names = what.partition(" ")
    options = {"change": what}
    if kind == "donate":
        return Change("donate", "", options)
    if kind == "chunk":
        return Change("chunk", line_of(score, "logits"), options)
    at = "+".join(line_of(layer, letter) for letter in names.split("+"))
    if kind == "half":
        return Change("dtype", at, options)
    if layers is unrolled:
        return Change("recompute", at, options)
    return Change("layer_input" if names == "x" else "residual", at, options)


PROGRAMS = {
    program: Program(
        make,
        {what: change_of(layers, layer, what) for what in changes(layer, vocabulary)},
        {"layers": layers, "layer": layer, "vocabulary": vocabulary},
    )
    for program, (layers, layer, vocabulary) in families().items()
}
