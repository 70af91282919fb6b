"""Options of the compiler where no plan fits, or on demand: few that save, found by compiling.

XLA computes values again by itself if it must fit a share of the device. Options that move no byte,
or that are not monotone, are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bufdb.answers.devices import Device
from bufdb.fitting.extra import LESS
from bufdb.fitting.plans import Candidate, Program, SearchRequest, is_met
from bufdb.fitting.space import Space, free
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
    # `GetSchedulerMemoryLimit` of XLA's gpu_hlo_schedule.cc.
    "gpu": Share("xla_gpu_memory_limit_slop_factor", 95, 0.8),
    "tpu": Share("xla_jf_rematerialization_percent_shared_memory_limit", 100, 1.0),
}
"""By platform."""
SWITCHES = {"gpu": ("xla_disable_hlo_passes=priority-fusion",)}
"""By platform, options whose passes make values early."""
LEAST = 1
"""The least share."""
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
    device: Device | None = None
    """What the program is compiled for; None if its memory is unknown."""

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
        bases = {"": written}
        if limit and proved:
            least = min(proved, key=lambda one: one.estimate_bytes)
            bases[" with the plan of the least need"] = least
        more = sorted(self._of(bases), key=lambda one: Space.cost(one.traced))
        return [*candidates, *more]

    def _of(self, bases: dict[str, Candidate]) -> Iterator[Candidate]:
        """Yield plans with options that save; with a limit, until one fits.

        First XLA is to fit the limit, as it computes no more again than that takes; then as little
        as it can. Between these two the largest share is sought that fits.
        """
        limit, share = self.request.limit_bytes, SHARES[self.program.platform or ""]
        switches = SWITCHES.get(self.program.platform or "", ())
        if limit and self.left() < len(bases) * (len(switches) + 1):  # a share saves more often
            rest = "is not tried: too few compilations are left"
            self.notes.extend(f"--{one} {rest}" for one in switches)
            switches = ()
        first = self._share(share)
        tried = [
            (words, option) for words in bases for option in (*switches, f"{share.option}={first}")
        ]
        if first > LEAST:
            tried += [(words, f"{share.option}={LEAST}") for words in bases]
        for words, option in tried:
            one = self._saving(bases[words], option, words)
            if one is None:
                continue
            yield one
            if is_met(one.compiled, limit):
                if option == f"{share.option}={LEAST}":
                    high = first if first > LEAST else share.default
                    yield from self._larger(bases[words], share, high)
                return

    def _share(self, share: Share) -> int:
        """Return the share of the device with which XLA tries to fit the limit."""
        limit, fixed = self.request.limit_bytes, self.request.as_written.fixed_bytes
        if limit is None or fixed is None or self.device is None:
            return LEAST
        base = share.base_ratio * self.device.whole_bytes - fixed
        part = 100 * (limit - fixed) / base if base > 0 else 0
        return min(max(int(part), LEAST), share.default - 1)

    def _larger(self, base: Candidate, share: Share, high: int) -> Iterator[Candidate]:
        """Yield a plan with larger shares that fit; the least one does, and `high` does not."""
        low = LEAST
        for _ in range(STEPS):
            middle = (low + high) // 2
            if middle in (low, high) or self.left() < 1:
                return
            one = self._compiled(base, f"{share.option}={middle}")
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
