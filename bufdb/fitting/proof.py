"""The proof of plans: their patched files, compiled."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bufdb.errors import BufdbError, TooSlowError
from bufdb.fitting.figures import Figures, Scratch
from bufdb.fitting.levers.chunks import Chunks
from bufdb.fitting.levers.microbatch import Microbatch
from bufdb.fitting.needs import Needs
from bufdb.fitting.patch import of_files
from bufdb.fitting.plans import Compiled, Patch, Plan, PlanResult, Program
from bufdb.fitting.question import Question
from bufdb.fitting.ranking import beyond
from bufdb.fitting.results import Rows, fits, is_of_text
from bufdb.fitting.session import Check, Dumped, Numbers, Session, UncheckedError, UnequalError
from bufdb.render.text import human_apart

EACH = 2
"""Examples of each chunk with which the numbers of patched files are compared."""
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)\b")
"""Beginning of the line of a traceback that has what was raised."""


@dataclass
class Proof:
    """Compiles patched files."""

    session: Session
    question: Question
    folder: Path
    """For files of the question."""
    rows: Rows
    scratch: Scratch
    dumps: dict[Plan, Dumped]
    """Of the plans; what differs of the patched files replaces it."""
    notes: list[str]
    is_left: Callable[[], bool]
    """Whether the budget has a compilation more."""
    is_interrupted: bool = False
    needs: Needs | None = None
    """What earlier calls compiled."""
    count: int = 0
    """Of the compilations."""
    before_count: int = 0
    """Of these, by an earlier call."""

    def proved(self, rows: Sequence[PlanResult]) -> tuple[PlanResult | None, list[PlanResult]]:
        """Compile the patched files of the plans that are shown; return the best, and these.

        One whose patch fails may have been what hid another.
        """
        while True:
            best, plans = self._checked_in_turn(self.rows.shown(rows))
            known = {row.plan: row for row in plans}
            again = [known.get(row.plan, row) for row in rows]
            if best is not None or sum(row.is_broken for row in again) == sum(
                row.is_broken for row in rows
            ):
                return best, plans
            rows = again

    def _checked_in_turn(
        self, plans: Sequence[PlanResult]
    ) -> tuple[PlanResult | None, list[PlanResult]]:
        """Compile the patched files of plans; return the best, and all.

        With a limit the first that fits is proved, those without a step by hand before the others,
        and the next one if its patch is not its plan; without one as many as the budget has. What
        XLA refuses as it is written has a limit: that of the compiler, which any plan fits.
        """
        proved, written = [*plans], self.rows.written
        best: PlanResult | None = None
        is_planned = written.refusal is None
        has_limit = self.question.limit_bytes is not None or not is_planned
        is_wanted = not (is_planned and fits(written.need_bytes, self.question.limit_bytes))
        order = sorted(range(len(plans)), key=lambda at: has_limit and not plans[at].is_whole)
        for at in order:
            row = plans[at]
            is_asked = self._fits(row) if has_limit else self.is_left()
            is_open = row.is_compiled and not (row.is_broken or row.is_verified)
            if is_open and best is None and is_asked:
                row = proved[at] = self._checked(row)
                is_right = row.is_verified or not (row.patch or row.is_broken)
                if has_limit and is_wanted and is_right:
                    best = row
        if best is None and is_wanted and has_limit:
            rows = (proved[at] for at in order)
            right = (
                row for row in rows if self._fits(row) and row.is_compiled and not row.is_broken
            )
            best = next(right, None)
        return best, proved

    def _fits(self, row: PlanResult) -> bool:
        """Return whether a plan fits the limit, or compiles if there is none."""
        return bool(row.fits) if self.question.limit_bytes is not None else row.is_compiled

    def _checked(self, row: PlanResult) -> PlanResult:
        """Return a plan with what a compilation of its patched files says."""
        program = self.rows.program
        made = of_files(program, row.plan)
        if not made.diff or not of_files(program, alone(program, row.plan)).is_whole:
            return row
        if is_of_text(row.plan):  # compiled so already
            return replace(row, is_verified=True)
        if self.is_interrupted:
            return row
        self.question.observer(f"compiling the patched files of plan {row.rank}")
        try:
            dumped, got = self._of_patched(row.plan, made)
        except TooSlowError as error:
            self.notes.append(str(error))
            return row
        except UncheckedError as error:
            if (text := f"no patch is verified: {error}") not in self.notes:
                self.notes.append(text)
            return row
        except UnequalError as error:
            return self._by_hand(row, f"the patched files compute something else: {error}")
        except BufdbError as error:
            raised = [line for line in getattr(error, "lines", ()) if _RAISED.match(line)][-1:]
            why = f"cannot be compiled: {': '.join([str(error), *raised])}"
            if _is_in_chunks(row.plan):
                return self._by_hand(row, f"the patched files {why}")
            self.notes.append(f"plan {row.rank}: its patched files {why}")
            return replace(row, patch=None, is_broken=True)
        need = got.need_bytes
        if need == row.need_bytes:
            return replace(row, is_verified=True)
        if _is_in_chunks(row.plan) and fits(need, self.question.limit_bytes) is not False:
            # The parts of the text are not cut where those of the trace are: it is the plan.
            self.dumps[row.plan] = dumped
            compiled = Compiled(**got._asdict(), is_full=True, seconds=dumped.seconds)
            return replace(
                row,
                is_verified=True,
                need_bytes=need,
                peak_bytes=got.peak_bytes,
                **beyond(compiled, self.rows.written),
            )
        both = [one for one in (need, row.need_bytes) if one is not None]
        shown = ", not ".join(human_apart(both)) if len(both) == 2 else "unknown bytes"
        self.notes.append(f"plan {row.rank}: its patched files need {shown}")
        is_broken = fits(need, self.question.limit_bytes) is False
        return replace(row, patch=None if is_broken else row.patch, is_broken=is_broken)

    def _of_patched(self, plan: Plan, made: Patch) -> tuple[Dumped, Figures]:
        """Compile the patched files of a plan; where parts were put into chunks, compare numbers.

        Raises:
            UnequalError: they compute something else.
            BufdbError: they cannot be compiled.
        """
        rest, own = outside_of_text(self.rows.program, plan), self.dumps.get(plan)
        check = Check(own, self._numbers(plan))
        needs = None if check.numbers is not None else self.needs
        known = None if needs is None else needs.dumped(plan, made.texts)
        self.count += 1
        dumped = known or self.session.patched(made.texts, rest, check)
        if needs is not None:
            needs.keep(dumped, plan, made.texts)
        if own is not None and own.placed == dumped.placed != "":  # the same program: none was made
            self.count -= 1
            return dumped, self.scratch.figures(dumped)
        self.before_count += dumped.is_before
        if dumped.refusal is not None:
            raise BufdbError(dumped.refusal)
        return dumped, self.scratch.figures(dumped)

    def _numbers(self, plan: Plan) -> Numbers | None:
        """Return what losses as written give for random numbers, if some of it is in chunks.

        A loss of the patched files is that of a microbatch. None, too, if they cannot be run.
        """
        counts = {one.key.partition("=")[0]: one for one in self.rows.program.changes_of(plan)}
        if Chunks.name not in counts:
            return None
        chunks = counts[Chunks.name]
        parts = counts[Microbatch.name].count if Microbatch.name in counts else 1
        size = EACH * chunks.count * chunks.devices
        path = str(self.folder / f"numbers-{size}.npz")
        try:
            if Path(path).exists() or self.session.numbers(size, path):
                return Numbers(path, size * parts)
        except TooSlowError:
            raise
        except BufdbError as error:
            self.notes.append(f"the numbers of the patched files are not compared: {error}")
        return None

    def _by_hand(self, row: PlanResult, why: str) -> PlanResult:
        """Return a plan whose chunks are a step by hand, since their edit is not right."""
        changes = (
            replace(one, obstacle=why) if one.key in row.plan.extra else one
            for one in self.rows.program.changes
        )
        made = of_files(replace(self.rows.program, changes=tuple(changes)), row.plan)
        return replace(row, patch=made.diff or None, steps=made.steps)


def alone(program: Program, plan: Plan) -> Plan:
    """Return what of a plan an edit makes.

    Where the source has no jit that could donate, the compilation does as the words say.
    """
    return replace(plan if program.is_jitted else plan.as_traced, options=(), extra=plan.extra)


def outside_of_text(program: Program, plan: Plan) -> Plan:
    """Return the rest, which the patched files are compiled with."""
    return Plan(donated=() if program.is_jitted else plan.donated, options=plan.options)


def _is_in_chunks(plan: Plan) -> bool:
    """Return whether a plan computes a wide piece in chunks."""
    return any(key.partition("=")[0] == Chunks.name for key in plan.extra)
