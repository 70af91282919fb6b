"""The first of equal layers under one plan, the others under another: traced, patched, found."""

import functools
import itertools
from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")
jnp = jax.numpy

import fit_forms as forms  # noqa: E402
import fit_programs as programs  # noqa: E402
from fit_programs import D, N  # noqa: E402
from patched import loaded  # noqa: E402

from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.patch import patch  # noqa: E402
from bufdb.fitting.plans import Depth, Plan  # noqa: E402

EDITED = [
    "step_blocks", "step_methods", "step_blocks_in_shard_map", "step_softmax", "step_two_scans",
    "step_checkpoint_outside", "step_scan_in_shard_map",
]  # fmt: skip
BY_HAND = ["step_fori", "step_map"]
"""Loops that are no `jax.lax.scan` in the text."""
VALUE = 4 * D * D
"""Bytes of one f32[8, 8]."""


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """Checkpoints of calls are offered, as on a GPU."""
    monkeypatch.setattr(Function, "platform", "gpu")


def depths(program):
    """For each region of layers the first one, and all but the last."""
    names = tuple(one.name for one in program.switches if one.lever == "saved")
    for at, region in enumerate(program.regions):
        if region.layers < 2:
            continue
        for count in sorted({1, region.layers - 1}):
            if region.kind == "call":
                yield Plan(calls=(at,), depths=(Depth(at, count),))
                yield Plan(calls=(at,), depths=(Depth(at, count, with_dots=True),))
            else:
                own = tuple(one.name for one in program.switches if at in one.regions)
                rest = tuple(name for name in names if name in own)
                yield Plan((at,), rest[1:], depths=(Depth(at, count, rest),))


def test_bytes_and_products_are_linear_in_the_layers():
    function = Function(programs.step, programs.args(), {}, "step")
    program = function.program()
    assert program.regions[0].layers == N
    up = next(one.name for one in program.switches if one.site.line == text_of("h = x @ p"))
    traces = [function.trace(Plan((0,), (up,)))]
    for count in range(1, N):
        traces.append(function.trace(Plan((0,), depths=(Depth(0, count, (up,)),))))
    traces.append(function.trace(Plan((0,))))
    kept = [one.residual_bytes for one in traces]
    assert [a - b for a, b in itertools.pairwise(kept)] == N * [VALUE]
    work = [one.work for one in traces]
    assert [b - a for a, b in itertools.pairwise(work)] == N * [programs.PRODUCT]


def text_of(line):
    lines = Path(programs.__file__).read_text().splitlines()
    return next(at for at, one in enumerate(lines, 1) if one.strip().startswith(line))


def _figures(traced):
    return traced.residual_bytes, traced.work, traced.product_count, traced.live_bytes


@pytest.mark.parametrize("name", [*EDITED, *BY_HAND])
def test_a_patch_goes_as_deep_as_the_plan(name, tmp_path):
    path = str(Path(forms.__file__))
    text = Path(path).read_bytes().decode()
    function = Function(getattr(forms, name), forms.args(), {}, name)
    program = function.program()
    plans = list(depths(program))
    assert plans
    for plan in plans:
        made = patch(program, plan, {path: text}, str(Path(path).parent))
        assert bool(made.steps) == (name in BY_HAND)
        if made.steps:
            assert "run the scan as two: the body of the first" in made.steps[0]
            continue
        other = loaded(made.texts[path], tmp_path)
        patched = Function(getattr(other, name), forms.args(), {}, name).trace(Plan())
        assert _figures(patched) == _figures(function.trace(plan))


def test_what_a_loop_hands_on_goes_to_the_host_in_a_part_of_it():
    function = Function(programs.step, programs.args(), {}, "step")
    function.program()
    traced = function.trace(Plan((0,), offloaded=("x_in",), depths=(Depth(0, 1),)))
    assert (traced.residual_bytes, traced.host_bytes) == ((N - 1) * VALUE, VALUE)


def test_calls_that_compute_unlike_bytes_are_known(tmp_path):
    text = """import jax, jax.numpy as jnp

def block(x, w):
    return jnp.sin(jnp.exp(jnp.sin(jnp.exp(x @ w))))

def step(x, wide, narrow):
    def loss(wide):
        return block(block(block(x, wide), narrow), wide).sum()
    return jax.grad(loss)(wide)
"""
    module = loaded(text, tmp_path)

    def sizes(batch, width):
        shapes = (batch, D), (D, width), (width, D)
        arguments = [jax.ShapeDtypeStruct(one, "float32") for one in shapes]
        (region,) = Function(module.step, arguments, {}, "step").program().regions
        assert len(region.order) == 3
        return region.sizes

    wide, narrow, last = sizes(D, 4 * D)
    assert wide == last == 4 * narrow
    assert sizes(D, D) == ()


def test_calls_of_a_loop_that_runs_twice_have_no_first_ones(tmp_path):
    """A test in the loop would take the first iterations of each."""
    text = """import jax, jax.numpy as jnp

def block(x, w):
    return jnp.sin(jnp.exp(jnp.sin(x) @ w))

def stack(x, ws):
    for w in ws:
        x = block(x, w)
    return x

def step(ws, x):
    return jax.grad(lambda ws: stack(stack(x, ws), ws).sum())(ws)
"""
    module = loaded(text, tmp_path)
    arguments = [jnp.ones((D, D))] * N, jnp.ones((D, D))
    block, _ = Function(module.step, arguments, {}, "step").program().regions
    assert (block.function, block.count, block.layers) == ("block", 2 * N, 0)


