"""Run a fit question: search, compile, verify, patch."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bufdb.answers.devices import device
from bufdb.database.faults import is_interrupt
from bufdb.errors import BufdbError, TooSlowError, UsageError
from bufdb.fitting.extra import Extra
from bufdb.fitting.figures import Scratch
from bufdb.fitting.last_resort import FLAGS, RESORT, SHARES, LastResort
from bufdb.fitting.levers import OF_TEXT
from bufdb.fitting.needs import Needs
from bufdb.fitting.patch import of_files, texts_of
from bufdb.fitting.plans import (
    Answer,
    Candidate,
    Change,
    Compiled,
    Plan,
    Program,
    SearchRequest,
    Site,
    Traced,
    is_met,
)
from bufdb.fitting.proof import Proof, alone, outside_of_text
from bufdb.fitting.question import ALSO, ATTENTION, BLOCKS, LARGE, ROLLED, VERIFIED, WHOLE, Question
from bufdb.fitting.ranking import (
    PRODUCTS,
    cheaper_by_hand,
    require_order,
)
from bufdb.fitting.results import Rows, is_of_text, ratio_of
from bufdb.fitting.runs import stored
from bufdb.fitting.search import search
from bufdb.fitting.session import Check, Dumped, MistracedError, Session
from bufdb.fitting.space import Space, figure
from bufdb.fitting.vector_memory import VMEM, VectorMemory, lines_before
from bufdb.render.notes import merged
from bufdb.render.text import human_bytes


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
    _proof: Proof | None = None
    _before_count: int = 0
    """Of compilations that an earlier call made."""
    _program: Program | None = None
    _notes: list[str] = field(default_factory=list)
    _needs: Needs | None = None
    """What earlier calls compiled, once the function as written is."""

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

    def _answered(self) -> Answer:  # long: each kind of change in turn
        program, limit = self.session.program(), self.question.limit_bytes
        self._program = program
        written = self._compile(Plan(), True)
        require_order(self.question.order, written, program.target)
        candidates: list[Candidate] = []
        request = self._request(program, written)
        try:
            candidates = search(program, request)
            # The last one is for what surely fits, so that a search may end before it.
            most = request.budget(fits=self._fits(candidates)) - 1
            is_cut = limit is not None and self._used() >= most
            if self.question.also and not is_met(written, limit):
                changes = self.session.changes(self.question.also)
                program = self._program = replace(program, changes=changes.tried)
                self._notes += changes.notes
                kinds = {change.key.partition("=")[0] for change in changes.tried}
                kinds |= {FLAGS} & {*self.question.also}
                budget = self.question.search_budget(len(kinds), self._kept(program))
                if budget > request.compile_budget:  # what was kept for the other kinds is free
                    kept = self.question.compile_budget - budget + self._resort(request, candidates)
                    candidates = self._searched_again(program, request, candidates, kept)
                apart = VERIFIED + self._resort(request, candidates, ALSO * len(kinds))
                more = Extra(program, request, lambda: self._left(apart), self._notes)
                kinds_of_parts = [kind for kind in self.question.also if kind != VMEM]
                candidates = more.with_found(kinds_of_parts, candidates)
                candidates = self._with_limits(program, request, candidates)
                program = self._program
            candidates = self._settled(program, request, candidates)
            for kind in (ATTENTION, BLOCKS):
                candidates = self._with_lines(kind, program, request, candidates)
                program = self._program
            is_wanted = FLAGS in self.question.also
            if is_cut and self._fits(candidates):  # what was kept for other kinds is free
                kept = VERIFIED + ALSO * is_wanted
                candidates = self._searched_again(program, request, candidates, kept)
                candidates = self._settled(program, request, candidates)
            resort = LastResort(
                program,
                request,
                lambda: self._left(VERIFIED),
                self._notes,
                self._traced,
                device(self.session.device),
            )
            candidates = resort.with_found(candidates, is_wanted=is_wanted)
            if is_cut and not self._fits(candidates):
                candidates = self._searched_again(program, request, candidates, VERIFIED)
                candidates = self._settled(program, request, candidates)
            candidates = resort.with_least(candidates)
            candidates = self._with_costs(candidates)
        except BaseException as error:
            if not self._is_stopped(error):
                raise
            candidates = self._so_far(program)
        rows = Rows(program, written, self.question, self._traced, self._recomputed)
        self._proof = Proof(
            self.session,
            self.question,
            self.folder,
            rows,
            self._scratch,
            self._dumps,
            self._notes,
            self._is_left,
            self._is_interrupted,
            self._needs,
        )
        best, plans = self._proof.proved(rows.of(candidates))
        if self._needs is not None:
            self._needs.write()
        answer = Answer(
            program=program,
            limit_bytes=self.question.limit_bytes,
            order=self.question.order,
            as_written=written,
            plans=tuple(plans),
            best=None if best is None else best.rank,
            by_hand=cheaper_by_hand(plans, best, self.question.order),
            patch=None if best is None else best.patch,
            compile_count=len(self._compiled) + self._proof.count,
            before_count=self._before_count + self._proof.before_count,
            trace_count=len(self._traced),
            notes=tuple(merged([*program.notes, *self._notes])),
            is_complete=not self.question.is_over(),
            is_interrupted=self._is_interrupted,
        )
        if answer.limit_bytes is not None and best is None and not answer.fits_as_written:
            tried = {*self.question.also, ATTENTION, BLOCKS}
            others = [kind for kind in program.on_demand if kind not in tried]
            answer = replace(answer, untried=tuple(others))
        return stored(answer, self.question, self._dumps, self.session.device)

    # -- Plans -------------------------------------------------------------------------------------

    def _request(self, program: Program, written: Compiled) -> SearchRequest:
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
                both = plan, replace(plan, depths=())
                own, whole = (of_files(program, one).steps for one in both)
                divided[regions] = len(own) > len(whole)
            return divided[regions]

        written_dump, limit = self._dumps[Plan()], self.question.limit_bytes
        needs = self._needs = Needs(written_dump, program, limit, self.folder)
        has_options = limit is not None and program.platform in SHARES
        return SearchRequest(
            limit_bytes=self.question.limit_bytes,
            order=self.question.order,
            as_written=written,
            trace=trace,
            compile=self._compile,
            compile_budget=self.question.search_budget(
                len(self.question.also), self._kept(program)
            ),
            resort_budget=RESORT if has_options else 0,
            is_by_hand=is_by_hand,
            known=needs.known(),
            before=needs.before(),
            is_kept=needs.is_kept,
            learn=needs.learn,
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
            extra = ratio_of(costs[best], program.as_written.work)
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

    def _searched_again(
        self, program: Program, request: SearchRequest, candidates: list[Candidate], kept: int
    ) -> list[Candidate]:
        """Return candidates with those of a search that has all compilations but some.

        What an earlier search compiled costs none.
        """
        if not self._is_left(kept):
            return candidates
        again = replace(
            request,
            compile_budget=self.question.compile_budget - kept,
            resort_budget=0,
            is_over=lambda: not self._is_left(kept),
        )
        return self._merged(candidates, search(program, again))

    @staticmethod
    def _merged(others: list[Candidate], candidates: list[Candidate]) -> list[Candidate]:
        """Return candidates with others that are compiled, or of another text, cheapest first."""
        known = {one.plan for one in candidates}
        more = [one for one in others if (one.is_exact or one.plan.extra) and one.plan not in known]
        return sorted([*candidates, *more], key=lambda one: Space.cost(one.traced))

    def _settled(
        self, program: Program, request: SearchRequest, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return candidates with some that need fewer steps by hand, if there are any."""
        for _ in range(2):  # what a donation saves may be more for the plans of the first
            candidates = self._without_donation(program, request, candidates)
            candidates = self._with_whole(program, request.as_written, candidates)
        return candidates

    def _without_donation(
        self, program: Program, request: SearchRequest, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return the plans of a search; where one is by hand for what it donates, with more.

        That is the best one without its donation, if it fits; else those that fit what is left of
        the limit without that, so that there is one to compile without.
        """
        limit = self.question.limit_bytes
        best = min(
            (one for one in candidates if one.fits(limit)),
            key=lambda one: (Space.cost(one.traced), one.estimate_bytes),
            default=None,
        )
        if limit is None or best is None or not best.plan.donated:
            return candidates
        donation = Plan(donated=program.donatable)
        if of_files(program, donation).is_whole or self._donated_bytes(program) is None:
            return candidates
        plain = replace(best.plan, donated=())
        if not plain.is_as_written and self._is_left(VERIFIED + self._kept(program)):
            compiled = self._compile(plain, True)
            if is_met(compiled, limit):
                need = compiled.need_bytes or 0
                own = replace(best, plan=plain, estimate_bytes=need, compiled=compiled)
                return self._with(own, candidates)
        without = replace(
            request,
            limit_bytes=limit - (self._donated_bytes(program) or 0),
            compile_budget=2 * self.question.compile_budget,  # most of it is known
            is_over=lambda: not self._is_left(VERIFIED + 2 + self._kept(program)),
        )
        return self._merged(search(program, without), candidates)

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
        limit = self.question.limit_bytes
        fitting = [one for one in candidates if one.fits(limit)]
        costs = {one.plan: Space.cost(one.traced) for one in fitting}
        dearest = min(
            (costs[plan] for plan in costs if of_files(program, plan).is_whole),
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
                if not is_hopeful or not of_files(program, plan).is_whole:
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
                    return self._with(whole, candidates)
        return candidates

    @staticmethod
    def _with(own: Candidate, candidates: list[Candidate]) -> list[Candidate]:
        """Return candidates with another one, cheapest first."""
        others = [one for one in candidates if one.plan != own.plan]
        return sorted([*others, own], key=lambda one: Space.cost(one.traced))

    def _kept(self, program: Program, kinds: tuple[str, ...] = (ATTENTION, BLOCKS)) -> int:
        """Return how many compilations are kept for kinds that are tried by themselves."""
        tried = {*program.on_demand} & {*kinds} - {*self.question.also}
        if self.question.limit_bytes is None:
            return 0
        need = self._compiled[Plan(), True].need_bytes or 0
        if program.score_bytes < LARGE * need:
            tried -= {ATTENTION}
        return ROLLED * len(tried)

    def _fits(self, candidates: list[Candidate]) -> bool:
        return any(one.fits(self.question.limit_bytes) for one in candidates)

    def _resort(self, request: SearchRequest, candidates: list[Candidate], others: int = 0) -> int:
        """Return how many compilations are kept for options of the compiler: none if one fits.

        That is what others leave, which have theirs first.
        """
        left = max(self._left(VERIFIED) - others, 0)
        return 0 if self._fits(candidates) else min(request.resort_budget, left)

    def _with_lines(
        self, kind: str, program: Program, request: SearchRequest, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return candidates with a change that no trace has, if none without a step by hand fits.

        That is attention in parts, also where what fits does more work than to make the scores
        again, or a scan over equal blocks. Neither needs to be asked for.
        """
        limit = self.question.limit_bytes
        costs = [
            Space.cost(one.traced)
            for one in candidates
            if one.fits(limit) and of_files(program, one.plan).is_whole
        ]
        again = program.score_work if kind == ATTENTION else math.inf
        if (
            limit is None
            or kind in self.question.also
            or kind not in program.on_demand
            or is_met(request.as_written, limit)
            or (costs and min(costs) <= Space.cost(program.as_written) + again)
        ):
            return candidates
        kept = VERIFIED + (self._kept(program, (BLOCKS,)) if kind != BLOCKS else 0)
        if self._left(kept) < 1:
            return candidates
        changes = self.session.changes((kind,))
        self._notes += changes.notes
        self._program = replace(program, changes=(*program.changes, *changes.tried))
        more = Extra(self._program, request, lambda: self._left(kept), self._notes)
        return more.with_found((kind,), candidates)

    def _with_limits(
        self, program: Program, request: SearchRequest, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Return candidates with the least limit of vector memory that kernels compile with."""

        def widen(change: Change) -> Program:
            assert self._program is not None
            others = [one for one in self._program.changes if one.key != change.key]
            self._program = replace(self._program, changes=(*others, change))
            return self._program

        def used(plan: Plan) -> dict[str, int]:
            assert self._program is not None
            made = of_files(self._program, alone(self._program, plan)).texts
            written = texts_of(self._program)
            sizes = {}
            for source, size in self._scratch.kernels(self._dumps[plan]).items():
                file, _, line = source.rpartition(":")
                if file in made:
                    before = lines_before(written[file], made[file]).get(int(line))
                    sizes[f"{file}:{before}"] = size
            return sizes

        def by_hand(change: Change) -> tuple[str, ...]:
            changed = replace(program, changes=(change,))
            return of_files(changed, Plan(extra=change.keys)).steps

        limits = VectorMemory(
            program, request, widen, used, lambda: self._is_left(VERIFIED), self._notes, by_hand
        )
        return limits.with_found(candidates)

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

        Plans are asked about once they are compiled, while there is time. What is computed again as
        written is no change of a plan that donates alone.
        """
        if plan.as_traced.is_as_written:
            return ()
        if plan not in self._again and not self.question.is_over():
            with suppress(TooSlowError):
                self._again[plan] = self.session.recomputed(
                    replace(plan, extra=plan.as_traced.extra)
                )
        return self._again.get(plan, ())

    def _dumped(self, plan: Plan, what: str, is_full: bool) -> Dumped:
        """Compile a plan, or the patched files if it is one of their text."""
        program = self._program
        if program is None or not is_of_text(plan):
            needs = self._needs if is_full and not plan.extra else None
            known = None if needs is None else needs.dumped(plan)
            if known is not None:
                return known
            dumped = self.session.compile(plan, what, is_full=is_full)
            if needs is not None:
                needs.keep(dumped, plan)
            return dumped
        made = of_files(program, alone(program, plan))
        if not made.is_whole:
            raise BufdbError("; ".join(made.steps))
        keys = {key.partition("=")[0] for key in plan.extra}
        is_compared = any(lever.is_compared and lever.name in keys for lever in OF_TEXT)
        rest = outside_of_text(program, plan)
        parts = tuple(one for change in program.changes_of(plan) for one in change.parts)
        check = Check(is_compared=is_compared, parts=parts)
        return self.session.patched(made.texts, rest, check)

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
                if dumped.traced is not None:
                    self._traced[plan.as_traced] = dumped.traced
                if dumped.refusal is not None:
                    self._notes.append(f"XLA gave up {what}: {dumped.refusal}")
                    if not plan.is_as_written:  # whatever it needs, it does not fit
                        kept = replace(kept, need_bytes=None, peak_bytes=None)
            self._compiled[plan, is_full] = kept
            self._show_best()
            if is_full and not plan.is_as_written:
                self._recomputed(plan)
        return kept

    def _left(self, kept: int = 0) -> int:
        """Return how many compilations the budget has, besides some that are kept."""
        left = self.question.compile_budget - kept - self._used()
        return 0 if self.question.is_over() else left

    def _is_left(self, kept: int = 0) -> bool:
        """Return whether the budget has a compilation more, besides some that are kept."""
        return self._left(kept) > 0

    def _used(self) -> int:
        """Return how many compilations of the budget were made."""
        return len(self._compiled) - 1 + (0 if self._proof is None else self._proof.count)
