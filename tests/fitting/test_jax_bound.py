"""The bound of an answer against a linear program over the values of a layer."""

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import itertools  # noqa: E402
from dataclasses import replace  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy.optimize import linprog  # noqa: E402

from bufdb.fitting.bound import hull, least  # noqa: E402
from bufdb.fitting.counting import aval_bytes, equation_work, is_literal, work  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.levers.saved import Saved  # noqa: E402
from bufdb.fitting.plans import Compiled, Plan, SearchRequest  # noqa: E402
from bufdb.fitting.results import _are_alike  # noqa: E402
from bufdb.fitting.search import _explore  # noqa: E402
from bufdb.fitting.space import Space  # noqa: E402

LAYERS, BATCH, D = 4, 8, 16


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def up_and_down(x, w):
    h = jax.nn.gelu(x @ w["up"])
    return x + h @ w["down"], None


def attention(x, w):
    h = jnp.tanh(x)
    q = h @ w["q"]
    k = h @ w["k"]
    v = h @ w["v"]
    p = jax.nn.softmax(q @ k.T)
    x = x + (p @ v) @ w["o"]
    a = x @ w["up"]
    b = x @ w["gate"]
    return x + (jax.nn.silu(a) * b) @ w["down"], None


def rectified(x, w):
    h = jax.nn.relu(x @ w["q"])
    g = jax.nn.relu(h @ w["k"])
    return jax.nn.relu(g @ w["v"] + x), None


WEIGHTS = {
    **{name: shape(LAYERS, D, D) for name in "qkvo"},
    **{name: shape(LAYERS, D, 4 * D) for name in ("up", "gate")},
    "down": shape(LAYERS, 4 * D, D),
}


def explored(layer):
    """A function, its program, and the points of all traces that the search makes."""

    def step(w, x):
        return jax.grad(lambda w, x: (jax.lax.scan(layer, x, w)[0] ** 2).mean())(w, x)

    function = Function(step, (WEIGHTS, shape(BATCH, D)), {}, "step")
    program = function.program()
    compiled = Compiled(1 << 40, 1, True, 1.0)
    space = Space(
        program, SearchRequest(None, compiled, function.trace, lambda plan, is_full: compiled)
    )
    _explore(space)
    assert not space.is_over
    return function, program, [(one.residual_bytes, one.work) for one in space.traced.values()]


