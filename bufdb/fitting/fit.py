"""Run a fit question: search, compile, verify, patch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bufdb.database.faults import is_interrupt
from bufdb.errors import BufdbError, TooSlowError, UsageError
from bufdb.fitting.bound import least
from bufdb.fitting.extra import Extra, is_met
from bufdb.fitting.figures import Figures, Scratch
from bufdb.fitting.last_resort import FLAGS, LastResort
from bufdb.fitting.levers import EVERY, OF_TEXT
from bufdb.fitting.levers.chunks import Chunks
from bufdb.fitting.levers.microbatch import Microbatch
from bufdb.fitting.patch import patch
from bufdb.fitting.places import lines
from bufdb.fitting.plans import (
    Answer,
    Ask,
    Candidate,
    Compiled,
    Patch,
    Plan,
    PlanResult,
    Program,
    Site,
    Traced,
)
from bufdb.fitting.question import BLOCKS, ROLLED, VERIFIED, WHOLE, Question
from bufdb.fitting.ranking import (
    PRODUCTS,
    beyond,
    cheaper_by_hand,
    ranked,
    require_order,
    settled,
    undominated,
)
from bufdb.fitting.runs import stored
from bufdb.fitting.search import search
from bufdb.fitting.session import (
    Dumped,
    MistracedError,
    Numbers,
    Session,
    UncheckedError,
    UnequalError,
)
from bufdb.fitting.space import Space, figure
from bufdb.render.notes import merged
from bufdb.render.text import human_bytes

EACH = 2
"""Examples of each chunk with which the numbers of patched files are compared."""


@dataclass
class Fitting:
    """The work of one question."""

    session: Session
    question: Question
    folder: Path
    """For files of this question."""
    _dumps: dict[Plan, Dumped] = field(default_factory=dict)
    _compiled: dict[tuple[Plan, bool], Compiled] = field(default_factory=dict)
    _traced: dict[Plan, Traced] = field(default_factory=dict)
    _fewest: dict[Plan, Traced] = field(default_factory=dict)
    """The same of the plan with the fewest names that does the same."""
    _again: dict[Plan, tuple[Site, ...]] = field(default_factory=dict)
    """What is computed again under plans."""
    _scratch: Scratch = field(default_factory=Scratch)
    _is_interrupted: bool = False
    _patched_count: int = 0
    _before_count: int = 0
    """Of compilations that an earlier call made."""
    _program: Program | None = None
    _notes: list[str] = field(default_factory=list)

    def answer(self) -> Answer:
        """Search, compile, and check the patch.

        Raises:
            BufdbError: the function as written cannot be compiled, or has no plans.
        """
        try:
            return self._answered()
        except MistracedError:  # all of it again, by JAX's traces alone
            self._traced.clear()
            self._fewest.clear()
            self._notes.clear()
            self._compiled = {key: one for key, one in self._compiled.items() if key[0] == Plan()}
            return self._answered()

    def _answered(self) -> Answer:
        program = self._program = self.session.program()
        written = self._compile(Plan(), True)
        require_order(self.question.order, written, program.target)
        candidates: list[Candidate] = []
        ask = self._ask(program, written)
        try:
            candidates = search(program, ask)
            if self.question.also and not is_met(written, self.question.limit_bytes):
                changes = self.session.changes(self.question.also)
                program = self._program = replace(program, changes=changes.tried)
                self._notes += changes.notes
                kinds = {change.key.partition("=")[0] for change in changes.tried}
                budget = self.question.search_budget(len(kinds), self._kept(program))
                if budget > ask.compile_budget:  # what was kept for the other kinds is free
                    kept = self.question.compile_budget - budget
                    again = replace(ask, is_over=lambda: not self._is_left(kept))
                    candidates = search(program, replace(again, compile_budget=budget))
                more = Extra(program, ask, lambda: self._left(VERIFIED), self._notes)
                candidates = more.with_found(self.question.also, candidates)
            for _ in range(2):  # what a donation saves may be more for the plans of the first
                candidates = self._without_donation(program, ask, candidates)
                candidates = self._with_whole(program, written, candidates)
            candidates = self._with_blocks(program, ask, candidates)
            program = self._program
            resort = LastResort(program, ask, lambda: self._is_left(VERIFIED), self._notes)
            is_wanted = FLAGS in self.question.also
            candidates = resort.with_found(candidates, is_wanted=is_wanted)
            candidates = self._with_costs(candidates)
        except BaseException as error:
            if not self._is_stopped(error):
                raise
            candidates = self._so_far(program)
        best, plans = self._proved(program, written, self._results(program, written, candidates))
        answer = Answer(
            program=program,
            limit_bytes=self.question.limit_bytes,
            order=self.question.order,
            as_written=written,
            plans=tuple(plans),
            best=None if best is None else best.rank,
            by_hand=cheaper_by_hand(plans, best, self.question.order),
            patch=None if best is None else best.patch,
            compile_count=len(self._compiled) + self._patched_count,
            before_count=self._before_count,
            trace_count=len(self._traced),
            notes=tuple(merged([*program.notes, *self._notes])),
            is_complete=not self.question.is_over(),
            is_interrupted=self._is_interrupted,
        )
        if answer.limit_bytes is not None and best is None and not answer.fits_as_written:
            tried = {*self.question.also, BLOCKS}
            others = [kind for kind in program.on_demand if kind not in tried]
            answer = replace(answer, untried=tuple(others))
        return stored(answer, self.question, self._dumps, self.session.device)

    # -- Plans -------------------------------------------------------------------------------------

    def _ask(self, program: Program, written: Compiled) -> Ask:
        def trace(plan: Plan) -> Traced:
            plan = plan.as_traced
            if plan not in self._traced:
                traced = self._traced[plan] = self.session.trace(plan)
                if traced.saved is not None:
                    self._fewest[replace(plan, saved=traced.saved)] = traced
            return self._traced[plan]

        divided: dict[tuple[int, ...], bool] = {}

        def is_by_hand(plan: Plan) -> bool:
            regions = tuple(one.region for one in plan.depths)
            if regions not in divided:
                texts = _texts(program)
                own, whole = (
                    patch(program, one, texts).steps for one in (plan, replace(plan, depths=()))
                )
                divided[regions] = len(own) > len(whole)
            return divided[regions]

        return Ask(
            limit_bytes=self.question.limit_bytes,
            order=self.question.order,
            as_written=written,
            trace=trace,
            compile=self._compile,
            compile_budget=self.question.search_budget(
                len(self.question.also), self._kept(program)
            ),
            is_by_hand=is_by_hand,
            is_over=self.question.is_over,
            observer=self.question.observer,
        )

    def _is_stopped(self, error: BaseException) -> bool:
        """Return whether an error ends the search with what is known, and note it."""
        if isinstance(error, TooSlowError):
            self._notes.append(str(error))
            return True
        if not self.question.is_interruptible or not is_interrupt(error):
            return False
        self._notes.append("interrupted: the plans are those that were compiled by then")
        self._is_interrupted = True
        self.question = replace(self.question, is_over=lambda: True)
        return True

    def _show_best(self) -> None:
        """Report the cheapest plan so far that fits, or the least need."""
        limit, needs = self.question.limit_bytes, {}
        for (plan, is_full), compiled in self._compiled.items():
            if is_full and not plan.is_as_written and compiled.need_bytes is not None:
                needs[plan] = compiled.need_bytes
        if not needs or self._program is None:
            return
        program = self._program
        costs = {plan: Space.cost(self._known(plan, program)) for plan in needs}
        fitting = [plan for plan in needs if limit is not None and needs[plan] <= limit]
        if fitting:
            best = min(fitting, key=lambda plan: (costs[plan], needs[plan]))
            extra = _ratio(costs[best], program.as_written.work)
            self.question.improved(f"{human_bytes(needs[best])} at {extra:+.1%} fits")
        else:
            self.question.improved(f"the least is {human_bytes(min(needs.values()))}")

    def _so_far(self, program: Program) -> list[Candidate]:
        """Return what was compiled when the time was up, cheapest first."""
        candidates = [
            Candidate(plan, self._known(plan, program), compiled.need_bytes, compiled)
            for (plan, is_full), compiled in self._compiled.items()
            if is_full and not plan.is_as_written and compiled.need_bytes is not None
        ]
        return sorted(candidates, key=lambda one: Space.cost(one.traced))

    def _without_donation(
        self, program: Program, ask: Ask, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return the plans of a search; where one is by hand for what it donates, with more.

        These fit what is left of the limit without that, so that there is one to compile without.
        """
        limit, texts = self.question.limit_bytes, _texts(program)
        best = next(
            (one for one in candidates if one.is_exact and is_met(one.compiled, limit)), None
        )
        if limit is None or best is None or not best.plan.donated:
            return candidates
        donation = Plan(donated=program.donatable)
        if patch(program, donation, texts).is_whole or self._donated_bytes(program) is None:
            return candidates
        own = replace(
            ask,
            limit_bytes=limit - (self._donated_bytes(program) or 0),
            compile_budget=2 * self.question.compile_budget,  # most of it is known
            is_over=lambda: not self._is_left(VERIFIED + 2 + self._kept(program)),
        )
        known = {one.plan for one in candidates}
        more = [one for one in search(program, own) if one.is_exact and one.plan not in known]
        return sorted([*candidates, *more], key=lambda one: Space.cost(one.traced))

    def _donated_bytes(self, program: Program) -> int | None:
        """Return the most that donations save of a plan that was compiled with and without them."""
        needs = {
            plan: one.need_bytes
            for (plan, is_full), one in self._compiled.items()
            if is_full and one.need_bytes is not None
        }
        pairs = ((plan, replace(plan, donated=program.donatable)) for plan in needs)
        saved = [needs[plan] - needs[other] for plan, other in pairs if other in needs]
        return max(saved, default=None)

    def _with_whole(
        self, program: Program, written: Compiled, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return the plans of a search; where the cheapest has a step by hand, with one without.

        That is the cheapest of those that were traced and need no more than one that fits, as far
        as traces know; it may do without donated arguments.
        """
        limit, texts = self.question.limit_bytes, _texts(program)
        fitting = [one for one in candidates if one.is_exact and is_met(one.compiled, limit)]
        costs = {one.plan: Space.cost(one.traced) for one in fitting}
        dearest = min(
            (costs[plan] for plan in costs if patch(program, plan, texts).is_whole),
            default=math.inf,
        )
        if is_met(written, limit) or min(costs.values(), default=dearest) >= dearest:
            return candidates
        most = max(figure(program, one.traced) for one in fitting)
        count = 0

        def order(plan: Plan) -> tuple[int, int]:
            traced = self._traced[plan]
            return Space.cost(traced), figure(program, traced)

        for plain in sorted(self._traced, key=order):
            traced = self._traced[plain]
            if Space.cost(traced) >= dearest:
                break
            if traced.saved is not None:  # no names that save nothing
                plain = replace(plain, saved=traced.saved)
            for plan in dict.fromkeys((replace(plain, donated=program.donatable), plain)):
                known = self._compiled.get((plan, True))
                donated = self._compiled.get((replace(plan, donated=program.donatable), True))
                if known is not None:
                    is_hopeful = is_met(known, limit)
                elif donated is not None and donated.need_bytes is not None and limit is not None:
                    more = self._donated_bytes(program) or 0
                    is_hopeful = donated.need_bytes + more <= limit
                else:
                    is_hopeful = figure(program, traced) <= most
                if not is_hopeful or not patch(program, plan, texts).is_whole:
                    continue
                if known is None:
                    if count == WHOLE or not self._is_left(VERIFIED + self._kept(program)):
                        return candidates
                    count += 1
                    self.question.observer("compiling a plan without a step by hand")
                    known = self._compile(plan, True)
                if is_met(known, limit):
                    is_explored = any(one.is_explored for one in candidates)
                    whole = Candidate(
                        plan, traced, known.need_bytes or 0, known, is_explored=is_explored
                    )
                    others = [one for one in candidates if one.plan != plan]
                    return sorted([*others, whole], key=lambda one: Space.cost(one.traced))
        return candidates

    def _kept(self, program: Program) -> int:
        """Return how many compilations are kept for a scan over equal blocks."""
        is_tried = self.question.limit_bytes is not None and BLOCKS not in self.question.also
        return ROLLED if is_tried and BLOCKS in program.on_demand else 0

    def _with_blocks(
        self, program: Program, ask: Ask, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return candidates with a scan over equal blocks, if none without a step by hand fits.

        Its equations are compared with those as written, so it needs no request.
        """
        limit, texts = self.question.limit_bytes, _texts(program)
        fitting = [one for one in candidates if one.is_exact and is_met(one.compiled, limit)]
        if (
            not self._kept(program)
            or is_met(ask.as_written, limit)
            or any(patch(program, one.plan, texts).is_whole for one in fitting)
        ):
            return candidates
        changes = self.session.changes((BLOCKS,))
        self._program = replace(program, changes=(*program.changes, *changes.tried))
        more = Extra(self._program, ask, lambda: self._left(VERIFIED), self._notes)
        return more.with_found((BLOCKS,), candidates)

    def _with_costs(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return candidates, those that may fit compiled, if a compilation alone has their cost."""
        limit = self.question.limit_bytes
        if self.question.order == PRODUCTS:
            return candidates
        known = []
        for one in candidates:
            may_fit = limit is None or one.estimate_bytes <= limit
            if not one.is_exact and may_fit and self._is_left(VERIFIED):
                compiled = self._compile(one.plan, True)
                if compiled.need_bytes is None:
                    continue
                one = Candidate(one.plan, one.traced, compiled.need_bytes, compiled)
            known.append(one)
        return known

    def _known(self, plan: Plan, program: Program) -> Traced:
        plain = plan.as_traced
        if plain.is_as_written:
            return program.as_written
        return self._traced[plain] if plain in self._traced else self._fewest[plain]

    def _recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan; nothing when the time is up.

        Plans are asked about once they are compiled, while there is time.
        """
        if plan not in self._again and not self.question.is_over():
            with suppress(TooSlowError):
                self._again[plan] = self.session.recomputed(plan)
        return self._again.get(plan, ())

    def _dumped(self, plan: Plan, what: str, is_full: bool) -> Dumped:
        """Compile a plan, or the patched files if it is one of their text."""
        program = self._program
        if program is None or not _is_of_text(plan):
            return self.session.compile(plan, what, is_full=is_full)
        made = patch(program, _alone(program, plan), _texts(program))
        if not made.is_whole:
            raise BufdbError("; ".join(made.steps))
        keys = {key.partition("=")[0] for key in plan.extra}
        is_compared = any(lever.is_compared and lever.name in keys for lever in OF_TEXT)
        rest = _beside(program, plan)
        return self.session.patched(made.texts, rest, is_compared=is_compared)

    def _compile(self, plan: Plan, is_full: bool) -> Compiled:
        """Compile a plan; its need is bufdb's of the module."""
        kept = self._compiled.get((plan, is_full))
        if kept is None:
            number = sum(full for _, full in self._compiled)
            what = "the function as written" if plan.is_as_written else f"plan {number}"
            try:
                dumped = self._dumped(plan, what, is_full)
            except (TooSlowError, UsageError):
                raise
            except BufdbError as error:
                if plan.is_as_written:
                    raise
                kept = Compiled(None, None, is_full, 0.0, refusal=str(error))
                self._notes.append(f"a plan could not be compiled: {error}")
            else:
                self._before_count += dumped.is_before
                got = self._scratch.figures(dumped)
                kept = Compiled(
                    **got._asdict(),
                    is_full=is_full,
                    seconds=dumped.seconds,
                    refusal=dumped.refusal,
                )
                if is_full:
                    self._dumps[plan] = dumped
                if dumped.refusal is not None:
                    self._notes.append(f"XLA gave up {what}: {dumped.refusal}")
                    if not plan.is_as_written:  # whatever it needs, it does not fit
                        kept = replace(kept, need_bytes=None, peak_bytes=None)
            self._compiled[plan, is_full] = kept
            self._show_best()
            if is_full and not plan.is_as_written:
                self._recomputed(plan)
        return kept

    def _results(
        self, program: Program, written: Compiled, candidates: Sequence[Candidate]
    ) -> list[PlanResult]:
        """Return the rows of the answer, with the patch of each, not yet compiled."""
        texts = _texts(program)
        rows = []
        for one in candidates:
            need = one.estimate_bytes if one.compiled is None else one.compiled.need_bytes
            made = patch(program, one.plan, texts)
            rows.append(
                PlanResult(
                    rank=0,
                    is_compiled=one.is_exact,
                    is_verified=False,
                    need_bytes=need,
                    peak_bytes=one.compiled.peak_bytes if one.compiled is not None else None,
                    extra_work_ratio=_extra(one, program, written),
                    options=one.plan.options,
                    recomputed_lines=lines(self._recomputed(one.plan)),
                    fits=_fits(need, self.question.limit_bytes),
                    error_ratio=None if one.is_exact else one.error_ratio,
                    **self._bound(program, one),
                    patch=made.diff or None,
                    steps=made.steps,
                    changes=tuple(change.sentence for change in program.changes_of(one.plan)),
                    plan=one.plan,
                    **beyond(one.compiled, written),
                    **_of_levers(program, one),
                )
            )
        return ranked(rows, self.question.order)

    def _bound(self, program: Program, one: Candidate) -> dict[str, Any]:
        """Return the fields of a row on what any choice of the same values and layers may cost."""
        plan = one.plan
        why = next(
            reason
            for is_unknown, reason in (
                (plan.options, "what XLA computes again is in no trace"),
                (_is_of_text(plan), "what the patch alone changes is in no trace"),
                (plan == plan.free, "it computes nothing again that is not as written"),
                (program.calls, "no trace has what layers save that are called in a row"),
                (not one.is_explored, "not all choices were traced"),
                (True, ""),
            )
            if is_unknown
        )
        if why:
            return {"gap_unknown_reason": why}
        known = [traced for other, traced in self._traced.items() if other.extra == plan.extra]
        known += [] if plan.extra else [program.as_written]
        points = [(traced.residual_bytes, Space.cost(traced)) for traced in known]
        size, cost = one.traced.residual_bytes, Space.cost(one.traced)
        return {
            "gap_ratio": (cost - least(points, size)) / max(program.as_written.work, 1),
            "is_least": size <= min(points)[0],
        }

    def _shown(
        self, program: Program, written: Compiled, rows: Sequence[PlanResult]
    ) -> list[PlanResult]:
        """Return the rows that no other beats, with their ranks."""
        texts, order = _texts(program), self.question.order
        kept = undominated(settled(rows, order), written, order)
        shown = [replace(row, rank=rank) for rank, row in enumerate(kept, start=1)]
        for lever in EVERY:
            shown = [*lever.compared(shown, program, texts)]
        return shown

    # -- The proof ---------------------------------------------------------------------------------

    def _proved(
        self, program: Program, written: Compiled, rows: Sequence[PlanResult]
    ) -> tuple[PlanResult | None, list[PlanResult]]:
        """Compile the patched files of the plans that are shown; return the best, and these.

        One whose patch fails may have been what hid another.
        """
        while True:
            best, plans = self._checked_in_turn(
                program, written, self._shown(program, written, rows)
            )
            known = {row.plan: row for row in plans}
            again = [known.get(row.plan, row) for row in rows]
            if best is not None or sum(row.is_broken for row in again) == sum(
                row.is_broken for row in rows
            ):
                return best, plans
            rows = again

    def _checked_in_turn(
        self, program: Program, written: Compiled, plans: Sequence[PlanResult]
    ) -> tuple[PlanResult | None, list[PlanResult]]:
        """Compile the patched files of plans; return the best, and all.

        With a limit the first that fits is proved, those without a step by hand before the others,
        and the next one if its patch is not its plan; without one as many as the budget has.
        """
        proved = [*plans]
        best: PlanResult | None = None
        has_limit = self.question.limit_bytes is not None
        is_planned = written.refusal is None
        is_wanted = not (is_planned and _fits(written.need_bytes, self.question.limit_bytes))
        order = sorted(range(len(plans)), key=lambda at: has_limit and not plans[at].is_whole)
        for at in order:
            row = plans[at]
            is_asked = row.fits if has_limit else self._is_left()
            is_open = row.is_compiled and not (row.is_broken or row.is_verified)
            if is_open and best is None and is_asked:
                row = proved[at] = self._checked(program, written, row)
                is_right = row.is_verified or not (row.patch or row.is_broken)
                if has_limit and is_wanted and is_right:
                    best = row
        if best is None and is_wanted and has_limit:
            rows = (proved[at] for at in order)
            right = (row for row in rows if row.fits and row.is_compiled and not row.is_broken)
            best = next(right, None)
        return best, proved

    def _left(self, kept: int = 0) -> int:
        """Return how many compilations the budget has, besides some that are kept."""
        left = self.question.compile_budget - kept - self._used()
        return 0 if self.question.is_over() else left

    def _is_left(self, kept: int = 0) -> bool:
        """Return whether the budget has a compilation more, besides some that are kept."""
        return self._left(kept) > 0

    def _used(self) -> int:
        """Return how many compilations of the budget were made."""
        return len(self._compiled) - 1 + self._patched_count

    def _checked(self, program: Program, written: Compiled, row: PlanResult) -> PlanResult:
        """Return a plan with what a compilation of its patched files says."""
        made = patch(program, row.plan, _texts(program))
        if not made.diff or not patch(program, _alone(program, row.plan), _texts(program)).is_whole:
            return row
        if _is_of_text(row.plan):  # compiled so already
            return replace(row, is_verified=True)
        if self._is_interrupted:
            return row
        self.question.observer(f"compiling the patched files of plan {row.rank}")
        try:
            dumped, got = self._of_patched(program, row.plan, made)
        except TooSlowError as error:
            self._notes.append(str(error))
            return row
        except UncheckedError as error:
            if (text := f"no patch is verified: {error}") not in self._notes:
                self._notes.append(text)
            return row
        except UnequalError as error:
            return self._by_hand(program, row, f"the patched files compute something else: {error}")
        except BufdbError as error:
            if _is_in_chunks(row.plan):
                why = f"the patched files cannot be compiled: {error}"
                return self._by_hand(program, row, why)
            self._notes.append(f"plan {row.rank}: its patched files cannot be compiled: {error}")
            return replace(row, patch=None, is_broken=True)
        need = got.need_bytes
        if need == row.need_bytes:
            return replace(row, is_verified=True)
        if _is_in_chunks(row.plan) and _fits(need, self.question.limit_bytes) is not False:
            # The parts of the text are not cut where those of the trace are: it is the plan.
            self._dumps[row.plan] = dumped
            compiled = Compiled(**got._asdict(), is_full=True, seconds=dumped.seconds)
            return replace(
                row,
                is_verified=True,
                need_bytes=need,
                peak_bytes=got.peak_bytes,
                **beyond(compiled, written),
            )
        self._notes.append(
            f"plan {row.rank}: its patched files need {need} bytes, not {row.need_bytes}"
        )
        is_broken = _fits(need, self.question.limit_bytes) is False
        return replace(row, patch=None if is_broken else row.patch, is_broken=is_broken)

    def _of_patched(self, program: Program, plan: Plan, made: Patch) -> tuple[Dumped, Figures]:
        """Compile the patched files of a plan; where parts were put into chunks, compare numbers.

        Raises:
            UnequalError: they compute something else.
            BufdbError: they cannot be compiled.
        """
        self._patched_count += 1
        rest, numbers = _beside(program, plan), self._numbers(program, plan)
        compared = () if numbers is None else (numbers,)
        dumped = self.session.patched(made.texts, rest, *compared)
        self._before_count += dumped.is_before
        if dumped.refusal is not None:
            raise BufdbError(dumped.refusal)
        return dumped, self._scratch.figures(dumped)

    def _numbers(self, program: Program, plan: Plan) -> Numbers | None:
        """Return what losses as written give for random numbers, if some of it is in chunks.

        A loss of the patched files is that of a microbatch. None, too, if they cannot be run.
        """
        counts = {one.key.partition("=")[0]: one for one in program.changes_of(plan)}
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
            self._notes.append(f"the numbers of the patched files are not compared: {error}")
        return None

    def _by_hand(self, program: Program, row: PlanResult, why: str) -> PlanResult:
        """Return a plan whose chunks are a step by hand, since their edit is not right."""
        changes = (
            replace(one, obstacle=why) if one.key in row.plan.extra else one
            for one in program.changes
        )
        self._program = replace(program, changes=tuple(changes))
        made = patch(self._program, row.plan, _texts(program))
        return replace(row, patch=made.diff or None, steps=made.steps)


def _alone(program: Program, plan: Plan) -> Plan:
    """Return what of a plan an edit makes.

    Where the source has no jit that could donate, the compilation does as the words say.
    """
    return replace(plan if program.is_jitted else plan.as_traced, options=())


def _beside(program: Program, plan: Plan) -> Plan:
    """Return the rest, which the patched files are compiled with."""
    return Plan(donated=() if program.is_jitted else plan.donated, options=plan.options)


def _is_in_chunks(plan: Plan) -> bool:
    """Return whether a plan computes a wide piece in chunks."""
    return any(key.partition("=")[0] == Chunks.name for key in plan.extra)


def _is_of_text(plan: Plan) -> bool:
    """Return whether no trace has a plan, but the patched files do."""
    names = {lever.name for lever in OF_TEXT}
    return any(key.partition("=")[0] in names for key in plan.extra)


def _texts(program: Program) -> dict[str, str]:
    """Return the text of the user's files that a patch may touch."""
    sites: list[Site | None] = [program.function_site]
    for region in program.regions:
        sites += [*region.sites, *region.remats, region.defined]
    sites += [switch.site for switch in program.switches]
    sites += [site for change in program.changes for site in change.sites]
    sites += [one.site for change in program.changes for one in change.expressions]
    texts: dict[str, str] = {}
    for name in {site.file for site in sites if site is not None}:
        with suppress(OSError, UnicodeDecodeError):
            texts[name] = Path(name).read_bytes().decode()
    return texts


def _of_levers(program: Program, one: Candidate) -> dict[str, Any]:
    """Return the fields of a row that levers know."""
    fields: dict[str, Any] = {}
    for lever in EVERY:
        fields |= lever.results(program, one.plan, one.traced)
    return fields


def _extra(one: Candidate, program: Program, written: Compiled) -> float | None:
    """Return the extra work of a plan: by traces, which know of no option of the compiler."""
    if not one.plan.options:
        return _ratio(one.traced.work, program.as_written.work)
    count = None if one.compiled is None else one.compiled.operation_count
    if count is None or written.operation_count is None:
        return None
    return _ratio(count, written.operation_count)


def _ratio(work: int, written: int) -> float:
    return work / written - 1 if written else 0.0


def _fits(need: int | None, limit: int | None) -> bool | None:
    return None if limit is None else need is not None and need <= limit
