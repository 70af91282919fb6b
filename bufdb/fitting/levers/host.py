"""Values that are saved in host memory instead of being computed again.

The policy of their scan has them as names that are offloaded; `saved` puts the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bufdb.fitting.jax_inside import obeyed
from bufdb.fitting.lever import Atom, Lever, Trial
from bufdb.fitting.places import lines, spans
from bufdb.fitting.plans import Plan, PlanResult, Program, Traced
from bufdb.render.text import human_bytes

WORK = 8000
"""Operations that take as long as moving a byte to the host and back: 2 bytes at some 50 GB/s with
some 200 TFLOP/s."""


class Host(Lever):
    """Host memory for what a scan saves."""

    name = "host"

    def offered(self, trial: Trial, program: Program) -> Program:
        """Find whether the target has host memory, and this JAX puts values there."""
        has_memory = trial.platform in ("gpu", "tpu")
        if has_memory and not obeyed().offloads:
            trial.notes.append("under JAX_REMAT3 this JAX saves no value in host memory")
            has_memory = False
        return replace(program, has_host_memory=has_memory)

    def moves(self, program: Program, atom: Atom) -> bool:
        """Return whether an atom is a value that could be saved."""
        return program.has_host_memory and atom.lever == "saved"

    def cost(self, traced: Traced) -> int:
        """Return what moving bytes to the host and back costs."""
        return WORK * traced.host_bytes

    def results(self, program: Program, plan: Plan, traced: Traced) -> Mapping[str, Any]:
        """Return the lines whose values go to host memory, and their bytes."""
        moved = (one.site for one in program.switches if one.name in plan.offloaded)
        return {"offloaded_lines": lines(moved), "offloaded_bytes": traced.host_bytes}

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return what goes to host memory."""
        if not row.offloaded_lines:
            return ()
        moved = human_bytes(row.offloaded_bytes)
        return (f"to host memory and back {moved}: {spans(row.offloaded_lines)}",)
