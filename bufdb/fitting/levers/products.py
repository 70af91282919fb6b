"""Products of a custom_vjp or a cond in a checkpoint, saved with it or computed again.

Nothing within these can be named, so `dots_saveable` is added to the names that are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bufdb.fitting.jax_inside import obeyed
from bufdb.fitting.lever import Atom, Lever, Trial
from bufdb.fitting.plans import Plan, Program


class Products(Lever):
    """Products of atomic parts, saved where their scan or call is checkpointed."""

    name = "products"

    def offered(self, trial: Trial, program: Program) -> Program:
        """Drop what this JAX does not obey."""
        is_wanted = any(region.has_atomic for region in program.regions)
        if not is_wanted or obeyed().saves_products:
            return program
        trial.notes.append(
            "under JAX_REMAT3 this JAX does not obey dots_saveable, so the products of a "
            "custom_vjp or a cond in a checkpoint are computed again"
        )
        regions = tuple(replace(region, has_atomic=False) for region in program.regions)
        return replace(program, regions=regions)

    def atoms(self, program: Program) -> Sequence[Atom]:
        """Return the regions whose products need not be saved."""
        there = (*program.switched, *program.calls)
        atomic = [index for index, region in enumerate(program.regions) if region.has_atomic]
        return [Atom(self.name, regions=(index,)) for index in atomic if index in there]

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
