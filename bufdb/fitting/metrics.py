"""Which outputs of a loss are means over the batch, and which are sums: read of its equations.

A sum over the batch divided by a number that grows with the batch is a mean; what is neither, such
as the root of a mean, is not known for the batch from what is known for its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bufdb.fitting.counting import is_dropped, is_inexact, is_literal
from bufdb.fitting.edits import Refused
from bufdb.fitting.flat import Flat, flattened
from bufdb.fitting.reader import Reader
from bufdb.fitting.rewrites import Pair

Metric = Literal["mean", "sum", "same"]
"""What of the batch a value is: `same` is what each part of the batch has, too."""
Kind = Literal["mean", "sum", "same", "each", "size", "share"]
"""Or it has the batch as an axis; is a number that grows with the batch, or one divided by it."""
LINEAR = (
    "broadcast_in_dim", "concatenate", "copy", "dynamic_slice", "expand_dims", "gather", "neg",
    "real", "reduce_precision", "reshape", "rev", "slice", "squeeze", "stop_gradient", "transpose",
)  # fmt: skip
"""Names of primitives whose result is of the kind of their first operand."""
MIXING = ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "sort")
"""Names of primitives that may give an example what another one has."""
_METRICS: Mapping[Kind | None, Metric] = {
    "mean": "mean", "sum": "sum", "size": "sum", "same": "same",
}  # fmt: skip
_PRODUCTS: Mapping[tuple[Kind, Kind], Kind] = {
    ("mean", "same"): "mean", ("sum", "same"): "sum", ("size", "same"): "size",
    ("share", "same"): "share", ("sum", "share"): "mean", ("mean", "size"): "sum",
    ("size", "share"): "same",
}  # fmt: skip
_INVERSE: Mapping[Kind, Kind] = {"same": "same", "size": "share", "share": "size"}


def metrics(pair: Pair, reader: Reader) -> list[Metric | None]:
    """Return what each output of a loss is; None where it is none of these, or has the batch."""
    try:
        both = flattened(pair, reader)
    except Refused:
        return [None] * len(pair.full.closed.jaxpr.outvars)
    kinds = kinds_of(both, pair.count)
    outputs = zip(both.full.outvars, both.part.outvars, strict=True)
    return [
        _METRICS.get(of_literal(*one, pair.count) if is_literal(one[0]) else kinds.get(one[0]))
        for one in outputs
    ]


def kinds_of(both: Flat, count: int) -> dict[Any, Kind | None]:
    """Return what each value of a loss is, by the equations; `count` parts are the batch."""
    kinds: dict[Any, Kind | None] = {
        var: "same" if both.axes.get(var) is None else "each" for var in both.full.invars
    }

    def kind_of(var: Any, small: Any) -> Kind | None:
        return of_literal(var, small, count) if is_literal(var) else kinds.get(var)

    for eqn, small in zip(both.full.eqns, both.part.eqns, strict=True):
        taken = [kind_of(*one) for one in zip(eqn.invars, small.invars, strict=True)]
        for var in eqn.outvars:
            if not is_dropped(var):
                axis = both.axes.get(var)
                kinds[var] = _kind(eqn, taken) if axis is None else _of_each(eqn, taken, axis)
    return kinds


def of_literal(var: Any, small: Any, count: int) -> Kind | None:
    """Return the kind of a number in the text of a loss, by its value at both sizes."""
    if not is_literal(small):
        return None
    one, other = np.asarray(var.val, np.float64), np.asarray(small.val, np.float64)
    if np.array_equal(one, other):
        return "same"
    if np.allclose(one, count * other, rtol=1e-6):
        return "size"
    return "share" if np.allclose(count * one, other, rtol=1e-6) else None


def _of_each(eqn: Any, taken: Sequence[Kind | None], axis: int) -> Kind | None:
    """Return the kind of a result with an axis of the batch; None if it mixes examples."""
    name = eqn.primitive.name
    is_place = name == "iota" and eqn.params["dimension"] == axis
    is_mixed = name in MIXING or is_place or not set(taken) <= {"each", "same"}
    return None if is_mixed else "each"


def _kind(eqn: Any, taken: Sequence[Kind | None]) -> Kind | None:
    """Return the kind of a result without an axis of the batch, from those of its operands."""
    name = eqn.primitive.name
    if all(one == "same" for one in taken):
        return "same"
    if name == "reduce_sum" or name in LINEAR:
        first = "sum" if taken[0] == "each" and name == "reduce_sum" else taken[0]
        is_alone = all(one == "same" for one in taken[1:])
        return first if is_alone and first != "each" else None
    if name == "dot_general":
        return "sum" if set(taken) <= {"each", "same"} else None
    if name == "convert_element_type":
        is_kept = is_inexact(eqn.outvars[0].aval) or not is_inexact(eqn.invars[0].aval)
        return taken[0] if is_kept and taken[0] != "each" else None
    rule = _RULES.get(name)
    return None if rule is None or len(taken) != 2 else rule(*taken)


def _added(one: Kind | None, other: Kind | None) -> Kind | None:
    if one == other:
        return one if one in ("mean", "sum", "size", "share") else None
    return "mean" if {one, other} == {"mean", "same"} else None


def _multiplied(one: Kind | None, other: Kind | None) -> Kind | None:
    if one is None or other is None:
        return None
    return _PRODUCTS.get((one, other)) or _PRODUCTS.get((other, one))


def _divided(one: Kind | None, other: Kind | None) -> Kind | None:
    return None if other is None else _multiplied(one, _INVERSE.get(other))


_RULES: Mapping[str, Callable[[Kind | None, Kind | None], Kind | None]] = {
    "add": _added, "sub": _added, "add_any": _added, "mul": _multiplied, "div": _divided,
}  # fmt: skip
