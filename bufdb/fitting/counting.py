"""What a jaxpr says of its work and its memory: products, residuals of scans, live values.

Jaxprs are read by their attributes alone: nothing here imports JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.read.jax_names import RECOMPUTED

# -- The parts of an equation ----------------------------------------------------------------------

REMATS = ("checkpoint", "remat", "remat2", "RematTraced")
"""Names of the primitive of `jax.checkpoint`; the last one is that of JAX_REMAT3."""
NAMES = ("name", "CheckpointName")
"""Names of the primitive of `checkpoint_name`; the last one is that of JAX_REMAT3."""


def kind(eqn: Any) -> str:
    """Return the name of a primitive; of one that is a class, that of the class."""
    inner = eqn.params.get("_prim")
    return str(eqn.primitive.name) if inner is None else type(inner).__name__


def parameters(eqn: Any) -> Mapping[str, Any]:
    """Return the parameters of an equation; of a primitive that is a class, those of the class."""
    inner = eqn.params.get("_prim")
    params: Mapping[str, Any] = eqn.params if inner is None else inner.params
    return params


def open_jaxpr(value: Any) -> Any | None:
    """Return the jaxpr in a parameter of an equation, closed or not; None if it is none."""
    if hasattr(value, "eqns"):
        return value
    inner = getattr(value, "jaxpr", None)
    return inner if hasattr(inner, "eqns") else None


def inner_jaxprs(eqn: Any) -> Iterator[Any]:
    """Yield the jaxprs in an equation's parameters."""
    for value in parameters(eqn).values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if (jaxpr := open_jaxpr(item)) is not None:
                yield jaxpr


def is_literal(var: Any) -> bool:
    """Return whether a variable is a constant in the text of a jaxpr."""
    return hasattr(var, "val")


def is_dropped(var: Any) -> bool:
    """Return whether nothing reads an output of an equation."""
    return type(var).__name__ == "DropVar"


def aval_bytes(aval: Any) -> int:
    """Return the bytes of an abstract value; 0 for what is not an array."""
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0
    size = getattr(dtype, "itemsize", 0)
    try:
        return int(math.prod(shape)) * int(size)
    except TypeError:  # a dimension without a number
        return 0


def is_sized(leaf: Any) -> bool:
    """Return whether a value is an array, or what describes one."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def on_host(aval: Any) -> bool:
    """Return whether a value is in host memory."""
    return "host" in str(getattr(aval, "memory_space", "")).lower()


# -- Work ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Products of a program, loops counted."""

    operations: int = 0
    """Floating-point operations: two for a multiplication and its addition."""
    count: int = 0
    unknown: frozenset[str] = frozenset()
    """Primitives with work that is not in `operations`, and why."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.operations + other.operations,
            self.count + other.count,
            self.unknown | other.unknown,
        )

    def times(self, count: int) -> Work:
        """Return the work of as many repetitions."""
        return Work(self.operations * count, self.count * count, self.unknown)


def work(jaxpr: Any) -> Work:
    """Return the products of a jaxpr: those in loops as often as these run, of a cond the most."""
    total = Work()
    for eqn in jaxpr.eqns:
        total += equation_work(eqn)
    return total


def equation_work(eqn: Any) -> Work:
    """Return the products of an equation and everything in it."""
    name = eqn.primitive.name
    product = _PRODUCTS.get(name)
    if product is not None:
        return Work(product(eqn), 1)
    if name in _CALLS_OUTSIDE:
        return Work(0, 1, frozenset([f"{name}: its work is unknown"]))
    inner = [work(jaxpr) for jaxpr in inner_jaxprs(eqn)]
    if not inner:
        return Work()
    if name == "cond":
        most = max(inner, key=lambda one: one.operations)
        return Work(most.operations, most.count, frozenset().union(*(one.unknown for one in inner)))
    total = sum(inner, Work())
    if name == "while" and total.count:
        return total + Work(
            unknown=frozenset(["while_loop: its iterations are unknown, 1 counted"])
        )
    return total.times(repetitions(eqn))


def repetitions(eqn: Any) -> int:
    """Return how often what is in an equation runs."""
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        return int(params["length"])
    if name == "pallas_call":
        grid = getattr(params.get("grid_mapping"), "grid", ())
        return math.prod(size for size in grid if isinstance(size, int))
    if name == "shard_map":
        shape = dict(getattr(params.get("mesh"), "shape", {}))
        manual = params.get("newly_manual_axes", params.get("manual_axes", shape))
        return math.prod(int(shape.get(axis, 1)) for axis in manual)
    return 1


def _dot(eqn: Any) -> int:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2 * _size(eqn.outvars[0]) * math.prod(int(left[axis]) for axis in contracted)


def _convolution(eqn: Any) -> int:
    kernel = eqn.invars[1].aval.shape
    channels = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
    return 2 * _size(eqn.outvars[0]) * (_size(eqn.invars[1]) // max(int(channels), 1))


def _size(var: Any) -> int:
    """Return the number of elements of a value."""
    return int(math.prod(var.aval.shape))


def _ragged_dot(eqn: Any) -> int:
    numbers = eqn.params.get("ragged_dot_dimension_numbers")
    left, right = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    if numbers is None:  # ragged_dot of older JAX: [m, k] and [g, k, n]
        return 2 * _size(eqn.invars[0]) * int(right[-1])
    (contracted, _), _ = numbers.dot_dimension_numbers
    ragged = set(numbers.lhs_ragged_dimensions)
    out = _size(eqn.outvars[0])
    depth = math.prod(int(left[axis]) for axis in contracted)
    if ragged & set(contracted):  # groups are in the output: each row belongs to one of them
        groups = int(eqn.invars[2].aval.shape[-1])
        return 2 * out // max(groups, 1) * depth
    return 2 * out * depth


def _solve(eqn: Any) -> int:
    matrix = eqn.invars[0].aval.shape
    return _size(eqn.outvars[0]) * int(matrix[-1])


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "ragged_dot": _ragged_dot,
    "ragged_dot_general": _ragged_dot,
    "triangular_solve": _solve,
}
_CALLS_OUTSIDE = frozenset(
    ["custom_call", "ffi_call", "tpu_custom_call", "triton_kernel_call", "mosaic_gpu_call",
     "cudnn_fmha", "dot_product_attention_fwd", "dot_product_attention_bwd", "pure_callback"]
)  # fmt: skip


def recomputed(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations that checkpoints compute again."""
    for eqn in jaxpr.eqns:
        if RECOMPUTED in str(eqn.source_info.name_stack):
            yield eqn
        else:
            for inner in inner_jaxprs(eqn):
                yield from recomputed(inner)


