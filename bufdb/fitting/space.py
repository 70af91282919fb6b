"""Plans as sets of what is given up, and what their traces say, each traced once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from bufdb.fitting.plans import Ask, Plan, Program, Traced

HOST_WORK = 8000
"""Operations that take as long as moving a byte to the host and back: 2 bytes at some 50 GB/s with
some 200 TFLOP/s."""


class Atom(NamedTuple):
    """A part of a plan that can be given up: less memory, and more work or none."""

    kind: Literal["save", "call", "dots"]
    """`save`: a name that is no longer saved; `call`: a region of calls that is checkpointed;
    `dots`: a region that saves no products of its atomic parts."""
    name: str = ""
    region: int = -1


Atoms = frozenset[Atom]
NONE: Atoms = frozenset()


class Space:
    """Sets of given-up atoms as plans, and what their traces say."""

    def __init__(self, program: Program, ask: Ask) -> None:
        self.program, self.ask = program, ask
        self.donated: tuple[int, ...] = program.donatable
        self.of_plan: dict[Plan, Atoms] = {}
        self.traced: dict[Plan, Traced] = {}
        self.same: dict[Plan, Plan] = {}
        """Plans with the one of the same trace that saves the fewest names."""
        self.count = 0
        used = {index for switch in program.switches for index in switch.regions}
        scans = [index for index in program.scans if index in used]
        atomic = [index for index, region in enumerate(program.regions) if region.has_atomic]
        self.atoms: list[Atom] = [
            *(Atom("save", name=switch.name) for switch in program.switches),
            *(Atom("call", region=index) for index in program.calls),
            *(Atom("dots", region=index) for index in atomic if index in (*scans, *program.calls)),
        ]
        self.scans = scans

    @property
    def is_over(self) -> bool:
        """Return whether there is no trace left."""
        return self.count >= self.ask.trace_budget or self.ask.is_over()

    def plan(self, away: Atoms, offloaded: Iterable[str] = (), *, is_policy: bool = False) -> Plan:
        """Return the plan without some atoms; a scan that gives up nothing stays as written.

        Args:
            away: what is given up.
            offloaded: names of `away` that go to host memory instead.
            is_policy: whether all scans get a policy.
        """
        program, host = self.program, tuple(sorted(offloaded))
        lost = {atom.name for atom in away if atom.kind == "save"}
        touched = {
            index for switch in program.switches if switch.name in lost for index in switch.regions
        } | {atom.region for atom in away if atom.kind == "dots"}
        scans = tuple(
            index
            for index in self.scans
            if is_policy or index in touched or program.regions[index].remats
        )
        called = {atom.region for atom in away if atom.kind == "call"}
        # Of two that nest the outer one counts.
        calls = tuple(sorted(i for i in called if not called & set(program.regions[i].within)))
        saved = tuple(
            switch.name
            for switch in program.switches
            if switch.name not in lost and any(index in scans for index in switch.regions)
        )
        dots = tuple(
            atom.region
            for atom in self.atoms
            if atom.kind == "dots" and atom not in away and atom.region in (*scans, *calls)
        )
        return Plan(scans, saved, host, dots, calls, self.donated)

    def look(self, plan: Plan, away: Atoms) -> Plan:
        """Trace a plan, which is known from then on; return the same one with the fewest names."""
        if plan not in self.same:
            self.count += 1
            traced = self.ask.trace(plan)
            saved = plan.saved if traced.saved is None else traced.saved
            same = self.same[plan] = replace(plan, saved=saved)
            self.traced.setdefault(same, traced)
            self.of_plan.setdefault(same, away)
        return self.same[plan]

    def at(self, away: Atoms) -> Traced:
        """Return the trace without some atoms."""
        return self.traced[self.look(self.plan(away), away)]

    def figure(self, traced: Traced) -> int:
        """Return the figure that estimates start from: a ranking where calls are checkpointed."""
        return traced.live_bytes if self.program.calls else traced.residual_bytes

    @staticmethod
    def cost(traced: Traced) -> int:
        """Return the work of a plan, with that of moving bytes to the host."""
        return traced.work + HOST_WORK * traced.host_bytes

    def figures(self, plan: Plan) -> tuple[int, int, tuple[int, ...]]:
        """Return the cost and the figure of a plan, and what it donates."""
        traced = self.traced[plan]
        return self.cost(traced), self.figure(traced), plan.donated

    def point(self, away: Atoms) -> tuple[int, int]:
        """Return the cost and the figure without some atoms."""
        traced = self.at(away)
        return self.cost(traced), self.figure(traced)
