"""Add rewrites of the program (`--also`) to the candidates of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bufdb.fitting.plans import Ask, Candidate, Compiled, Program
from bufdb.fitting.space import Space, free
from bufdb.render.text import human_apart

LESS = 0.03
"""Share of a need by which more parts of the batch must lower it, to go on with more."""


@dataclass(frozen=True)
class Extra:
    """Compiles plans with changes of the program's text."""

    program: Program
    ask: Ask
    is_left: Callable[[], bool]
    """Whether there is a compilation left."""
    notes: list[str]
    """Receives in words why a kind has no plan."""

    def with_found(self, kinds: Sequence[str], candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the plans of a search with those of some kinds of changes, cheapest first.

        Each kind is tried alone; then, with a limit that no plan fits, with that of the least need.
        """
        program, ask = self.program, self.ask
        plan = free(program)
        alone = Candidate(plan, program.as_written, 0, ask.as_written)
        more = [one for kind in kinds for one in self._plans(kind, alone)]
        proved = [one for one in candidates if one.is_exact]
        fits = any(is_met(one.compiled, ask.limit_bytes) for one in [*proved, *more])
        if proved and ask.limit_bytes is not None and not fits:
            least = min(proved, key=lambda one: one.estimate_bytes)
            more += [one for kind in kinds for one in self._plans(kind, least)]
        return sorted([*candidates, *more], key=lambda one: Space.cost(one.traced))

    def _plans(self, kind: str, base: Candidate) -> list[Candidate]:
        """Return a plan in growing numbers of parts, until one fits or saves little more."""
        candidates: list[Candidate] = []
        need = None if base.compiled is None else base.compiled.need_bytes
        for change in self.program.changes:
            if not change.key.startswith(kind):
                continue
            if not self.is_left():
                if not candidates:
                    self.notes.append(f"--also {kind}: no compilation is left for {change.what}")
                break
            plan = replace(base.plan, extra=(change.key,))
            self.ask.observer(f"compiling {change.what}")
            traced, compiled = self.ask.trace(plan), self.ask.compile(plan, True)
            least = compiled.need_bytes
            if least is None:
                continue
            if need is not None and least > need * (1 - LESS):
                if not candidates:
                    shown, other = human_apart([least, need])
                    self.notes.append(f"--also {kind}: {change.what} needs {shown}, after {other}")
                break
            candidates.append(Candidate(plan, traced, least, compiled))
            need = least
            if is_met(compiled, self.ask.limit_bytes):
                break
        return candidates


def is_met(compiled: Compiled | None, limit: int | None) -> bool:
    """Return whether a compiled plan fits a limit that there is."""
    if limit is None or compiled is None or compiled.refusal is not None:
        return False
    return compiled.need_bytes is not None and compiled.need_bytes <= limit
