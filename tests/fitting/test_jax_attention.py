"""Attention in parts: which lines, along which axis, and what the patched lines compute."""

import functools
import json
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

from bufdb.errors import BufdbError  # noqa: E402
from bufdb.fitting.counting import inner_jaxprs  # noqa: E402
from bufdb.fitting.edits import Refused  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.patch import of_files  # noqa: E402
from bufdb.fitting.plans import Plan  # noqa: E402
from bufdb.fitting.session import require_same_equations  # noqa: E402

HEAD = """
import jax
import numpy as np
import jax.numpy as jnp

def heads(x, n):
    return x.reshape(*x.shape[:-1], n, -1)

def params(q=32, k=32):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = {"q": (32, q), "k": (32, k), "v": (32, k), "o": (q, 32)}
    return {n: 0.2 * jax.random.normal(a, s) for a, (n, s) in zip(keys, shapes.items())}

def tokens(b=2, t=64):
    return jax.random.normal(jax.random.key(1), (b, t, 32))

def step(p, x):
    return jax.value_and_grad(loss)(p, x)
"""
LINES = """
def attention(q, k, v):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(q.shape[-1])
    t = q.shape[1]
    mask = jnp.tril(jnp.ones((t, t), bool))
    scores = jnp.where(mask, scores, -1e30)
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights, v)

def loss(p, x):
    for _ in range(2):
        q, k, v = (heads(x @ p[n], 4) for n in "qkv")
        x = x + attention(q, k, v).reshape(x.shape) @ p["o"]
    return (x ** 2).mean()
"""
CLIPPED = """
@jax.custom_vjp
def clipped(x):
    return x
clipped.defvjp(lambda x: (x, None), lambda _, g: (g / (1e-6 + jnp.sqrt((g**2).sum())),))
"""
SCANNED = """
def block(x, _, p):
    q, k, v = (heads(x @ p[n], 4).swapaxes(1, 2) for n in "qkv")
    att = (q @ k.mT) * 0.3
    if att.ndim == 4:
        att = att - att.max(-1, keepdims=True)
    att = jnp.exp(att)
    att /= att.sum(-1, keepdims=True)
    y = (att @ v).swapaxes(1, 2).reshape(x.shape)
    return x + y @ p["o"], None

def loss(p, x):
    x, _ = jax.lax.scan(lambda x, _: block(x, _, p), x, None, length=3)
    return (x ** 2).mean()
"""
CALL = """
def loss(p, x):
    for _ in range(2):
        q, k, v = heads(x @ p["q"], 4), heads(x @ p["k"], 2), heads(x @ p["v"], 2)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(*x.shape[:2], -1)
        x = x + y @ p["o"]
    return (x ** 2).mean()
"""
SHARED_KEYS = """
def loss(p, x):
    q, k, v = heads(x @ p["q"], 4), x @ p["k"], x @ p["v"]
    x = x + jnp.einsum(
        "bhts,bsd->bthd", jax.nn.softmax(jnp.einsum("bthd,bsd->bhts", q, k)), v
    ).reshape(*x.shape[:2], -1) @ p["o"]
    return (x ** 2).mean()
"""
TWO_SUMS = """
def loss(p, x):
    q, k, v = (heads(x @ p[n], 4) for n in "qkv")
    # to the keys, and to their places
    scores = jnp.einsum("bthd,bshd->bhts", q, k)
    places = jnp.sin(jnp.arange(x.shape[1])[:, None] * jnp.linspace(0, 1, q.shape[-1]))
    scores = scores + jnp.einsum("bthd,sd->bhts", q, places)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v).var()
"""
MAPPED = """
def one(p, x):
    q, k, v = (heads(x @ p[n], 4) for n in "qkv")
    w = jnp.einsum("thd,shd->hts", q, k)
    w = jax.nn.softmax(w)
    return x + jnp.einsum("hts,shd->thd", w, v).reshape(x.shape) @ p["o"]

def loss(p, x):
    return (jax.vmap(one, (None, 0))(p, x) ** 2).mean()
"""
ROWS = """
def attention(q, k, v, bias):
    scores = q @ k.mT + bias
    return jax.nn.softmax(scores) @ v

def loss(p, x):
    bias = jnp.arange(128)[:, None] * jnp.linspace(0, 0.1, 128)
    x = x + attention(x @ p["q"], x @ p["k"], x @ p["v"], bias) @ p["o"]
    return (x ** 2).mean()
"""


