"""The losses that a function differentiates, under plans: what traces say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    Work,
    equation_work,
    handed_over,
    inner_jaxprs,
    live_peak,
    recomputed,
    repetitions,
    residuals,
    saved_names,
    work,
)
from bufdb.fitting.derived import Derived, Figures, NamedApart, UnknownError
from bufdb.fitting.gradients import Gradient, gradient
from bufdb.fitting.jax_inside import Changed, gradient_number, without_dead_code
from bufdb.fitting.levers.carried import Carried
from bufdb.fitting.plans import Plan, Site, Traced
from bufdb.fitting.reader import SCAN, Reader
from bufdb.fitting.records import as_json
from bufdb.fitting.replay import Replay
from bufdb.fitting.session import MistracedError
from bufdb.fitting.survey import Survey
from bufdb.fitting.traces import Traces, content

TRACED = 8
"""Plans of the same scans that JAX traces before the others are derived."""

LATEST = 2
"""Plans whose jaxprs are kept: one, and the same with the names that add nothing."""


class UnboundError(Exception):
    """A loss has the name of an axis that is bound around its gradient."""

    def __init__(self, site: Site | None) -> None:
        """Take the user's expression that takes the gradient."""
        super().__init__()
        self.site = site


@dataclass
class _Alike:
    """Plans of the same scans."""

    trace_count: int = 0
    derived: Sequence[Derived] = ()
    """Of each loss, once it is needed."""
    is_known: bool = True
    """Whether what is derived is what JAX traces, as far as that was tried."""


