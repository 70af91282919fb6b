"""Functions that a library jits, as functions that JAX jits: traced, and lowered.

    jax.jit             itself
    flax.nnx.jit        arguments are modules, by position as in JAX's jit within
    equinox.filter_jit  arguments are split into arrays and the rest

Whatever else has a `lower` of its own is refused in one line.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.errors import UsageError


class Lifted:
    """A function that a library jits, with the methods of JAX's own."""

    def __init__(self, function: Any, stage: Callable[..., Any], jit: Any = None) -> None:
        """Take the function that the library jits.

        Args:
            function: as the user has it.
            stage: traces it for arguments, and returns JAX's stage.
            jit: JAX's jit within, whose arguments have the places of the user's; None if they have
                other ones.
        """
        self.lifted = function
        self.__wrapped__ = _inner(function)
        self.trace = stage
        self._jit_info = getattr(jit, "_jit_info", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as the user has it."""
        return self.lifted(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Trace and lower the function."""
        return self.trace(*args, **kwargs).lower()


def jitted(function: Any, name: str) -> Any:
    """Return a function that has the methods of JAX's jit if it is jitted at all.

    Raises:
        UsageError: it is jitted by something else.
    """
    library = type(function).__module__
    if isinstance(function, functools.partial) and _is_lifted(function.func):
        inner = jitted(function.func, name)
        bound = functools.partial(inner.trace, *function.args, **function.keywords)
        return Lifted(function, bound)
    if not _is_lifted(function):
        return function
    if library.startswith("flax.nnx") and hasattr(function, "jitted_fn"):
        return Lifted(function, _stage_of_nnx(function), function.jitted_fn)
    if library.startswith("equinox") and hasattr(function, "_cached"):
        return filtered(function, is_first=function.donate_first, is_rest=function.donate_rest)
    raise UsageError(
        f"{name} is jitted by {library}.{type(function).__qualname__}, whose inside bufdb fit does "
        "not know; name the function within, or jit it with jax.jit, nnx.jit or eqx.filter_jit"
    )


def _is_lifted(function: Any) -> bool:
    """Return whether a function is jitted, and not by JAX's own jit."""
    return hasattr(function, "lower") and not hasattr(function, "_jit_info")


def _inner(function: Any) -> Any:
    return function if isinstance(function, functools.partial) else function.__wrapped__


def _stage_of_nnx(function: Any) -> Callable[..., Any]:
    def stage(*args: Any, **kwargs: Any) -> Any:
        return function.trace(*args, **kwargs).traced

    return stage


def filtered(function: Any, *, is_first: bool, is_rest: bool) -> Lifted:
    """Return a function of `equinox.filter_jit` that donates its first argument, and the others."""
    return Lifted(function, _stage_of_equinox(function, is_first=is_first, is_rest=is_rest))


def _stage_of_equinox(function: Any, *, is_first: bool, is_rest: bool) -> Callable[..., Any]:
    """Return what traces a function of `equinox.filter_jit`, as its `lower` does.

    Arrays without values count as arrays, too; equinox takes them for what is not traced.
    """

    def is_array(leaf: Any) -> bool:
        return isinstance(leaf, jax_module().ShapeDtypeStruct) or bool(
            importlib.import_module("equinox").is_array(leaf)
        )

    def stage(*args: Any, **kwargs: Any) -> Any:
        split = importlib.import_module("equinox._compile_utils").hashable_partition
        bound = function._signature.bind(*args, **kwargs)
        positional: list[Any] = [*bound.args, None]  # equinox's own placeholder
        first, rest = positional[0], positional[1:]
        firsts, others = split(first, is_array), split((tuple(rest), bound.kwargs), is_array)
        taken: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        taken[is_first]["first"] = firsts[0]
        taken[is_rest] |= {"fun": function._dynamic_fun, "rest": others[0]}
        static = function._static_fun, firsts[1], others[1]
        return function._cached.trace(taken[True], taken[False], static)

    return stage
