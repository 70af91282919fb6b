"""The losses that a function differentiates, under plans: what traces say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    Work,
    equation_work,
    inner_jaxprs,
    live_peak,
    recomputed,
    repetitions,
    residuals,
    saved_names,
    work,
)
from bufdb.fitting.gradients import Gradient, gradient
from bufdb.fitting.jax_inside import Changed, gradient_number, without_dead_code
from bufdb.fitting.plans import Plan, Site, Traced
from bufdb.fitting.reader import Reader
from bufdb.fitting.replay import Replay
from bufdb.fitting.survey import Survey


class UnboundError(Exception):
    """A loss has the name of an axis that is bound around its gradient."""

    def __init__(self, site: Site | None) -> None:
        """Take the user's expression that takes the gradient."""
        super().__init__()
        self.site = site


class Losses:
    """Gradients whose jaxprs are made again for each plan; no code of the user's runs for it."""

    def __init__(self, reader: Reader, losses: Sequence[Gradient], step: Any) -> None:
        """Take the losses of a function, and its own jaxpr.

        Raises:
            UnboundError: a gradient is taken within a shard_map, or a vmap that names its axis.
        """
        self._jax = jax_module()
        self._reader = reader
        self._gradients = losses
        self.survey = Survey(reader, [one.closed for one in losses])
        self.changes: dict[tuple[str, ...], Sequence[Callable[[Replay], Changed]]] = {}
        """Of changes that a plan may have as its `extra`, what they make of each loss."""
        self._traces: dict[Plan, Traced] = {}
        self._other = self._work_outside(step)

    def narrow(self, kept: Sequence[int]) -> None:
        """Keep some regions, which get new numbers."""
        self.survey.narrow(kept)
        self._traces = {plan: traced for plan, traced in self._traces.items() if plan == Plan()}

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of the gradients under a plan."""
        plan = plan.as_traced
        kept = self._traces.get(plan)
        if kept is None:
            kept = self._traced(plan)
            if kept.saved is not None and kept.saved != plan.saved:
                less = self.trace(replace(plan, saved=kept.saved))
                if replace(less, saved=kept.saved) != kept:
                    kept = replace(kept, saved=plan.saved)
            self._traces[plan] = kept
        return kept

    def _traced(self, plan: Plan) -> Traced:
        total, stacked, moved, live = self._other, 0, 0, 0
        names: set[str] = set()
        for number, one in enumerate(self._gradients):
            jaxpr = self._gradient_jaxpr(number, plan)
            saved = residuals(jaxpr, one.closed.jaxpr)
            total += work(jaxpr).times(one.times)
            stacked = max(stacked, one.at_once * saved.device_bytes)
            moved += one.times * saved.host_bytes
            live = max(live, one.at_once * live_peak(jaxpr))
            names |= saved_names(jaxpr, one.closed.jaxpr)
        return Traced(
            residual_bytes=stacked,
            live_bytes=live,
            work=total.operations,
            product_count=total.count,
            unknown=tuple(sorted(total.unknown)),
            host_bytes=moved,
            saved=tuple(name for name in plan.saved if name in names),
        )

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        sites = {
            self._reader.site(eqn)
            for number in range(len(self._gradients))
            for eqn in recomputed(self._gradient_jaxpr(number, plan.as_traced))
        }
        return tuple(sorted(site for site in sites if site is not None))

    def _gradient_jaxpr(self, number: int, plan: Plan) -> Any:
        """Return the jaxpr of a gradient under a plan."""
        run, inputs = self.gradient(number, plan)
        return without_dead_code(self._jax.make_jaxpr(run)(*inputs).jaxpr)

    def gradient(self, number: int, plan: Plan) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what `gradient` does of a loss under a plan."""
        replay = Replay(self._reader, self.survey, plan)
        return gradient(self._gradients[number], self.changed(number, plan, replay))

    def changed(self, number: int, plan: Plan, replay: Replay) -> Changed:
        """Return what is differentiated in the place of a loss under a plan."""
        return self.changes[plan.extra][number](replay) if plan.extra else replay.run

    def _work_outside(self, step: Any) -> Work:
        """Return the products outside of the gradients; note how often each of these runs."""
        tagged: dict[int, Work] = {}
        total = _work_by_gradient(step, tagged)
        for number, one in enumerate(self._gradients):
            try:
                alone = work(self._gradient_jaxpr(number, Plan()))
            except NameError as error:  # JAX's for an axis; none of the user's code runs here
                raise UnboundError(one.site) from error
            got = tagged.get(number, Work())
            if alone.operations and got.operations:
                times = got.operations / alone.operations
                one.times = max(1, round(times))
                # A vmap makes products larger, not more of them.
                one.at_once = max(1, round(times * alone.count / got.count))
        return total


def _work_by_gradient(jaxpr: Any, tagged: dict[int, Work], times: int = 1) -> Work:
    """Return the products of a jaxpr outside of gradients; those within go to `tagged`."""
    total = Work()
    for eqn in jaxpr.eqns:
        number = gradient_number(eqn)
        if number is not None:
            tagged[number] = tagged.get(number, Work()) + equation_work(eqn).times(times)
            continue
        inner = list(inner_jaxprs(eqn))
        if not inner or eqn.primitive.name in ("cond", "custom_vjp_call", "custom_jvp_call"):
            total += equation_work(eqn).times(times)
        for one in inner if inner and eqn.primitive.name != "cond" else ():
            total += _work_by_gradient(one, tagged, times * repetitions(eqn))
    return total
