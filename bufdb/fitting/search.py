"""Search for the cheapest plan that fits: traces choose, compilations prove.

    _explore    all sets of a few atoms; of many, chains from both ends and swaps near the limit
    _descend    the cheapest plan that is estimated to fit is compiled, until none may be cheaper

Invariant: what a plan needs is not monotone in what it saves, and an estimate proves nothing: only
a compilation says that a plan fits.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bufdb.fitting.bound import hull
from bufdb.fitting.estimates import MARGIN, Estimates
from bufdb.fitting.lever import Atom
from bufdb.fitting.levers import LEVERS
from bufdb.fitting.plans import Candidate, Plan, Program, SearchRequest, is_met
from bufdb.fitting.ranking import PRODUCTS, SAME
from bufdb.fitting.space import NONE, Atoms, Space, without
from bufdb.fitting.sums import Guess

EXACT = 6
"""Atoms up to which all sets of them are traced."""
SLOW = 30
"""Seconds of a compilation from which one at low effort goes first."""
WORTH = 0.005
"""Share of the work from which a plan that may fit, by the error of its estimate, is tried."""
BREADTH = 64
"""Traces between two compilations."""
TRY = 0.05
"""Least excess of an estimate over the limit up to which a plan worth it is tried."""
CLOSE = 0.01
"""Share of the limit by which figures of traces may differ that say much the same."""
HOPELESS = 0.35
"""Excess of the least estimate over the limit from which there is no use in more compilations."""
HOPES = 6
"""Compilations of plans that fit only if saving more does not move the peak."""
VAIN = 3
"""Such plans that do not fit after which no other is tried."""
PATIENT = 6
"""Compilations after which an excess that is no error of estimates is as hopeless."""
FEWEST = 3
"""Compilations before the search gives up."""
ROWS = 5
"""Plans that are shown though they are traced only."""
NEAREST = 3
"""Plans on each side of the limit between which others are sought."""
SHARE = 0.2
"""Share of what is worth a compilation, from which an expected gain is."""
EVEN = 0.5
"""Least chance of a plan to fit while none is known that does."""
LIKELY = 0.25
"""The same of one that costs as much as one that fits, and is better in what traces do not see."""
STEP = 0.03
"""Difference of need, as a share of that as written, from which the frontier has another plan."""


# -- which plans there are -------------------------------------------------------------------------


def _explore(space: Space) -> None:
    """Trace the plans among which to choose: all sets of atoms, or chains of them."""
    space.request.observer(f"tracing plans of {len(space.atoms)} values and calls")
    space.look(space.base, NONE)
    space.look(space.plan(NONE, is_policy=True), NONE)
    everything = frozenset(space.atoms)
    ends = space.point(NONE), space.point(everything)
    active = []
    for atom in space.atoms:
        if space.is_over:
            return
        single = space.point(frozenset([atom])), space.point(everything - {atom})
        if single != ends:
            active.append(atom)
    # What changes nothing from either end is given up where the patch has less to name then.
    idle = space.lean - set(active)
    if len(active) <= EXACT:
        for size in range(len(active) + 1):
            for some in itertools.combinations(active, size):
                if space.is_over:
                    return
                space.at(idle | frozenset(some))
        return
    _give_up(space, active, idle)
    _take_back(space, active, idle)


def _give_up(space: Space, active: Sequence[Atom], idle: Atoms) -> None:
    """Start with all saved; give up what costs least for its bytes, and again."""
    away = idle

    def price(atom: Atom) -> tuple[float, int]:
        cost, figure = space.point(away)
        other_cost, other = space.point(away | {atom})
        saved, extra = figure - other, other_cost - cost
        # What saves nothing by itself, since an operand is saved in its place, comes last.
        return (extra / saved, -saved) if saved > 0 else (float("inf"), max(extra, 0))

    for atom in _greedily(space, active, price):
        away |= {atom}


def _take_back(space: Space, active: Sequence[Atom], idle: Atoms) -> None:
    """Start with nothing saved; save what spares most work for its bytes, and again."""
    away = idle | frozenset(active)

    def price(atom: Atom) -> tuple[float, int]:
        cost, figure = space.point(away)
        other_cost, other = space.point(away - {atom})
        held, spared = other - figure, cost - other_cost
        return (-spared / max(held, 1), held)

    for atom in _greedily(space, active, price):
        away -= {atom}


def _greedily(
    space: Space, atoms: Sequence[Atom], price: Callable[[Atom], tuple[float, int]]
) -> Iterable[Atom]:
    """Yield atoms, the lowest price first; a price is asked for again only while it is lowest."""
    queue = [(price(atom), atom) for atom in atoms if not space.is_over]
    while queue and not space.is_over:
        heapq.heapify(queue)
        for _ in range(len(queue)):
            now = price(queue[0][1]), queue[0][1]
            heapq.heapreplace(queue, now)
            if queue[0] == now:
                break
        yield heapq.heappop(queue)[1]


def _refine(space: Space, proof: Estimates, limit: int) -> None:
    """Trace neighbors of the cheapest plan that may fit: a value more, or one for another."""
    end = space.count + BREADTH

    def best() -> Plan | None:
        fitting = [plan for plan in proof.open() if proof.estimate(plan) <= limit]
        return min(fitting, key=proof.order, default=None)

    start = best()
    while start is not None:
        away = space.of_plan[start]
        kept = [atom for atom in space.atoms if atom not in away]
        swaps = [away - {back} for back in sorted(away)]
        swaps += [away - {back} | {atom} for back in sorted(away) for atom in kept]
        before = start
        for some in swaps:
            if space.is_over or space.count >= end:
                return
            plan = space.look(space.plan(some), some)
            is_open = plan not in proof.full and plan not in proof.refused
            is_better = is_open and proof.estimate(plan) <= limit
            if is_better and proof.order(plan) < proof.order(before):
                start = plan
                break
        if start == before:
            return


def _move(space: Space, plans: Iterable[Plan]) -> None:
    """Trace plans again, with values in host memory that cost more to compute again."""
    for plan in list(plans):
        moved: list[str] = []
        away = space.of_plan[plan]
        at = plan
        for atom in sorted(away):
            is_movable = any(lever.moves(space.program, atom) for lever in LEVERS)
            if not is_movable or space.is_over:
                continue
            other = space.look(space.plan(away, [*moved, atom.name]), away)
            (cost, figure, _), (other_cost, other_figure, _) = map(space.figures, (at, other))
            if other_cost < cost:
                moved, at = [*moved, atom.name], other
            elif other != at and other_figure >= figure:
                space.drop(other, at)


def _divide(space: Space, proof: Estimates, limit: int) -> list[Plan]:
    """Trace a plan of both kinds of layers, between one that fits and one that does not.

    Where none is estimated to fit, return plans that may need less than the least so far.
    """
    if space.is_over:
        return []
    known = [plan for plan in space.traced if plan not in proof.refused]
    if all(proof.estimate(plan) > limit for plan in known):
        return _below(space, proof)
    if proof.is_of_sums:
        _divide_pairs(space, proof, known, limit)
        _take_away(space, proof, limit)
        return []
    frontier = _pareto(proof, known)
    curves = [_hull(proof, frontier), frontier]
    if any(plan.scans for plan in proof.full):
        # As written a scan is no part of another plan, and may hide the one that saves as much.
        curves.append(_pareto(proof, [plan for plan in known if plan.scans or plan.calls]))
    for points in curves:
        fitting = [plan for plan in points if proof.estimate(plan) <= limit]
        others = [plan for plan in points if proof.estimate(plan) > limit]
        for dear, cheap in itertools.product(fitting[:NEAREST], others[: -NEAREST - 1 : -1]):
            if _between(space, proof, cheap, dear, limit):
                return []
    # One that is traced to be better, and is not, may hide what differs in one region alone.
    fitting = sorted((one for one in known if proof.estimate(one) <= limit), key=proof.order)
    others = [one for one in frontier if proof.estimate(one) > limit][: -NEAREST - 1 : -1]
    for dear, cheap in itertools.product(fitting[:NEAREST], others):
        if _between(space, proof, cheap, dear, limit):
            return []
    return []


def _divide_pairs(space: Space, proof: Estimates, known: Sequence[Plan], limit: int) -> None:
    """Trace parts of regions between any two plans, those first that are expected to cost least."""
    costs = {plan: space.cost(space.traced[plan]) for plan in known}
    most = min((costs[plan] for plan in proof.full if _fits(proof, plan, limit)), default=math.inf)
    dear = [(plan, proof.estimate(plan)) for plan in known if proof.estimate(plan) <= limit]
    cheap = [
        (plan, proof.estimate(plan))
        for plan in known
        if proof.estimate(plan) > limit and costs[plan] < most
    ]
    pairs: list[tuple[float, int, Plan, Plan]] = []
    for (one, need), (other, more) in itertools.product(dear, cheap):
        share = (more - limit) / (more - need)
        cost = costs[other] + share * (costs[one] - costs[other])
        if costs[other] < costs[one] and cost < most:
            pairs.append((cost, len(pairs), other, one))
    heapq.heapify(pairs)
    new = 0
    while pairs and new < NEAREST and not space.is_over:
        _, _, other, one = heapq.heappop(pairs)
        new += _between(space, proof, other, one, limit)


def _take_away(space: Space, proof: Estimates, limit: int) -> None:
    """Trace the cheapest plans that fit, compiled and estimated, with less of each region."""
    compiled = [plan for plan in proof.full if _fits(proof, plan, limit)]
    expected = [plan for plan in proof.open() if proof.estimate(plan) <= limit]
    for plans in (compiled, expected):
        plan = min(plans, key=proof.order, default=space.base)
        for at in plan.calls:
            if space.is_over:
                return
            other = space.look(without(plan, at), space.of_plan[plan])
            if proof.estimate(other) > limit:
                _between(space, proof, other, plan, limit)


def _between(space: Space, proof: Estimates, cheap: Plan, dear: Plan, limit: int) -> bool:
    """Trace the plan that is expected to need the limit; return whether one is new.

    Where layers are unlike, both neighbors of the limit are traced: what layers compute says only
    about how much each saves. What fits without a step by hand is there already, as `dear`.
    """
    most, least = proof.part(cheap), proof.part(dear)
    share = (most - limit) / (most - least) if most > least else 1.0
    is_new, away = False, space.of_plan[dear]
    while not space.is_over:
        some = (lever.between(space.program, cheap, dear, share) for lever in LEVERS)
        plan = next((one for one in some if one is not None), None)
        if plan is None or _is_hidden(space.program, plan) or space.request.is_by_hand(plan):
            break
        is_new = is_new or plan not in space.same
        plan = space.look(plan, away)
        if not any(space.program.regions[one.region].sizes for one in plan.depths):
            break
        if proof.estimate(plan) <= limit:
            dear = plan
        else:
            cheap = plan
        share = 0.5
    return is_new


def _is_hidden(program: Program, plan: Plan) -> bool:
    """Return whether calls of a region that is divided are within others of the plan."""
    divided = ((one.region, program.regions[one.region]) for one in plan.depths)
    return any(
        region.kind == "call" and len(plan.sites(at, region)) < len(region.sites)
        for at, region in divided
    )


def _below(space: Space, proof: Estimates) -> list[Plan]:
    """Trace plans that may need less than the least compiled so far; return some to try first.

    These have the last call as written, and cost less than the plans that they are made of.
    """
    needs = _needs(proof)
    most = (1 + TRY) * min(needs.values(), default=0)
    spared = [
        one
        for plan, need in needs.items()
        for one in (_spare_last(space, plan) if need <= most else ())
        if space.figure(space.traced[one]) <= space.figure(space.traced[plan])
    ]
    is_open = {*proof.open()}
    if is_open.isdisjoint(spared) and all(
        proof.estimate(one) >= min(needs.values(), default=0) for one in is_open
    ):
        _nest(space, proof)
    return [one for one in spared if one in is_open]


def _needs(proof: Estimates) -> dict[Plan, int]:
    """Return the needs of compiled plans that have each region to its end."""
    compiled = (proof.early | proof.full).items()
    return {plan: one.need_bytes for plan, one in compiled if one.need_bytes and not plan.depths}


def _spare_last(space: Space, plan: Plan) -> list[Plan]:
    """Trace and return plans of calls with the last one as written, function by function.

    What that one saves is live with all the others anyway, so that to compute it again saves
    nothing, and costs work and often bytes.
    """
    spared = []
    for index in plan.calls:
        region = space.program.regions[index]
        cheap = replace(
            plan,
            calls=tuple(at for at in plan.calls if at != index),
            with_dots=tuple(at for at in plan.with_dots if at != index),
        )
        share = 1.0 if region.sizes else (region.layers - 1.5) / max(region.layers, 1)
        some = (lever.between(space.program, cheap, plan, share) for lever in LEVERS)
        other = next((one for one in some if one is not None), None)
        if other is not None and not space.request.is_by_hand(other) and not space.is_over:
            spared.append(space.look(other, space.of_plan[plan]))
    return spared


def _nest(space: Space, proof: Estimates) -> None:
    """Trace the least plan with checkpoints within its calls, and around, while that is less.

    What a call within another one computes is computed twice again: that is for limits below what
    one checkpoint of each value reaches, when nothing else may need less.
    """
    needs = _needs(proof)
    plan = min(needs, key=lambda one: needs[one], default=Plan())
    away = space.of_plan[plan]
    while True:
        nested = (_nested(space.program, plan, at) for at in space.program.calls)
        deeper = [one for one in nested if len(one.nested) > len(plan.nested)]
        traced = [space.look(one, away) for one in deeper if not space.is_over]
        best = min([plan, *traced], key=lambda one: space.figure(space.traced[one]))
        if best == plan:
            return
        plan = best


def _nested(program: Program, plan: Plan, at: int) -> Plan:
    """Return a plan with one more call region, and those that are in each other then nested."""
    plan = replace(plan, calls=tuple(sorted({*plan.calls, at})))
    regions = enumerate(program.regions)
    within = {one for one, region in regions if len(plan.sites(one, region)) < len(region.sites)}
    return replace(plan, nested=tuple(sorted({*plan.nested, *(within & set(plan.calls))})))


def _hull(proof: Estimates, frontier: Sequence[Plan]) -> list[Plan]:
    """Return the plans of the frontier that no mixture of two others beats, cheapest first."""
    points = {plan: (proof.estimate(plan), proof.order(plan)[0]) for plan in frontier}
    below = hull(points.values())
    return [plan for plan in frontier if points[plan] in below]


# -- the search ------------------------------------------------------------------------------------


def search(program: Program, request: SearchRequest) -> list[Candidate]:
    """Return plans, cheapest first: the compiled ones, and traced ones that may be worth it.

    The function as written is not among them. With a limit, the first that is compiled and within
    it is the answer; if there is none, the least need that is compiled is the least that is known.
    """
    space = Space(program, request)
    proof = Estimates(space)
    limit = request.limit_bytes
    if _fits(proof, Plan(), limit) and not any(region.remats for region in program.regions):
        return []
    _extreme(space, proof)
    if space.base != Plan() and not _fits(proof, Plan(), limit) and not proof.is_over:
        _try_free(space, proof)
        if _fits(proof, space.base, limit):
            return [proof.candidate(space.base)]
    _explore(space)
    space.is_explored = not space.is_over
    proof.remember()
    for plan in _pareto(proof, space.traced):
        if plan.with_dots:  # these may save what names save
            space.slim(plan)
    _move(space, _pareto(proof, space.traced))
    if limit is None:
        _frontier(proof)
    else:
        if proof.is_of_sums:  # from far away, but of all regions
            proof.finish()
        _descend(space, proof, limit)
    proof.finish()
    if limit is not None:
        _recall(space, proof, limit)
    return _shown(proof, limit)


def _fits(proof: Estimates, plan: Plan, limit: int | None) -> bool:
    return is_met(proof.full.get(plan), limit)


def _extreme(space: Space, proof: Estimates) -> None:
    """Compile first the plan that saves nothing, if it may need less than as written.

    Where one checkpoint is enough, there is an answer however early the time is up.
    """
    if not space.lean or proof.is_over:
        return
    plan = space.look(space.plan(space.lean), space.lean)
    if space.figure(space.traced[plan]) < space.figure(space.program.as_written):
        proof.compile_early(plan)


def _try_free(space: Space, proof: Estimates) -> None:
    """Compile the function with what costs no work; drop it if it saves nothing.

    If XLA gives up, as it does without, that is unknown: other plans may be smaller by it.
    """
    plan = space.base
    space.traced[plan] = replace(space.program.as_written)
    space.of_plan[plan] = NONE
    need, written = proof.compile(plan), proof.need(Plan())
    if need is None:
        saves = space.request.as_written.refusal is not None
    else:
        saves = written is None or need < written
    if not saves:
        space.base = Plan()


def _descend(space: Space, proof: Estimates, limit: int) -> None:
    """Compile the cheapest plan whose estimate fits, until no cheaper one may fit."""
    while not proof.is_over:
        if len(space.atoms) > EXACT:
            _refine(space, proof, limit)
        below = _divide(space, proof, limit)
        plan = min(below, key=proof.order, default=None) or _next(proof, limit)
        if plan is None and not any(_fits(proof, one, limit) for one in proof.full):
            _nest(space, proof)
            plan = _next(proof, limit)
        if plan is None:
            plan = _plainer(space, proof, limit) if proof.is_of_sums else None
        if plan is None:
            _tie(proof, limit)
            return
        seconds = space.request.as_written.seconds
        is_near = abs(proof.estimate(plan) - limit) <= proof.margin * limit
        is_quick = space.program.has_cheap_effort and seconds >= SLOW and is_near
        if is_quick and plan not in proof.quick:
            _quickly(proof, plan)
            continue
        proof.compile(plan)


def _tie(proof: Estimates, limit: int) -> None:
    """Compile the least of the plans that cost the same as the cheapest that fits.

    That has the fewest changes: what it reads and writes may be more, or less.
    """
    space = proof.space
    fitting = [plan for plan in proof.full if _fits(proof, plan, limit)]
    if not fitting:
        return
    best = min(fitting, key=lambda plan: (space.cost(space.traced[plan]), proof.estimate(plan)))
    most = space.cost(space.traced[best]) + int(SAME * space.program.as_written.work)
    alike = [
        plan
        for plan in proof.open()
        if space.cost(space.traced[plan]) <= most
        and proof.estimate(plan) < (1 - STEP) * proof.estimate(best)
    ]
    if alike:
        proof.compile(min(alike, key=proof.estimate))


def _plainer(space: Space, proof: Estimates, limit: int) -> Plan | None:
    """Return a plan that costs the same as the cheapest, computes less again and may fit.

    Values that spare no product, such as those of a normalization, are read and written again all
    the same: where they fit, they need not be.
    """
    fitting = [plan for plan in proof.full if _fits(proof, plan, limit) and plan != space.base]
    if not fitting:
        return None
    same = int(SAME * space.program.as_written.work)
    most = min(space.cost(space.traced[plan]) for plan in fitting) + same

    def live(plan: Plan) -> int:
        return space.figure(space.traced[plan])

    best = [plan for plan in fitting if space.cost(space.traced[plan]) <= most]
    plainest = max(map(live, best))
    alike = [
        (live(plan), plan)
        for plan in proof.open()
        if space.cost(space.traced[plan]) <= most
        and live(plan) > plainest
        and (guess := proof.guess(plan)) is not None
        and _chance(limit, guess) >= LIKELY
        and not _is_known(proof, plan, limit)
    ]
    return max(alike, key=lambda row: row[0], default=(0, None))[1]


def _recall(space: Space, proof: Estimates, limit: int) -> None:
    """Compile what an earlier question did, if it fits and beats each that is compiled.

    It costs less, or as much with a smaller need; where nothing fits, it needs less. It is one
    plan, and takes no compiler while its dump is kept, so that the budget does not bound it then:
    more memory never costs more work, and the least need is the least that is known.
    """
    same = SAME * space.program.as_written.work
    fitting = [plan for plan in proof.full if _fits(proof, plan, limit)]
    least = min((space.cost(space.traced[plan]) for plan in fitting), default=math.inf)
    alike = [plan for plan in fitting if space.cost(space.traced[plan]) <= least + same]
    need = min(proof.estimate(plan) for plan in alike or proof.full)
    better: list[tuple[bool, int, int, Plan]] = []
    for one in space.request.before:
        fits = one.need_bytes <= limit
        if (not fits and (fitting or one.need_bytes >= need)) or space.request.is_over():
            continue
        plan = space.look(one.plan, one.away)
        cost = space.cost(space.traced[plan])
        is_better = cost < least - same or (cost <= least + same and one.need_bytes < need)
        if is_better and plan not in proof.full.keys() | proof.refused:
            order = (cost, one.need_bytes) if fits else (one.need_bytes, cost)
            better.append((not fits, *order, plan))
    better.sort(key=lambda row: row[:3])
    is_left = proof.count < space.request.compile_budget  # what fits may take what is kept, too
    best = next(
        (
            plan
            for is_larger, *_, plan in better
            if not proof.is_over or space.request.is_kept(plan) or (is_left and not is_larger)
        ),
        None,
    )
    if best is not None:
        proof.compile(best)


def _quickly(proof: Estimates, plan: Plan) -> None:
    """Compile a plan at low effort, and before it one that is known at full effort."""
    if not proof.quick:
        anchors = proof.anchors()
        proof.compile(anchors[-1] if anchors else Plan(), is_full=False)
    if not proof.is_over:
        proof.compile(plan, is_full=False)


def _next(proof: Estimates, limit: int) -> Plan | None:
    """Return the plan to compile next; None if no other is worth it."""
    space = proof.space
    if proof.is_of_sums:
        plan = _promising(proof, limit)
        if plan is not None or any(_fits(proof, one, limit) for one in proof.full):
            return plan
    fitting = [plan for plan in proof.full if _fits(proof, plan, limit)]
    ceiling = min((proof.estimate(plan) for plan in proof.refused), default=None)
    rest = [plan for plan in proof.open() if ceiling is None or proof.estimate(plan) < ceiling]
    if fitting:
        best = min(space.cost(space.traced[plan]) for plan in fitting)
        worth = max(best - space.cost(space.program.as_written), 0) // 10
        worth = max(worth, int(WORTH * space.program.as_written.work))
        # One that may not fit must be worth more than one that does by its estimate.
        cheaper = [plan for plan in rest if space.cost(space.traced[plan]) < best - worth // 10]
        good = [plan for plan in cheaper if proof.estimate(plan) <= limit]
        if good:
            return min(good, key=proof.order)
        alone = _alone(
            proof, [plan for plan in cheaper if space.cost(space.traced[plan]) <= best - worth]
        )
        if alone is not None:
            return alone
        bound = limit * (1 + (CLOSE if proof.kept else max(2 * proof.late_error, TRY)))
        maybe = [
            plan
            for plan in cheaper
            if space.cost(space.traced[plan]) <= best - worth
            and proof.estimate(plan) <= bound
            and not _is_known(proof, plan, limit)
        ]
        if maybe:
            return min(maybe, key=proof.estimate)
        rest = [plan for plan in cheaper if not _is_known(proof, plan, limit)]
        return _hopeful(proof, rest, limit, best - worth)
    good = [plan for plan in rest if proof.estimate(plan) <= limit]
    if proof.left <= 3:
        # Sure before cheap: little is left to find one that fits.
        sure = [plan for plan in good if proof.estimate(plan) <= limit * (1 - 2 * proof.margin)]
        good = sure if proof.left > 1 else []
    if good:
        return min(good, key=proof.order)
    if proof.margin <= MARGIN:
        rest = [plan for plan in rest if not _is_known(proof, plan, limit)]
    alone = _alone(proof, rest)
    if alone is not None:
        return alone
    least = min(rest, key=proof.estimate, default=None)
    if least is None:
        return None
    excess = proof.estimate(least) / limit - 1
    is_hopeless = (excess > HOPELESS and len(proof.full) > FEWEST) or (
        excess > 2 * proof.late_error and len(proof.full) > PATIENT
    )
    # What may need less than the least so far is worth a compilation whatever the limit.
    need = min(proof.estimate(plan) for plan in proof.full)
    return None if is_hopeless and proof.estimate(least) > need else least


def _promising(proof: Estimates, limit: int) -> Plan | None:
    """Return the plan of the largest gain that is to be expected; None if it is too small.

    That is the work it spares, if it fits, by how likely that is. So a cheap plan that compilations
    say little about comes before one that surely fits and spares little.
    """
    space = proof.space
    work = space.program.as_written.work
    costs = {plan: space.cost(space.traced[plan]) for plan in space.traced}
    fitting = [costs[plan] for plan in proof.full if _fits(proof, plan, limit)]
    most = min(fitting, default=2 * max(costs.values()) - min(costs.values()))
    ceiling = min((proof.estimate(plan) for plan in proof.refused), default=math.inf)
    least = SHARE * max((most - costs[Plan()]) / 10, WORTH * work) if fitting else 0.0
    best: tuple[float, Plan | None] = least, None
    for plan in proof.open():
        guess = proof.guess(plan)
        spared = most - costs[plan]
        if guess is None or guess.need >= ceiling or spared <= SAME * work:
            continue
        chance = _chance(limit, guess)
        if not fitting and chance < EVEN:
            continue
        # Sure before cheap: little is left to find one that fits.
        gain = chance * (spared if fitting or proof.left > FEWEST else work)
        if gain > best[0] and not _is_known(proof, plan, limit):
            best = gain, plan
    return best[1]


def _chance(limit: int, guess: Guess) -> float:
    """Return how likely a plan fits."""
    away = (limit - guess.need) / max(guess.deviation, 1.0)
    return 0.5 * (1 + math.erf(away / math.sqrt(2)))


def _alone(proof: Estimates, plans: Iterable[Plan]) -> Plan | None:
    """Return a checkpoint of one function, as by hand, if its trace is not far from the least.

    With fewer functions XLA may need less than where each within another has one of its own.
    """
    space = proof.space

    def live(plan: Plan) -> int:
        return space.figure(space.traced[plan])

    most = (1 + HOPELESS) * min(map(live, space.traced))
    alone = [plan for plan in plans if len(plan.calls) == 1 and not plan.depths]
    return min((plan for plan in alone if live(plan) <= most), key=live, default=None)


def _is_known(proof: Estimates, plan: Plan, limit: int) -> bool:
    """Return whether compiled plans that are traced much alike say what a plan needs.

    One of them is enough, and two of a little too much.
    """
    space = proof.space
    cost, figure, free = space.figures(plan)
    most = SAME * space.program.as_written.work
    alike = []
    for other in proof.known:
        other_cost, other_figure, other_free = space.figures(other)
        is_close = abs(cost - other_cost) <= most and abs(figure - other_figure) <= CLOSE * limit
        if is_close and free == other_free:
            alike.append(proof.estimate(other))
    is_near = any(limit < need <= limit * (1 + TRY) for need in alike)
    return len(alike) > is_near


def _hopeful(proof: Estimates, plans: Iterable[Plan], limit: int, cost: int) -> Plan | None:
    """Return a plan that fits if what it saves is away from the peak; None if some were in vain.

    The middle one of these: if it fits, the larger ones remain, else the smallest is next.
    """
    space = proof.space
    hopeful = [
        plan
        for plan in plans
        if space.cost(space.traced[plan]) <= cost and proof.hope(plan) <= limit
    ]
    vain = sum(
        (need := proof.need(plan)) is None or need > estimate * (1 - MARGIN)
        for plan, estimate in proof.hoped.items()
    )
    if not hopeful or vain >= VAIN or len(proof.hoped) >= HOPES:
        return None
    hopeful.sort(key=lambda plan: space.figure(space.traced[plan]))
    chosen = hopeful[0 if vain else len(hopeful) // 2]
    proof.hoped[chosen] = proof.estimate(chosen)
    return chosen


def _pareto(proof: Estimates, plans: Iterable[Plan]) -> list[Plan]:
    """Return the plans that no other beats in both cost and size, cheapest first."""
    frontier: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (proof.order(plan)[0], proof.estimate(plan))):
        if not frontier or proof.estimate(plan) < proof.estimate(frontier[-1]):
            frontier.append(plan)
    return frontier


def _frontier(proof: Estimates) -> None:
    """Compile plans of the frontier, always within its widest gap."""
    written = proof.need(Plan()) or proof.estimate(Plan())
    while not proof.is_over:
        best = _pareto(proof, [plan for plan in proof.space.traced if plan not in proof.refused])
        unknown = [plan for plan in best if plan not in proof.full]
        if not unknown:
            return
        needs = [need for plan in proof.full if (need := proof.need(plan)) is not None]

        def gap(plan: Plan, needs: Sequence[int] = tuple(needs)) -> int:
            return min((abs(proof.estimate(plan) - need) for need in needs), default=1 << 62)

        # First both ends: what costs nothing, and the least.
        free = [plan for plan in unknown if proof.order(plan)[0] <= proof.order(best[0])[0]]
        ends = [*free[-1:], *(plan for plan in unknown[-1:] if plan == best[-1])]
        widest = max(unknown, key=gap)
        plan = next((end for end in ends if gap(end) > STEP * written), widest)
        if gap(plan) <= STEP * written and proof.count:
            return
        proof.compile(plan)


def _shown(proof: Estimates, limit: int | None) -> list[Candidate]:
    """Return what is compiled, best or not, and the nearest of what may be better, traced only."""
    compiled = [plan for plan in proof.full if plan != Plan() and proof.need(plan) is not None]
    written = proof.need(Plan())
    worth = [
        plan
        for plan in compiled
        if written is None
        or proof.estimate(plan) < written
        or proof.order(plan)[0] < proof.order(Plan())[0]
    ]
    # By another cost than products a plan that is beaten in these may be best. Those that did not
    # fit a limit say why the answer is no cheaper one.
    is_frontier = limit is None and proof.space.request.order == PRODUCTS
    kept = _pareto(proof, worth) if is_frontier else worth
    frontier = _pareto(proof, [plan for plan in proof.space.traced if plan not in proof.refused])
    traced = [plan for plan in frontier if plan not in proof.known]
    if len(traced) > ROWS:
        last = len(traced) - 1
        traced = [traced[round(n * last / (ROWS - 1))] for n in range(ROWS)]
    return [
        proof.candidate(plan) for plan in sorted(dict.fromkeys([*kept, *traced]), key=proof.order)
    ]
