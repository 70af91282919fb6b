"""Compiled plans, and estimates of what others need, by their traces, from the nearest of them.

Estimates prove nothing: what a plan needs is not monotone in what it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bufdb.fitting.plans import Candidate, Compiled, Learned, Plan, is_met
from bufdb.fitting.space import NONE, Space
from bufdb.fitting.sums import Guess, Sums

MARGIN = 0.02
"""Error of estimates that is assumed until one is known."""
ENOUGH = 2
"""Plans that are new to the compiler, of a program whose plans were compiled for other limits."""
STEEPEST = 8.0
"""Most bytes of need for a live byte of a trace: XLA may keep a float64 for a mask made of it."""


@dataclass
class Estimates:
    """What is compiled, and estimates of what is not."""

    space: Space
    full: dict[Plan, Compiled] = field(default_factory=dict)
    quick: dict[Plan, int] = field(default_factory=dict)
    """Needs at low effort; 0 if XLA gave up, which it may do though full effort fits."""
    refused: set[Plan] = field(default_factory=set)
    """Plans that XLA gave up."""
    count: int = 0
    error: float | None = None
    """Largest error of an estimate so far, as a share of the need."""
    hoped: dict[Plan, int] = field(default_factory=dict)
    """Plans that were compiled though their estimates were too large, and the estimates."""
    late_error: float = MARGIN
    """The same of those from a plan, not from the function as written."""
    kept: dict[Plan, int] = field(default_factory=dict)
    """Needs of plans that earlier questions compiled."""
    new_count: int = 0
    """Of compilations, those of other plans."""
    _estimates: dict[Plan, int] = field(default_factory=dict)
    """Until more is compiled."""
    _sums: Sums | None = None
    """Until more is compiled, of programs whose plans are of several functions."""
    _known: tuple[object, ...] = ()
    """What they are of: how many compilations, and what is free."""
    early: dict[Plan, Compiled] = field(default_factory=dict)
    """What is compiled before the search needs it: the estimates do without it until then."""

    def __post_init__(self) -> None:
        self.full[Plan()] = self.space.request.as_written
        self.space.traced.setdefault(Plan(), self.space.program.as_written)
        self.space.of_plan.setdefault(Plan(), NONE)

    @property
    def left(self) -> int:
        """Return how many compilations are left; some are none of the search's while none fits."""
        request = self.space.request
        compiled = (*self.full.values(), *self.early.values())
        fits = any(is_met(one, request.limit_bytes) for one in compiled)
        return request.budget(fits=fits) - self.count

    @property
    def is_over(self) -> bool:
        """Return whether no compilation, or no time, is left."""
        return self.left <= 0 or self.space.request.is_over()

    def remember(self) -> None:
        """Take what earlier questions compiled as known; the plans are traced for that."""
        space, count = self.space, self.space.count
        for one in space.request.known:
            if space.request.is_over():
                break
            plan = space.look(one.plan, one.away)
            self.kept[plan] = one.need_bytes
            if one.hoped_bytes is not None:
                self.hoped[plan] = one.hoped_bytes
        space.count = count

    @property
    def known(self) -> list[Plan]:
        """Return the plans whose need is that of a compilation, now or earlier."""
        return [*self.full, *(plan for plan in self.kept if plan not in self.full)]

    def need(self, plan: Plan) -> int | None:
        """Return the need of a plan that is compiled; None of others."""
        compiled = self.full.get(plan)
        return self.kept.get(plan) if compiled is None else compiled.need_bytes

    def open(self) -> list[Plan]:
        """Return the plans that are traced and not compiled, without new ones if enough were."""
        known = self.full.keys() | self.refused
        plans = [plan for plan in self.space.traced if plan not in known]
        is_enough = self.kept and self.new_count >= ENOUGH
        return [plan for plan in plans if plan in self.kept] if is_enough else plans

    def order(self, plan: Plan) -> tuple[int, int, int]:
        """Return the sort key of plans: cost, then what changes, then need."""
        cost = self.space.cost(self.space.traced[plan])
        return cost, len(self.space.of_plan[plan]), self.estimate(plan)

    def anchors(self, plan: Plan | None = None) -> list[Plan]:
        """Return the compiled plans to estimate others from, those of its kind for a plan.

        The function as written is one of a plan with a policy only until another is known: a policy
        saves other values. A scan that is run as two holds copies of what it scans, which are no
        residuals.
        """
        known = [one for one in self.known if self.need(one) is not None]
        known = [one for one in known if one.free == self.space.base] or known
        if plan is not None:
            is_in_two = self._is_in_two(plan)
            known = [one for one in known if self._is_in_two(one) == is_in_two] or known
            if not plan.scans and self.space.program.calls:
                return known
        return [one for one in known if one.scans or one.calls] or known

    def _is_in_two(self, plan: Plan) -> bool:
        """Return whether a scan is run as two."""
        regions = self.space.program.regions
        return any(regions[one.region].kind == "scan" for one in plan.depths)

    def slope(self) -> float:
        """Return bytes of need for a byte of the figure: 1 of residuals, of live values as seen."""
        space = self.space
        if not space.program.calls:
            return 1.0
        points = [
            (space.figure(space.traced[plan]), need)
            for plan in self.known
            if (need := self.need(plan)) is not None
        ]
        (low, small), (high, large) = min(points), max(points)
        return min(max((large - small) / (high - low), 0.1), STEEPEST) if high > low else 1.0

    def estimate(self, plan: Plan) -> int:
        """Return the need of a plan: compiled, or from that of the compiled plan nearest to it."""
        known = len(self.full), len(self.kept), len(self.quick), self.space.base
        if known != self._known:
            self._known, self._estimates, self._sums = known, {}, None
        if plan not in self._estimates:
            self._estimates[plan] = self._estimated(plan)
        return self._estimates[plan]

    def _estimated(self, plan: Plan) -> int:
        known = self.need(plan)
        if known is not None:
            return known
        if self.quick.get(plan):
            both = [other for other in self.quick if self.quick[other] and self.need(other)]
            if both:
                near = min(both, key=self._distance(plan))
                return round((self.need(near) or 0) * self.quick[plan] / self.quick[near])
        guess = self.guess(plan)
        return self._estimate(plan, self.anchors(plan)) if guess is None else round(guess.need)

    @property
    def is_of_sums(self) -> bool:
        """Return whether plans are calls of several functions, each with an error of its own."""
        program = self.space.program
        is_known = bool(self.need(self.space.base) or self.need(Plan()))
        return is_known and len(program.calls) > 1 and not program.switched

    def guess(self, plan: Plan) -> Guess | None:
        """Return what a plan may need by sums over its regions; None where each has one figure."""
        if not self.is_of_sums:
            return None
        if self._sums is None:
            known = [one for one in self.known if self.need(one) and one.free == self.space.base]
            self._sums = Sums(
                self.need(self.space.base) or self.need(Plan()) or 0,
                [(self.space.parts(one), self.need(one) or 0) for one in known],
            )
        return self._sums.guess(self.space.parts(plan))

    def _distance(self, plan: Plan) -> Callable[[Plan], tuple[int, int]]:
        space = self.space
        figure = space.figure(space.traced[plan])

        def distance(other: Plan) -> tuple[int, int]:
            apart = abs(figure - space.figure(space.traced[other]))
            return apart, len(space.of_plan[other] ^ space.of_plan[plan])

        return distance

    def _estimate(self, plan: Plan, anchors: Sequence[Plan]) -> int:
        """Return the need of a plan by its trace, from those of some compiled plans."""
        space = self.space
        figure = space.figure(space.traced[plan])
        if not anchors:
            return figure
        below, above = self._around(figure, anchors)
        if below is not None and above is not None:
            small, large = self.need(below) or 0, self.need(above) or 0
            low, high = (space.figure(space.traced[one]) for one in (below, above))
            if space.program.calls:  # how many bytes a live byte is differs by call
                share = (high - figure) / (high - low) if high > low else 0.0
                return round(large - share * (large - small))
            # Down from the larger one, to where the peak is elsewhere, as the smaller one shows.
            return round(max(large - (high - figure), min(small, large)))
        near = min(anchors, key=self._distance(plan))
        need, other = self.need(near) or 0, space.figure(space.traced[near])
        estimate = need + self.slope() * (figure - other)
        # The rest of the program does not shrink with the values that are saved.
        return round(max(estimate, need * figure / other) if 0 < figure < other else estimate)

    def part(self, plan: Plan) -> int:
        """Return the need of a plan as a part of the layers, with what dividing these costs.

        That is the least by which a compiled plan of both kinds is above the line between these.
        """
        anchors = [one for one in self.anchors() if not self._is_in_two(one)]
        divided = [one for one in self.known if self._is_in_two(one) and one.free == plan.free]
        above = [(self.need(one) or 0) - self._estimate(one, anchors) for one in divided]
        is_known = self._is_in_two(plan)
        return self.estimate(plan) + (0 if is_known else max(0, min(above, default=0)))

    def _around(self, figure: int, anchors: Sequence[Plan]) -> tuple[Plan | None, Plan | None]:
        """Return the anchors next to a figure, below (or equal) and above (or equal)."""
        space = self.space

        def of(plan: Plan) -> int:
            return space.figure(space.traced[plan])

        below = max((one for one in anchors if of(one) <= figure), key=of, default=None)
        above = min((one for one in anchors if of(one) >= figure), key=of, default=None)
        return below, above

    def hope(self, plan: Plan) -> int:
        """Return the least need that a plan may have: that of one which saves less, 0 if unknown.

        What a plan saves may be away from the peak, and a larger plan that is compiled says nothing
        of it: other values may be what is at the peak there.
        """
        away = self.space.of_plan[plan]
        anchors = self.anchors(plan)
        needs = [self.need(other) or 0 for other in anchors if self.space.of_plan[other] >= away]
        return max(needs, default=0)

    @property
    def margin(self) -> float:
        """Return the error that estimates may have, as a share."""
        return MARGIN if self.error is None else max(self.error, MARGIN / 4)

    def compile_early(self, plan: Plan) -> None:
        """Compile a plan whose estimate, from far away, is no measure of the others."""
        self.count += 1
        self.space.request.observer("compiling the plan that saves nothing")
        self.early[plan] = self.space.request.compile(plan, True)

    def finish(self) -> None:
        """Know what was compiled early, too."""
        for plan, compiled in self.early.items():
            if compiled.need_bytes is not None:
                self.full.setdefault(plan, compiled)
                self._learn(plan, compiled.need_bytes)

    def compile(self, plan: Plan, *, is_full: bool = True) -> int | None:
        """Return the need of a plan, compiled; None if XLA gave up."""
        before, is_new = self.estimate(plan), plan not in self.kept
        compiled = self.early.get(plan) if is_full else None
        if compiled is None:
            self.count += 1
            self.new_count += is_new
            self.space.request.observer(f"compiling plan {self.count}, estimated at {before} bytes")
            compiled = self.space.request.compile(plan, is_full)
        need = compiled.need_bytes
        if not is_full:
            self.quick[plan] = need or 0
        elif need is None:
            self.refused.add(plan)
        else:
            is_first = self._is_in_two(plan) and not any(map(self._is_in_two, self.known))
            self.full[plan] = compiled
            self._learn(plan, need)
            if is_new and not is_first:  # of plans of both kinds of layers: no error of the others
                wrong = abs(before - need) / max(need, 1)
                if self.error is not None:
                    self.late_error = max(self.late_error, wrong)
                self.error = max(self.error or 0.0, wrong)
        return need

    def _learn(self, plan: Plan, need: int) -> None:
        away, hoped = self.space.of_plan[plan], self.hoped.get(plan)
        self.space.request.learn(Learned(plan, away, need, hoped))

    def candidate(self, plan: Plan) -> Candidate:
        """Return a plan with what is known of it."""
        return Candidate(
            plan,
            self.space.traced[plan],
            self.estimate(plan),
            self.full.get(plan),
            self.error,
            self.space.is_explored,
        )
