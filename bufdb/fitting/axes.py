"""Along which axis equations compute each part by itself.

    Inlined      the equations of a jaxpr, with those of a library's functions in their place
    parallel     an axis of one value, followed through what is computed of it and for it

Invariant: an equation that this module does not know has no such axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bufdb.fitting.counting import NAMES, is_dropped, is_literal, kind, open_jaxpr
from bufdb.fitting.edits import Refused
from bufdb.fitting.jax_inside import JITS
from bufdb.fitting.reader import Reader

ELEMENTWISE = frozenset((
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p",
    "cos", "cosh", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge",
    "gt", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
    "min", "mul", "ne", "neg", "nextafter", "not", "optimization_barrier", "or", "pow", "real",
    "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh", "xor", *NAMES,
))  # fmt: skip
"""Primitives whose operands and results have one shape, or none."""
_REDUCTIONS = frozenset(
    f"reduce_{name}" for name in ("sum", "max", "min", "prod", "and", "or", "xor")
)
_ARG_REDUCTIONS = frozenset(("argmax", "argmin"))
_CUMULATIVE = frozenset(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"))
CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"))


# -- Equations without a library's nested functions ------------------------------------------------


@dataclass(eq=False)
class Value:
    """A value of a jaxpr, or of one nested in it: one for each time that runs."""

    aval: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Return its shape, () if it has none."""
        return tuple(getattr(self.aval, "shape", ()))


@dataclass(frozen=True)
class Step:
    """An equation with its values; literals are None."""

    eqn: Any
    outer: Any
    """The equation of the jaxpr itself in which it is nested, whose place in the files counts."""
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]


@dataclass
class Inlined:
    """The steps of a jaxpr, and the values that it returns."""

    steps: list[Step] = field(default_factory=list)
    results: set[Value] = field(default_factory=set)
    values: Mapping[Any, Value | None] = field(default_factory=dict)
    """By variable of the jaxpr itself; None of a literal that a function returns."""

    @classmethod
    def of(cls, jaxpr: Any, reader: Reader) -> Inlined:
        """Return a jaxpr's, with the steps of a library's functions in place of their calls."""
        inlined = cls()
        env = inlined._run(jaxpr, [Value(var.aval) for var in jaxpr.invars], reader, None)
        results = (env[var] for var in jaxpr.outvars if not is_literal(var))
        inlined.results = {one for one in results if one is not None}
        inlined.values = env
        return inlined

    def _run(
        self, jaxpr: Any, inputs: Sequence[Value | None], reader: Reader, outer: Any
    ) -> dict[Any, Value | None]:
        env: dict[Any, Any] = {var: Value(var.aval) for var in jaxpr.constvars}
        env.update(zip(jaxpr.invars, inputs, strict=True))
        for eqn in jaxpr.eqns:
            taken = tuple(None if is_literal(var) else env[var] for var in eqn.invars)
            nested = _of_library(eqn, reader)
            if nested is None or len(nested.invars) != len(taken):
                made = tuple(None if is_dropped(var) else Value(var.aval) for var in eqn.outvars)
                self.steps.append(Step(eqn, eqn if outer is None else outer, taken, made))
            else:
                within = self._run(nested, taken, reader, eqn if outer is None else outer)
                made = tuple(None if is_literal(var) else within[var] for var in nested.outvars)
            env.update(zip(eqn.outvars, made, strict=True))
        return env


def _of_library(eqn: Any, reader: Reader) -> Any:
    """Return the jaxpr of a library's function that is called; None if it is another equation.

    A rule for derivatives that the user wrote may compute one part of another.
    """
    name = eqn.primitive.name
    if name not in JITS and name not in CUSTOM:
        return None
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    closed = next((one for key in names if (one := eqn.params.get(key)) is not None), None)
    return None if closed is None or reader.is_users(closed) else open_jaxpr(closed)


# -- The axis --------------------------------------------------------------------------------------


