"""Options of the compiler: when they are tried, and which value is the answer."""

from dataclasses import replace

import pytest
from patched import program

from bufdb.answers.devices import Device
from bufdb.fitting.answer_text import text
from bufdb.fitting.last_resort import LastResort
from bufdb.fitting.levers.flags import variables
from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Answer, Candidate, Compiled, Plan, PlanResult, SearchRequest, Traced

SLOP = "xla_gpu_memory_limit_slop_factor"
FUSION = "xla_disable_hlo_passes=priority-fusion"


def tried(
    limit, need_of_share, plans=(), is_wanted=False, platform="gpu", budget=9, fusion=1000, of=None
):
    """Return the options that are compiled, candidates with options, and notes.

    As written 1,000 bytes are needed, 100 of them for arguments; `of` is the device's memory.
    """
    compiled, notes = [], []

    def compiling(plan, is_full):
        (option,) = plan.options
        compiled.append(option)
        need = fusion if option == FUSION else need_of_share(int(option.rpartition("=")[2]))
        return Compiled(need, need, is_full, 1.0)

    request = SearchRequest(
        limit,
        Compiled(1000, 1000, True, 1.0, fixed_bytes=100),
        lambda plan: Traced(0, 0, 0, 0),
        compiling,
    )
    device = of and Device("made up", of, None, "", "")
    resort = LastResort(
        replace(program(), platform=platform),
        request,
        lambda: budget - len(compiled),
        notes,
        {},
        device,
    )
    candidates = resort.with_least(resort.with_found(plans, is_wanted=is_wanted))
    return compiled, [one for one in candidates if one.plan.options], notes


def plan_of(need):
    compiled = Compiled(need, need, True, 1.0)
    return Candidate(Plan((0,)), Traced(0, 0, 0, 0), need, compiled)


@pytest.mark.parametrize("plans", [(), (plan_of(900),)])
def test_the_largest_share_that_fits_is_found(plans):
    compiled, candidates, _ = tried(700, lambda share: 500 + 5 * share, plans)
    assert compiled == [FUSION, *(f"{SLOP}={share}" for share in (1, 48, 24, 36, 42))]
    fitting = [one.plan.options for one in candidates if one.estimate_bytes <= 700]
    assert fitting == [(f"{SLOP}=1",), (f"{SLOP}=24",), (f"{SLOP}=36",)]


def test_xla_is_to_fit_the_limit_first():
    """The share is of what arguments leave of four fifths of the device: 579 of 900 bytes."""
    compiled, candidates, _ = tried(700, lambda share: 100 + 9 * share, of=1250)
    assert compiled == [FUSION, f"{SLOP}=64"]
    assert [one.estimate_bytes for one in candidates] == [676]
    compiled, candidates, _ = tried(700, lambda share: 500 + 5 * share, of=1250)
    assert compiled == [FUSION, *(f"{SLOP}={share}" for share in (64, 1, 32, 48, 40, 44))]
    assert [one.plan.options for one in candidates[-2:]] == [(f"{SLOP}=32",), (f"{SLOP}=40",)]


def test_both_plans_are_to_fit_before_all_is_computed_again():
    compiled, *_ = tried(300, lambda share: 100 + 9 * share, (plan_of(400),), budget=2, of=1250)
    assert compiled == [f"{SLOP}=21"]
    compiled, *_ = tried(300, lambda share: 320, (plan_of(400),), of=1250)
    assert compiled == [FUSION, f"{SLOP}=21"] * 2 + [f"{SLOP}=1"] * 2


@pytest.mark.parametrize(
    ("saves", "tried", "costs"),
    [
        # XLA saves 200 bytes of any plan, so that one of 900 bytes is enough; 960 is too much.
        (lambda need: need - 200, [1000, 800, 900, 960], [40, 90]),
        (lambda need: need - 265, [1000, 800, 900, 960], [20, 40, 90]),
        (lambda need: min(need, 700), [1000], [0]),
        (lambda need: max(need - 100, 750), [1000, 800, 1000, 800], []),
    ],
)
def test_cheaper_plans_are_tried_once_xla_fits_the_least(saves, tried, costs):
    """None is tried that costs more than a smaller one, nor one that is an edit of another text."""
    rows = [(20, 960), (30, 970), (40, 900), (60, 910), (80, 850), (90, 800), (95, 820)]
    traced = {Plan((0,), (str(need),)): Traced(need, need, cost, 0) for cost, need in rows}
    traced |= {Plan(extra=("microbatch=2",)): Traced(1, 1, 0, 0), Plan(): Traced(1, 1, 0, 0)}
    plans = [
        Candidate(plan, one, one.live_bytes, Compiled(one.live_bytes, 1, True, 1.0))
        for plan, one in traced.items()
        if one.work >= 80
    ]
    compiled = []

    def compiling(plan, is_full):
        need = saves(int(plan.saved[0]) if plan.saved else 1000)
        compiled.append(plan)
        return Compiled(need, need, is_full, 1.0)

    request = SearchRequest(
        700, Compiled(1000, 1000, True, 1.0, fixed_bytes=100), lambda plan: None, compiling
    )
    device = Device("made up", 1250, None, "", "")
    resort = LastResort(
        replace(program(), platform="gpu"),
        request,
        lambda: 4 - len(compiled),
        [],
        traced,
        device,
    )
    rows = resort.with_least(resort.with_found(plans, is_wanted=False))[len(plans) :]
    assert [int(plan.saved[0]) if plan.saved else 1000 for plan in compiled] == tried
    assert [one.traced.work for one in rows if one.estimate_bytes <= 700] == costs
    assert resort.with_found([plan_of(600)], is_wanted=False) == [plan_of(600)]


