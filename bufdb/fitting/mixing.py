"""Where a loss mixes the examples of a batch, as batch normalization does.

A value without the axis of the batch that is computed of the batch, such as a mean over it, is
another one for each part of the batch. Where it goes into a value with this axis, examples are
mixed. In a loss that is a mean over its examples it goes to outputs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bufdb.fitting.counting import (
    REMATS,
    carried,
    inner_jaxprs,
    is_literal,
    kind,
    stacked_inputs,
)
from bufdb.fitting.jax_inside import JITS, SHARD_MAPS
from bufdb.fitting.reader import SCAN
from bufdb.fitting.rewrites import Pair

_CALLS = (*JITS, *REMATS, *SHARD_MAPS, "custom_jvp_call", "custom_vjp_call")


def mixing(pair: Pair) -> list[Any]:
    """Return the equations of a loss that mix examples, as far as its two sizes show them."""
    mixed: list[Any] = []
    full, part = pair.full.closed.jaxpr, pair.part.closed.jaxpr
    _walk(full, part, [axis is not None for axis in pair.axes], [False] * len(full.invars), mixed)
    return mixed


def _walk(
    full: Any, part: Any, consts: Sequence[bool], inputs: Sequence[bool], mixed: list[Any]
) -> list[bool]:
    """Return which outputs of a jaxpr are computed of the batch, and note what mixes examples.

    Args:
        full: for the batch.
        part: the same for a part of it.
        consts: whether each constant is of the batch.
        inputs: the same of inputs.
        mixed: receives equations of `full`.
    """
    if len(full.eqns) != len(part.eqns):
        return [any(consts) or any(inputs)] * len(full.outvars)
    of_batch = dict(zip(full.constvars, consts, strict=False))
    of_batch.update(zip(full.invars, inputs, strict=True))

    def is_of_batch(var: Any) -> bool:
        return not is_literal(var) and of_batch.get(var, False)

    for eqn, small in zip(full.eqns, part.eqns, strict=True):
        taken = [is_of_batch(var) for var in eqn.invars]
        outputs = _nested(eqn, small, taken, mixed)
        if outputs is None:
            operands = zip(taken, eqn.invars, small.invars, strict=True)
            is_mixed = any(own and not _has_axis(var, other) for own, var, other in operands)
            if is_mixed and any(map(_has_axis, eqn.outvars, small.outvars)):
                mixed.append(eqn)
            outputs = [any(taken)] * len(eqn.outvars)
        of_batch.update(zip(eqn.outvars, outputs, strict=True))
    return [is_of_batch(var) for var in full.outvars]


def _nested(eqn: Any, small: Any, taken: list[bool], mixed: list[Any]) -> list[bool] | None:
    """Return the same of the outputs of an equation that runs jaxprs; None of others."""
    pairs = [*zip(inner_jaxprs(eqn), inner_jaxprs(small), strict=False)]
    if not pairs:
        return None
    if eqn.primitive.name == "cond":
        each = [_walk(*pair, (), taken[1:], mixed) for pair in pairs]
        return [any(some) for some in zip(*each, strict=True)]
    is_scan = eqn.primitive.name == SCAN
    if not is_scan and (kind(eqn) not in _CALLS or len(pairs[0][0].invars) != len(taken)):
        return None
    outputs = _walk(*pairs[0], (), taken, mixed)
    stop = len(taken) - len(stacked_inputs(eqn)) if is_scan else 0
    count = carried(eqn) if is_scan else 0
    before: list[bool] = []
    while is_scan and taken != before:  # what is carried is of the batch from some iteration on
        before = list(taken)
        for at in range(count):
            taken[stop - count + at] |= outputs[at]
        outputs = _walk(*pairs[0], (), taken, mixed)
    return outputs


def _has_axis(var: Any, small: Any) -> bool:
    """Return whether a value has the batch as an axis."""
    return bool(getattr(var.aval, "shape", ()) != getattr(small.aval, "shape", ()))