LIMIT = 14 << 20


def program(tmp_path, text, args=""):
    """Return the path of a program, its function with arguments of its own, and its namespace."""
    path = tmp_path / "model.py"
    path.write_text(HEAD + textwrap.dedent(text))
    space = namespace(path.read_text(), path)
    values = drawn(args or "params(), tokens()")
    return path, Function(space["step"], values, {}, "step"), values


@functools.cache
def drawn(args):
    """Return random arguments: after each trace JAX would compile again how it draws them."""
    return eval(args, namespace(HEAD, Path("head.py")))


def namespace(text, path):
    """Return what a text defines; its lines are those of a file."""
    space = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), space)
    return space


def changed(function, path, at=0):
    """Return the change with parts in growing numbers, and the patched text."""
    changes = function.changes(("attention",))
    if not changes.tried:
        raise Refused("; ".join(changes.notes))
    change = changes.tried[at]
    made = of_files(function_program(function, changes), Plan(extra=change.keys))
    assert made.is_whole, made.steps
    return change, made.texts[str(path)]


def function_program(function, changes):
    """Return the program of a function with changes of its text."""
    return replace(function.program(), changes=changes.tried)


def largest(function, values):
    """Return the elements of the largest value that a function computes, in loops, too."""

    def of(jaxpr):
        for eqn in jaxpr.eqns:
            yield from (var.aval.size for var in eqn.outvars)
            for inner in inner_jaxprs(eqn):
                yield from of(inner)

    return max(of(jax.make_jaxpr(function)(*values).jaxpr))


@pytest.mark.parametrize(
    ("text", "args", "axes", "count"),
    [
        pytest.param(LINES, "", {"q": 2, "k": 2, "v": 2}, 4, id="lines of a function"),
        pytest.param(SCANNED, "", {"q": 2}, 8, id="lines of a scan's body"),
        pytest.param(
            CALL, "params(32, 16), tokens(1, 128)", dict.fromkeys("qkv", 2), 2, id="a library"
        ),
        pytest.param(SHARED_KEYS, "params(32, 8), tokens()", {"q": 1}, 8, id="one head of keys"),
        pytest.param(TWO_SUMS, "", {"q": 1}, 8, id="scores of two products"),
        pytest.param(MAPPED, "", {"q": 0}, 8, id="of one example in a vmap"),
        pytest.param(ROWS, "params(), tokens(2, 128)", {"q": 1, "bias": 0}, 8, id="rows"),
    ],
)
def test_parts_compute_the_same(tmp_path, text, args, axes, count):
    path, function, values = program(tmp_path, text, args)
    change, patched = changed(function, path)
    (parts,) = change.parts
    assert (dict(parts.axes), parts.count) == (axes, count)
    function_equations = function.equations(change.parts)
    written, loss = (namespace(text, path)["loss"] for text in (path.read_text(), patched))
    path.write_text(patched)
    made = Function(namespace(patched, path)["step"], values, {}, "step")
    require_same_equations(function_equations, made.equations(()))
    np.testing.assert_allclose(jax.jit(written)(*values), jax.jit(loss)(*values), rtol=1e-5)
    assert largest(loss, values) * 2 <= largest(written, values)


