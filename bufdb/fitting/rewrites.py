"""Losses at two sizes of the batch: what changes of the program's text start from, and their check.

The loss at a smaller batch is traced of the user's function, not derived: what differs between the
two traces by the ratio of the sizes has the batch as that axis.

A change assumes something of the loss: that it is a mean over the batch, or that a piece of it has
no sums across it. `compared` runs the loss as written and changed on random numbers, at a batch of
`CHECKED`, where it is small enough for it, in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    aval_bytes,
    is_inexact,
    live_peak,
    work,
)
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Gradient, gradient
from bufdb.fitting.jax_inside import Changed
from bufdb.fitting.precise import is_concrete

CHECKED = 4
"""Examples of the batch on which a change is checked; two parts of it are compared with it."""
CHECKED_WORK = 10**11
"""Operations of a gradient up to which it is run for the check: some seconds of a few cores."""
CHECKED_BYTES = 2 << 30
"""Bytes of its values up to which it is."""
ROUNDING = 1e-4
"""Share of the largest number of an array up to which a difference is rounding, in float32."""
DRAWS = ((-0.5, 0.5, (0, 1)), (0.1, 0.9, (0, 1)), (-0.5, 0.5, (-100, -1, 0, 1)))
"""Ranges of random floats, and whole numbers; what is finite as written is compared.

0 and 1 are valid as tokens, labels and masks, the negative ones are what losses leave out.
"""
_SOON = {"xla_cpu_use_fusion_emitters": False}
"""Options with which a CPU compiles in half the time what runs a few times."""


# -- A loss at two sizes of the batch --------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A loss, and the same for one of `count` equal parts of the batch."""

    full: Gradient
    part: Gradient
    count: int
    axes: tuple[int | None, ...]
    """Of each constant the axis that is the batch; None if it has none."""
    devices: int = 1
    """Over how many devices the batch is sharded: a part has an equal share of each."""


def paired(full: Gradient, part: Gradient, count: int, devices: int = 1) -> Pair:
    """Return a loss at two sizes.

    Raises:
        Refused: they are not the same loss, or what is differentiated has the batch as an axis.
    """
    one, other = full.closed.jaxpr, part.closed.jaxpr
    if full.outputs != part.outputs or len(one.constvars) != len(other.constvars):
        raise Refused("another size of the batch is another program")
    for var, small in zip(one.invars, other.invars, strict=True):
        if axis_of(var.aval, small.aval, count) is not None:
            raise Refused("what is differentiated has the batch as an axis")
    both = zip(one.constvars, other.constvars, strict=True)
    axes = tuple(axis_of(var.aval, small.aval, count) for var, small in both)
    return Pair(full, part, count, axes, devices)


def axis_of(full: Any, part: Any, count: int) -> int | None:
    """Return the axis that a part has one of `count` equal parts of; None if both are equal.

    Raises:
        Refused: they differ in another way.
    """
    one, other = tuple(full.shape), tuple(part.shape)
    apart = [at for at, sizes in enumerate(zip(one, other, strict=False)) if sizes[0] != sizes[1]]
    if len(one) != len(other) or len(apart) > 1 or full.dtype != part.dtype:
        raise Refused("another size of the batch is another program")
    if not apart:
        return None
    if one[apart[0]] != count * other[apart[0]]:
        raise Refused("a value has the batch as a part of an axis")
    return apart[0]


