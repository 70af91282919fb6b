"""A function of Python, lowered: for the devices of this process, or for a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bufdb.compiled.target import Target, jax_module
from bufdb.errors import UsageError


def lowered(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: Target | None = None
) -> Any:
    """What `jax.jit(function).lower(*args, **kwargs)` gives.

    Args:
        function: plain, or jitted with the options that it needs.
        args: arrays or `jax.ShapeDtypeStruct`, in trees.
        kwargs: the same by name.
        target: hardware to compile for. Arguments that are sharded over a mesh are so over a mesh
            of its devices with the same axes, the others are whole on each device of that mesh;
            without a mesh all is for one device.

    Raises:
        UsageError: it is no function; or with a target it has no array, or a mesh of more devices.
    """
    jax = jax_module()
    if not callable(function):
        raise UsageError(f"expected a function, found {type(function).__name__}")
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    if target is None:
        return jitted.lower(*args, **kwargs)
    if target.platform == "cpu" and not any(
        hasattr(leaf, "shape") for leaf in jax.tree.leaves((args, kwargs))
    ):
        with jax.default_device(target.devices[0]):
            return jitted.lower(*args, **kwargs)
    given, names = _placed(jax, (tuple(args), dict(kwargs)), target)
    return jitted.trace(*given, **names).lower(lowering_platforms=(target.platform,))


def _placed(jax: Any, tree: Any, target: Target) -> Any:
    """The arguments without values, on devices of the target."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]
    if not leaves:
        raise UsageError("for a target a function needs an array or a ShapeDtypeStruct as argument")
    named = jax.sharding.NamedSharding
    meshes = [
        leaf.sharding.mesh for leaf in leaves if isinstance(getattr(leaf, "sharding", None), named)
    ]
    mesh = _mesh(jax, meshes[0], target) if meshes else None
    single = jax.sharding.SingleDeviceSharding(target.devices[0])

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = single
        if mesh is not None:
            own = getattr(leaf, "sharding", None)
            spec = own.spec if isinstance(own, named) else jax.sharding.PartitionSpec()
            sharding = named(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, tree)


def _mesh(jax: Any, like: Any, target: Target) -> Any:
    """A mesh of the target's devices with the axes of another."""
    shape = tuple(like.shape.values())
    count = math.prod(shape)
    if count > len(target.devices):
        raise UsageError(
            f"the arguments are sharded over {count} devices, {target.name} has "
            f"{len(target.devices)}; name a larger one with --target"
        )
    devices = np.array(target.devices[:count], dtype=object).reshape(shape)
    return jax.sharding.Mesh(devices, like.axis_names)
