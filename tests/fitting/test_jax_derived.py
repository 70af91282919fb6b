"""Plans derived from one trace, next to JAX's own trace of each."""

import functools
import itertools
from dataclasses import replace

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_carries as carries  # noqa: E402
import fit_programs as programs  # noqa: E402

from bufdb.fitting import losses as module  # noqa: E402
from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.plans import Depth, Plan  # noqa: E402
from bufdb.fitting.session import MistracedError  # noqa: E402

ALL_SETS = 5
"""Most switches whose sets are all tried; of more, each alone and all but each."""
CASES = [
    *((programs, name) for name in dir(programs) if name.startswith("step")),
    *((carries, name) for name in dir(carries) if name.startswith("step")),
]


@pytest.fixture(autouse=True)
def accelerator(monkeypatch):
    """The target has host memory."""
    monkeypatch.setattr(Function, "platform", "gpu")


def function(source, name):
    return Function(getattr(source, name), source.args(), {}, name)


def plans(program, scans):
    """Plans of some scans: what is carried goes to the host, other values are saved.

    Of scans within a scan each other value goes to the host, too.
    """
    switches = [one for one in program.switches if set(one.regions) & set(scans)]
    names = [one.name for one in switches]
    if len(names) <= ALL_SETS:
        sets = [
            set(some)
            for size in range(len(names) + 1)
            for some in itertools.combinations(names, size)
        ]
    else:
        sets = [set(), set(names)]
        sets += [chosen for name in names for chosen in ({name}, set(names) - {name})]
    for chosen in sets:
        own = [one for one in switches if one.name in chosen]
        yield Plan(
            scans,
            tuple(one.name for one in own if one.lever != "carried"),
            tuple(one.name for one in own if one.lever == "carried"),
        )
    if len(scans) > 1:
        saved = [name for name in names if name not in carried_of(program)]
        yield from (Plan(scans, tuple(saved[at + 1 :]), (saved[at],)) for at in range(len(saved)))


def carried_of(program):
    return {one.name for one in program.switches if one.lever == "carried"}


def figures(traced):
    return replace(traced, saved=None, live_bytes=0)


@pytest.mark.parametrize(("source", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_what_is_derived_is_what_jax_traces(source, name):
    traced = function(source, name)
    program = traced.program()
    losses, scans = traced._losses, program.switched
    by_jax = functools.cache(losses._traced)
    for own in sorted({scans, *((at,) for at in scans)} - {()}):
        derived = [losses._apart(number, Plan(own)) for number in losses._numbers]
        for plan in plans(program, own):
            got = losses._of(derived, plan)
            if got is None:  # what a scan within a scan hands on, in host memory
                assert carried_of(program) & {*plan.offloaded} and len(scans) > 1
                continue
            assert figures(got) == figures(by_jax(plan))
            less = by_jax(replace(plan, saved=got.saved))
            assert figures(less) == figures(got)  # what it calls saved is enough


@pytest.fixture
def searched():
    """A program, and more of its plans than JAX traces before others are derived."""
    traced = function(programs, "step")
    own = list(plans(traced.program(), (0,)))
    assert len(own) > 2 * module.TRACED
    return traced, own


def counted(monkeypatch, change=lambda traced: traced):
    """The plans that JAX traces from now on, and each trace changed."""
    seen, trace = [], module.Losses._traced

    def traced(self, plan):
        seen.append(plan)
        return change(trace(self, plan))

    monkeypatch.setattr(module.Losses, "_traced", traced)
    return seen


def test_most_plans_are_derived(monkeypatch, searched):
    traced, own = searched
    seen = counted(monkeypatch)
    got = [traced.trace(plan) for plan in own]
    again = len(seen)
    assert module.TRACED <= again < 2 * module.TRACED < len(own)
    assert list(map(figures, got)) == [figures(traced._losses._traced(plan)) for plan in own]


def test_no_plan_of_calls_is_derived(monkeypatch):
    traced = function(programs, "step_unrolled")
    traced.program()
    assert traced._losses._has_calls
    monkeypatch.setattr(module, "TRACED", 0)
    seen = counted(monkeypatch)
    first = Plan(calls=(0,), depths=(Depth(0, 1),))  # the program is traced with others
    assert traced.trace(first).live_bytes and len(seen) == 1


def test_nothing_is_derived_if_the_first_plans_differ(monkeypatch, searched):
    traced, own = searched
    counted(monkeypatch, lambda one: replace(one, residual_bytes=one.residual_bytes + 1))
    seen = counted(monkeypatch)
    for plan in own:
        traced.trace(plan)
    assert set(seen) >= set(own)


def test_a_plan_that_is_compiled_is_traced_by_jax(monkeypatch, searched):
    traced, own = searched
    got = [traced.trace(plan) for plan in own]
    derived = traced._losses._derived
    plan = next(plan for plan in own if plan in derived)
    seen = counted(monkeypatch)
    traced._losses.prove(plan)
    assert seen == [plan] and plan not in derived
    traced._losses.prove(plan)
    assert seen == [plan] and traced.trace(plan) == got[own.index(plan)]


def test_so_is_the_same_plan_of_fewer_names(monkeypatch, searched):
    traced, own = searched
    monkeypatch.setattr(module, "TRACED", 0)
    full = max(own, key=lambda plan: len(plan.saved))
    fewer = replace(full, saved=traced.trace(full).saved)
    assert fewer != full
    seen = counted(monkeypatch)
    traced._losses.prove(fewer)
    assert seen == [fewer]


def test_one_that_differs_takes_all_derived_ones_back(monkeypatch, searched):
    traced, own = searched
    for plan in own:
        traced.trace(plan)
    derived = set(traced._losses._derived)
    seen = counted(monkeypatch, lambda one: replace(one, work=one.work + 1))
    with pytest.raises(MistracedError):
        traced._losses.prove(next(iter(derived)))
    seen.clear()
    for plan in own:
        traced.trace(plan)
    assert set(seen) == derived
