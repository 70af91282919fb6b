"""Plans as sets of what is given up, and what their traces say, each traced once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bufdb.fitting.lever import Atom
from bufdb.fitting.levers import LEVERS
from bufdb.fitting.plans import Depth, Plan, Program, Region, SearchRequest, Traced
from bufdb.fitting.sums import ALL, LAST_CALL, Parts

Atoms = frozenset[Atom]
NONE: Atoms = frozenset()


def free(program: Program) -> Plan:
    """Return the plan of everything that costs no work."""
    plan = Plan()
    for lever in LEVERS:
        plan = lever.free(program, plan)
    return plan


def figure(program: Program, traced: Traced) -> int:
    """Return the figure that estimates start from: a ranking where calls are checkpointed."""
    return traced.live_bytes if program.calls else traced.residual_bytes


def without(plan: Plan, at: int) -> Plan:
    """Return a plan whose calls of a region are as written."""

    def others(regions: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one for one in regions if one != at)

    return replace(
        plan,
        calls=others(plan.calls),
        with_dots=others(plan.with_dots),
        nested=others(plan.nested),
        depths=tuple(one for one in plan.depths if one.region != at),
    )


def _share(region: Region, depth: Depth) -> float:
    """Return how much of a region is as a plan has it, without its last call."""
    sizes = region.sizes[:-1] or (1,) * max(region.layers - 1, 1)
    return min(sum(sizes[: depth.count]) / (sum(sizes) or 1), 1.0)


class Space:
    """Sets of given-up atoms as plans, and what their traces say."""

    def __init__(self, program: Program, request: SearchRequest) -> None:
        self.program, self.request = program, request
        self.base = free(program)
        """What is in every plan since it costs no work."""
        self.of_plan: dict[Plan, Atoms] = {}
        self.traced: dict[Plan, Traced] = {}
        self.same: dict[Plan, Plan] = {}
        """Plans with the one of the same trace that saves the fewest names."""
        self._alike: dict[Plan, list[Plan]] = {}
        """The reverse: plans of the same trace, by that one."""
        self._fewest: dict[tuple[Plan, int, int], Plan] = {}
        """By what else is in a plan, its cost and its figure, the one with the fewest names."""
        self._parts: dict[Plan, Parts] = {}
        self.count = 0
        self.is_explored = False
        """Whether the plans among which to choose were traced to the end."""
        self.atoms: list[Atom] = [atom for lever in LEVERS for atom in lever.atoms(program)]
        lean = {lever.name for lever in LEVERS if lever.is_lean}
        self.lean: Atoms = frozenset(atom for atom in self.atoms if atom.lever in lean)
        """Those whose giving up leaves less to edit."""

    @property
    def is_over(self) -> bool:
        """Return whether there is no trace left."""
        return self.count >= self.request.trace_budget or self.request.is_over()

    def plan(self, away: Atoms, moved: Iterable[str] = (), *, is_policy: bool = False) -> Plan:
        """Return the plan without some atoms; a scan that gives up nothing stays as written.

        Args:
            away: what is given up.
            moved: names of `away` that go to host memory instead.
            is_policy: whether all scans get a policy.
        """
        program = self.program
        touched = {index for atom in away for index in atom.regions}
        scans = tuple(
            index
            for index in program.switched
            if is_policy or index in touched or program.regions[index].remats
        )
        plan = replace(self.base, scans=scans, offloaded=tuple(sorted(moved)))
        for lever in LEVERS:
            own = [atom for atom in self.atoms if atom.lever == lever.name]
            given_up = [atom for atom in own if atom in away]
            kept = [atom for atom in own if atom not in away]
            plan = lever.planned(program, plan, given_up, kept)
        return plan

    def look(self, plan: Plan, away: Atoms) -> Plan:
        """Trace a plan, which is known from then on; return the same one with the fewest names."""
        if plan not in self.same:
            self.count += 1
            traced = self.request.trace(plan)
            saved = plan.saved if traced.saved is None else traced.saved
            same = self.same[plan] = self._with_fewest(replace(plan, saved=saved), traced)
            self._alike.setdefault(same, []).append(plan)
            self.traced.setdefault(same, traced)
            self.of_plan.setdefault(same, away)
        return self.same[plan]

    def _with_fewest(self, plan: Plan, traced: Traced) -> Plan:
        """Return the known plan that is traced alike without some of the names, or this one.

        Where products are saved, too, XLA may hold what a name saves next to what it is made of.
        """
        key = replace(plan, saved=()), self.cost(traced), self.figure(traced)
        known = self._fewest.setdefault(key, plan)
        if set(plan.saved) < set(known.saved):
            known = self._fewest[key] = plan
        return known if set(known.saved) < set(plan.saved) else plan

    def slim(self, plan: Plan) -> None:
        """Give up the names of a plan that add nothing to it; plans that have them go."""
        away, own = self.of_plan[plan], self.traced[plan]
        same = self.cost(own), self.figure(own)
        named = frozenset(atom for atom in self.lean - away if atom.name in plan.saved)
        for some in (named, *(frozenset([atom]) for atom in sorted(named))):
            if some and not self.is_over and self.point(away | some) == same:
                away |= some
        less = self.look(self.plan(away), away)
        for other in [one for one in self.traced if set(one.saved) > set(less.saved)]:
            traced = self.traced[other]
            is_alike = (self.cost(traced), self.figure(traced)) == same
            if is_alike and replace(other, saved=less.saved) == less:
                self.drop(other, less)

    def drop(self, plan: Plan, other: Plan) -> None:
        """Have another plan in the place of one that traces show to be better in nothing."""
        del self.traced[plan]
        moved = self._alike.pop(plan, [])
        self.same |= dict.fromkeys(moved, other)
        self._alike.setdefault(other, []).extend(moved)

    def at(self, away: Atoms) -> Traced:
        """Return the trace without some atoms."""
        return self.traced[self.look(self.plan(away), away)]

    def figure(self, traced: Traced) -> int:
        """Return the figure of a trace, see `figure`."""
        return figure(self.program, traced)

    @staticmethod
    def cost(traced: Traced) -> int:
        """Return the work of a plan, with what else it costs."""
        return traced.work + sum(lever.cost(traced) for lever in LEVERS)

    def figures(self, plan: Plan) -> tuple[int, int, Plan]:
        """Return the cost and the figure of a plan, and what of it is free."""
        traced = self.traced[plan]
        return self.cost(traced), self.figure(traced), plan.free

    def point(self, away: Atoms) -> tuple[int, int]:
        """Return the cost and the figure without some atoms."""
        traced = self.at(away)
        return self.cost(traced), self.figure(traced)

    # -- Parts -------------------------------------------------------------------------------------

    def parts(self, plan: Plan) -> Parts:
        """Return what the trace of a traced plan of calls is smaller by, in all and by region.

        Of a region that is next to the rest of the plan, so that what another one saves, too, is
        not counted again. Of a part of a region it is the share of what its calls compute: the
        trace of a part says less, as its peak may be in what XLA never holds.
        """
        if plan not in self._parts:
            between = (self._parts_between(plan, depth) for depth in plan.depths)
            parts = next((one for one in between if one is not None), None)
            self._parts[plan] = self._parts_of(plan) if parts is None else parts
        return self._parts[plan]

    def _parts_between(self, plan: Plan, depth: Depth) -> Parts | None:
        """Return the parts of a plan, by those with none and with all of a region, if traced."""
        whole = replace(plan, depths=tuple(one for one in plan.depths if one != depth))
        rest = without(plan, depth.region)
        if depth.with_dots:
            rest = replace(whole, with_dots=tuple(sorted({*whole.with_dots, depth.region})))
        few, many = (self.same.get(one) for one in (rest, whole))
        if few not in self.traced or many not in self.traced:
            return None
        share = _share(self.program.regions[depth.region], depth)
        low, high = self.parts(few), self.parts(many)
        parts = {
            part: (1 - share) * low.get(part, 0.0) + share * high.get(part, 0.0)
            for part in {**low, **high}
            if part != (depth.region, LAST_CALL)
        }
        return parts | {ALL: self._saved(plan)}

    def _saved(self, plan: Plan) -> float:
        """Return by how much the trace of a plan is smaller than that as written."""
        return float(self.figure(self.program.as_written) - self.figure(self.traced[plan]))

    def _parts_of(self, plan: Plan) -> Parts:
        parts = {ALL: self._saved(plan)}
        for at in plan.calls:
            parts[at, "products" if at in plan.with_dots else ""] = self._saved_by(plan, at)
            if plan.depth(at) is None:
                parts[at, LAST_CALL] = 1.0
        return parts

    def _saved_by(self, plan: Plan, at: int) -> float:
        """Return by how much a trace is smaller since a region is in a plan, as far as known."""
        own, other = (self.same.get(one) for one in (plan, without(plan, at)))
        if own in self.traced and other in self.traced:
            return float(self.figure(self.traced[other]) - self.figure(self.traced[own]))
        for depth in plan.depths:
            if depth.region != at:
                share = _share(self.program.regions[depth.region], depth)
                few = self._saved_by(without(plan, depth.region), at)
                rest = tuple(one for one in plan.depths if one != depth)
                return few + share * (self._saved_by(replace(plan, depths=rest), at) - few)
        # Where not all sets are traced: between what it saves alone, and nothing.
        dots = tuple(one for one in plan.with_dots if one == at)
        alone = self.same.get(replace(self.base, calls=(at,), with_dots=dots))
        if alone is None or alone not in self.traced:
            return 0.0
        return self._saved(alone) / 2
