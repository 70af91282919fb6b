"""Products in a checkpoint that have no name, saved with it or computed again.

Those are all of a call, and in a scan those of a custom_vjp or a cond: nothing within these can be
named, so `dots_saveable` is added to the names that are saved. A call that saves its products costs
none, and gives up what is between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bufdb.fitting.jax_inside import obeyed
from bufdb.fitting.lever import Atom, Lever, Trial
from bufdb.fitting.levers.calls import LEAST_RATIO
from bufdb.fitting.plans import Plan, Program


class Products(Lever):
    """Products without names, saved where their scan or call is checkpointed."""

    name = "products"

    def offered(self, trial: Trial, program: Program) -> Program:
        """Drop what this JAX does not obey, and calls that hold as much with their products."""
        regions = [
            replace(region, has_products=region.has_products and _are_worth(trial, program, at))
            for at, region in enumerate(program.regions)
        ]
        if any(region.has_products for region in regions) and not obeyed().saves_products:
            trial.notes.append(
                "under JAX_REMAT3 this JAX does not obey dots_saveable, so products without a name "
                "are computed again in a checkpoint"
            )
            regions = [replace(region, has_products=False) for region in regions]
        return replace(program, regions=tuple(regions))

    def atoms(self, program: Program) -> Sequence[Atom]:
        """Return the regions whose products need not be saved."""
        there = (*program.switched, *program.calls)
        own = [index for index, region in enumerate(program.regions) if region.has_products]
        return [Atom(self.name, regions=(index,)) for index in own if index in there]

    def planned(
        self, program: Program, plan: Plan, given_up: Sequence[Atom], kept: Sequence[Atom]
    ) -> Plan:
        """Save the products of the other regions that are checkpointed.

        JAX has no policy that saves products and moves names to the host.
        """
        moves = [one for one in program.switches if one.name in plan.offloaded]
        regions = [region for atom in kept for region in atom.regions]
        there = {*plan.scans, *plan.calls} - {index for one in moves for index in one.regions}
        return replace(plan, with_dots=tuple(one for one in regions if one in there))


def _are_worth(trial: Trial, program: Program, at: int) -> bool:
    """Return whether checkpoints of a region save memory while products are saved.

    Of a scan the search finds out: its names say what else is saved.
    """
    if at not in program.calls:
        return True
    plan = Plan(calls=(at,))
    kept, away = trial.trace(replace(plan, with_dots=(at,))), trial.trace(plan)
    most = (1 - LEAST_RATIO) * trial.written.live_bytes
    return kept.work < away.work and kept.live_bytes <= most