def values(function):
    """Of each value with a name: bytes and work over all layers, and the names it is made of."""
    survey, reader = function._losses.survey, function._reader
    (closed,) = (one.closed for one in function._gradients)
    scan = next(eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    body = scan.params["jaxpr"].jaxpr
    names = {var: survey.name_of(value) for var, value in Saved().values(reader, body).items()}
    makers = {var: eqn for eqn in body.eqns for var in eqn.outvars}
    made = {}
    for var, name in names.items():
        work, operands, todo, seen = 0, set(), [makers[var]], set()
        while todo:
            eqn = todo.pop()
            if id(eqn) in seen:
                continue
            seen.add(id(eqn))
            work += equation_work(eqn).operations
            for one in eqn.invars:
                if is_literal(one) or one not in makers:
                    continue
                if one in names and one is not var:
                    operands.add(names[one])
                else:
                    todo.append(makers[one])
        made[name] = LAYERS * aval_bytes(var.aval), LAYERS * work, operands - {name}
    return made


def optimum(made, needed, budget):
    """The least work of computing again, each value saved and computed again in part of the layers.

    A value that is needed is saved or computed again; what one is computed of is, too.
    """
    names = list(made)
    at = {name: number for number, name in enumerate(names)}
    count = len(names)
    sizes = np.array([made[name][0] for name in names], float)
    rows, most = [[*sizes, *np.zeros(count)]], [budget]
    for name in needed:
        row = np.zeros(2 * count)
        row[[at[name], count + at[name]]] = -1
        rows.append(row)
        most.append(-1)
    for name in names:
        for operand in made[name][2]:
            row = np.zeros(2 * count)
            row[count + at[name]] = 1
            row[[at[operand], count + at[operand]]] -= 1
            rows.append(row)
            most.append(0)
    cost = [*np.zeros(count), *(made[name][1] for name in names)]
    solved = linprog(cost, A_ub=np.array(rows), b_ub=most, bounds=(0, 1))
    assert solved.success
    return solved.fun


@pytest.mark.parametrize(
    "layer", [up_and_down, rectified, pytest.param(attention, marks=pytest.mark.by_hand)]
)
def test_no_optimum_is_below_the_hull_of_the_traces(layer):
    function, program, points = explored(layer)
    made = values(function)
    everything = Plan(program.scans, tuple(one.name for one in program.switches))
    full, nothing = function.trace(everything), function.trace(Plan(program.scans))
    needed = set(full.saved) & set(made)
    assert len(hull(points)) >= 2
    for part in np.linspace(0.05, 0.95, 10):
        budget = part * (full.residual_bytes - nothing.residual_bytes)
        best = optimum(made, needed, budget)
        bound = least(points, nothing.residual_bytes + budget) - full.work
        assert bound <= best + 0.001 * full.work


def wide(x, w):
    return jnp.sin(jnp.tanh(x @ w["up"]) @ w["down"])


def narrow(x, w):
    return jnp.sin(x @ w["q"])


NARROW, WIDE = 3, 2
"""How often each is called."""


def called(wide=wide, narrow=narrow):
    """The loss of some calls, or of these with checkpoints around some of them."""

    def loss(w, x):
        for at in range(NARROW):
            x = (narrow if callable(narrow) else narrow[at])(x, w[at])
        for at in range(WIDE):
            x = (wide if callable(wide) else wide[at])(x, w[at])
        return (x**2).mean()

    return loss


def test_no_choice_of_calls_is_below_the_hull_of_the_traces(monkeypatch):
    """Each of the 32 choices, by what JAX says that its forward pass saves."""
    from jax._src.ad_checkpoint import saved_residuals

    monkeypatch.setattr(Function, "platform", "gpu")
    args = (
        [{name: shape(*one.shape[1:]) for name, one in WEIGHTS.items()}] * NARROW,
        shape(64 * BATCH, D),
    )
    function = Function(jax.grad(called()), args, {}, "step")
    program = function.program()
    compiled = Compiled(1 << 40, 1, True, 1.0)
    space = Space(
        program, SearchRequest(None, compiled, function.trace, lambda plan, is_full: compiled)
    )
    _explore(space)
    points = [(one.handed_bytes, one.work) for one in space.traced.values()]
    choices = set()
    for mask in itertools.product((False, True), repeat=NARROW + WIDE):
        again = [jax.checkpoint if one else (lambda f: f) for one in mask]
        loss = called([of(wide) for of in again[NARROW:]], [of(narrow) for of in again[:NARROW]])
        saved = saved_residuals(loss, *args)
        size = sum(aval_bytes(one) for one, source in saved if "argument" not in source)
        choices.add((size, work(jax.make_jaxpr(jax.grad(loss))(*args).jaxpr).operations))
    assert len(program.regions) == 2 and len(hull(points)) == 3
    assert hull(points) == hull(choices)
    assert _are_alike(program)
    unlike, nested = (
        replace(program.regions[0], **one) for one in ({"sizes": (1, 2)}, {"order": ()})
    )
    for other in (unlike, nested):
        assert not _are_alike(replace(program, regions=(other, program.regions[1])))


def test_a_mixture_is_on_the_line_between_two():
    points = [(100, 50), (200, 30), (300, 0), (250, 60), (150, 45)]
    assert hull(points) == [(100, 50), (300, 0)]
    assert [least(points, size) for size in (100, 200, 300, 900)] == [50, 25, 0, 0]
    with pytest.raises(ValueError, match="no point has at most 99 bytes"):
        least(points, 99)
