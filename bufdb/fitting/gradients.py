"""A loss that a function differentiates, and its gradient as a function of flat inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import is_inexact
from bufdb.fitting.jax_inside import Changed
from bufdb.fitting.plans import Site


@dataclass
class Gradient:
    """A loss that the function differentiates."""

    closed: Any
    """Its jaxpr; constants are kept as abstract values."""
    outputs: int
    """How many outputs are differentiated; the others are auxiliary."""
    times: int = 1
    """How often it runs in a call of the function."""
    at_once: int = 1
    """How many of these runs are one, in a vmap."""
    site: Site | None = None
    """The user's expression that takes the gradient; None if bufdb does."""
    paths: tuple[str, ...] = ()
    """Of each output, where it is in what the loss returns, such as `[1]['accuracy']`."""

    def output(self, at: int) -> str:
        """Return an auxiliary output in words."""
        path = self.paths[at] if at < len(self.paths) else ""
        return f"auxiliary output {path.removeprefix('[1]') or 'of the loss'}"


@dataclass(frozen=True)
class Closed:
    """A jaxpr with values for its constants."""

    jaxpr: Any
    consts: Sequence[Any]


def gradient(one: Gradient, run: Changed) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of flat inputs and constants that gives a gradient, and their shapes.

    The invariant of `gradients` holds here too: what is differentiated is what `run` makes of the
    loss.
    """
    jax, closed = jax_module(), one.closed
    avals = [var.aval for var in closed.jaxpr.invars]
    wanted = [at for at, aval in enumerate(avals) if is_inexact(aval)]

    def taken(inputs: Sequence[Any], consts: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        def loss(*floats: Any) -> tuple[list[Any], list[Any]]:
            values = list(inputs)
            for at, value in zip(wanted, floats, strict=True):
                values[at] = value
            outputs = run(Closed(closed.jaxpr, consts), values)
            main = [out for out in outputs[: one.outputs] if is_inexact(out)]
            return main, outputs[one.outputs :]

        main, pull, rest = jax.vjp(loss, *(inputs[at] for at in wanted), has_aux=True)
        return main, rest, pull(list(cotangents))

    consts = [var.aval for var in closed.jaxpr.constvars]
    outputs = [var.aval for var in closed.jaxpr.outvars[: one.outputs] if is_inexact(var.aval)]
    return taken, (avals, consts, outputs)


def file_names(jaxpr: Any) -> set[str]:
    """Return the files in whose functions the equations of a jaxpr were made, nested ones not."""
    tracebacks = (eqn.source_info.traceback for eqn in jaxpr.eqns)
    return {
        code.co_filename
        for traceback in tracebacks
        if traceback is not None
        for code in traceback.raw_frames()[0]
    }