_BACKWARD = "transpose("
"""In the stack of names of an equation of a backward pass."""

# -- Memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residuals:
    """What scans save over all their iterations."""

    device_bytes: int = 0
    host_bytes: int = 0

    def __add__(self, other: Residuals) -> Residuals:
        return Residuals(self.device_bytes + other.device_bytes, self.host_bytes + other.host_bytes)

    @staticmethod
    def of(var: Any) -> Residuals:
        """Return what an output of a scan is that it stacks."""
        size = 0 if is_dropped(var) else aval_bytes(var.aval)
        return Residuals(0, size) if on_host(var.aval) else Residuals(size, 0)


class Directions:
    """Which scans of a gradient are those of its forward pass.

    The backward pass of a scan runs the other way and is of the same place. It comes after the
    forward pass, but JAX may give that one another place, so the loss, if it is known, goes first.
    """

    def __init__(self, jaxpr: Any, loss: Any = None) -> None:
        self._reversed: dict[Any, bool] = {}
        """By where a scan was made, whether its forward pass runs in reverse."""
        for one in (jaxpr,) if loss is None else (loss, jaxpr):
            self._walk(one)

    def _walk(self, jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "scan":
                self._reversed.setdefault(eqn.source_info.traceback, _is_reverse(eqn))
            for inner in inner_jaxprs(eqn):
                self._walk(inner)

    def is_forward(self, eqn: Any) -> bool:
        """Return whether an equation is a scan of the forward pass."""
        if eqn.primitive.name != "scan":
            return False
        return self._reversed[eqn.source_info.traceback] == _is_reverse(eqn)

    def residuals(self, jaxpr: Any) -> Residuals:
        """Return what forward scans in a jaxpr stack."""
        total = Residuals()
        for eqn in jaxpr.eqns:
            if self.is_forward(eqn):
                total = sum(map(Residuals.of, eqn.outvars[carried(eqn) :]), total)
            else:
                total = sum(map(self.residuals, inner_jaxprs(eqn)), total)
        return total


def residuals(jaxpr: Any, loss: Any = None) -> Residuals:
    """Return what forward scans stack: residuals, and outputs that the program has anyway."""
    return Directions(jaxpr, loss).residuals(jaxpr)


def handed_over(jaxpr: Any) -> int:
    """Return the bytes of what the forward pass of a gradient computes and its backward pass reads.

    What is in host memory is none of it. 0 if JAX has other names for its backward pass.
    """
    made: dict[Any, int] = {}
    total = 0
    for eqn in jaxpr.eqns:
        if _BACKWARD in str(eqn.source_info.name_stack):
            read = {var for var in eqn.invars if not is_literal(var)}
            total += sum(made.pop(var, 0) for var in read)
        else:
            own = (one for one in eqn.outvars if not is_dropped(one) and not on_host(one.aval))
            made.update((var, aval_bytes(var.aval)) for var in own)
    return total


def _is_reverse(eqn: Any) -> bool:
    return bool(eqn.params.get("reverse", False))


def saved_names(jaxpr: Any, loss: Any = None) -> set[str]:
    """Return the names of the values that forward scans stack."""
    directions = Directions(jaxpr, loss)
    names: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for eqn in jaxpr.eqns:
            inner = list(inner_jaxprs(eqn))
            if directions.is_forward(eqn):
                labels = _labels(inner[0])
                stacked = inner[0].outvars[carried(eqn) :]
                names.update(labels[v] for v in stacked if not is_literal(v) and v in labels)
            for one in inner:
                walk(one)

    walk(jaxpr)
    return names


def _labels(jaxpr: Any) -> dict[Any, str]:
    """Return the names of values, also of those that a nested function gives."""
    by_value: dict[Any, str] = {}
    for eqn in jaxpr.eqns:
        name = kind(eqn)
        if name in NAMES:
            by_value[eqn.outvars[0]] = parameters(eqn)["name"]
        elif name == "reduce_precision":  # what JAX puts on a value that is saved
            var = eqn.invars[0]
            if not is_literal(var) and var in by_value:
                by_value[eqn.outvars[0]] = by_value[var]
        else:
            for inner in inner_jaxprs(eqn):
                if len(inner.outvars) == len(eqn.outvars):
                    labels = _labels(inner)
                    for var, out in zip(inner.outvars, eqn.outvars, strict=True):
                        if not is_literal(var) and var in labels:
                            by_value[out] = labels[var]
    return by_value


def carried(eqn: Any) -> int:
    """Return how many outputs of a scan are its carry."""
    if "num_carry" in eqn.params:
        return int(eqn.params["num_carry"])
    body = eqn.params["jaxpr"].jaxpr
    pairs = zip(eqn.outvars, body.outvars, strict=True)
    return sum(1 for var, inner in pairs if var.aval.shape == inner.aval.shape)


def carried_inputs(eqn: Any) -> list[Any]:
    """Return the variables of a scan's body that are its carry."""
    inner = eqn.params["jaxpr"].jaxpr.invars
    stop = len(inner) - len(stacked_inputs(eqn))
    return list(inner[stop - carried(eqn) : stop])


def stacked_inputs(eqn: Any) -> list[Any]:
    """Return the variables of a scan's body with a part of an array for each iteration."""
    pairs = zip(eqn.invars, eqn.params["jaxpr"].jaxpr.invars, strict=True)
    return [own for var, own in pairs if var.aval.shape != own.aval.shape]


def live_peak(jaxpr: Any) -> int:
    """Return the highest sum of live values beyond the inputs, in the order of the equations.

    Without fusion, so it ranks plans of one program and is no figure to show.
    """
    last: dict[Any, int] = {}
    for index, eqn in enumerate(jaxpr.eqns):
        for var in eqn.invars:
            if not is_literal(var):
                last[var] = index
    for var in jaxpr.outvars:
        if not is_literal(var):
            last[var] = len(jaxpr.eqns)
    own: set[Any] = set()
    current = peak = 0
    for index, eqn in enumerate(jaxpr.eqns):
        outputs = [var for var in eqn.outvars if not is_dropped(var) and not on_host(var.aval)]
        made = sum(aval_bytes(var.aval) for var in outputs)
        inner = max((live_peak(jaxpr) for jaxpr in inner_jaxprs(eqn)), default=0)
        # A loop holds its stacks while an iteration runs; a call's outputs are its own values.
        peak = max(peak, current + (made + inner if _is_loop(eqn) else max(made, inner)))
        for var in outputs:
            if var in last:
                own.add(var)
                current += aval_bytes(var.aval)
        for var in {var for var in eqn.invars if not is_literal(var)}:
            if last.get(var) == index and var in own:
                own.discard(var)
                current -= aval_bytes(var.aval)
    return peak


def _is_loop(eqn: Any) -> bool:
    return eqn.primitive.name in ("scan", "while")


def is_inexact(aval: Any) -> bool:
    """Return whether an abstract value is an array of floating-point or complex numbers."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return False
    try:
        kind = np.dtype(dtype).kind
    except TypeError:  # of JAX's own, such as keys of random numbers
        return False
    return kind in "fc" or (kind == "V" and "float" in str(dtype))
