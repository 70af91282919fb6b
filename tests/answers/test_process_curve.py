"""What a process holds over time, in words and characters."""

import pytest

from bufdb.answers import process_curve, process_screen
from bufdb.show.drawing import Look


def snapshots(*running, limit=100, names=None, marks=None):
    """Return rows of one process, 10 s apart, by the bytes it has while its program runs."""
    return [
        {"run_name": "r", "account_name": "a.prof", "device": "gpu:0", "alive_bytes": 20,
         "elapsed_seconds": 10.0 * place, "mark": None if marks is None else marks[place],
         "function_name": "step" if names is None else names[place],
         "low_running_bytes": size, "running_bytes": size, "limit_bytes": limit}
        for place, size in enumerate(running)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        (snapshots(90, 120, 110), "from 10.0 s on step has no room: at least 120 B of 100 B"),
        (snapshots(90, 120, 90), "at 10.0 s step has no room: at least 120 B of 100 B"),
        (snapshots(90, 120, None), "at 10.0 s step has no room"),
        (snapshots(120, 120, names=["f", "g"]), "at 0.0 s f has no room"),
    ],
)
def test_no_room_from_a_snapshot_on_or_at_one(rows, start):
    assert process_curve.sentences(rows)[-1].startswith(start)


def test_marks_below_a_picture_are_apart_and_escaped():
    rows = snapshots(10, 20, marks=["a\x1b[31m" * 8, "b" * 40])
    times = list(process_screen.lines(rows, 60, Look(is_plain=True)))[13]
    assert "\x1b" not in times and ") 10.0 s (bbb" in times
