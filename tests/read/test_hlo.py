"""The head of an HLO text: where it ends (format section 7)."""

import pytest

from bufdb.read import hlo

HEAD = b"HloModule jit_f, is_scheduled=true\n\nStackFrames\n1 {file_location_id=1}\n\n"


@pytest.mark.parametrize(
    "first",
    [
        b"%sum (a: f32[], b: f32[]) -> f32[] {\n",
        b"ENTRY %main (p: f32[2]) -> f32[2] {\n",
        b"sum (a: f32[], b: f32[]) -> f32[] {\n",
        b"main.3 {\n",
    ],
)
def test_computations_begin_with_or_without_a_percent_sign(first):
    assert hlo.header_end(HEAD + first + b"  a = f32[] add(b, c)\n}\n") == len(HEAD)


def test_a_text_without_computations_is_all_head():
    assert hlo.header_end(HEAD) == len(HEAD)
    assert hlo.header_end(HEAD + b"a {b}\n") == len(HEAD) + 6


def tree(parents):
    """Depth, place and last place of each frame, of the printed numbers of their callers."""
    lines = "".join(
        f"{number} {{file_location_id=1{f' parent_frame_id={parent + 1}' if parent else ''}}}\n"
        for number, parent in parents.items()
    )
    head = hlo.read(b"HloModule jit_f\n\nStackFrames\n" + lines.encode())
    return {
        frame.stack_frame_id: (frame.depth, frame.tree_ordinal, frame.last_tree_ordinal)
        for frame in head.frames
    }


def test_a_frame_stands_before_those_that_it_calls_and_these_together():
    assert tree({1: None, 2: 1, 3: None, 4: 2, 5: 1, 6: 3, 7: 2}) == {
        1: (0, 0, 4), 2: (1, 1, 3), 4: (2, 2, 2), 7: (2, 3, 3), 5: (1, 4, 4),
        3: (0, 5, 6), 6: (1, 6, 6),
    }  # fmt: skip


def test_the_order_of_the_lines_changes_no_place():
    assert tree({3: 1, 2: 3, 1: None}) == tree({1: None, 2: 3, 3: 1})


def test_a_caller_that_is_missing_is_none_and_a_cycle_is_cut_once():
    assert tree({1: 9, 2: 1}) == {1: (0, 0, 1), 2: (1, 1, 1)}
    assert tree({1: 2, 2: 1, 3: 1}) == {2: (0, 0, 2), 1: (1, 1, 2), 3: (2, 2, 2)}
    assert tree({1: 1, 2: None}) == {1: (0, 0, 0), 2: (0, 1, 1)}


def test_a_chain_of_a_hundred_thousand_frames_is_two_numbers_each():
    spans = tree({1: None, **{number: number - 1 for number in range(2, 100_001)}})
    assert spans[1] == (0, 0, 99_999) and spans[100_000] == (99_999, 99_999, 99_999)
