"""Which arguments of a call are arrays, and which are values of Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from bufdb.capture.target import jax_module

Kind = Literal["arrays", "static", ""]
"""Of an argument: arrays alone, a value that can be hashed, or neither."""


def kind_of(value: Any) -> Kind:
    """Return the kind of an argument; whatever its class raises, nothing is raised."""
    jax = jax_module()
    try:
        leaves = jax.tree.leaves(value)
    except Exception:  # such as a dict whose keys have no order
        return ""
    if all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves):
        return "arrays"
    try:
        hash(value)
    except Exception:  # whatever a class of the user's raises
        return ""
    return "static"


def shape_of(value: Any) -> str:
    """Return the type and shape of an array, or of what JAX knows of one."""
    return f"{value.dtype}{value.shape}" if hasattr(value, "dtype") else ""


def shapes_of(values: Iterable[Any]) -> tuple[str, ...]:
    """Return those of all arrays in arguments, in order; none if one is no `Kind`."""
    shapes: list[str] = []
    for value in values:
        kind = kind_of(value)
        if not kind:
            return ()
        if kind == "arrays":
            shapes += map(shape_of, jax_module().tree.leaves(value))
    return tuple(shapes)
