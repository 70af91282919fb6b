"""Notes that differ in a name are one, with the names."""

import pytest

from bufdb.render.notes import merged

SCANS = [f"the scan at model.py:{line} is within a shard_map" for line in (3, 5, 8)]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ([], []),
        (["one note of some words"], ["one note of some words"]),
        (SCANS, ["the scan at model.py:3, model.py:5, model.py:8 is within a shard_map"]),
        (
            [f"run r: {name}.txt: cannot be read" for name in "abc"],
            ["run r: a.txt, b.txt, c.txt: cannot be read"],
        ),
        (
            ["it needs (f32) to be s8", "other words", *(f"it needs ({n}) to be s8" for n in "ab")],
            ["it needs (f32), (a), (b) to be s8", "other words"],
        ),
        (["a b", "a c", "a d"], ["a b", "a c", "a d"]),
        (SCANS[:2], SCANS[:2]),
        (
            [
                f"calls of {name} stay as they are here"
                for name in ("f (a.py:3, 5)", "g", "h (b:1)")
            ],
            ["calls of f (a.py:3, 5); g; h (b:1) stay as they are here"],
        ),
        (["same words twice here", "same words twice here"], ["same words twice here"]),
        (
            ["plan 1 needs 5 bytes", "plan 2 needs 6 bytes"],
            ["plan 1 needs 5 bytes", "plan 2 needs 6 bytes"],
        ),
    ],
)
def test_names_are_listed(notes, expected):
    assert merged(notes) == expected


def test_a_note_has_at_most_twenty_names():
    (note,) = merged([f"run r: module_{number} is not understood" for number in range(25)])
    assert note.startswith("run r: module_0, module_1, ")
    assert note.endswith("module_19 and 5 more is not understood")


def test_a_note_that_may_go_with_two_goes_with_more():
    notes = ["x of a is b", "x of c is b", "x of c is d", "x of e is d", "x of g is d"]
    assert merged(notes) == ["x of a is b", "x of c is b", "x of c, e, g is d"]
