"""Types of programs and their changes, for `recompile.py`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

TARGETS = ("cpu", "gpu", "tpu")


@dataclass(frozen=True)
class Change:
    """The edit of a user who follows a row of advice."""

    kind: str
    """The kind of advice."""
    at: str = ""
    """The line that the row names, by the word in a comment "# line: WORD" at its end; of several
    one (A|B) or all together (A+B). Or a function, as NAME(). Empty for any row of the kind."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that replace those of the program."""
    targets: tuple[str, ...] = TARGETS
    is_half: bool = False
    """Whether all f32 arguments become bf16."""


HALF = Change("dtype", "", {}, ("gpu", "tpu"), is_half=True)


@dataclass(frozen=True)
class Program:
    """A function as it is written, and its changes by what they are called."""

    make: Callable[..., tuple[Callable, tuple, tuple[int, ...]]]
    """From devices and options to a function, the shapes of its arguments and which are donated."""
    changes: Mapping[str, Change]
    options: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = TARGETS


def on(device, tree):
    """The shapes of a tree, all of it on one device."""
    place = SingleDeviceSharding(device)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree)


def halved(tree):
    """The shapes of a tree, in bf16 what is f32."""

    def half(x):
        kind = jnp.bfloat16 if x.dtype == jnp.float32 else x.dtype
        return jax.ShapeDtypeStruct(x.shape, kind, sharding=x.sharding)

    return jax.tree.map(half, tree)
