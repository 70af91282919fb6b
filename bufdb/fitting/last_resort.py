"""Options of the compiler where no plan fits, or on demand: few that save, found by compiling.

XLA computes values again by itself if it must fit a share of the device. Options that move no byte,
or that are not monotone, are not tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bufdb.answers.devices import Device
from bufdb.fitting.extra import LESS
from bufdb.fitting.plans import Candidate, Plan, Program, SearchRequest, Traced, is_met
from bufdb.fitting.space import Space, figure, free
from bufdb.render.text import human_apart

FLAGS = "flags"
"""The word of `--also`."""


class Share(NamedTuple):
    """An option with the share of a device's memory that XLA tries to fit, in percent."""

    option: str
    default: int
    """Value from which it changes nothing."""
    base_ratio: float
    """Part of the device's memory that it is a share of, once arguments and outputs are there."""


SHARES = {
    # `GetSchedulerMemoryLimit` of XLA's gpu_hlo_schedule.cc; of a TPU by what 5 % of a v5e is.
    "gpu": Share("xla_gpu_memory_limit_slop_factor", 95, 0.8),
    "tpu": Share("xla_jf_rematerialization_percent_shared_memory_limit", 100, 1.0),
}
"""By platform."""
SWITCHES = {"gpu": ("xla_disable_hlo_passes=priority-fusion",)}
"""By platform, options whose passes make values early."""
LEAST = 1
"""The least share."""
HOLES = 0.03
"""Share of the limit that is left for holes between values, which XLA does not count."""
STEPS = 4
"""Compilations to find the largest share that fits."""
RESORT = 4
"""Those that are kept while nothing fits: of the function as written, of the plan of the least
need, and of two that cost less. With more, passes are left out, too."""


