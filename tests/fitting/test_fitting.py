"""What comes of a question, with a session that is made up: no JAX."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bufdb.errors import BufdbError, TooSlowError, UsageError
from bufdb.fitting import fit as module
from bufdb.fitting import last_resort
from bufdb.fitting import patch as patches
from bufdb.fitting.answer_text import as_dict, no_patch, text
from bufdb.fitting.figures import Figures, Scratch
from bufdb.fitting.fit import Fitting
from bufdb.fitting.levers.saved import Saved
from bufdb.fitting.places import spans
from bufdb.fitting.plans import (
    Answer,
    Candidate,
    Change,
    Changes,
    Compiled,
    Depth,
    Patch,
    Plan,
    PlanResult,
    Program,
    Region,
    Site,
    Switch,
    Traced,
)
from bufdb.fitting.question import Question
from bufdb.fitting.ranking import order_of, ranked, require_order, settled, undominated
from bufdb.fitting.session import Dumped, MistracedError
from bufdb.fitting.user_file import exit_code

PLACE = Site("/nowhere/train.py", 3, 0, 3, 9, "f")
NEEDS = {(): 100, ("a",): 60, ("b",): 50, ("a", "b"): 80}


class Made:
    """A scan with two switches; saving nothing is cheap to hold and dear to compute."""

    device = "made up"

    def __init__(self, needs, refuse=(), late=False, on_demand=()):
        self.needs, self.refuse, self.late = needs, refuse, late
        self.on_demand = on_demand

    def program(self):
        region = Region("scan", (PLACE,), "body", None, 4)
        switches = tuple(Switch(name, PLACE, (0,), 20) for name in ("a", "b"))
        return Program(
            "train.py:f", None, "cpu", (region,), switches, (), ("x",), False, False,
            self.trace(Plan()), on_demand=self.on_demand,
        )  # fmt: skip

    def trace(self, plan):
        saved = ("a", "b") if plan.is_as_written else plan.saved
        return Traced(20 * len(saved), 20 * len(saved), 1000 - 100 * len(saved), 4)

    def recomputed(self, plan):
        return (PLACE,)

    def compile(self, plan, what, *, is_full):
        if self.late and not plan.is_as_written:
            raise TooSlowError("stopped after 1 s (--timeout), while compiling")
        refusal = "RESOURCE_EXHAUSTED" if plan.saved in self.refuse else None
        need = 120 if plan.is_as_written else self.needs[plan.saved]
        return Dumped({str(need): Path()}, refusal, 1.0)

    def changes(self, kinds):
        return Changes(
            (), tuple(f"--also {kind}: the batch of 7 has no equal parts" for kind in kinds)
        )

    def patched(self, texts, rest, check):
        raise BufdbError("no files")


def _figures(scratch, dumped):
    return Figures(_need(dumped), _need(dumped))


@pytest.fixture
def ask(monkeypatch, tmp_path):
    monkeypatch.setattr(Scratch, "figures", _figures)

    def searched(limit, over=lambda: False, budget=12, also=(), **how):
        question = Question(limit, budget, also, is_over=over)
        return Fitting(Made(NEEDS, **how), question, tmp_path).answer()

    return searched


def _need(dumped):
    return int(next(iter(dumped.files)))


def test_the_cheapest_plan_that_fits_is_best(ask):
    answer = ask(70)
    best = answer.plans[answer.best - 1]
    assert best.fits and best.need_bytes in (50, 60) and len(best.plan.saved) == 1
    assert best.is_compiled and not best.is_verified
    assert best.recomputed_lines == ("train.py:3",)
    assert "fits 70 B" in text(answer)


def test_traces_that_are_taken_back_begin_the_search_again(monkeypatch, ask):
    taken_back = []

    class Mistraced(Made):
        def trace(self, plan):
            traced = super().trace(plan)
            return traced if taken_back or plan.is_as_written else replace(traced, work=0)

        def compile(self, plan, what, *, is_full):
            if not (taken_back or plan.is_as_written):
                taken_back.append(plan)
                raise MistracedError
            return super().compile(plan, what, is_full=is_full)

    right = ask(70)
    monkeypatch.setattr(sys.modules[__name__], "Made", Mistraced)
    assert ask(70) == right and taken_back


def test_a_plan_of_fewer_names_that_has_no_trace_of_its_own(monkeypatch, ask):
    class Fewer(Made):
        def trace(self, plan):
            assert plan.saved != ("a",), "it is known by that of more names"
            saved = ("a",) if plan.saved == ("a", "b") else plan.saved
            return replace(super().trace(replace(plan, saved=saved)), saved=saved)

    monkeypatch.setattr(module, "search", lambda program, ask: [_compiled(ask)])
    monkeypatch.setattr(sys.modules[__name__], "Made", Fewer)
    assert ask(70).plans[0].need_bytes == NEEDS["a",]


def _compiled(ask):
    traced = ask.trace(Plan((0,), ("a", "b")))
    plan = Plan((0,), traced.saved)
    compiled = ask.compile(plan, True)
    return Candidate(plan, traced, compiled.need_bytes, compiled)


class Many(Made):
    """A scan with eight switches; the last saves nothing where the first does."""

    def program(self):
        program = super().program()
        switches = tuple(Switch(name, PLACE, (0,), 20) for name in "abcdefgh")
        return replace(program, switches=switches, as_written=self.trace(Plan()))

    def trace(self, plan):
        saved = tuple("abcdefgh") if plan.is_as_written else plan.saved
        saved = tuple(name for name in saved if name != "h" or "a" not in saved)
        return Traced(10 * len(saved), 10 * len(saved), 1000 - 100 * len(saved), 4, saved=saved)

    def compile(self, plan, what, *, is_full):
        need = 120 if plan.is_as_written else 30 + 10 * len(plan.saved)
        return Dumped({str(need): Path()}, None, 1.0)


def test_a_bound_or_why_there_is_none_is_said(ask, monkeypatch):
    def words(limit, **how):
        return " ".join(text(ask(limit, **how)).split())

    assert "By traces, no choice of these values and layers costs less than plan" in words(70)
    nothing = "By traces, no choice of these values and layers saves fewer bytes on the device than"
    monkeypatch.setitem(NEEDS, (), 45)
    assert f"{nothing} plan 3." in words(10)
    monkeypatch.setitem(NEEDS, (), 100)
    assert "needs least is no bound: by traces, another choice saves fewer bytes." in words(10)
    count = iter(range(100))
    late = words(110, over=lambda: next(count) > 5)
    assert "No bound is known for plan 1: not all choices were traced." in late
    program = Made.program
    call = Region("call", (PLACE,), "block", None, 4)

    def with_calls(self):
        one = program(self)
        return replace(one, regions=(*one.regions, call))

    monkeypatch.setattr(Made, "program", with_calls)
    assert "no trace has what layers save that are called in a row." in words(70)


def test_names_that_save_nothing_are_in_no_plan(monkeypatch, tmp_path):
    monkeypatch.setattr(Scratch, "figures", _figures)
    improved = []
    question = Question(70, improved=improved.append)
    answer = Fitting(Many(NEEDS), question, tmp_path).answer()
    best = answer.plans[answer.best - 1]
    assert best.need_bytes == 70 and len(best.plan.saved) == 4
    assert improved[-1] == "70 B at +100.0% fits"


def test_a_plan_that_xla_refuses_does_not_fit(ask):
    answer = ask(70, refuse=(("a",), ("b",)))
    assert answer.best is None
    assert any("RESOURCE_EXHAUSTED" in note for note in answer.notes)


def test_nothing_fits(ask):
    answer = ask(10)
    assert answer.best is None and answer.is_complete
    assert "nothing fits 10 B, the least is plan" in " ".join(text(answer).split())


@pytest.mark.parametrize(
    ("limit", "on_demand", "also", "untried"),
    [
        (10, ("microbatch", "vmap"), (), ["microbatch", "vmap"]),
        (10, ("microbatch", "chunks"), ("chunks",), ["microbatch"]),
        (10, ("microbatch", "chunks"), ("microbatch", "chunks"), []),
        (10, (), (), []),
        (70, ("vmap",), (), []),
        (1000, ("vmap",), (), []),
        (None, ("vmap",), (), []),
    ],
)
def test_changes_that_were_not_tried_are_named(ask, limit, on_demand, also, untried):
    answer = ask(limit, on_demand=on_demand, also=also)
    shown = f"; not tried: --also {','.join(untried)}"
    assert (shown in " ".join(text(answer).split())) == bool(untried)
    assert as_dict(answer)["untried"] == untried


def test_unused_compilations_are_given_back(ask):
    alone = ask(10, budget=5)
    answer = ask(10, budget=5, also=("microbatch", "chunks"))
    assert [row.need_bytes for row in answer.plans] == [row.need_bytes for row in alone.plans]
    assert answer.compile_count == alone.compile_count > 3
    assert [note.partition(":")[0] for note in answer.notes] == [
        "--also microbatch",
        "--also chunks",
    ]


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("limit", [10, 55, 70])
def test_what_is_kept_for_lines_and_not_used_is_the_searchs(ask, monkeypatch, limit, platform):
    program = Made.program
    monkeypatch.setattr(Made, "program", lambda self: replace(program(self), platform=platform))
    alone = ask(limit, budget=5)
    answer = ask(limit, budget=5, on_demand=("blocks",))
    assert [row.need_bytes for row in answer.plans] == [row.need_bytes for row in alone.plans]
    assert (answer.best, answer.compile_count) == (alone.best, alone.compile_count)


@pytest.mark.parametrize("how", [{}, {"on_demand": ("blocks",)}, {"also": ("microbatch", "flags")}])
def test_where_nothing_fits_all_compilations_are_used(monkeypatch, tmp_path, how):
    """None saves by an option; a program of eight values has plans for more than the budget."""
    monkeypatch.setattr(Scratch, "figures", _figures)

    class Large(Many):
        def program(self):
            return replace(super().program(), platform="gpu", on_demand=how.get("on_demand", ()))

        def compile(self, plan, what, *, is_full):
            need = 120 if plan.is_as_written else 90 + sum(map(ord, plan.saved)) % 7
            return Dumped({str(need): Path()}, None, 1.0)

    question = Question(88, also=how.get("also", ()))
    answer = Fitting(Large(NEEDS), question, tmp_path).answer()
    assert answer.best is None and answer.compile_count == 12


def test_a_compiled_least_is_not_an_estimate(ask):
    answer = ask(10)
    other = replace(answer.plans[0], is_compiled=False, need_bytes=11)
    shown = " ".join(text(replace(answer, plans=(*answer.plans, other))).split())
    assert "nothing fits 10 B, the least that was compiled is plan" in shown


def test_what_is_stopped_says_so(ask):
    answer = ask(70, late=True, over=lambda: True)
    assert (answer.best, answer.is_complete) == (None, False)
    assert "was found in time" in " ".join(text(answer).split())
    assert as_dict(answer)["is_complete"] is False


def test_the_object_has_the_fields_that_are_promised(ask):
    data = as_dict(ask(None))
    assert {
        "function", "target", "limit_bytes", "as_written", "plans", "best", "patch",
        "compile_count", "trace_count",
    } <= data.keys()  # fmt: skip
    assert {"need_bytes", "peak_bytes"} <= data["as_written"].keys()
    for row in data["plans"]:
        assert {
            "rank", "is_verified", "need_bytes", "peak_bytes", "extra_work_ratio",
            "recomputed_lines", "offloaded_lines", "offloaded_bytes", "donated", "fits",
        } <= row.keys()  # fmt: skip
        assert row["fits"] is None


def test_lines_are_given_as_spans():
    assert spans(["a.py:1", "a.py:2", "a.py:5", "b.py:7"]) == "a.py:1-2,5 b.py:7"


def test_plans_of_the_same_lines_show_what_each_saves():
    source = "def f(x):\n    é = 1\n    ü = x * jnp.tanh(x + a_value_that_has_a_long_name)\n"
    places = (PLACE._replace(column=9, end_column=10), PLACE._replace(column=13, end_column=55))
    program = replace(
        Made(NEEDS).program(),
        switches=tuple(
            Switch(name, site, (0,), 20) for name, site in zip("ab", places, strict=True)
        ),
    )
    row = PlanResult(1, True, False, 9, 9, 0.0, ("train.py:3",), (), (), None)
    rows = [replace(row, plan=Plan((0,), tuple(saved))) for saved in ("a", "b", "ab")]
    first, second, both = Saved().compared(rows, program, {PLACE.file: source})
    assert first.saves == ("train.py:3:9 x",)
    assert second.saves == ("train.py:3:13 jnp.tanh(x + a_value_that_has…",)
    assert both.saves == first.saves + second.saves
    assert Saved().compared(rows[:1], program, {})[0].saves == ()
    written = Compiled(120, 120, True, 1.0)
    answer = Answer(program, None, written, (first, second), None, None, 2, 2)
    assert "again train.py:3; saves train.py:3:9 x;" in text(answer)


def test_places_of_an_edit_are_named_once(monkeypatch, tmp_path):
    monkeypatch.setattr(Scratch, "figures", _figures)
    session = Made(NEEDS)
    program = session.program()
    sites = (PLACE, PLACE._replace(column=20, end_column=25), PLACE._replace(line=4, end_line=4))
    region = replace(program.regions[0], sites=sites)
    session.program = lambda: replace(program, regions=(region,))
    shown = text(Fitting(session, Question(limit_bytes=70), tmp_path).answer())
    assert "edit at train.py:3-4\n" in shown


def test_a_patch_that_cannot_be_compiled_is_no_answer(ask, monkeypatch):
    made = Patch("--- a\n", {"train.py": "text"})
    monkeypatch.setattr(patches, "patch", lambda program, plan, texts: made)
    answer = ask(70)
    assert (answer.best, answer.patch) == (None, None)
    fitting = [row for row in answer.plans if row.fits and row.is_compiled]
    assert fitting and all(row.is_broken and row.patch is None for row in fitting)
    shown = " ".join(text(answer).split())
    assert "needs 120 B as written; no plan fits 70 B whose patch does" in shown
    assert "compiled, its patch fails" in shown and "cannot be compiled: no files" in shown
    assert no_patch(answer) == "there is no patch to write: no plan fits"


@pytest.mark.parametrize(("need", "is_best"), [(69, True), (71, False)])
def test_a_patch_of_another_need_is_an_answer_if_it_fits(ask, monkeypatch, need, is_best):
    made = Patch("--- a\n", {"train.py": "text"})
    monkeypatch.setattr(patches, "patch", lambda program, plan, texts: made)
    dumped = Dumped({str(need): Path()}, None, 1.0)
    monkeypatch.setattr(Made, "patched", lambda self, texts, rest, check: dumped)
    answer = ask(70)
    assert (answer.best is not None, answer.patch is not None) == (is_best, is_best)
    assert not any(row.is_verified for row in answer.plans)
    assert any(f"its patched files need {need} B, not " in note for note in answer.notes)


def test_a_patch_that_xla_refuses_is_no_answer(ask, monkeypatch):
    made = Patch("--- a\n", {"train.py": "text"})
    monkeypatch.setattr(patches, "patch", lambda program, plan, texts: made)
    dumped = Dumped({"60": Path()}, "RESOURCE_EXHAUSTED", 1.0)
    monkeypatch.setattr(Made, "patched", lambda self, texts, rest, check: dumped)
    answer = ask(70)
    assert answer.best is None
    assert any("cannot be compiled: RESOURCE_EXHAUSTED" in note for note in answer.notes)


def result(rank, need, extra, host=0, edits=1, parts=0, **fields):
    patch = "".join(f"+line {number}\n" for number in range(edits))
    plan = Plan(extra=(f"microbatch={parts}",) if parts else ())
    facts = {
        "plan": plan,
        "is_compiled": True,
        "is_verified": False,
        "peak_bytes": need,
        "fits": False,
    }
    return PlanResult(
        rank, need_bytes=need, extra_work_ratio=extra, recomputed_lines=(), offloaded_lines=(),
        donated=(), offloaded_bytes=host, patch=patch, **facts | fields,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "ranks"),
    [
        ([result(1, 90, 0.1), result(2, 91, 0.1)], [1]),
        ([result(1, 90, 0.1), result(2, 90, 0.1)], [1]),
        ([result(1, 90, 0.1), result(2, 80, 0.2)], [1, 2]),
        ([result(1, 90, 0.1, host=1), result(2, 90, 0.1)], [2]),
        # Of equal ones the fewest edits count; a step by hand always does.
        ([result(1, 90, 0.1, edits=2), result(2, 95, 0.1, edits=1)], [1]),
        ([result(1, 90, 0.1, steps=("do it",)), result(2, 95, 0.1)], [1, 2]),
        # A plan whose patch fails hides none.
        ([result(1, 90, 0.1, is_broken=True), result(2, 95, 0.1)], [1, 2]),
        ([result(1, 90, 0.1, edits=2), result(2, 90, 0.1, edits=1)], [2]),
        # Fewer parts of a batch take less time.
        ([result(1, 90, 0.0, parts=8), result(2, 95, 0.0, parts=2)], [1, 2]),
        # More than as written is worth it only for less work.
        ([result(1, 130, 0.0), result(2, 130, -0.1)], [2]),
        # An estimate does not beat what is compiled; what is compiled beats an estimate.
        ([result(1, 80, 0.1, is_compiled=False), result(2, 90, 0.1)], [1, 2]),
        ([result(1, 90, 0.1, is_compiled=False), result(2, 80, 0.1)], [2]),
    ],
)
def test_what_another_beats_in_every_respect_is_not_shown(rows, ranks):
    written = Compiled(120, 120, True, 1.0)
    assert [row.rank for row in undominated(rows, written)] == ranks


def tied(need, accessed, extra=0.1, **fields):
    return result(0, need, extra, fits=True, accessed_bytes=accessed, **fields)


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        # Fewer bytes read and written, then a smaller need; half a percent of bytes is nothing.
        ([tied(90, 1000), tied(80, 1020)], [0]),
        ([tied(90, 1020), tied(80, 1000)], [1]),
        ([tied(90, 1000), tied(80, 1004)], [1]),
        ([tied(90, 1000), tied(80, 1004), tied(70, 1008)], [1]),
        ([tied(90, None), tied(80, None)], [1]),
        # Products within 0.05 % are the same.
        ([tied(90, 1000, 0.1), tied(50, 800, 0.1004)], [1]),
        ([tied(90, 1000, 0.1), tied(50, 800, 0.101)], [0, 1]),
        # No tie: another cost in time, a step by hand, what does not fit, is not compiled or fails.
        ([tied(90, 1000), tied(80, 900, host=1)], [0, 1]),
        ([tied(90, 1000), tied(80, 900, parts=2)], [0, 1]),
        ([tied(90, 1000), tied(80, 900, steps=("do it",))], [0, 1]),
        ([tied(90, 1000), replace(tied(80, 900), fits=False)], [0, 1]),
        ([tied(90, 1000), tied(80, 900, is_compiled=False)], [0, 1]),
        ([tied(90, 1000), tied(80, 900, is_broken=True)], [0, 1]),
    ],
)
def test_of_plans_that_cost_the_same_one_is_shown(rows, kept):
    assert settled(rows) == [rows[at] for at in kept]
    assert settled(rows, "bytes") == rows


def test_the_cost_that_ranks_is_a_respect():
    written = Compiled(120, 120, True, 1.0)
    rows = [
        result(1, 90, 0.1, extra_accessed_ratio=0.2),
        result(2, 95, 0.1, extra_accessed_ratio=-0.3),
        result(3, 80, 0.4, extra_accessed_ratio=None),
    ]
    assert [row.rank for row in undominated(rows, written)] == [1, 3]
    assert [row.rank for row in undominated(rows, written, "bytes")] == [1, 2, 3]
    assert [row.rank for row in ranked(rows, "bytes")] == [2, 1, 3]
    assert ranked(rows, "products") == rows


@pytest.mark.parametrize(
    ("order", "figures", "words"),
    [
        ("cycles", {"accessed_bytes": 9}, "the compiler for gpu:h100 has no estimate of cycles"),
        ("bytes", {"estimated_cycles": 9}, "its dump has no HLO text"),
        ("bytes", {"accessed_unknown_reason": "while.1 loops"}, "are unknown: while.1 loops"),
    ],
)
def test_an_order_without_figures_is_one_line(order, figures, words):
    with pytest.raises(UsageError, match=words):
        require_order(order, Compiled(9, 9, True, 1.0, **figures), "gpu:h100")
    full = Compiled(9, 9, True, 1.0, accessed_bytes=9, estimated_cycles=9)
    require_order(order, full, None)
    with pytest.raises(UsageError, match="expected products, bytes or cycles as order, got 'x'"):
        order_of("x")


def test_columns_are_the_costs_that_are_known():
    rows = (
        result(1, 90, 0.0, extra_accessed_ratio=0.068, extra_cycles_ratio=-0.1),
        result(2, 80, 0.1, is_compiled=False),
    )
    program = Made(NEEDS).program()
    full = Compiled(120, 120, True, 1.0, accessed_bytes=9, estimated_cycles=9)
    shown = text(Answer(program, None, full, rows, None, None, 2, 2))
    assert "saves  products  bytes  cycles\n" in shown
    assert "+0.0%  +6.8%  -10.0%  compiled" in shown
    assert "+10.0%                 traced" in shown
    words = " ".join(shown.split())
    assert "bytes read and written, and cycles as the compiler estimates them are those" in words
    bare = Compiled(120, 120, True, 1.0, accessed_unknown_reason="while.1 loops")
    shown = text(Answer(program, None, bare, rows, None, None, 2, 2))
    assert "saves  products\n" in shown
    assert "What it reads and writes is unknown: while.1 loops." in " ".join(shown.split())


def test_the_least_is_never_more_than_as_written(ask, monkeypatch):
    monkeypatch.setitem(NEEDS, (), 130)
    monkeypatch.setitem(NEEDS, ("a",), 140)
    monkeypatch.setitem(NEEDS, ("b",), 150)
    monkeypatch.setitem(NEEDS, ("a", "b"), 125)
    answer = ask(10)
    assert not [row for row in answer.plans if row.is_compiled]
    assert answer.compile_count > 2
    assert "nothing fits 10 B, the least is as written" in " ".join(text(answer).split())


def test_what_is_compiled_when_the_time_is_up_has_its_lines(ask, monkeypatch):
    count, late = [], []
    compiled = Made.compile

    def compile(self, plan, what, *, is_full):
        if len(count) == 2:
            late.append(plan)
            raise TooSlowError("stopped after 1 s (--timeout), while compiling")
        count.append(plan)
        return compiled(self, plan, what, is_full=is_full)

    monkeypatch.setattr(Made, "compile", compile)
    answer = ask(110, over=lambda: bool(late))
    assert [row.need_bytes for row in answer.plans] == [100]
    assert answer.best == 1 and answer.plans[0].recomputed_lines == ("train.py:3",)
    assert not answer.is_complete and "plan 1 fits 110 B" in text(answer)


@pytest.fixture
def interrupted(ask, monkeypatch):
    """The third compilation is interrupted."""
    count = []
    compiled = Made.compile

    def compile(self, plan, what, *, is_full):
        count.append(plan)
        if len(count) == 3:
            raise KeyboardInterrupt
        assert len(count) < 3
        return compiled(self, plan, what, is_full=is_full)

    monkeypatch.setattr(Made, "compile", compile)


@pytest.mark.parametrize(("limit", "code"), [(110, 0), (20, 130)])
def test_what_is_compiled_at_an_interrupt_is_the_answer(tmp_path, interrupted, limit, code):
    best = []
    question = Question(limit_bytes=limit, is_interruptible=True, improved=best.append)
    answer = Fitting(Made(NEEDS), question, tmp_path).answer()
    assert [row.need_bytes for row in answer.plans] == [100]
    assert answer.is_interrupted and not answer.is_complete
    assert exit_code(answer, None) == code
    shown = " ".join(text(answer).split())
    assert "interrupted: the plans are those that were compiled by then" in shown
    missed = "no plan that fits 20 B was found in time"
    assert ("plan 1 fits 110 B" if code == 0 else missed) in shown
    assert best == ["100 B at +25.0% fits" if code == 0 else "the least is 100 B"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TooSlowError("stopped after 1 s")])
def test_options_of_the_compiler_end_with_the_best_so_far(tmp_path, ask, monkeypatch, error):
    program, compiled, ended = Made.program, Made.compile, []

    def compile(self, plan, what, *, is_full):
        assert not ended
        if plan.options and plan.options != ("xla_gpu_memory_limit_slop_factor=1",):
            ended.append(plan.options)
            raise error
        if plan.options:
            return Dumped({"40": Path()}, None, 1.0)
        return compiled(self, plan, what, is_full=is_full)

    monkeypatch.setattr(Made, "program", lambda self: replace(program(self), platform="gpu"))
    monkeypatch.setattr(Made, "compile", compile)
    monkeypatch.setattr(last_resort, "SWITCHES", {})
    question = Question(limit_bytes=45, is_interruptible=True, is_over=lambda: bool(ended))
    answer = Fitting(Made(NEEDS), question, tmp_path).answer()
    assert ended and not answer.is_complete
    assert answer.is_interrupted == (error is KeyboardInterrupt)
    best = answer.plans[answer.best - 1]
    assert (best.need_bytes, best.options) == (40, ("xla_gpu_memory_limit_slop_factor=1",))


def test_a_library_does_not_swallow_an_interrupt(tmp_path, interrupted):
    with pytest.raises(KeyboardInterrupt):
        Fitting(Made(NEEDS), Question(limit_bytes=110), tmp_path).answer()


@pytest.fixture
def by_hand(monkeypatch):
    """Patches of plans that save "b" have a step by hand; those of others are whole."""

    def patched(program, plan, texts):
        steps = ("train.py:3: by hand, do it",) if "b" in plan.saved else ()
        return Patch(f"--- a\n+{len(plan.saved)}\n", {"train.py": " ".join(plan.saved)}, steps)

    def compiled(self, texts, rest, check):
        return Dumped({str(NEEDS[tuple(texts["train.py"].split())]): Path()}, None, 1.0)

    monkeypatch.setattr(patches, "patch", patched)
    monkeypatch.setattr(Made, "patched", compiled)


@pytest.mark.parametrize("needs", [{}, {("a",): 65, ("b",): 50}, {("a",): 50, ("b",): 65}])
def test_a_plan_without_a_step_by_hand_comes_first(ask, by_hand, monkeypatch, needs):
    for saved, need in needs.items():
        monkeypatch.setitem(NEEDS, saved, need)
    answer = ask(70)
    best = answer.plans[answer.best - 1]
    assert best.plan.saved == ("a",) and best.is_verified and not best.steps
    assert "fits 70 B" in text(answer) and "by hand" not in text(answer)


def test_a_cheaper_plan_with_a_step_by_hand_is_named(ask, by_hand, monkeypatch):
    """To save "a" and "b" costs nothing and has a step by hand, to save "a" alone has none."""
    monkeypatch.setitem(NEEDS, ("a", "b"), 65)
    answer = ask(70)
    best, other = (answer.plans[rank - 1] for rank in (answer.best, answer.by_hand))
    assert best.plan.saved == ("a",) and best.is_verified
    assert other.plan.saved == ("a", "b") and not other.is_verified
    assert as_dict(answer)["by_hand"] == answer.by_hand
    shown = " ".join(text(answer).split())
    assert f"plan {best.rank} fits 70 B at +12.5% of products; so does plan {other.rank}" in shown
    assert "at +0.0%, with a step by hand" in shown and "compiled; fits, by hand" in shown
    assert f"plan {other.rank}: train.py:3: by hand, do it" in shown
    assert ask(62).by_hand is None  # what fits by hand costs as much


def test_a_useless_donation_by_hand_is_left_out(ask, monkeypatch):
    def patched(program, plan, texts):
        steps = ("train.py:1: by hand, donate x",) if plan.donated else ()
        return Patch(f"--- a\n+{len(plan.saved)}\n", {"train.py": " ".join(plan.saved)}, steps)

    def compiled(self, texts, rest, check):
        return Dumped({str(NEEDS[tuple(texts["train.py"].split())]): Path()}, None, 1.0)

    program = Made.program
    donating = {"donatable": (0,), "is_jitted": True}
    monkeypatch.setattr(Made, "program", lambda self: replace(program(self), **donating))
    monkeypatch.setattr(patches, "patch", patched)
    monkeypatch.setattr(Made, "patched", compiled)
    answer = ask(70)
    best = answer.plans[answer.best - 1]
    assert best.plan.donated == () and best.is_verified and not best.steps
    assert "fits 70 B" in text(answer) and "by hand" not in text(answer)
    # What it saves of the function as written says nothing of the plan.
    compile_plan = Made.compile

    def compile_donated(self, plan, what, *, is_full):
        if plan == Plan(donated=(0,)):
            return Dumped({"100": Path()}, None, 1.0)
        return compile_plan(self, plan, what, is_full=is_full)

    monkeypatch.setattr(Made, "compile", compile_donated)
    monkeypatch.setitem(NEEDS, ("a", "b"), 65)
    answer = ask(70)
    best = answer.plans[answer.best - 1]
    assert best.plan == Plan((0,), ("a", "b")) and best.is_verified


@pytest.mark.parametrize(("limit", "is_tried"), [(40, True), (70, False)])
def test_equal_blocks_are_tried_where_nothing_else_fits(ask, monkeypatch, limit, is_tried):
    compared = []

    def patched(self, texts, rest, check):
        compared.append(check.is_compared)
        return Dumped({"30" if check.is_compared else "60": Path()}, None, 1.0)

    change = Change("blocks=4", "4 blocks in one scan", "", "train.py:3", "as before", (), 4)
    monkeypatch.setattr(Made, "changes", lambda self, kinds: Changes((change,)))
    monkeypatch.setattr(Made, "patched", patched)
    monkeypatch.setattr(patches, "patch", lambda *_: Patch("--- a\n", {"train.py": ""}))
    monkeypatch.setitem(NEEDS, ("b",), 60)
    answer = ask(limit, on_demand=("blocks",))
    best = answer.plans[answer.best - 1]
    assert (best.plan.extra == ("blocks=4",)) == is_tried == (True in compared)
    assert best.is_verified and answer.untried == ()


def test_equal_blocks_have_compilations_of_their_own(ask, monkeypatch):
    change = Change("blocks=4", "4 blocks in one scan", "", "train.py:3", "as before", (), 4)
    monkeypatch.setattr(Made, "changes", lambda self, kinds: Changes((change,)))
    dumped = Dumped({"30": Path()}, None, 1.0)
    monkeypatch.setattr(Made, "patched", lambda self, texts, rest, check: dumped)
    monkeypatch.setattr(patches, "patch", lambda *_: Patch("--- a\n", {"train.py": ""}))
    answer = ask(40, budget=4, on_demand=("blocks",))
    assert answer.best is not None and answer.plans[answer.best - 1].plan.extra == ("blocks=4",)
    assert answer.compile_count <= 5


def test_a_step_by_hand_is_an_answer_where_nothing_else_fits(ask, by_hand, monkeypatch):
    monkeypatch.setitem(NEEDS, ("a",), 75)
    answer = ask(70)
    assert answer.plans[answer.best - 1].plan.saved == ("b",)
    shown = " ".join(text(answer).split())
    assert "fits 70 B with a step by hand; none that was proved does without" in shown
    assert "compiled; fits, by hand" in shown and "by hand, do it" in shown


IN_PARTS = {
    ("microbatch=2",): {None: 70, (): 44, ("a",): 40, ("b",): 45, ("a", "b"): 65},
    ("chunks=2",): {None: 90, (): 70, ("a",): 50, ("b",): 55, ("a", "b"): 80},
    ("microbatch=2", "chunks=2"): {None: 60, (): 33, ("a",): 30, ("b",): 36, ("a", "b"): 58},
}
"""Needs with changes of the text, by what is saved; None for all else as written."""


class InParts(Made):
    """The same, with changes of the text: chunks do one product again."""

    def trace(self, plan):
        traced = super().trace(replace(plan, extra=()))
        return replace(traced, work=traced.work + 10 * ("chunks=2" in plan.extra))

    def compile(self, plan, what, *, is_full):
        if not plan.extra:
            return super().compile(plan, what, is_full=is_full)
        saved = plan.saved if plan.scans else None
        return Dumped({str(IN_PARTS[plan.extra][saved]): Path()}, None, 1.0)

    def changes(self, kinds):
        some = [
            Change(f"{kind}=2", f"{kind} of 8", "do it", "train.py:3", "checked", (), 2)
            for kind in kinds
        ]
        two = replace(some[-1], what="chunks of 4", within="microbatch=2")
        return Changes((*some, two) if len(some) == 2 else tuple(some))


@pytest.mark.parametrize(
    ("limit", "also", "extra", "saved"),
    [
        (41, ("microbatch",), ("microbatch=2",), ("a",)),
        (41, ("microbatch", "chunks"), ("microbatch=2",), ("a",)),
        (31, ("microbatch", "chunks"), ("microbatch=2", "chunks=2"), ("a",)),
        (75, ("microbatch", "chunks"), ("microbatch=2",), ()),
        (29, ("microbatch", "chunks"), None, None),
    ],
)
def test_changes_and_plans_are_searched_together(monkeypatch, tmp_path, limit, also, extra, saved):
    monkeypatch.setattr(Scratch, "figures", _figures)
    answer = Fitting(InParts(NEEDS), Question(limit, 16, also), tmp_path).answer()
    assert (answer.best is None) == (extra is None)
    assert answer.compile_count <= 17
    if extra is not None:
        best = answer.plans[answer.best - 1]
        assert (best.plan.extra, best.plan.saved) == (extra, saved)
        assert best.need_bytes <= limit
        other = "chunks of 4; checked"
        assert (other in best.changes) == (len(extra) == 2)
        assert "chunks of 8; checked" not in best.changes or extra[0] == "chunks=2"


def test_the_first_calls_are_edited_where_they_are_made():
    sites = [PLACE._replace(line=line) for line in (3, 5, 5, 7)]
    region = Region("call", (sites[0], sites[1], sites[3]), "f", None, 4, order=tuple(sites))
    program = replace(Made(NEEDS).program(), regions=(region,))
    plan = Plan(calls=(0,), depths=(Depth(0, 2),))
    row = PlanResult(1, True, False, 50, 50, 0.0, (), (), (), None, plan=plan)
    written = Compiled(100, 100, True, 1.0)
    shown = text(Answer(program, None, written, (row,), None, None, 1, 1))
    assert "edit at train.py:3,5\n" in shown
    every = replace(row, plan=replace(plan, depths=()))
    shown = text(Answer(program, None, written, (every,), None, None, 1, 1))
    assert "edit at train.py:3,5,7\n" in shown


def test_a_plan_that_donates_alone_computes_nothing_again(tmp_path):
    fitting = Fitting(Made(NEEDS), Question(), tmp_path)
    assert fitting._recomputed(Plan(donated=(0,))) == ()
    assert fitting._recomputed(Plan((0,), donated=(0,))) == (PLACE,)