def test_more_parts_come_after_eight(tmp_path):
    _, function, _ = program(tmp_path, ROWS, "params(), tokens(2, 128)")
    assert [one.key for one in function.changes(("attention",)).tried] == [
        "attention=8", "attention=64",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "instead", "why"),
    [
        (
            "weights = jax.nn.softmax(scores, axis=-1)",
            "weights = jax.nn.softmax(scores, axis=(0, 1, 2, 3))",
            "reduces all parts to one",
        ),
        (
            "weights = jax.nn.softmax(scores, axis=-1)",
            "weights = jax.nn.softmax(scores, axis=-1)\n    keep ="
            " jax.random.bernoulli(jax.random.key(0), 0.9, weights.shape)\n"
            "    weights = jnp.where(keep, weights, 0)",
            "may compute one part of another",
        ),
        (
            "scores = jnp.where(mask, scores, -1e30)",
            "scores = jnp.where(mask, clipped(scores), -1e30)",
            "custom_vjp_call may compute one part of another",
        ),
        (
            "t = q.shape[1]",
            "t = q.shape[1]\n    scores = scores * np.ones(scores.shape[1]).sum()",
            "numpy.ones makes an array in its lines",
        ),
        (
            'return jnp.einsum("bhts,bshd->bthd", weights, v)',
            'return jnp.einsum("bhts,bshd->bthd", weights, v), weights',
            "weights is read after its lines",
        ),
        (
            "t = q.shape[1]",
            "t = q.shape[1]\n    del k",
            "a line between does more than assign names",
        ),
        (
            'return jnp.einsum("bhts,bshd->bthd", weights, v)',
            'y = jnp.einsum("bhts,bshd->bthd", weights, v)\n    return y + scores.sum()',
            "scores is read after its lines",
        ),
        (
            "scores = jnp.where(mask, scores, -1e30)",
            "scores = jnp.where(mask, scores, -1e30)\n    print(scores.shape)",
            "a line between does more than assign names",
        ),
    ],
)
def test_what_parts_do_not_compute_alone_is_refused(tmp_path, line, instead, why):
    assert line in LINES
    text = CLIPPED + LINES.replace(line, instead)
    if instead.endswith(", weights"):
        text = text.replace("attention(q, k, v).reshape", "attention(q, k, v)[0].reshape")
    _, function, _ = program(tmp_path, text)
    changes = function.changes(("attention",))
    assert not changes.tried
    assert why in " ".join(changes.notes)


def test_names_of_what_a_library_returns_are_divided(tmp_path):
    mask = "    t = q.shape[1]\n    mask = jnp.tril(jnp.ones((t, t), bool))\n"
    before = "    q = jnp.float32(1) * jax.nn.relu(q)\n"
    assert mask in LINES
    product = "    scores = jnp.einsum"
    text = LINES.replace(mask, "").replace(product, mask + before + product)
    path, function, _ = program(tmp_path, text)
    change, _ = changed(function, path)
    assert dict(change.parts[0].axes) == {"q": 1, "mask": 0}


@pytest.mark.parametrize(
    "instead",
    [
        pytest.param("scores = scores ** scores.shape[1]", id="an exponent"),
        pytest.param("scores = scores / jnp.ones(scores.shape[1]).sum()", id="a sum"),
        pytest.param("scores = jnp.tanh(scores) if scores.shape[1] > 1 else scores", id="a branch"),
    ],
)
def test_what_goes_with_the_size_of_a_part_is_refused(tmp_path, instead):
    line = "weights = jax.nn.softmax"
    text = LINES.replace(line, instead + "\n    " + line)
    path, function, values = program(tmp_path, text)
    change, patched = changed(function, path)
    written = function.equations(change.parts)
    path.write_text(patched)
    other = Function(namespace(patched, path)["step"], values, {}, "step").equations(())
    with pytest.raises(BufdbError, match="a part does not compute what the whole does"):
        require_same_equations(written, other)


def test_a_program_without_scores_has_no_such_change(tmp_path):
    text = "def loss(p, x):\n    return (jnp.tanh(x @ p['q']) @ p['o']).mean()\n"
    _, function, _ = program(tmp_path, text)
    assert "attention" not in function.program().on_demand
    assert "attention" in program(tmp_path, LINES)[1].program().on_demand


def test_attention_is_in_parts_where_nothing_else_fits(tmp_path, monkeypatch, call):
    code, out, err = fit(tmp_path, monkeypatch, call, LINES)
    assert code == 0, err
    answer = json.loads(out)
    best = next(one for one in answer["plans"] if one["rank"] == answer["best"])
    assert best["is_verified"]
    assert best["need_bytes"] <= LIMIT < answer["as_written"]["need_bytes"]
    assert best["extra_work_ratio"] > 0  # the scores are computed again
    assert "in_parts(part, 4, (2, 2, 2), 2, q, k, v)" in best["patch"]


def fit(tmp_path, monkeypatch, call, text):
    """Return code, output and messages of `bufdb fit` for two sequences of 512 tokens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (tmp_path / "model.py").write_text(HEAD + text)
    return call(
        "fit", "model.py:step", "--args", "params(), tokens(2, 512)", "--limit", str(LIMIT),
        "--format", "json", "--db", "d.duckdb",
    )  # fmt: skip