@dataclass(frozen=True)
class LastResort:
    """Compiles plans with options of the compiler."""

    program: Program
    request: SearchRequest
    left: Callable[[], int]
    """How many compilations are left."""
    notes: list[str]
    """Receives in words what is in vain."""
    traced: Mapping[Plan, Traced]
    """The plans that may be chosen, without what is free."""
    device: Device | None = None
    """What the program is compiled for; None if its memory is unknown."""

    def with_found(self, candidates: Sequence[Candidate], *, is_wanted: bool) -> list[Candidate]:
        """Return candidates with those that set options, last; the same if they are not needed.

        XLA is to fit the limit, as it computes no more again than that takes; with no limit it is
        to need as little as it can.

        Args:
            candidates: of the search, cheapest first.
            is_wanted: whether options are tried though a plan fits.
        """
        platform = self.program.platform or ""
        share = SHARES.get(platform)
        if share is None or not (is_wanted or self._is_needed(candidates)):
            return list(candidates)
        switches = SWITCHES.get(platform, ())
        if self.request.limit_bytes and self.left() <= RESORT:  # a share saves more often
            if not self.request.is_over():
                rest = "is not tried: too few compilations are left"
                self.notes.extend(f"--{one} {rest}" for one in switches)
            switches = ()
        options = (*switches, f"{share.option}={self._first(share)}")
        return self._with_options(candidates, options, share, share.default)

    def with_least(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates with those of the least share; the same if it is known what these need.

        That is where one fits, or where the limit is the least share.
        """
        share = SHARES.get(self.program.platform or "")
        if share is None or not self._is_needed(candidates):
            return list(candidates)
        first = self._first(share)
        if first == LEAST:
            return list(candidates)
        return self._with_options(candidates, (f"{share.option}={LEAST}",), share, first)

    def _with_options(
        self, candidates: Sequence[Candidate], options: Sequence[str], share: Share, high: int
    ) -> list[Candidate]:
        """Return candidates with those that set one of some options, until one fits.

        A share that is `high` does not fit, or changes nothing.
        """
        more: list[Candidate] = []
        is_needed = self._is_needed(candidates)
        tried = ((base, one) for base in self._bases(candidates).items() for one in options)
        for (words, base), option in tried:
            more += self._saving(base, option, words)
            if not (more and more[-1].fits(self.request.limit_bytes)):
                continue
            if option == f"{share.option}={LEAST}":
                more += self._larger(base, share, high)
            if words and is_needed:
                more += self._cheaper(base, *more[-1].plan.options)
            break
        return [*candidates, *sorted(more, key=lambda one: Space.cost(one.traced))]

    def _is_needed(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether there is a limit that nothing fits."""
        limit = self.request.limit_bytes
        fits = is_met(self.request.as_written, limit) or any(one.fits(limit) for one in candidates)
        return bool(limit) and not fits

    def _bases(self, candidates: Sequence[Candidate]) -> dict[str, Candidate]:
        """Return the plans that options are tried with, by what of them a note says."""
        program, request = self.program, self.request
        bases = {"": Candidate(free(program), program.as_written, 0, request.as_written)}
        proved = [one for one in candidates if one.is_exact and not one.plan.options]
        if request.limit_bytes and proved:
            least = min(proved, key=lambda one: one.estimate_bytes)
            bases[" with the plan of the least need"] = least
        return bases

    def _cheaper(self, base: Candidate, option: str) -> Iterator[Candidate]:
        """Yield plans that cost less than one and fit with an option, too.

        Traces choose them, as what XLA computes again is none of what compilations without the
        option say. Half of the plans between what fits and what does not are left out at a time.
        """
        plans: list[Plan] = []
        least = math.inf
        for plan in sorted(self.traced, key=self._price):
            cost, size = self._price(plan)
            is_better = cost < Space.cost(base.traced) and size < least
            if is_better and self._is_alike(plan, base.plan):
                plans.append(plan)
                least = size
        low, high = 0, len(plans)
        while low < high and self.left() > 0:
            middle = (low + high) // 2
            traced = self.traced[plans[middle]]
            saved = plans[middle].saved if traced.saved is None else traced.saved
            plan = replace(
                plans[middle], saved=saved, donated=base.plan.donated, extra=base.plan.extra
            )
            one = self._compiled(Candidate(plan, traced, 0), option)
            if one is not None and one.fits(self.request.limit_bytes):
                high = middle
                yield one
            else:
                low = middle + 1

    def _price(self, plan: Plan) -> tuple[int, int]:
        traced = self.traced[plan]
        return Space.cost(traced), figure(self.program, traced)

    def _is_alike(self, plan: Plan, base: Plan) -> bool:
        """Return whether a plan is an edit of the same text as another one."""
        is_edit = plan != Plan(extra=plan.extra) and not self.request.is_by_hand(plan)
        return is_edit and plan.extra == base.as_traced.extra

    def _first(self, share: Share) -> int:
        """Return the share of the device with which XLA tries to fit the limit."""
        limit, fixed = self.request.limit_bytes, self.request.as_written.fixed_bytes
        if limit is None or fixed is None or self.device is None:
            return LEAST
        base = share.base_ratio * self.device.whole_bytes - fixed
        part = 100 * ((1 - HOLES) * limit - fixed) / base if base > 0 else 0
        return min(max(int(part), LEAST), share.default - 1)

    def _larger(self, base: Candidate, share: Share, high: int) -> Iterator[Candidate]:
        """Yield a plan with larger shares that fit; the least one does, and `high` does not."""
        low = LEAST
        for _ in range(STEPS):
            middle = (low + high) // 2
            if middle in (low, high) or self.left() < 1:
                return
            one = self._compiled(base, f"{share.option}={middle}")
            if one is not None and one.fits(self.request.limit_bytes):
                low = middle
                yield one
            else:
                high = middle

    def _saving(self, base: Candidate, option: str, of_plan: str) -> list[Candidate]:
        """Return a plan with an option if it saves; else note that it does not."""
        one = self._compiled(base, option)
        need = None if base.compiled is None else base.compiled.need_bytes
        if one is None or need is None or one.estimate_bytes <= need * (1 - LESS):
            return [] if one is None else [one]
        shown, before = human_apart([one.estimate_bytes, need])
        self.notes.append(f"--{option}{of_plan} needs {shown}, and {before} without it")
        return []

    def _compiled(self, base: Candidate, option: str) -> Candidate | None:
        if self.left() < 1:
            if not self.request.is_over():
                self.notes.append(f"--{option} is not tried: no compilation is left")
            return None
        plan = replace(base.plan, options=(option,))
        self.request.observer(f"compiling with --{option}")
        compiled = self.request.compile(plan, True)
        need = compiled.need_bytes
        return None if need is None else Candidate(plan, base.traced, need, compiled)