class Losses:
    """Gradients whose jaxprs are made again for each plan; no code of the user's runs for it.

    Of many plans of the same scans most are derived from one trace; the first ones, later ones more
    and more rarely, and those that are compiled are traced by JAX, too.
    """

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
        self._alike: dict[Any, _Alike] = {}
        self._derived: set[Plan] = set()
        """Those of the traced plans that JAX has not traced."""
        self._may_derive = True
        self._written = [self._as_written(number) for number in self._numbers]
        self._last: dict[Plan, Sequence[Any]] = {Plan(): self._written}
        """The plans whose gradients were traced last, and their jaxprs."""
        self._other = self._work_outside(step)
        self._before = Traces(self._content)

    def narrow(self, kept: Sequence[int]) -> None:
        """Keep some regions, which get new numbers."""
        self.write()
        self.survey.narrow(kept)
        self._traces = {plan: traced for plan, traced in self._traces.items() if plan == Plan()}
        self._derived.clear()
        self._alike.clear()
        self._last = {Plan(): self._written}
        self._before = Traces(self._content)

    def _content(self) -> Sequence[str]:
        """Return what traces depend on."""
        losses = [content(one.closed.jaxpr, self._reader.site) for one in self._gradients]
        counts = [(one.times, one.at_once, one.outputs) for one in self._gradients]
        facts = as_json([self._other, counts, self.survey.regions, self.survey.switches])
        return [*losses, *map(content, self._written), str(facts)]

    def write(self) -> None:
        """Keep the traces for later calls."""
        self._before.write()

    # -- What a plan does --------------------------------------------------------------------------

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of the gradients under a plan.

        Raises:
            MistracedError: what was returned of other plans is not what JAX traces of these.
        """
        plan = plan.as_traced
        if plan not in self._traces:
            derived = self._derive(plan)
            if derived is None:
                self._traces[plan] = self._by_jax(plan)
            else:
                fewest = replace(plan, saved=derived.saved or ())
                new = {plan, fewest} - self._traces.keys()
                self._derived |= new
                self._traces |= dict.fromkeys(new, derived)
        return self._traces[plan]

    def known(self) -> Mapping[Plan, Traced]:
        """Return what traces say of the plans that earlier calls asked about."""
        for plan in self._before.plans():
            self.trace(plan)
        return self._traces

    def prove(self, plan: Plan) -> None:
        """Trace a plan if what is known of it is derived.

        Raises:
            MistracedError: JAX's trace is another one.
        """
        plan = plan.as_traced
        if plan in self._derived:
            self._require_same(self._traces[plan], self._by_jax(plan))
            self._derived.discard(plan)

    def _by_jax(self, plan: Plan) -> Traced:
        traced = self._traced(plan)
        if traced.saved is not None and traced.saved != plan.saved:
            less = self.trace(replace(plan, saved=traced.saved))
            if not self._is_same(less, traced):
                return replace(traced, saved=plan.saved)
        return traced

    def _is_same(self, one: Traced, other: Traced) -> bool:
        """Return whether two plans do and save the same; only those of calls need live values."""
        live = one.live_bytes if self._has_calls else other.live_bytes
        return replace(one, saved=other.saved, live_bytes=live) == other

    @property
    def _has_calls(self) -> bool:
        return any(region.kind != SCAN for region in self.survey.regions)

    def _derive(self, plan: Plan) -> Traced | None:
        """Return what a plan does without a trace of it; None if JAX is to trace it."""
        if not (self._may_derive and plan.scans and _is_of_names(plan)) or self._has_calls:
            return None
        alike = self._alike.setdefault((plan.scans, plan.extra), _Alike())
        alike.trace_count += 1
        if alike.trace_count <= TRACED or not alike.is_known:
            return None
        return self._before.derived(plan, lambda: self._derived_now(plan, alike))

    def _derived_now(self, plan: Plan, alike: _Alike) -> Traced | None:
        """Return what is derived of a plan, compared with JAX's trace more and more rarely."""
        if not alike.derived:
            try:
                alike.derived = [self._apart(number, plan) for number in self._numbers]
            except UnknownError:
                alike.is_known = False
                return None
            alike.is_known = self._is_known(alike.derived, plan)
            if not alike.is_known and any(_is_alike(one, plan) for one in self._derived):
                self._derive_no_more()  # an earlier call derived these
        derived = self._of(alike.derived, plan) if alike.is_known else None
        if derived is not None and alike.trace_count & (alike.trace_count - 1) == 0:
            self._require_same(derived, self._traced(plan))
        return derived

    def _is_known(self, derived: Sequence[Derived], plan: Plan) -> bool:
        """Return whether what JAX traced of plans with the scans of one is what is derived."""
        pairs = (
            (self._of(derived, one), traced)
            for one, traced in self._traces.items()
            if _is_alike(one, plan) and _is_of_names(one)
        )
        return all(one is None or self._is_same(one, traced) for one, traced in pairs)

    def _apart(self, number: int, plan: Plan) -> Derived:
        """Return the gradient of a loss under all plans that have the scans of one."""
        names = tuple(one.name for one in self.survey.switches)
        replay = NamedApart(self._reader, self.survey, replace(plan, saved=names, offloaded=()))
        one = self._gradients[number]
        run, inputs = gradient(one, self.changed(number, plan, replay))
        jaxpr = without_dead_code(self._jax.make_jaxpr(run)(*inputs).jaxpr)
        carried = {one.name for one in self.survey.switches if one.lever == Carried.name}
        return Derived(jaxpr, one.closed.jaxpr, carried)

    def _require_same(self, derived: Traced, traced: Traced) -> None:
        if not self._is_same(derived, traced):
            self._derive_no_more()

    def _derive_no_more(self) -> None:
        """Forget what is derived, which is not what JAX traces.

        Raises:
            MistracedError: always.
        """
        self._may_derive = False
        for plan in self._derived:
            del self._traces[plan]
        self._derived.clear()
        self._before.forget_derived()
        raise MistracedError

    def _of(self, derived: Sequence[Derived], plan: Plan) -> Traced | None:
        """Return what is derived of a plan; None if it is unknown."""
        saved, offloaded = frozenset(plan.saved), frozenset(plan.offloaded)
        try:
            figures = [one.figures(saved, offloaded) for one in derived]
        except UnknownError:
            return None
        return self._summed(plan, figures, live_bytes=0)

    def _traced(self, plan: Plan) -> Traced:
        """Return what JAX's trace of a plan says, whenever it was made."""
        return self._before.traced(plan, lambda: self._traced_now(plan))

    def _traced_now(self, plan: Plan) -> Traced:
        jaxprs = self._gradient_jaxprs(plan)
        losses = [one.closed.jaxpr for one in self._gradients]
        figures = [
            Figures(work(jaxpr), residuals(jaxpr, loss), saved_names(jaxpr, loss))
            for jaxpr, loss in zip(jaxprs, losses, strict=True)
        ]
        live = (
            one.at_once * live_peak(jaxpr)
            for one, jaxpr in zip(self._gradients, jaxprs, strict=True)
        )
        traced = self._summed(plan, figures, live_bytes=max(live, default=0))
        if not self._has_calls:
            return traced
        pairs = zip(self._gradients, jaxprs, strict=True)
        handed = max((one.at_once * handed_over(jaxpr) for one, jaxpr in pairs), default=0)
        return replace(traced, handed_bytes=handed)

    def _summed(self, plan: Plan, figures: Sequence[Figures], live_bytes: int) -> Traced:
        """Return what a plan does from the figures of each gradient."""
        total, stacked, moved = self._other, 0, 0
        for one, own in zip(self._gradients, figures, strict=True):
            total += own.work.times(one.times)
            stacked = max(stacked, one.at_once * own.residuals.device_bytes)
            moved += one.times * own.residuals.host_bytes
        names = frozenset[str]().union(*(one.names for one in figures))
        return Traced(
            residual_bytes=stacked,
            live_bytes=live_bytes,
            work=total.operations,
            product_count=total.count,
            unknown=tuple(sorted(total.unknown)),
            host_bytes=moved,
            saved=tuple(name for name in plan.saved if name in names),
        )

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        plan = plan.as_traced
        return self._before.again(plan, lambda: self._recomputed_now(plan))

    def _recomputed_now(self, plan: Plan) -> tuple[Site, ...]:
        jaxprs = self._gradient_jaxprs(plan)
        sites = {self._reader.site(eqn) for jaxpr in jaxprs for eqn in recomputed(jaxpr)}
        return tuple(sorted(site for site in sites if site is not None))

    # -- Gradients ---------------------------------------------------------------------------------

    def _gradient_jaxprs(self, plan: Plan) -> Sequence[Any]:
        """Return the jaxprs of the gradients under a plan."""
        jaxprs = self._last.get(plan)
        if jaxprs is None:
            jaxprs = [self._gradient_jaxpr(number, plan) for number in self._numbers]
            latest = list(self._last.items())[1 - LATEST :]
            self._last = {**dict(latest), plan: jaxprs}
        return jaxprs

    def _as_written(self, number: int) -> Any:
        """Return the jaxpr of a gradient as written.

        Raises:
            UnboundError: it has the name of an axis that is bound around it.
        """
        try:
            return self._gradient_jaxpr(number, Plan())
        except NameError as error:  # JAX's for an axis; none of the user's code runs here
            raise UnboundError(self._gradients[number].site) from error

    @property
    def _numbers(self) -> range:
        return range(len(self._gradients))

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
            alone = work(self._written[number])
            got = tagged.get(number, Work())
            if alone.operations and got.operations:
                times = got.operations / alone.operations
                one.times = max(1, round(times))
                # A vmap makes products larger, not more of them.
                one.at_once = max(1, round(times * alone.count / got.count))
        return total


def _is_alike(one: Plan, other: Plan) -> bool:
    """Return whether two plans change the same scans."""
    return (one.scans, one.extra) == (other.scans, other.extra)


def _is_of_names(plan: Plan) -> bool:
    """Return whether a plan only says which names scans save, and where."""
    return plan == Plan(plan.scans, plan.saved, plan.offloaded, extra=plan.extra)


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
