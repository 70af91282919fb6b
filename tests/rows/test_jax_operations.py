"""Operations counted here and by XLA."""

import pytest

from bufdb.read.hlo_graph import HloGraph
from bufdb.rows.costs import Operations

jax = pytest.importorskip("jax", reason="this Python has no jax")
jnp = pytest.importorskip("jax.numpy", reason="this Python has no jax")
NHWC = ("NHWC", "HWIO", "NHWC")


def convolved(strides, groups=1):
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, strides, "SAME", dimension_numbers=NHWC, feature_group_count=groups
    )


def transposed(x, w):
    return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=NHWC)


def attention(q, k, v):
    return jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)) @ v


def pooled(x):
    sizes, strides = (1, 3, 3, 1), (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, sizes, strides, "SAME")


IMAGES, WEIGHTS = (8, 33, 31, 16), (3, 3, 16, 32)
PROGRAMS = {
    "layer": (lambda x, w: jnp.tanh(x @ w) * 2 + 1, (64, 128), (128, 256)),
    "attention": (attention, (2, 64, 32), (2, 64, 32), (2, 64, 32)),
    "convolution": (convolved((2, 2)), IMAGES, WEIGHTS),
    "in groups": (convolved((1, 1), 4), IMAGES, (3, 3, 4, 32)),
    "transposed": (transposed, (8, 9, 9, 16), WEIGHTS),
    "its gradient": (
        jax.grad(lambda w, x: jnp.sum(convolved((2, 2))(x, w) ** 2)), WEIGHTS, IMAGES
    ),
    "reduction": (lambda x: jnp.sum(x**3, axis=-1).max(), (100, 77)),
    "pool": (pooled, (4, 31, 31, 8)),
    "gelu": (jax.nn.gelu, (1000,)),
}  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_xla_counts_as_many(function):
    program, *sizes = function
    shapes = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    compiled = jax.jit(program).lower(*shapes).compile()
    analysis = compiled.cost_analysis()
    figures = analysis[0] if isinstance(analysis, list) else analysis
    graph = HloGraph(compiled.as_text().encode(), [])
    operations = Operations(graph)
    lines = [graph.find(entry, name) for entry in graph._entries for name in graph._lines_of(entry)]
    # XLA counts sines and the like for themselves.
    assert sum(operations.alone(line) for line in lines) == figures["flops"] + figures.get(
        "transcendentals", 0
    )
