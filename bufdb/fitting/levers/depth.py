"""Depth: of equal layers the first ones as one plan has them, the others as another.

find     calls with places in an order, and scans that run once
trace    `calls` checkpoints the first calls alone; the replay runs a scan as two
price    a plan between two that differ in one region: equal layers are equal in bytes and work
edit     `calls` and `saved`, where the calls and the scan are
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from bufdb.fitting.lever import Lever
from bufdb.fitting.places import place
from bufdb.fitting.plans import Depth, Plan, PlanResult, Program


class _Parts(NamedTuple):
    """A plan as that of its first layers, how many, and that of the others."""

    first: Plan
    layers: int
    rest: Plan | None
    """None if the first ones are all."""


class Depths(Lever):
    """Parts of regions."""

    name = "depth"

    def between(self, program: Program, cheap: Plan, dear: Plan, share: float) -> Plan | None:
        """Change the first layers; of calls the last ones would be live with all the others.

        So the last call of all stays as it is, whatever the share.
        """
        region = _apart(program, cheap, dear)
        layers = 0 if region is None else program.regions[region].layers
        if region is None or layers < 2:
            return None
        low, high = _parts(program, cheap, region), _parts(program, dear, region)
        rest = high.rest or low.rest or low.first
        if low.rest is None:
            start = 0
            if low.first != rest:
                return None
        else:
            start = low.layers
            if low.first != high.first or low.rest != rest:
                return None
        count = _count(program.regions[region].sizes, start, high.layers, share)
        if program.regions[region].kind == "call":
            count = min(count, high.layers - 1)
        if not start < count < high.layers:
            return None
        names = [one.name for one in program.switches if region in one.regions]
        depth = Depth(
            region,
            count,
            tuple(name for name in names if name in rest.saved),
            tuple(name for name in names if name in rest.offloaded),
            program.regions[region].kind == "call" and region in rest.with_dots,
        )
        return replace(high.first, depths=(*high.first.depths, depth))

    def results(self, program: Program, plan: Plan, traced: object) -> dict[str, tuple[str, ...]]:
        """Return which layers are changed, in words."""
        parts = []
        for depth in plan.depths:
            region = program.regions[depth.region]
            what = "iterations"
            if region.kind == "call" and (not region.is_stretch or len(region.sites) > 1):
                what = "parts" if region.is_stretch else "calls"
            at = place(region.sites[0])
            number = "" if depth.count == 1 else f" {depth.count}"
            others = ", with products saved in the others" if depth.with_dots else ""
            parts.append(f"the first{number} of {region.layers} {what} at {at}{others}")
        return {"depths": tuple(parts)}

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return which layers are changed."""
        return row.depths


def _count(sizes: Sequence[int], start: int, end: int, share: float) -> int:
    """Return how many layers have a share of the bytes of those between two numbers of them.

    Of unlike layers it is never none or all: how far their bytes are from the need is not known.
    """
    if not sizes:
        return start + ceil(share * (end - start))
    sums = [0, *accumulate(sizes)]
    count = bisect_left(sums, sums[start] + share * (sums[end] - sums[start]))
    return min(max(count, start + 1), end - 1)


def _apart(program: Program, cheap: Plan, dear: Plan) -> int | None:
    """Return the only region in which two plans differ; None if they differ elsewhere."""
    alike = (
        replace(one, saved=(), offloaded=(), calls=(), nested=(), with_dots=(), depths=())
        for one in (cheap, dear)
    )
    if next(alike) != next(alike):
        return None
    regions = set(cheap.calls) ^ set(dear.calls) | set(cheap.with_dots) ^ set(dear.with_dots)
    regions |= {one.region for one in set(cheap.depths) ^ set(dear.depths)}
    for switch in program.switches:
        kept = [(switch.name in one.saved, switch.name in one.offloaded) for one in (cheap, dear)]
        if kept[0] != kept[1]:
            regions |= set(switch.regions)
    return regions.pop() if len(regions) == 1 else None


def _parts(program: Program, plan: Plan, region: int) -> _Parts:
    depth = plan.depth(region)
    if depth is None:
        return _Parts(plan, program.regions[region].layers, None)
    first = replace(plan, depths=tuple(one for one in plan.depths if one != depth))
    return _Parts(first, depth.count, _rest(program, first, depth))


def _is_within(program: Program, plan: Plan, at: int) -> bool:
    """Return whether some calls of a region are within others of a plan that nests none."""
    region = program.regions[at]
    return at in plan.calls and len(plan.sites(at, region)) < len(region.sites)


def _rest(program: Program, first: Plan, depth: Depth) -> Plan:
    """Return the plan whose region is as that of the last layers is."""
    region = depth.region
    if program.regions[region].kind == "call":
        with_dots = set(first.with_dots) - {region}
        if depth.with_dots:
            return replace(first, with_dots=tuple(sorted({*with_dots, region})))
        rest = replace(
            first,
            calls=tuple(at for at in first.calls if at != region),
            nested=(),
            with_dots=tuple(sorted(with_dots)),
        )
        nested = tuple(at for at in first.nested if _is_within(program, rest, at))
        return replace(rest, nested=nested)
    own = {one.name for one in program.switches if region in one.regions}
    saved = {*set(first.saved) - own, *depth.saved}
    offloaded = {*set(first.offloaded) - own, *depth.offloaded}
    order = [one.name for one in program.switches]
    return replace(
        first,
        saved=tuple(sorted(saved, key=order.index)),
        offloaded=tuple(sorted(offloaded)),
    )
