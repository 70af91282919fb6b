"""Whether the losses of patched files compute the same: random numbers, in two processes.

The losses as written run in one process, and what they give is a file; those of the patched files
are compared with it in the other. Constants of a loss are in the order in which its text reads
them, so those of one shape are tried in each order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bufdb.capture.target import jax_module
from bufdb.fitting.also import as_written
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Gradient, gradient
from bufdb.fitting.precise import is_concrete, precise
from bufdb.fitting.rewrites import (
    DRAWS,
    differences,
    is_small,
    jit_for_check,
    numbers,
    random,
    require_equal,
)

_ORDERS = 24
"""Orders of constants that are tried."""
_Results = list[list[list[Any]]]
"""Of each draw of random numbers: values, auxiliary outputs and gradients."""


def write(losses: Sequence[Gradient], path: Path) -> bool:
    """Write what losses give for random numbers; return whether they are small enough to run."""
    arrays: dict[str, Any] = {}
    for number, one in enumerate(map(precise, losses)):
        results = next(_results(one), None)
        if results is None:
            return False
        for draw, groups in enumerate(results):
            for group, some in enumerate(groups):
                named = {f"{number} {draw} {group} {at}": array for at, array in enumerate(some)}
                arrays |= named
    np.savez(path, **arrays)
    return True


def require_alike(losses: Sequence[Gradient], path: Path) -> None:
    """Raise an error if losses do not give what `write` has of others.

    Raises:
        Refused: they differ by more than rounding.
    """
    wanted = _read(path)
    # A helper may trace a gradient for its shapes alone before it takes it.
    own = [precise(one) for one in losses[-len(wanted) :]]
    if len(own) != len(wanted):
        raise Refused(f"it has {len(own)} gradients, not {len(wanted)}")
    for one, results in zip(own, wanted, strict=True):
        _require(one, results)


def _require(one: Gradient, wanted: _Results) -> None:
    why = Refused("it has other outputs or inputs")
    for got in _results(one):
        shapes = [[[array.shape for array in some] for some in groups] for groups in got]
        if shapes != [[[array.shape for array in some] for some in groups] for groups in wanted]:
            continue
        worst = [each for pair in zip(wanted, got, strict=True) for each in differences(*pair)]
        try:
            require_equal(one, worst)
        except Refused as refused:
            why = refused
        else:
            return
    raise why


def _results(one: Gradient) -> Iterator[_Results]:
    """Yield what a loss gives, for each order of its constants; nothing if it is too large."""
    jax = jax_module()
    run, inputs = gradient(one, as_written)
    if not is_small(run, inputs):
        return
    jitted = jit_for_check(run)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for order in itertools.islice(_orders(one), _ORDERS):
            yield [
                numbers(jitted(*random(one, inputs, low, high, whole, order)))
                for low, high, whole in DRAWS
            ]


def _orders(one: Gradient) -> Iterator[list[int]]:
    """Yield orders of the constants: by shape and type, those alike in each order."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for at, var in enumerate(one.closed.jaxpr.constvars):
        if not is_concrete(one.closed.consts[at]):
            key = len(var.aval.shape), tuple(var.aval.shape), str(var.aval.dtype)
            alike.setdefault(key, []).append(at)
    groups = [itertools.permutations(alike[key]) for key in sorted(alike)]
    for some in itertools.product(*groups):
        yield [at for group in some for at in group]


def _read(path: Path) -> list[_Results]:
    losses: list[_Results] = []
    with np.load(path) as arrays:
        for name in arrays.files:
            loss, draw, group, _ = map(int, name.split())
            while len(losses) <= loss:
                losses.append([[[], [], []] for _ in DRAWS])
            losses[loss][draw][group].append(arrays[name])
    return losses