OUT_OF_ORDER = f"""import jax, jax.numpy as jnp

def block(p, x, power):
    return jnp.sin(jnp.exp(jnp.sin(x) @ p["b"])) ** power @ p["a"]

def step(ps, x):
    def loss(ps, x):
        for p in ps:
            x = block(p, x, 2)
        return x.sum()
    return jax.grad(loss)(ps, x)

def args():
    own = {{"a": jnp.ones(({D}, {D})), "b": jnp.ones(({D}, {D}))}}
    return [own] * {N}, jnp.ones(({4 * D}, {D}))
"""
OF_MODULES = f"""import jax, jax.numpy as jnp
from flax import nnx

class Block(nnx.Module):
    def __init__(self, rngs):
        self.b = nnx.Linear({D}, {4 * D}, rngs=rngs)
        self.a = nnx.Linear({4 * D}, {D}, rngs=rngs)

    def __call__(self, x):
        return x + self.a(jnp.sin(jnp.exp(self.b(jnp.sin(x)))))

@nnx.jit
def step(blocks, x):
    def loss(blocks):
        y = x
        for block in blocks:
            y = block(y)
        return y.sum()
    return nnx.grad(loss)(blocks)

def args():
    rngs = nnx.Rngs(0)
    return nnx.List([Block(rngs) for _ in range({N})]), jnp.ones(({4 * D}, {D}))
"""


@pytest.mark.parametrize(
    ("text", "written"),
    [(OUT_OF_ORDER, "static_argnums=(2,)"), (OF_MODULES, "nnx.remat(lambda block: block(y))")],
    ids=["dict", "nnx"],
)
def test_plan_and_patch_are_one_program(tmp_path, text, written):
    """What a block reads first is neither its first argument nor first by name."""
    pytest.importorskip("flax.nnx", reason="this Python has no flax")
    module = loaded(text, tmp_path)
    function = Function(module.step, module.args(), {}, "step")
    program = function.program()
    at = next(at for at, one in enumerate(program.regions) if one.layers == N)
    plan = Plan(calls=(at,))
    made = patch(program, plan, {module.__file__: text}, str(tmp_path))
    assert written in made.texts[module.__file__]
    other = loaded(made.texts[module.__file__], tmp_path)
    patched = Function(other.step, other.args(), {}, "step")
    assert patched.stage(Plan()).as_text() == function.stage(plan).as_text()


WITHIN = f"""import jax, jax.numpy as jnp

def inner(x, w):
    return jnp.sin(jnp.exp(jnp.sin(x) @ w))

def middle(x, w):
    return inner(jnp.cos(inner(x, w)), w)

def outer(x, w):
    return jnp.tanh(middle(middle(x, w), w))

def other(x, w):
    return 2 * inner(jnp.exp(x), w)

def step(ws, x):
    def loss(ws, x):
        x = middle(inner(x, ws[0]), ws[0])
        for w in ws:
            x = other(outer(x, w), w)
        return x.sum()
    return jax.grad(loss)(ws, x)

def scanned(ws, x):
    def body(x, w):
        return middle(jnp.exp(x), w), None

    def loss(ws, x):
        return jax.lax.scan(body, middle(x, ws[0]), ws)[0].sum()
    return jax.grad(loss)(ws, x)

def args():
    return jnp.ones(({N}, {D}, {D})), jnp.ones(({4 * D}, {D}))
"""
"""Functions that are called in another one, in two others, in one that is in a third, in a scan."""


@pytest.fixture(scope="module")
def within(tmp_path_factory):
    """A function by its name, with its program; each is traced once."""
    module = loaded(WITHIN, tmp_path_factory.mktemp("within"))

    @functools.cache
    def traced(name):
        function = Function(getattr(module, name), module.args(), {}, name)
        return module.__file__, function, function.program()

    return traced


@pytest.mark.parametrize(
    ("name", "chosen", "is_nested"),
    [
        ("step", {"inner", "middle"}, False),
        ("step", {"inner", "other"}, False),
        ("step", {"inner", "middle", "outer"}, True),
        ("step", {"middle", "outer"}, False),
        ("step", {"middle", "outer"}, True),
        ("scanned", {"inner"}, False),
        ("scanned", {"inner"}, True),
        pytest.param("step", {"inner", "middle"}, True, marks=pytest.mark.by_hand),
        pytest.param("step", {"inner", "other"}, True, marks=pytest.mark.by_hand),
        pytest.param("step", {"inner", "middle", "outer"}, False, marks=pytest.mark.by_hand),
    ],
)
def test_calls_within_calls_are_one_program(tmp_path, within, name, chosen, is_nested):
    """A call that is within others of the plan alone stays, or is a checkpoint there, too."""
    path, function, program = within(name)
    calls = tuple(at for at, one in enumerate(program.regions) if one.function in chosen)
    assert len(calls) == len(chosen)
    plan = Plan(program.scans, calls=calls, nested=calls if is_nested else ())
    made = patch(program, plan, {path: WITHIN}, str(Path(path).parent))
    other = loaded(made.texts[path], tmp_path)
    patched = Function(getattr(other, name), other.args(), {}, name)
    assert _figures(patched.trace(Plan())) == _figures(function.trace(plan))
    if not program.scans:  # else JAX gives functions other names
        assert patched.stage(Plan()).as_text() == function.stage(plan).as_text()
