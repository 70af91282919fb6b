"""Runs of what was compiled: replaced by those of the next question, and not read twice."""

import shutil
from contextlib import closing

import pytest
from places import ROOT

from bufdb.capture.dump import programs
from bufdb.database import store
from bufdb.fitting.plans import Answer, Compiled, Plan, PlanResult, Program, Traced
from bufdb.fitting.question import Question
from bufdb.fitting.runs import stored
from bufdb.fitting.session import Dumped
from bufdb.ingest import group

DEMO = ROOT / "data" / "demo"
PLANS = Plan(scans=(0,)), Plan(scans=(1,))
RUNS = """
SELECT modules.run_name, function_name, any_value(label_value) FILTER (label = 'why')
FROM modules LEFT JOIN run_labels USING (run_name)
GROUP BY ALL ORDER BY ALL
"""
PROGRAM = Program("a.py:f", None, "cpu", (), (), (), (), False, False, Traced(0, 0, 0, 0))


@pytest.fixture
def dump(tmp_path):
    """The one program of a module in one of the demo's dumps."""

    def dumped(run, key):
        folder = tmp_path / f"{run}-{key}"
        if not folder.exists():
            folder.mkdir()
            for path in (DEMO / run).glob(f"*{key}*"):
                shutil.copy(path, folder)
        return Dumped(programs(folder), None, 1.0)

    return dumped


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Store what an answer compiled; return the rows of runs, and how many modules were read."""
    db, read, original = str(tmp_path / "a.duckdb"), [], group._read_small

    def reading(own, batch, *more):
        read.extend(batch)
        return original(own, batch, *more)

    monkeypatch.setattr(group, "_read_small", reading)

    def store_answer(written, *dumps, **how):
        read.clear()
        rows = tuple(
            PlanResult(at, True, False, 1, 1, 0.0, (), (), (), None, plan=plan)
            for at, plan in enumerate(PLANS[: len(dumps)], 1)
        )
        answer = Answer(PROGRAM, None, Compiled(1, 1, True, 1.0), rows, None, None, 0, 0)
        dumped = dict(zip((Plan(), *PLANS), (written, *dumps), strict=False))
        stored(answer, Question(db=db, **how), dumped, "cpu")
        with closing(store.open_readable(db, RUNS)) as con:
            return con.execute(RUNS).fetchall(), len(read)

    return store_answer


def test_what_an_earlier_question_stored_is_not_read_again(ask, dump):
    train, evaluate = dump("cpu_b8", "train_step"), dump("cpu_b8", "eval_step")
    first, read = ask(train, evaluate, labels={"why": "first"})
    assert first == [
        ("fit:as-written", "train_step", "first"),
        ("fit:plan-1", "eval_step", "first"),
    ]
    assert read == 2
    other = dump("cpu_b16", "eval_step")
    again, read = ask(train, other, evaluate)
    assert again == [
        ("fit:as-written", "train_step", None),
        ("fit:plan-1", "eval_step", None),
        ("fit:plan-2", "eval_step", None),
    ]
    assert read == 2  # the second one has another rank now
    assert ask(train, other, evaluate) == (again, 0)
    assert ask(train) == (again[:1], 0)  # no plan of now has them
