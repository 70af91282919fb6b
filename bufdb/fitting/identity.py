"""Identity of the values of losses: digests of the equations that compute them.

Equal digests mean the same operations, in the same order, on the same inputs. Nested functions and
checkpoints are read through, what is known while tracing is computed, and a loop that a patch
made is read iteration by iteration: so it is compared with the calls that it replaces.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    REMATS,
    carried,
    inner_jaxprs,
    is_literal,
    kind,
    open_jaxpr,
    parameters,
    stacked_inputs,
)
from bufdb.fitting.jax_inside import JITS, bind, source_of
from bufdb.fitting.precise import is_concrete

BLOCK = "fit_block"
"""Beginning of the names of the functions in which patches put the body of a loop."""
_THROUGH = (*JITS, *REMATS, "custom_jvp_call")
"""Names of the primitives whose function is evaluated as it is."""
_COMPUTED = 4096
"""Elements of a value up to which it is computed if what it is made of is known."""
_OF_PROCESS = re.compile(r"0x[0-9a-f]+|[\w.<>]*<locals>\.")
"""What the text of a function has that another process, or another place of it, has not."""

Named = str | np.ndarray[Any, Any]
"""A value: its digest, or its numbers if they are known."""


def digests(closed: Any) -> list[str]:
    """Return the digest of each output of a loss; of its inputs, by their position."""
    jaxpr, reading = closed.jaxpr, _Reading()
    inputs: list[Named] = [f"input {at}" for at in range(len(jaxpr.invars))]
    consts = [
        _known(one, var) if is_concrete(one) else f"constant {at} {_aval(var)}"
        for at, (one, var) in enumerate(zip(closed.consts, jaxpr.constvars, strict=True))
    ]
    with jax_module().default_device(jax_module().local_devices(backend="cpu")[0]):
        return [_text(one) for one in reading.run(jaxpr, consts, inputs)]


class _Reading:
    """Reads the equations of a loss."""

    def __init__(self) -> None:
        self._parts: dict[str, Sequence[Named]] = {}
        """By the digest of a stack, what is stacked."""

    def run(self, jaxpr: Any, consts: Sequence[Named], inputs: Sequence[Named]) -> list[Named]:
        """Return the outputs of a jaxpr."""
        env: dict[Any, Named] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def value(var: Any) -> Named:
            return _known(var.val, var) if is_literal(var) else env[var]

        for eqn in jaxpr.eqns:
            outputs = self._equation(eqn, [value(var) for var in eqn.invars])
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [value(var) for var in jaxpr.outvars]

    def _equation(self, eqn: Any, inputs: list[Named]) -> list[Named]:
        name, params = kind(eqn), parameters(eqn)
        if name in _THROUGH and (inner := next(inner_jaxprs(eqn), None)) is not None:
            return self.run(inner, self._consts(params, inner), inputs)
        if name == "scan":
            return self._scan(eqn, inputs)
        if name == "convert_element_type" and _is_idle(eqn):
            return inputs
        known = _computed(eqn, inputs)
        if known is not None:
            return known
        if name == "dynamic_slice" and all(isinstance(one, np.ndarray) for one in inputs[1:]):
            return [self._slice(eqn, inputs)]
        if name == "slice" and params["strides"] is None:
            starts = [np.asarray(one) for one in params["start_indices"]]
            return [self._slice(eqn, [inputs[0], *starts])]
        inner = [
            [_text(one) for one in self.run(jaxpr, self._consts(params, jaxpr), _positions(jaxpr))]
            for jaxpr in inner_jaxprs(eqn)
        ]
        outputs = self._outputs(eqn, name, _options(params), inner, [_text(one) for one in inputs])
        if name == "stack" and params["axis"] == 0 and isinstance(outputs[0], str):
            self._parts[outputs[0]] = inputs
        return outputs

    def _slice(self, eqn: Any, inputs: Sequence[Named]) -> Named:
        """Return a part of an array at a place that is known, however it is taken."""
        place = [int(one) for one in inputs[1:]]
        return self._outputs(eqn, "slice", place, _text(inputs[0]))[0]

    def _scan(self, eqn: Any, inputs: list[Named]) -> list[Named]:
        params = eqn.params
        body, stacked = params["jaxpr"], len(stacked_inputs(eqn))
        own = len(body.jaxpr.invars) - stacked - carried(eqn)
        consts, carry, stacks = (
            inputs[:own],
            inputs[own : -stacked or None],
            inputs[len(inputs) - stacked :],
        )
        held = self._consts(params, body.jaxpr)
        source = source_of(body.jaxpr)
        if source is not None and source[0].rpartition(".")[2].startswith(BLOCK):
            ys: list[list[Named]] = []
            for at in range(params["length"]):
                turn = -1 - at if params["reverse"] else at
                parts = [self._part(one, turn) for one in stacks]
                outputs = self.run(body.jaxpr, held, [*consts, *carry, *parts])
                carry = outputs[: len(carry)]
                ys.append(outputs[len(carry) :])
            # Nothing that a patch makes is stacked.
            return [
                *carry,
                *("stack " + _digest(list(map(_text, one))) for one in zip(*ys, strict=True)),
            ]
        places: list[Named] = [
            f"{_aval(var)} {at} of a loop" for at, var in enumerate(body.jaxpr.invars)
        ]
        outputs = self.run(body.jaxpr, held, [*consts, *places[own:]])
        loop = [params["length"], params["reverse"], [_text(one) for one in outputs]]
        return self._outputs(eqn, "scan", loop, [_text(one) for one in inputs[own:]])

    def _part(self, stack: Named, at: int) -> Named:
        if isinstance(stack, np.ndarray):
            return np.asarray(stack[at])
        parts = self._parts.get(stack)
        return _digest(["part", stack, at]) if parts is None else parts[at]

    def _consts(self, params: Mapping[str, Any], jaxpr: Any) -> list[Named]:
        """Return the constants of a jaxpr in the parameters of an equation."""
        items = [one if isinstance(one, tuple | list) else (one,) for one in params.values()]
        closed = next((one for item in items for one in item if open_jaxpr(one) is jaxpr), None)
        consts = getattr(closed, "consts", jaxpr.constvars)
        return [
            _known(one, var) if is_concrete(one) else f"constant {at}"
            for at, (one, var) in enumerate(zip(consts, jaxpr.constvars, strict=True))
        ]

    def _outputs(self, eqn: Any, *facts: Any) -> list[Named]:
        return [_digest([*facts, at, _aval(var)]) for at, var in enumerate(eqn.outvars)]


def _is_idle(eqn: Any) -> bool:
    """Return whether a conversion converts nothing, as that of a number that a loop hands on."""
    return bool(eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype)


def _computed(eqn: Any, inputs: Sequence[Named]) -> list[Named] | None:
    """Return the outputs of an equation whose inputs are known; None if they are not, or large."""
    is_small = all(math.prod(var.aval.shape) <= _COMPUTED for var in eqn.outvars)
    if not is_small or next(inner_jaxprs(eqn), None) is not None:
        return None
    if not all(isinstance(one, np.ndarray) for one in inputs):
        return None
    try:
        outputs = bind(eqn, [jax_module().numpy.asarray(one) for one in inputs])
        return [np.asarray(one) for one in outputs]
    except Exception:  # what no CPU computes, such as an axis of a mesh
        return None


def _known(value: Any, var: Any) -> Named:
    """Return the numbers of a constant; of what has none, such as a key, its text."""
    try:
        return np.asarray(value, var.aval.dtype)
    except TypeError:
        return _OF_PROCESS.sub("", repr(value))


def _positions(jaxpr: Any) -> list[Named]:
    return [f"{_aval(var)} {at} within" for at, var in enumerate(jaxpr.invars)]


def _options(params: Mapping[str, Any]) -> list[str]:
    """Return the parameters of an equation as text, without the functions that are in them."""
    return [
        f"{name}={_OF_PROCESS.sub('', str(one))}"
        for name, one in sorted(params.items())
        if not any(open_jaxpr(item) for item in (one if isinstance(one, tuple | list) else (one,)))
    ]


def _aval(var: Any) -> str:
    return f"{getattr(var.aval, 'dtype', '')}{getattr(var.aval, 'shape', '')}"


def _text(value: Named) -> str:
    if isinstance(value, str):
        return value
    return _digest([str(value.dtype), value.shape, value.tobytes()])


def _digest(facts: Sequence[Any]) -> str:
    return hashlib.sha256(repr(list(facts)).encode()).hexdigest()
