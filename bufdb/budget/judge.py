"""Whether figures keep to budgets.

Pure: knows no database. Invariant: nothing passes that was not judged. A budget that fits no
module, a figure that is not known and a dump that was not read in full are verdicts of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from bufdb.budget.file import Budget
from bufdb.errors import did_you_mean
from bufdb.query.asked.spaces import ALL
from bufdb.query.memory_figures import MemoryFigures, Place

NONE: Mapping[Place, MemoryFigures] = MappingProxyType({})
"""No base run."""
OVER, NOT_JUDGED, WITHIN = "over", "not judged", "within"
STATUSES = (OVER, NOT_JUDGED, WITHIN)


@dataclass(frozen=True)
class Verdict:
    """Whether one module keeps to one budget."""

    status: str
    """One of STATUSES."""
    metric: str | None = None
    budget: Budget | None = None
    figure: MemoryFigures | None = None
    value: int | None = None
    base: int | None = None
    limit: int | None = None
    reason: str | None = None
    """Why it is not judged, or passes without being compared."""

    @property
    def headroom(self) -> int | None:
        """Bytes left below the limit; negative if it is exceeded."""
        return None if self.limit is None or self.value is None else self.limit - self.value


def judge(
    budgets: Iterable[Budget],
    figures: Sequence[MemoryFigures],
    base: Mapping[Place, MemoryFigures] = NONE,
    unread: Sequence[str] = (),
) -> list[Verdict]:
    """Verdicts on the modules of a run: over first, then what could not be judged.

    Args:
        budgets: what to keep to.
        figures: all modules of the run, one item per memory space.
        base: what relative limits start from, by the place of the figures that it is compared with.
        unread: what was found about files of the run that belong to no module.
    """
    verdicts = [Verdict(NOT_JUDGED, reason=reason) for reason in unread]
    for budget in budgets:
        verdicts += _judge_budget(budget, figures, base)
    return sorted(verdicts, key=lambda verdict: STATUSES.index(verdict.status))


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """0 if all are within, 1 if one is over, else 4."""
    statuses = {verdict.status for verdict in verdicts}
    return 1 if OVER in statuses else 4 if NOT_JUDGED in statuses else 0


def summary(verdicts: Sequence[Verdict]) -> str:
    """'1 over, 2 not judged, 3 within', without what there is none of."""
    counts = [(sum(v.status == status for v in verdicts), status) for status in STATUSES]
    return ", ".join(f"{count} {status}" for count, status in counts if count)


def _judge_budget(
    budget: Budget, figures: Sequence[MemoryFigures], base: Mapping[Place, MemoryFigures]
) -> list[Verdict]:
    named = [figure for figure in figures if _fits(budget, figure)]
    # A module without allocations has no memory space to look for; what it needs is not known.
    chosen = [f for f in named if f.color is None or _in_space(budget, f)]
    if not any(figure.color is not None for figure in chosen) and len(chosen) < len(named):
        spaces = sorted({f.memory_space or f"color {f.color}" for f in named})
        reason = f"no memory space {budget.space} in what fits; there is {', '.join(spaces)}"
        return [Verdict(NOT_JUDGED, budget.metric, budget, reason=reason)]
    if not chosen:
        functions = sorted({figure.function for figure in figures})
        hint = did_you_mean(budget.function, functions)
        return [Verdict(NOT_JUDGED, budget.metric, budget, reason=f"fits no module{hint}")]
    others = base if budget.limit.is_relative else NONE
    order = sorted(chosen, key=lambda f: (f.function, f.module_key, f.color or 0))
    return [_judge_figure(budget, figure, others.get(figure.place)) for figure in order]


def _judge_figure(budget: Budget, figure: MemoryFigures, other: MemoryFigures | None) -> Verdict:
    metric = budget.metric
    value = figure.values[metric] if figure.color is not None else None
    base = None if other is None else other.values[metric]
    limit = budget.limit.bytes_for(base)
    reason: str | None = None
    status = NOT_JUDGED
    if figure.color is None or value is None:
        reason = f"{metric} is unknown: {figure.unknown_reason or 'the dump does not give it'}"
    elif budget.limit.is_relative and other is None:
        status = WITHIN if budget.allow_new else NOT_JUDGED
        reason = "not in the base run"
    elif limit is None:
        why = (other and other.unknown_reason) or "the dump does not give it"
        reason = f"{metric} of the base run is unknown: {why}"
    elif value > limit:
        status = OVER
    elif figure.problem_count or (other is not None and other.problem_count):
        run = "" if figure.problem_count else " of the base run"
        reason = f"part of the dump{run} was not understood; see 'bufdb query diagnostics'"
    else:
        status = WITHIN
    return Verdict(status, metric, budget, figure, value, base, limit, reason)


def _fits(budget: Budget, figure: MemoryFigures) -> bool:
    return fnmatchcase(figure.function, budget.function) and budget.platform in (
        None,
        figure.platform,
    )


def _in_space(budget: Budget, figure: MemoryFigures) -> bool:
    if budget.color is None:
        return figure.is_device_memory
    return budget.color in (ALL, figure.color, figure.memory_space)