def split(array: Any, axis: int, pair: Pair) -> Any:
    """Return an array as equal parts of an axis, the parts first."""
    shape, count, devices = array.shape, pair.count, pair.devices
    size = shape[axis] // count
    parts = array.reshape(*shape[:axis], devices, count, size // devices, *shape[axis + 1 :])
    parts = jax_module().numpy.moveaxis(parts, axis + 1, 0)
    return parts.reshape(count, *shape[:axis], size, *shape[axis + 1 :])


def joined(parts: Any, axis: int, pair: Pair) -> Any:
    """Return the array that `_split` took apart."""
    count, *shape = parts.shape
    size, devices = shape[axis], pair.devices
    array = parts.reshape(count, *shape[:axis], devices, size // devices, *shape[axis + 1 :])
    array = jax_module().numpy.moveaxis(array, 0, axis + 1)
    return array.reshape(*shape[:axis], count * size, *shape[axis + 1 :])


def bound(pair: Pair, consts: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return the constants of a part, and the numbers of those to split.

    A constant that the trace of the part made itself, such as `np.arange(batch)`, is taken from it.
    """
    own = list(pair.part.closed.consts)
    constants = [one if is_concrete(one) else full for one, full in zip(own, consts, strict=True)]
    parted = [
        at for at, axis in enumerate(pair.axes) if axis is not None and not is_concrete(own[at])
    ]
    return constants, parted


# -- The check -------------------------------------------------------------------------------------


def compared(one: Gradient, written: Changed, changed: Changed) -> str:
    """Return how far a changed loss agrees with one as written, in words; '' if too large to run.

    Both run on the CPU of this machine, for random numbers: value, gradients, auxiliary outputs.

    Raises:
        Refused: they do not agree to rounding.
    """
    run, inputs = gradient(one, written)
    other, _ = gradient(one, changed)
    if not is_small(run, inputs):
        return ""
    jax = jax_module()
    both = jit_for_check(run), jit_for_check(other)
    worst: list[Any] = []
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for draw in DRAWS:
            values = random(one, inputs, *draw)
            wanted, got = (numbers(each(*values)) for each in both)
            worst += differences(wanted, got)
    require_equal(one, worst)
    return f"checked on {CHECKED} random examples: equal to {ROUNDING:.0e}"


def jit_for_check(run: Callable[..., Any]) -> Callable[..., Any]:
    """Jit a function that runs on this CPU for a few random numbers: it compiles in less time."""
    jit: Callable[..., Any] = jax_module().jit(run, **_known_options())
    return jit


@functools.cache
def _known_options() -> dict[str, Any]:
    """Return arguments of `jit` with the options that this JAX and its compiler know."""
    jax, options = jax_module(), {"compiler_options": _SOON}
    try:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            jax.jit(lambda: 0, **options).lower().compile()
    except Exception:  # whatever JAX and XLA raise for a name of another version
        return {}
    return options


def is_small(run: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
    """Return whether a gradient with inputs of these shapes is small enough to run."""
    jaxpr = jax_module().make_jaxpr(run)(*inputs).jaxpr
    held = sum(aval_bytes(aval) for aval in (*inputs[0], *inputs[1]))
    return work(jaxpr).operations <= CHECKED_WORK and held + live_peak(jaxpr) <= CHECKED_BYTES


def differences(wanted: Sequence[list[Any]], got: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the largest differences of arrays; nothing if one that is wanted is not finite.

    Both are values, auxiliary outputs and gradients.
    """
    if not all(np.isfinite(array).all() for arrays in wanted for array in arrays):
        return []
    limits = math.inf, 1.0, math.inf  # what is auxiliary has scales of its own
    return [[_apart(*pair) for pair in zip(wanted, got, limits, strict=True)]]


def require_equal(one: Gradient, worst: Sequence[Sequence[Any]]) -> None:
    """Refuse what differs by more than rounding.

    Args:
        one: the loss as written.
        worst: for each draw of random numbers the largest differences of its values, auxiliary
            outputs and gradients, an array each; NaN where a number is not finite.

    Raises:
        Refused: they differ, or none is known.
    """
    if not worst:
        raise Refused("the loss of random numbers is not finite, so it cannot be checked")
    _require_rounding(one, [np.max([*shares], axis=0) for shares in zip(*worst, strict=True)])


def _require_rounding(one: Gradient, apart: Sequence[Any]) -> None:
    worst = [float(np.max(shares, initial=0.0)) for shares in apart]
    if all(share <= ROUNDING for share in worst):
        return
    what, share = "value or gradients", max(worst[0], worst[2])
    if worst[0] <= ROUNDING and worst[2] <= ROUNDING:
        at = int(np.argmax(~(apart[1] <= ROUNDING)))
        what, share = one.output(one.outputs + at), float(apart[1][at])
    differ = f"{what} differ{'' if what.endswith('s') else 's'} by {share:.1%}"
    if not math.isfinite(share):
        differ = "it is not finite"
    raise Refused(f"it computes something else: on {CHECKED} random examples, {differ}")


def numbers(outputs: tuple[Any, Any, Any]) -> list[list[Any]]:
    """Return the arrays of values, auxiliary outputs and gradients; keys of no number are empty."""
    return [
        [
            np.asarray(leaf if _is_number(leaf) else [], np.float64)
            for leaf in jax_module().tree.leaves(part)
        ]
        for part in outputs
    ]


def _is_number(leaf: Any) -> bool:
    numpy = jax_module().numpy
    return is_inexact(leaf) or any(
        numpy.issubdtype(leaf.dtype, kind) for kind in (numpy.integer, numpy.bool_)
    )


def _apart(wanted: Sequence[Any], got: Sequence[Any], most: float = math.inf) -> Any:
    """Return the largest difference of each array as a share of its largest number; NaN, if any is.

    In an array that is zero except for rounding, it is a share of the largest number of all, of
    `most` at the most.
    """
    largest = [float(np.abs(array).max(initial=0.0)) for array in wanted]
    least = min(max(largest, default=0.0), most) * math.sqrt(ROUNDING)
    return np.asarray(
        [
            float(np.abs(one - other).max(initial=0.0)) / max(own, least, 1e-30)
            for one, other, own in zip(wanted, got, largest, strict=True)
        ]
    )


def random(
    one: Gradient,
    shapes: tuple[Any, ...],
    low: float,
    high: float,
    whole: Sequence[int],
    order: Sequence[int] = (),
) -> list[list[Any]]:
    """Return random inputs and constants of a loss, and a cotangent of one.

    The same numbers are drawn each time, for the constants in an order of these, by number.
    """
    jax = jax_module()
    draw = np.random.default_rng(0)

    def array(aval: Any) -> Any:
        shape = tuple(aval.shape)
        if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key):
            return jax.numpy.broadcast_to(jax.random.key(0), shape)
        if not is_inexact(aval):
            is_signed = np.issubdtype(aval.dtype, np.signedinteger)
            return jax.numpy.asarray(draw.choice(whole if is_signed else (0, 1), shape), aval.dtype)
        scale = math.sqrt(shape[-2]) if len(shape) > 1 else 1.0
        return jax.numpy.asarray(draw.uniform(low, high, shape) * 3 / max(scale, 3.0), aval.dtype)

    consts = list(one.closed.consts)
    for at in order or range(len(consts)):
        if not is_concrete(consts[at]):
            consts[at] = array(shapes[1][at])
    ones = [jax.numpy.ones(aval.shape, aval.dtype) for aval in shapes[2]]
    return [[array(aval) for aval in shapes[0]], consts, ones]
