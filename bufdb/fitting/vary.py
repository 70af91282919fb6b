"""The largest value of something in the arguments that fits, as written and by each plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bufdb.errors import BufdbError, DatabaseError, TooSlowError, UsageError
from bufdb.fitting.plans import Answer, Plan, Program, Region

MOST_PLANS = 3
PATIENCE = 6
"""Compilations after which the middle is tried, whatever lines forecast."""
MOST_COMPILES = 16
"""Compilations for the largest value of one plan."""


@dataclass(frozen=True)
class Largest:
    """The largest value that fits by one plan."""

    rank: int | None
    """Rank of the plan; None for the function as written."""
    value: int
    """0 if none fits."""
    need_bytes: int | None
    """Need at that value, compiled; None if none fits."""
    next_value: int | None
    """The least value that was compiled and does not fit; None if all fitted."""
    next_need_bytes: int | None
    """Need at it; None if XLA gave up."""
    run: str | None = None
    """Name of the stored run at `value`; None if none fits, or nothing is stored."""

    @property
    def is_proved(self) -> bool:
        """Return whether the value after it was compiled and does not fit."""
        return self.next_value == self.value + 1


def largest(
    need: Callable[[int], int | None],
    limit_bytes: int,
    start: int,
    rank: int | None = None,
    most: int = MOST_COMPILES,
) -> Largest:
    """Find the largest value that fits, from `start`, by what lines through two values forecast.

    Args:
        need: compiles at a value; None if XLA gives up, which is too much.
        limit_bytes: what is there.
        start: a value from 1 on.
        rank: of the plan, for the answer.
        most: compilations.
    """
    known: dict[int, int | None] = {}
    value: int | None = start
    while value is not None and len(known) < most:
        known[value] = need(value)
        value = _next(known, limit_bytes)
    low = max((at for at in known if _fits(known[at], limit_bytes)), default=0)
    high = min((at for at in known if at > low), default=None)
    above = None if high is None else known[high]
    return Largest(rank, low, known.get(low), high, above)


def _fits(need: int | None, limit: int) -> bool:
    return need is not None and need <= limit


def _next(known: dict[int, int | None], limit: int) -> int | None:
    """Return the value to compile next; None if one fits and the next does not."""
    low = max((at for at in known if _fits(known[at], limit)), default=0)
    high = min((at for at in known if at > low), default=None)
    if high is not None and high == low + 1:
        return None
    guess = _forecast(known, limit)
    if high is None:
        return max(2 * low if guess is None else min(guess, 8 * low), low + 1)
    is_blind = guess is None or known[high] is None or len(known) > PATIENCE
    middle = (low + high) // 2 if is_blind or guess is None else guess
    # One value below or above what is known proves a side.
    return min(max(middle, low + 1), high - 1)


def _forecast(known: dict[int, int | None], limit: int) -> int | None:
    """Return the last value within the limit on the line through the two nearest to it."""
    points = [(at, need) for at, need in known.items() if need is not None]
    if len(points) < 2:
        return None
    (a, x), (b, y) = sorted(points, key=lambda point: abs(point[1] - limit))[:2]
    if (y - x) * (b - a) <= 0:
        return None
    return int(a + (limit - x) * (b - a) / (y - x))


# -- With a session for each value -----------------------------------------------------------------


def of_plans(
    answer: Answer,
    start: int,
    need_at: Callable[[int, int | None, Callable[[Program], Plan]], int | None],
    run_at: Callable[[int, int | None], str | None] = lambda value, rank: None,
) -> list[Largest]:
    """Return the largest value as written, and by the compiled plans that matter.

    Args:
        answer: at the start value.
        start: that value.
        need_at: compiles at a value the plan of a rank, which a function gives for its program.
        run_at: names the run that this stores.

    Raises:
        UsageError: the arguments of a value are wrong.
    """
    assert answer.limit_bytes is not None
    limit = answer.limit_bytes
    # Another size may not have the same parts.
    compiled = [row for row in answer.plans if row.is_compiled and not row.plan.extra]
    step = max(1, -(-len(compiled) // MOST_PLANS))
    kept = compiled[::-1][::step][::-1]
    written = answer.as_written
    # Whatever it needs, what XLA gave up does not fit.
    plans = [(None, Plan(), None if written.refusal is not None else written.need_bytes)]
    plans += [(row.rank, row.plan, row.need_bytes) for row in kept]  # type: ignore[misc]
    rows = []
    for rank, plan, first in plans:

        def need(
            value: int, rank: int | None = rank, plan: Plan = plan, first: int | None = first
        ) -> int | None:
            if value == start:
                return first
            try:
                return need_at(value, rank, lambda other: moved(plan, answer.program, other))
            except (DatabaseError, TooSlowError, UsageError):
                raise
            except BufdbError:  # too large for XLA
                return None

        one = largest(need, limit, start, rank)
        rows.append(replace(one, run=run_at(one.value, rank) if one.value else None))
    return rows


def moved(plan: Plan, program: Program, other: Program) -> Plan:
    """Return a plan of a program as one of the same function with other sizes."""
    places = {_key(region): at for at, region in enumerate(other.regions)}

    def regions(numbers: Sequence[int]) -> tuple[int, ...]:
        keys = [_key(program.regions[at]) for at in numbers]
        return tuple(sorted(places[key] for key in keys if key in places))

    return replace(
        plan,
        scans=regions(plan.scans),
        calls=regions(plan.calls),
        nested=regions(plan.nested),
        with_dots=regions(plan.with_dots),
        depths=tuple(
            replace(depth, region=at)
            for depth in plan.depths
            for at in regions([depth.region])
            if other.regions[at].layers == program.regions[depth.region].layers
        ),
    )


def _key(region: Region) -> tuple[object, ...]:
    return region.kind, region.function, region.sites
