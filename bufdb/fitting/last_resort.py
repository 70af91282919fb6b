"""Options of the compiler where no plan fits, or on demand: few that save, found by compiling.

XLA computes values again by itself if it must fit a share of the device. Options that move no byte,
or that are not monotone, are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bufdb.fitting.extra import LESS
from bufdb.fitting.plans import Candidate, Program, SearchRequest, is_met
from bufdb.fitting.space import Space, free
from bufdb.render.text import human_apart

FLAGS = "flags"
"""The word of `--also`."""
SHARES = {
    "gpu": ("xla_gpu_memory_limit_slop_factor", 95),
    "tpu": ("xla_jf_rematerialization_percent_shared_memory_limit", 100),
}
"""By platform, the option with the share of the device that XLA tries to fit, in percent, and the
value from which it changes nothing."""
SWITCHES = {"gpu": ("xla_disable_hlo_passes=priority-fusion",)}
"""By platform, options whose passes make values early."""
STEPS = 4
"""Compilations to find the largest share that fits."""


@dataclass(frozen=True)
class LastResort:
    """Compiles plans with options of the compiler."""

    program: Program
    request: SearchRequest
    left: Callable[[], int]
    """How many compilations are left."""
    notes: list[str]
    """Receives in words what is in vain."""

    def with_found(self, candidates: Sequence[Candidate], *, is_wanted: bool) -> list[Candidate]:
        """Return candidates with those that set options, last; the same if they are not needed.

        Args:
            candidates: of the search, cheapest first.
            is_wanted: whether options are tried though a plan fits.
        """
        limit, request = self.request.limit_bytes, self.request
        proved = [one for one in candidates if one.is_exact]
        written = Candidate(free(self.program), self.program.as_written, 0, request.as_written)
        fits = any(is_met(one.compiled, limit) for one in [*proved, written])
        if self.program.platform not in SHARES or not (is_wanted or (limit and not fits)):
            return list(candidates)
        switches = SWITCHES.get(self.program.platform, ())
        if limit and self.left() < 2 * (len(switches) + 1):  # a share saves more often
            self.notes.extend(
                f"--{one} is not tried: too few compilations are left" for one in switches
            )
            switches = ()
        more = list(self._of(written, switches))
        if limit and proved and not any(is_met(one.compiled, limit) for one in more):
            least = min(proved, key=lambda one: one.estimate_bytes)
            more += self._of(least, switches, " with the plan of the least need")
        return [*candidates, *sorted(more, key=lambda one: Space.cost(one.traced))]

    def _of(
        self, base: Candidate, switches: Sequence[str], of_plan: str = ""
    ) -> Iterator[Candidate]:
        """Yield a plan with options that save; with a limit, those that fit if there are any."""
        for option in switches:
            one = self._saving(base, option, of_plan)
            if one is not None:
                yield one
                if is_met(one.compiled, self.request.limit_bytes):
                    return
        name, low_is = SHARES[self.program.platform]
        least = self._saving(base, f"{name}=1", of_plan)
        if least is None:
            return
        yield least
        if not is_met(least.compiled, self.request.limit_bytes):
            return
        low, high = 1, low_is
        for _ in range(STEPS):
            middle = (low + high) // 2
            if middle in (low, high) or self.left() < 1:
                return
            one = self._compiled(base, f"{name}={middle}")
            if one is not None and is_met(one.compiled, self.request.limit_bytes):
                low = middle
                yield one
            else:
                high = middle

    def _saving(self, base: Candidate, option: str, of_plan: str) -> Candidate | None:
        """Return a plan with an option if it saves; else note that it does not."""
        one = self._compiled(base, option)
        need = None if base.compiled is None else base.compiled.need_bytes
        if one is None or need is None or one.estimate_bytes <= need * (1 - LESS):
            return one
        shown, before = human_apart([one.estimate_bytes, need])
        self.notes.append(f"--{option}{of_plan} needs {shown}, and {before} without it")
        return None

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