def parallel(
    steps: Sequence[Step], begin: Mapping[Value, int], count: int
) -> dict[Value, int | None]:
    """Return the axis of each value of some steps that is computed for each part by itself.

    Args:
        steps: in their order.
        begin: values of theirs with the axis that is divided.
        count: of equal parts.

    Returns:
        The axes of what they take and make; None or no entry where every part has all of a value.

    Raises:
        Refused: a part of what they make needs other parts of what they take.
    """
    spread = _Spread({value: at for at, one in enumerate(steps) for value in one.outputs if value})
    for value, axis in begin.items():
        spread.put(value, axis, count)
    while True:
        before = len(spread.axes)
        for one in steps:
            spread.through(one, count)
        if len(spread.axes) == before:
            return dict(spread.axes)


@dataclass
class _Spread:
    """Axes of values, as far as they are known."""

    makers: Mapping[Value, int]
    axes: dict[Value, int] = field(default_factory=dict)

    def put(self, value: Value, axis: int, count: int) -> None:
        """Note an axis of a value.

        Raises:
            Refused: it has another one, or that has no equal parts.
        """
        if self.axes.setdefault(value, axis) != axis:
            raise Refused("a value is divided along two axes")
        if value.shape[axis] % count:
            raise Refused(f"an axis of {value.shape[axis]} has no {count} equal parts")

    def through(self, step: Step, count: int) -> None:
        """Follow the axis from what a step takes to what it makes, and back.

        Raises:
            Refused: its parts are not computed by themselves.
        """
        values = [one for one in (*step.inputs, *step.outputs) if one is not None]
        if not any(one in self.axes for one in values):
            return
        name = kind(step.eqn)
        rule = _RULES.get(name, _alike if name in ELEMENTWISE else None)
        if rule is None:
            raise Refused(f"{name} may compute one part of another")
        outs = [self.axes[one] for one in step.outputs if one is not None and one in self.axes]
        ins = [None if one is None else self.axes.get(one) for one in step.inputs]
        sides = rule(step, ins, outs[0] if outs else None, count)
        for one, axis in zip((*step.inputs, *step.outputs), sides, strict=True):
            if axis is not None and one is not None:
                self.put(one, axis, count)
        for one, axis in zip((*step.inputs, *step.outputs), sides, strict=True):
            if axis is None and one is not None and one in self.axes:
                raise Refused(f"{name} computes one part of all")


Axes = Sequence[int | None]
Rule = Callable[[Step, Axes, int | None, int], Axes]
"""Receives a step, the known axes of its inputs, that of its outputs, and the count of parts;
returns the axes of all inputs, then of all outputs, as far as they follow."""


def _shape(value: Value | None) -> tuple[int, ...]:
    return () if value is None else value.shape


