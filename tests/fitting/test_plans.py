"""The records of `bufdb fit` cross from one process to another as JSON."""

import json

from bufdb.fitting.plans import (
    Compiled,
    Plan,
    Program,
    Region,
    Site,
    Switch,
    Traced,
)
from bufdb.fitting.records import as_json, from_json

SITE = Site("/a/train.py", 14, 4, 15, 20, "loss.<locals>.body")


def through(record):
    return from_json(type(record), json.loads(json.dumps(as_json(record))))


def test_records_are_the_same_after_json():
    traced = Traced(1, 2, 3, 4, ("while_loop of unknown length (train.py:14)",))
    program = Program(
        "train.py:step", None, "cpu", (Region("scan", (SITE,), "body", None, 6, remats=(SITE,)),),
        (Switch("fit_0", SITE, (0,), 8),), (0, 1), ("params", "batch"), False, True, traced,
    )  # fmt: skip
    plan = Plan(scans=(0,), saved=("fit_0",), donated=(1,))
    for record in (program, plan, Compiled(1, None, True, 0.5), traced):
        assert through(record) == record
    assert program.scans == (0,) and program.calls == ()


def test_the_default_plan_changes_nothing():
    assert Plan().is_as_written
    assert not Plan(scans=(0,)).is_as_written
