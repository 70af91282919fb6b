"""`bufdb blame`: compile each way, store the runs, and name the jumps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bufdb.answers.opening import Open
from bufdb.answers.summary import DEVICE_LABEL
from bufdb.blame import environments
from bufdb.blame.cause import caused
from bufdb.blame.runs import DUMPS, Compilation, Job, Variant
from bufdb.blame.series import THRESHOLD_PERCENT, Jump, Series, Step, series
from bufdb.capture.dump import programs
from bufdb.dumps.place import Files
from bufdb.errors import BufdbError, DatabaseError, TooSlowError, UsageError
from bufdb.ingest.ingest import ingest


@dataclass
class Blaming:
    """The work of one question."""

    job: Job
    variants: Sequence[Variant]
    opened: Open
    db: str
    run: str
    """Beginning of the names of the runs; '' for the function of a command's call."""
    labels: Mapping[str, str] = field(default_factory=dict)
    own_globs: Sequence[str] | None = None
    """What of libraries counts as the user's."""
    percent: float = THRESHOLD_PERCENT
    note: Callable[[str], None] = lambda text: None
    is_quick: bool = False
    """Whether not to compile again for the cause of each jump."""
    ready: dict[str, Variant] = field(default_factory=dict)
    """Variants that were compiled, by name, with the Python of their environment."""
    sides: dict[str, list[Compilation]] = field(default_factory=dict)
    """By the new one of each jump, the compilations made for its cause; empty if they failed."""
    _steps: dict[int, Step] = field(default_factory=dict)

    def answer(self, *, bisect: bool = False) -> list[Series]:
        """Compile and compare; with `bisect` only as many as it takes to find each jump.

        Raises:
            TooSlowError: fewer than two could be compiled, one of them for --timeout.
            BufdbError: fewer than two could be compiled.
        """
        for at in self._first(bisect=bisect):
            self._try(at)
        while (middle := self._between()) is not None:
            self._try(middle)
        steps = [self._steps[at] for at in sorted(self._steps)]
        known = [step for step in steps if step.run is not None]
        if len(known) < 2:
            reasons = "; ".join(step.reason for step in steps if step.reason is not None)
            error = TooSlowError if any(step.is_too_slow for step in steps) else BufdbError
            raise error(f"{len(known)} of {len(steps)} could be compiled: {reasons}")
        compared = series(self.opened, steps, self.percent)
        return [replace(one, jumps=tuple(map(self._caused, one.jumps))) for one in compared]

    def _caused(self, jump: Jump) -> Jump:
        """Return the jump with whose doing it is, as far as that can be found out."""
        if self.is_quick:
            return jump
        sides = self.ready[jump.base], self.ready[jump.new]
        jump, self.sides[jump.new] = caused(self.job, jump, *sides)
        return jump

    def _first(self, *, bisect: bool) -> Sequence[int]:
        count = len(self.variants)
        return sorted({0, count // 2, count - 1}) if bisect else range(count)

    def _between(self) -> int | None:
        """Return one not tried yet, in the middle of two that differ; None if there is none."""
        known = [at for at in sorted(self._steps) if self._steps[at].run is not None]
        for low, high in itertools.pairwise(known):
            open_ones = [at for at in range(low + 1, high) if at not in self._steps]
            pair = [self._steps[low], self._steps[high]]
            if open_ones and any(one.jumps for one in series(self.opened, pair, self.percent)):
                return min(open_ones, key=lambda at: abs(2 * at - low - high))
        return None

    def _try(self, at: int) -> None:
        """Compile one and store it, or note in a line why that failed."""
        variant = self.variants[at]
        try:
            if variant.packages:
                python = environments.made(variant.packages, self.job.observer, self.note)
                variant = replace(variant, python=python)
            done = self.job.compile(variant)
            if not self._steps:
                for text in done.notes:
                    self.note(text)
            if done.call is not None:
                variant = replace(variant, python=done.python)
                self._keep_call(done)
            step = self._stored(variant, done)
            self._steps[at], self.ready[step.name] = step, variant
        except (DatabaseError, UsageError):
            raise
        except BufdbError as error:  # another one may do
            self.note(str(error))
            is_too_slow = isinstance(error, TooSlowError)
            self._steps[at] = Step(variant.name, None, reason=str(error), is_too_slow=is_too_slow)

    def _keep_call(self, done: Compilation) -> None:
        """Take the call of a command of the first way for that of the others."""
        if self.job.call is not None:
            return
        self.job = replace(self.job, call=done.call)
        self.run = self.run or self.job.function_name

    def _stored(self, variant: Variant, done: Compilation) -> Step:
        name = f"{self.run}@{variant.assigned}"
        versions = dict(done.versions)
        ingested = ingest(
            self.db,
            [Files(name, programs(done.folder / DUMPS), self.job.spec)],
            run=name,
            labels={**self.labels, variant.label: variant.value},
            metadata={**self.job.devices.metadata, DEVICE_LABEL: done.device, **versions},
            own_globs=self.own_globs,
            replace=True,
        )
        for text in ingested.notes:
            self.note(text)
        if done.refusal is not None:
            self.note(f"{variant.name}: XLA gave up: {done.refusal}")
        jax = f" (jax {versions['jax']})" if variant.label == "python" else ""
        return Step(f"{variant.name}{jax}", name, versions=versions)
