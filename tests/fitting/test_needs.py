"""What earlier calls compiled of a program: for which questions it is known."""

from dataclasses import replace
from pathlib import Path

import pytest

from bufdb import user_cache
from bufdb.capture import before, cache
from bufdb.fitting.lever import Atom
from bufdb.fitting.needs import FAMILIAR, Needs
from bufdb.fitting.plans import Learned, Plan, Program, Region, Site, Switch, Traced
from bufdb.fitting.session import Dumped

HERE = Site("/a/train.py", 1, 0, 1, 9)
PROGRAM = Program(
    "train.py:step", None, "cpu", (Region("scan", (HERE,), "body", HERE, 4),),
    (Switch("fit_0", HERE, (0,), 10),), (), ("w",), False, False, Traced(10, 10, 100, 1),
)  # fmt: skip
WRITTEN = Dumped({}, None, 1.0, placed="written")
PLAN = Plan((0,), ("fit_0",))
IDENTITY = "1" * 64, "2" * 64


@pytest.fixture
def needs(monkeypatch, tmp_path):
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "cache"))

    def of(limit, written=WRITTEN, program=PROGRAM):
        return Needs(written, program, limit, tmp_path)

    return of


def learn(needs, limits):
    for limit in limits:
        own = needs(limit)
        own.learn(Learned(Plan((0,)), frozenset([Atom("saved", "fit_0", (0,))]), 7))
        own.learn(Learned(replace(PLAN, donated=(limit,)), frozenset(), limit, limit + 1))
        own.write()


def test_plans_of_other_limits_are_known_once_these_are_enough(needs):
    learn(needs, range(FAMILIAR))
    assert needs(0).known() == ()  # one of the limits is this one
    assert [one.need_bytes for one in needs(1).before()] == [7, 0]  # what was known then
    known = needs(FAMILIAR).known()
    assert needs(FAMILIAR).before() == known
    assert [one.need_bytes for one in known] == [7, *range(FAMILIAR)]
    assert known[0].away == {Atom("saved", "fit_0", (0,))} and known[1].hoped_bytes == 1


def test_a_limit_that_was_asked_starts_from_what_was_known_then(needs):
    limits = range(FAMILIAR + 2)
    known = []
    for limit in limits:
        known.append(needs(limit).known())
        learn(needs, [limit])
    assert [len(one) for one in known] == [0] * FAMILIAR + [FAMILIAR + 1, FAMILIAR + 2]
    assert [needs(limit).known() for limit in limits] == known


@pytest.mark.parametrize(
    "other",
    [
        {"written": replace(WRITTEN, placed="another line")},
        {"program": replace(PROGRAM, switches=())},
        {"written": replace(WRITTEN, placed="")},
    ],
)
def test_of_another_program_nothing_is_known(needs, other):
    learn(needs, range(FAMILIAR))
    needs(1).keep(replace(WRITTEN, program="p"), PLAN)
    assert needs(FAMILIAR, **other).known() == ()
    assert needs(FAMILIAR, **other).dumped(PLAN) is None


def test_the_dump_of_a_plan_and_of_its_files_is_there_again(needs, tmp_path):
    own = needs(1)
    made = Dumped({"f.cpu_after_optimizations.txt": Path()}, None, 3.0, False, *IDENTITY)
    own.keep(made, PLAN)
    own.keep(made, PLAN, {"train.py": "x = 1"})
    own.keep(replace(made, refusal="RESOURCE_EXHAUSTED"), Plan((0,)))
    own.write()
    assert not needs(2).is_kept(PLAN)  # what was used longest ago has made room
    assert needs(2).dumped(PLAN) is None
    files = {"module_0001.f.cpu_after_optimizations.txt": b"HloModule f\n"}
    before._write(cache.folder(), IDENTITY[1], before._Entry(files, None, 1.5))
    for what in ([PLAN], [PLAN, {"train.py": "x = 1"}]):
        again = needs(2).dumped(*what)
        assert (again.program, again.placed) == IDENTITY and again.is_before
        assert again.seconds == 1.5
    assert needs(2).is_kept(PLAN) and not needs(2).is_kept(Plan((0,)))
    assert needs(2).dumped(Plan((0,))) is None
    assert needs(2).dumped(PLAN, {"train.py": "x = 2"}) is None
