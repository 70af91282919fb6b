"""A loss with bfloat16 and float16 as float32: what two losses differ by then is no rounding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    REMATS,
    inner_jaxprs,
    is_inexact,
    is_literal,
    kind,
    open_jaxpr,
    parameters,
)
from bufdb.fitting.gradients import Gradient
from bufdb.fitting.jax_inside import JITS, bind

_INLINED = (*JITS, *REMATS, "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
"""Names of the primitives whose function is evaluated, and differentiated, as it is."""
_SINGLE_BYTES = 4


def precise(one: Gradient) -> Gradient:
    """Return a loss in which no float is less exact than float32."""
    jax, closed = jax_module(), one.closed
    if not any(_is_low(aval) for aval in _avals(closed.jaxpr)):
        return one
    outputs = []

    def outside(*consts: Any) -> None:
        both = zip(closed.consts, consts, strict=True)
        own = [const if is_concrete(const) else other for const, other in both]

        def run(*inputs: Any) -> list[Any]:
            return _evaluated(closed.jaxpr, [_high(const) for const in own], inputs)

        outputs.append(jax.make_jaxpr(run)(*(_raised(var.aval) for var in closed.jaxpr.invars)))

    jax.eval_shape(outside, *(_raised(var.aval) for var in closed.jaxpr.constvars))
    return replace(one, closed=outputs[0])


def is_concrete(const: Any) -> bool:
    """Return whether a constant of a jaxpr has values."""
    jax = jax_module()
    if isinstance(const, jax.Array):
        return not isinstance(const, jax.core.Tracer)
    return isinstance(const, np.ndarray | np.generic | bool | int | float | complex)


def _avals(jaxpr: Any) -> Iterator[Any]:
    for var in (*jaxpr.constvars, *jaxpr.invars):
        yield var.aval
    for eqn in jaxpr.eqns:
        for var in eqn.outvars:
            yield var.aval
        for inner in inner_jaxprs(eqn):
            yield from _avals(inner)


def _is_low(aval: Any) -> bool:
    return is_inexact(aval) and np.dtype(aval.dtype).itemsize < _SINGLE_BYTES


def _raised(aval: Any) -> Any:
    dtype = np.float32 if _is_low(aval) else aval.dtype
    return jax_module().ShapeDtypeStruct(aval.shape, dtype)


def _high(array: Any) -> Any:
    return jax_module().numpy.asarray(array, np.float32) if _is_low(array) else array


def _evaluated(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    env = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))

    def read(var: Any) -> Any:
        if not is_literal(var):
            return env[var]
        return np.float32(var.val) if _is_low(var.aval) else var.val

    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _outputs(eqn, [read(var) for var in eqn.invars]), strict=True))
    return [read(var) for var in jaxpr.outvars]


def _outputs(eqn: Any, inputs: list[Any]) -> list[Any]:
    name = kind(eqn)
    if name == "reduce_precision":
        return inputs
    if name in _INLINED:
        params = parameters(eqn)
        nested = params.get("jaxpr", params.get("call_jaxpr"))
        return _evaluated(open_jaxpr(nested), getattr(nested, "consts", ()), inputs)
    return bind(eqn, inputs, {key: _changed(value) for key, value in eqn.params.items()})


def _changed(value: Any) -> Any:
    """Return a parameter of an equation with floats as float32."""
    if type(value) is tuple:
        return tuple(_changed(item) for item in value)
    if hasattr(value, "consts"):
        return _closed(value)
    if isinstance(value, np.dtype) and _is_low(np.empty(0, value)):
        return np.dtype(np.float32)
    return value


def _closed(closed: Any) -> Any:
    def run(*inputs: Any) -> list[Any]:
        return _evaluated(closed.jaxpr, [_high(const) for const in closed.consts], inputs)

    return jax_module().make_jaxpr(run)(*(_raised(var.aval) for var in closed.jaxpr.invars))