@pytest.mark.parametrize(("limit", "of", "share"), [(100, 1250, 1), (990, 1000, 94), (700, 50, 1)])
def test_a_share_is_between_the_least_and_that_of_xla(limit, of, share):
    compiled, *_ = tried(limit, lambda share: 0, fusion=1000, of=of)
    assert compiled[1] == f"{SLOP}={share}"


def test_a_pass_whose_absence_is_enough_comes_first():
    compiled, candidates, _ = tried(400, lambda share: 1000, fusion=246)
    assert compiled == [FUSION]
    assert [one.estimate_bytes for one in candidates] == [246]


def test_what_saves_nothing_is_a_note():
    compiled, candidates, notes = tried(700, lambda share: 990)
    assert (compiled, candidates) == ([FUSION, f"{SLOP}=1"], [])
    assert notes[-1] == f"--{SLOP}=1 needs 990 B, and 1000 B without it"


def test_the_least_plan_has_options_if_nothing_else_fits():
    compiled, candidates, _ = tried(300, lambda share: 600 + share, (plan_of(400),))
    assert compiled == [FUSION, f"{SLOP}=1", FUSION, f"{SLOP}=1"]
    assert [one.plan.scans for one in candidates] == [()]


def test_an_option_without_a_compilation_left_is_a_note():
    compiled, _, notes = tried(700, lambda share: 990, budget=0)
    assert compiled == []
    assert notes[-1] == f"--{SLOP}=1 is not tried: no compilation is left"


def test_few_compilations_are_for_the_share_of_both_plans():
    """It saves in more programs than the absence of a pass."""
    compiled, candidates, notes = tried(300, lambda share: 600 + share, (plan_of(400),), budget=3)
    assert compiled == [f"{SLOP}=1"] * 2
    assert [one.plan.scans for one in candidates] == [()]
    assert notes[0] == f"--{FUSION} is not tried: too few compilations are left"


@pytest.mark.parametrize(
    ("limit", "plans", "is_wanted", "platform"),
    [
        (700, (plan_of(600),), False, "gpu"),
        (1000, (), False, "gpu"),
        (None, (), False, "gpu"),
        (700, (), True, "cpu"),
    ],
)
def test_options_are_tried_on_demand_or_if_nothing_fits(limit, plans, is_wanted, platform):
    compiled, candidates, _ = tried(limit, lambda share: 500, plans, is_wanted, platform)
    assert (compiled, candidates) == ([], [])
    if platform == "gpu":
        compiled, _, _ = tried(limit, lambda share: 500, plans, True)
        assert compiled


def test_the_budget_bounds_the_compilations():
    compiled, _, _ = tried(700, lambda share: 500 + 5 * share, budget=3)
    assert len(compiled) == 3


def test_the_answer_has_the_line_of_environment():
    options = (f"{SLOP}=24",)
    made = patch(program(), Plan(options=options), {})
    assert made.diff == ""
    (step,) = made.steps
    assert f"XLA_FLAGS=--{SLOP}=24" in step
    assert f'compiler_options={{"{SLOP}": "24"}}' in step
    assert variables(("a=1", "b=2")) == 'XLA_FLAGS="--a=1 --b=2"'
    row = PlanResult(
        rank=1, is_compiled=True, is_verified=False, need_bytes=500, peak_bytes=500,
        extra_work_ratio=None, recomputed_lines=(), offloaded_lines=(), donated=(), fits=True,
        steps=made.steps, options=options, plan=Plan(options=options), estimated_cycles=1_172_000,
        extra_cycles_ratio=0.172,
    )  # fmt: skip
    written = Compiled(1000, 1000, True, 1.0, estimated_cycles=1_000_000)
    shown = text(Answer(program(), 700, written, (row,), 1, None, 2, 0))
    assert "unknown  +17.2%  compiled; fits" in shown
    assert f"with XLA_FLAGS=--{SLOP}=24" in " ".join(shown.split())
    written = replace(written, estimated_cycles=None)
    row = replace(row, extra_cycles_ratio=None)
    shown = text(Answer(program(), 700, written, (row,), 1, None, 2, 0))
    assert "1.17 million estimated cycles" in " ".join(shown.split())
