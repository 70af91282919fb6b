"""Add rewrites of the program (`--also`) to the candidates of the search.

Each kind is tried alone. With a limit that nothing as cheap fits, the search runs in the rewritten
program, whose plans are those of the program with the rewrite: of each kind, then of two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bufdb.fitting.levers import OF_TEXT
from bufdb.fitting.plans import Candidate, Compiled, Plan, Program, SearchRequest, Traced
from bufdb.fitting.search import search
from bufdb.fitting.space import Space, free
from bufdb.render.text import human_apart

LESS = 0.03
"""Share of a need by which more parts of the batch must lower it, to go on with more."""
NEAR = 0.1
"""Excess over the limit of the plan that saves nothing up to which others may fit: need is not
monotone in what is saved."""


@dataclass(frozen=True)
class Extra:
    """Compiles plans with changes of the program's text."""

    program: Program
    request: SearchRequest
    left: Callable[[], int]
    """How many compilations are left."""
    notes: list[str]
    """Receives in words why a kind has no plan."""

    def with_found(self, kinds: Sequence[str], candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the plans of a search with those of some kinds of changes, cheapest first.

        Each kind is tried alone; then, with a limit that nothing as cheap fits, with plans that
        the search finds in the rewritten program, and with other kinds.
        """
        program, request = self.program, self.request
        alone = Candidate(free(program), program.as_written, 0, request.as_written)
        more = [one for kind in kinds for one in self._plans(kind, alone)]
        for extra in self._rewrites(kinds, more) if request.limit_bytes is not None else ():
            more += self._with_plans(extra, more, candidates)
        return sorted([*candidates, *more], key=lambda one: Space.cost(one.traced))

    def _least_cost(self, candidates: Sequence[Candidate]) -> float:
        """Return the cost of the cheapest plan that fits; infinite if none does."""
        costs = (Space.cost(one.traced) for one in candidates if one.fits(self.request.limit_bytes))
        return min(costs, default=math.inf)

    def _plans(self, kind: str, base: Candidate) -> list[Candidate]:
        """Return a plan in growing numbers of parts, until one fits or saves little more."""
        candidates: list[Candidate] = []
        need = None if base.compiled is None else base.compiled.need_bytes
        for change in self.program.changes:
            if not change.key.startswith(kind) or change.within:
                continue
            if self.left() < 1:
                if not candidates:
                    self.notes.append(f"--also {kind}: no compilation is left for {change.what}")
                break
            self.request.observer(f"compiling {change.what}")
            one = self._compiled(replace(base.plan, extra=change.keys))
            if one is None:
                continue
            if need is not None and one.estimate_bytes > need * (1 - LESS):
                if not candidates:
                    shown, other = human_apart([one.estimate_bytes, need])
                    self.notes.append(f"--also {kind}: {change.what} needs {shown}, after {other}")
                break
            candidates.append(one)
            need = one.estimate_bytes
            if one.fits(self.request.limit_bytes):
                break
        return candidates

    def _compiled(self, plan: Plan) -> Candidate | None:
        """Return a plan, compiled; None if it cannot be."""
        self.request.trace(plan)
        compiled = self.request.compile(plan, True)
        traced = self.request.trace(plan)  # of patched files it is known once they are compiled
        need = compiled.need_bytes
        return None if need is None else Candidate(plan, traced, need, compiled)

    # -- Together with other plans -----------------------------------------------------------------

    def _rewrites(self, kinds: Sequence[str], alone: Sequence[Candidate]) -> list[tuple[str, ...]]:
        """Return the rewrites to combine with plans: of each kind that of the least need, then two.

        Of two the most parts come first: where these do not fit, fewer do not.
        """
        each = []
        for kind in kinds:
            own = [one for one in alone if one.plan.extra[0].startswith(kind)]
            if own:
                each.append(min(own, key=lambda one: one.estimate_bytes).plan.extra)
        two = [change.keys for change in self.program.changes if change.within]
        return [*each, *two[::-1]]

    def _with_plans(
        self, extra: tuple[str, ...], alone: Sequence[Candidate], others: Sequence[Candidate]
    ) -> list[Candidate]:
        """Return plans of the rewritten program, if they may be cheaper than what fits."""
        proved = [one for one in others if one.is_exact]
        plan = replace(free(self.program), extra=extra)
        base = next((one for one in alone if one.plan == plan), None)
        most = self._least_cost([*proved, *alone])
        if self.left() < 1 or Space.cost(self.request.trace(plan)) > most:
            return []
        if extra[0].partition("=")[0] in {lever.name for lever in OF_TEXT}:
            return self._of_text(extra, others) if most == math.inf else []
        more: list[Candidate] = []
        if base is None:
            self.request.observer(f"compiling {' and '.join(extra)}")
            base = self._compiled(plan)
            more += [] if base is None else [base]
        if base is None or base.fits(self.request.limit_bytes) or Space.cost(base.traced) >= most:
            return more
        return [*more, *self._searched(base)]

    def _of_text(self, extra: tuple[str, ...], others: Sequence[Candidate]) -> list[Candidate]:
        """Return plans with a rewrite that no trace has: of the least need, then cheaper ones.

        Once one fits, half of the plans between it and the dearest one that does not are left out
        at a time.
        """
        plans = sorted(
            {one.plan: one for one in others if not one.plan.extra}.values(),
            key=lambda one: (Space.cost(one.traced), -one.estimate_bytes),
        )
        least = min(plans, key=lambda one: one.estimate_bytes, default=None)
        if least is None:
            return []
        plans = plans[: plans.index(least) + 1]
        compiled: list[Candidate] = []
        first, at = 0, len(plans) - 1
        while first <= at and self.left() > 0:
            middle = at if not compiled else (first + at) // 2
            self.request.observer(f"compiling {' and '.join(extra)} with another plan")
            one = self._compiled(replace(plans[middle].plan, extra=extra))
            compiled += [] if one is None else [one]
            if one is not None and one.fits(self.request.limit_bytes):
                at = middle - 1
            elif len(compiled) <= 1:
                break
            else:
                first = middle + 1
        return compiled

    def _searched(self, base: Candidate) -> list[Candidate]:
        """Return what the search finds in the program with a rewrite."""
        extra, donated, limit = base.plan.extra, base.plan.donated, self.request.limit_bytes

        def whole(plan: Plan) -> Plan:
            return replace(plan, extra=extra, donated=donated)

        def trace(plan: Plan) -> Traced:
            return self.request.trace(whole(plan))

        def compiled(plan: Plan, is_full: bool) -> Compiled:
            return self.request.compile(whole(plan), is_full)

        assert base.compiled is not None
        # What is donated costs nothing, and is in all of its plans.
        program = replace(self.program, as_written=base.traced, donatable=())
        budget = self.left()
        request = replace(
            self.request, as_written=base.compiled, trace=trace, compile=compiled,
            compile_budget=budget, resort_budget=0, known=(), before=(),
            learn=lambda one: None,
        )  # fmt: skip
        space = Space(program, request)
        if not space.atoms or budget < 1 or limit is None:
            return []
        self.request.observer("searching plans with changes of the text")
        least = space.look(space.plan(space.lean), space.lean)
        need = compiled(least, True).need_bytes
        if need is not None and need > limit * (1 + NEAR):
            one = Candidate(whole(least), space.traced[least], need, compiled(least, True))
            return [one]
        return [replace(one, plan=whole(one.plan)) for one in search(program, request)]
