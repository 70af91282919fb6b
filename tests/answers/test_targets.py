"""One row for each target: what came of it."""

import pytest

from bufdb.answers.summary import Overview
from bufdb.answers.targets import Outcome, table

OOM = "RESOURCE_EXHAUSTED: Ran out of memory on HBM"


def overview(need_bytes=90, limit_bytes=100):
    return Overview(
        {},
        peak={"peak_bytes": 80, "module_id": 1, "color": 0, "need_bytes": need_bytes},
        limit_bytes=limit_bytes,
        parts={"lines": [{"held_bytes": 60, "source": "a.py:1"}]},
    )


@pytest.mark.parametrize(
    ("outcome", "word", "code", "ratio"),
    [
        (Outcome("t", "d", "r", overview()), "compiled", 0, 0.9),
        (Outcome("t", "d", "r", overview(101)), "too large", 1, 1.01),
        (Outcome("t", "d", "r", overview(101, None)), "compiled", 0, None),
        (Outcome("t", "d", "r", overview(None)), "compiled", 0, None),
        (Outcome("t", "d", "r", overview(), OOM), "too large", 1, 0.9),
        (Outcome("t", "d", "r", overview(), "UNIMPLEMENTED: ptxas"), "not compiled", 1, 0.9),
        (Outcome("t", None, failure="no plugin"), "not compiled", 0, None),
    ],
)
def test_what_came_of_a_target(outcome, word, code, ratio):
    assert (outcome.word, outcome.limit_ratio) == (word, ratio)
    assert outcome.exit_code == code or outcome.overview is None


def test_a_row_has_the_line_that_holds_most_or_the_reason():
    rows = table([Outcome("t", "d", "r", overview()), Outcome("u", None, failure="no plugin")])
    assert rows.rows == [
        ("t", "d", "compiled", 90, 80, 100, 0.9, 60, "a.py:1", "r", None),
        ("u", None, "not compiled", *[None] * 7, "no plugin"),
    ]
