"""A loss at two sizes of the batch, without nested functions: the same equations, number by number.

An axis that differs by the ratio of the sizes is the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import is_dropped
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Closed
from bufdb.fitting.jax_inside import JITS, bind, evaluate, value, without_dead_code
from bufdb.fitting.reader import Reader
from bufdb.fitting.rewrites import Pair, axis_of


@dataclass(frozen=True)
class Flat:
    """A loss at two sizes without nested functions: equations of the same number are the same."""

    full: Any
    """Jaxpr; its inputs are the constants of the loss, then its inputs."""
    part: Any
    axes: dict[Any, int | None]
    """The batch's axis of each value of `full`."""


def flattened(pair: Pair, reader: Reader) -> Flat:
    """Return a loss at two sizes with its nested functions inlined.

    Raises:
        Refused: they differ in more than sizes.
    """
    full, part = _inlined_jaxpr(pair.full.closed, reader), _inlined_jaxpr(pair.part.closed, reader)
    names = [[eqn.primitive.name for eqn in jaxpr.eqns] for jaxpr in (full, part)]
    if names[0] != names[1]:
        raise Refused("another size of the batch is another program")
    axes: dict[Any, int | None] = {}
    made = [*zip(full.invars, part.invars, strict=True)]
    for one, other in zip(full.eqns, part.eqns, strict=True):
        made += zip(one.outvars, other.outvars, strict=True)
    for var, small in made:
        if not is_dropped(var) and hasattr(var.aval, "shape"):
            axes[var] = axis_of(var.aval, small.aval, pair.count)
    return Flat(full, part, axes)


def _inlined_jaxpr(closed: Any, reader: Reader) -> Any:
    jaxpr = closed.jaxpr

    def run(consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        return _inlined(Closed(jaxpr, consts), inputs, reader, None)

    avals = [var.aval for var in jaxpr.constvars], [var.aval for var in jaxpr.invars]
    return without_dead_code(jax_module().make_jaxpr(run)(*avals).jaxpr)


def _inlined(closed: Any, inputs: Sequence[Any], reader: Reader, source: Any) -> list[Any]:
    """Return the outputs of a closed jaxpr, bound without nested functions.

    Args:
        closed: of a loss, or nested in it.
        inputs: its inputs.
        reader: knows which nested functions are the user's.
        source: where the call of a library's function was written, which counts for what is in it.
    """
    env = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, inputs, strict=True))

    def rule(eqn: Any, values: list[Any]) -> list[Any]:
        here = eqn if source is None else eqn.replace(source_info=source)
        nested = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if eqn.primitive.name in JITS and hasattr(nested, "consts"):
            within = None if source is None and reader.nested(eqn) else here.source_info
            return _inlined(nested, values, reader, within)
        return bind(here, values, is_numbered=True)

    evaluate(closed.jaxpr.eqns, env, rule)
    return [value(var, env) for var in closed.jaxpr.outvars]
