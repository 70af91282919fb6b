"""Candidates as rows of an answer: their costs and bounds, and which of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bufdb.fitting.bound import least
from bufdb.fitting.levers import EVERY, OF_TEXT
from bufdb.fitting.patch import of_files, texts_of
from bufdb.fitting.places import lines
from bufdb.fitting.plans import Candidate, Compiled, Plan, PlanResult, Program, Site, Traced
from bufdb.fitting.question import Question
from bufdb.fitting.ranking import beyond, ranked, settled, undominated
from bufdb.fitting.space import Space


@dataclass(frozen=True)
class Rows:
    """The rows of a question."""

    program: Program
    written: Compiled
    question: Question
    traced: Mapping[Plan, Traced]
    """What is known of the program, and of it with changes of its text."""
    recomputed: Callable[[Plan], tuple[Site, ...]]
    """Returns the expressions that a plan computes again."""

    def of(self, candidates: Sequence[Candidate]) -> list[PlanResult]:
        """Return the rows of the answer, with the patch of each, not yet compiled."""
        program, written = self.program, self.written
        rows = []
        for one in candidates:
            need = one.estimate_bytes if one.compiled is None else one.compiled.need_bytes
            made = of_files(program, one.plan)
            rows.append(
                PlanResult(
                    rank=0,
                    is_compiled=one.is_exact,
                    is_verified=False,
                    need_bytes=need,
                    peak_bytes=one.compiled.peak_bytes if one.compiled is not None else None,
                    extra_work_ratio=_extra(one, program, written),
                    options=one.plan.options,
                    recomputed_lines=lines(self.recomputed(one.plan)),
                    fits=fits(need, self.question.limit_bytes),
                    error_ratio=None if one.is_exact else one.error_ratio,
                    **self._bound(one),
                    patch=made.diff or None,
                    steps=made.steps,
                    changes=tuple(change.sentence for change in program.changes_of(one.plan)),
                    plan=one.plan,
                    **beyond(one.compiled, written),
                    **_of_levers(program, one),
                )
            )
        return ranked(rows, self.question.order)

    def _bound(self, one: Candidate) -> dict[str, Any]:
        """Return the fields of a row on what any choice of the same values and layers may cost."""
        program, plan = self.program, one.plan
        why = next(
            reason
            for is_unknown, reason in (
                (plan.options, "what XLA computes again is in no trace"),
                (is_of_text(plan), "what the patch alone changes is in no trace"),
                (plan == plan.free, "it computes nothing again that is not as written"),
                (
                    program.calls and not program.as_written.handed_bytes,
                    "no trace has what layers save that are called in a row",
                ),
                (
                    not _are_alike(program),
                    "some calls are unlike, or in each other: the cheapest of them may go first",
                ),
                (not one.is_explored, "not all choices were traced"),
                (True, ""),
            )
            if is_unknown
        )
        if why:
            return {"gap_unknown_reason": why}
        known = [traced for other, traced in self.traced.items() if other.extra == plan.extra]
        known += [] if plan.extra else [program.as_written]
        points = [(_saved(program, traced), Space.cost(traced)) for traced in known]
        size, cost = _saved(program, one.traced), Space.cost(one.traced)
        return {
            "gap_ratio": (cost - least(points, size)) / max(program.as_written.work, 1),
            "is_least": size <= min(points)[0],
        }

    def shown(self, rows: Sequence[PlanResult]) -> list[PlanResult]:
        """Return the rows that no other beats, with their ranks."""
        program, order = self.program, self.question.order
        texts, kept = texts_of(program), undominated(settled(rows, order), self.written, order)
        shown = [replace(row, rank=rank) for rank, row in enumerate(kept, start=1)]
        for lever in EVERY:
            shown = [*lever.compared(shown, program, texts)]
        return shown


def _are_alike(program: Program) -> bool:
    """Return whether calls in part again are on the line between all and none, as far as known.

    Where one function calls another one that is a region, or calls compute unlike bytes, other
    choices of them than the first ones may be below.
    """
    calls = [program.regions[at] for at in program.calls]
    return all(one.layers and not one.sizes for one in calls)


def _saved(program: Program, traced: Traced) -> int:
    """Return what a plan saves, of the values that a choice of the same kind is about."""
    return traced.handed_bytes if program.calls else traced.residual_bytes


def is_of_text(plan: Plan) -> bool:
    """Return whether no trace has a plan, but the patched files do."""
    names = {lever.name for lever in OF_TEXT}
    return any(key.partition("=")[0] in names for key in plan.extra)


def _of_levers(program: Program, one: Candidate) -> dict[str, Any]:
    """Return the fields of a row that levers know."""
    fields: dict[str, Any] = {}
    for lever in EVERY:
        fields |= lever.results(program, one.plan, one.traced)
    return fields


def _extra(one: Candidate, program: Program, written: Compiled) -> float | None:
    """Return the extra work of a plan: by traces, which know of no option of the compiler."""
    if not one.plan.options:
        return ratio_of(one.traced.work, program.as_written.work)
    count = None if one.compiled is None else one.compiled.operation_count
    if count is None or written.operation_count is None:
        return None
    return ratio_of(count, written.operation_count)


def ratio_of(work: int, written: int) -> float:
    """Return the work beyond that of the function as written, by the latter."""
    return work / written - 1 if written else 0.0


def fits(need: int | None, limit: int | None) -> bool | None:
    """Return whether a need fits a limit; None without a limit."""
    return None if limit is None else need is not None and need <= limit