def _alike(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    axis = next(one for one in (out, *ins) if one is not None)
    shapes = [_shape(one) for one in (*step.inputs, *step.outputs)]
    if len({len(shape) for shape in shapes if shape}) > 1:
        raise Refused(f"{kind(step.eqn)} has operands of several ranks")
    size = max(shape[axis] for shape in shapes if shape)
    # What is not as long is there once for all.
    return [axis if shape and shape[axis] == size else None for shape in shapes]


def _broadcast(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    places = [int(at) for at in step.eqn.params["broadcast_dimensions"]]
    if ins[0] is not None:
        out = places[ins[0]]
    assert out is not None
    axis = places.index(out) if out in places else None
    if axis is not None and _shape(step.inputs[0])[axis] == 1:
        axis = None  # each part has the one that there is
    return [axis, *[None] * (len(step.inputs) - 1), out]


def _transpose(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    order = [int(at) for at in step.eqn.params["permutation"]]
    if ins[0] is not None:
        return [ins[0], order.index(ins[0])]
    assert out is not None
    return [order[out], out]


def _reshape(step: Step, ins: Axes, out: int | None, count: int) -> Axes:
    one, other = _shape(step.inputs[0]), _shape(step.outputs[0])
    if ins[0] is not None:
        return [ins[0], *_rest(step), _same_part(one, ins[0], other, count)]
    assert out is not None
    return [_same_part(other, out, one, count), *_rest(step), out]


def _rest(step: Step) -> Axes:
    return [None] * (len(step.inputs) - 1)


def _same_part(shape: Sequence[int], axis: int, other: Sequence[int], count: int) -> int:
    """Return the axis of another shape whose equal parts have the elements of those of an axis."""
    before = math.prod(shape[:axis])
    for at, size in enumerate(other):
        if math.prod(other[:at]) == before and size % count == 0:
            return at
    raise Refused("a reshape puts parts into each other")


def _reduce(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    axes = sorted(int(at) for at in step.eqn.params["axes"])
    kept = [at for at in range(len(_shape(step.inputs[0]))) if at not in axes]
    axis = next((one for one in ins if one is not None), None)
    if axis is None:
        assert out is not None
        axis = kept[out]
    if axis not in kept:
        raise Refused(f"{kind(step.eqn)} reduces all parts to one")
    return [axis] * len(step.inputs) + [kept.index(axis)] * len(step.outputs)


def _squeeze(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    gone = {int(at) for at in step.eqn.params["dimensions"]}
    kept = [at for at in range(len(_shape(step.inputs[0]))) if at not in gone]
    axis = ins[0] if ins[0] is not None else kept[out or 0]
    return [axis, kept.index(axis)]


def _dot(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    (contract, batch), shapes = step.eqn.params["dimension_numbers"], map(_shape, step.inputs)
    places: list[list[int]] = [[int(at) for at in batch[0]]]
    for shape, own, shared in zip(shapes, contract, batch, strict=True):
        places.append([at for at in range(len(shape)) if at not in (*own, *shared)])
    shared_count, left_count = len(places[0]), len(places[1])

    def at_output(side: int, axis: int) -> int:
        if axis in batch[side]:
            return list(batch[side]).index(axis)
        if axis not in places[1 + side]:
            raise Refused("a product sums over all parts")
        return shared_count + side * left_count + places[1 + side].index(axis)

    if out is None:
        side = next(at for at, one in enumerate(ins) if one is not None)
        out = at_output(side, ins[side] or 0)
    if out < shared_count:
        return [int(batch[0][out]), int(batch[1][out]), out]
    at = out - shared_count
    if at < left_count:
        return [places[1][at], None, out]
    return [None, places[2][at - left_count], out]


def _along(step: Step, ins: Axes, out: int | None, _count: int) -> Axes:
    """Pass an axis on through what keeps it whole, such as a slice along another one."""
    axis = next(one for one in (*ins, out) if one is not None)
    name, params = kind(step.eqn), step.eqn.params
    own = params.get("axis", params.get("dimension"))
    is_whole = own is not None and int(own) != axis
    if name == "slice":
        start, stop = params["start_indices"][axis], params["limit_indices"][axis]
        strides = params["strides"]
        is_whole = not start and stop == _shape(step.inputs[0])[axis]
        is_whole &= strides is None or strides[axis] == 1
    elif name == "pad":
        is_whole = tuple(params["padding_config"][axis]) == (0, 0, 0)
    if not is_whole:
        raise Refused(f"{name} is along the axis")
    return [axis if _shape(one) else None for one in (*step.inputs, *step.outputs)]


def _made(step: Step, _ins: Axes, out: int | None, _count: int) -> Axes:
    if int(step.eqn.params["dimension"]) == out:
        raise Refused("a value has the numbers of the parts")
    return [*[None] * len(step.inputs), out]


_RULES: Mapping[str, Rule] = {
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "dot_general": _dot,
    "iota": _made,
    **dict.fromkeys(_REDUCTIONS | _ARG_REDUCTIONS, _reduce),
    **dict.fromkeys(_CUMULATIVE | {"concatenate", "split", "slice", "pad"}, _along),
}
