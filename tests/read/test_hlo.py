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


def test_a_frame_comes_before_those_it_calls_which_are_together():
    assert tree({1: None, 2: 1, 3: None, 4: 2, 5: 1, 6: 3, 7: 2}) == {
        1: (0, 0, 4), 2: (1, 1, 3), 4: (2, 2, 2), 7: (2, 3, 3), 5: (1, 4, 4),
        3: (0, 5, 6), 6: (1, 6, 6),
    }  # fmt: skip


def test_the_order_of_the_lines_changes_no_place():
    assert tree({3: 1, 2: 3, 1: None}) == tree({1: None, 2: 3, 3: 1})


def test_a_missing_caller_and_callers_of_a_cycle_are_none():
    assert tree({1: 9, 2: 1}) == {1: (0, 0, 1), 2: (1, 1, 1)}
    assert tree({1: 2, 2: 1, 3: 1}) == {1: (0, 0, 1), 3: (1, 1, 1), 2: (0, 2, 2)}
    assert tree({1: 1, 2: None}) == {1: (0, 0, 0), 2: (0, 1, 1)}


TABLES = """HloModule jit_f

FileNames
1 "/u/model.py"
2 "/x/site-packages/flax/linear.py"

FunctionNames
1 "step"
2 "dot"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10}
2 {file_name_id=1 function_name_id=1 line=20}
3 {file_name_id=2 function_name_id=2 line=30}

StackFrames
1 {file_location_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}
"""
"""The innermost frame, 3, is a library's, whose caller is line 20 of step, whose caller line 10."""


@pytest.mark.parametrize(("old", "new", "owns", "line", "message"), [
    ("", "", {1: 1, 2: 2, 3: 2}, None, None),
    ("1 {file_loc", "1 {file_loc", {1: 1, 2: 2, 3: 2}, None, None),
    ('2 "/x/', '3 "/x/', {1: 1, 2: 2, 3: None}, 14, "expected a name, found file_name_id=2"),
    ('2 "dot"', '3 "dot"', {1: 1, 2: 2, 3: 2}, 14, "expected a name, found function_name_id=2"),
    ('2 "/x/', '1 "/x/', {1: None, 2: None, 3: None}, 5,
     "expected each number once in FileNames, found 1 twice"),
    ('2 "dot"', '1 "dot"', {1: 1, 2: 2, 3: 2}, 9,
     "expected each number once in FunctionNames, found 1 twice"),
    ("3 {file_name_id=2 function_name_id=2", "3 {file_name_id=2 function_name_id=0",
     {1: 1, 2: 2, 3: 2}, None, None),
    ("2 {file_name_id=1", "1 {file_name_id=1", {1: None, 2: None, 3: None}, 13,
     "expected each number once in FileLocations, found 1 twice"),
    ("id=2 parent_frame_id=2", "id=7 parent_frame_id=2", {1: 1, 2: None, 3: None}, 18,
     "expected a location, found file_location_id=7"),
    ("2 {file_location_id=2", "1 {file_location_id=2", {3: None}, 18,
     "expected each number once in StackFrames, found 1 twice"),
    ("parent_frame_id=3", "parent_frame_id=9", {1: 1, 2: 2, 3: None}, 19,
     "expected the frame of a caller, found parent_frame_id=9"),
    ("parent_frame_id=3", "parent_frame_id=4", {1: 1, 2: 2, 3: None}, 19,
     "expected the frame of a caller, found parent_frame_id=4"),
    ("id=2 parent_frame_id=2", "id=3 parent_frame_id=4", {1: 1, 2: None, 3: None}, 18,
     "expected the frame of a caller, found parent_frame_id=4"),
])  # fmt: skip
def test_a_number_that_points_nowhere_or_twice_is_reported(old, new, owns, line, message):
    """The next frame that resolves may be another function's; so the line is unknown."""
    header = hlo.read(TABLES.replace(old, new, 1).encode())
    assert {frame.stack_frame_id: frame.own_frame_id for frame in header.frames} == owns
    assert ((line, message) in header.problems) if line else header.problems == []
    lines = sum(1 for text in TABLES.splitlines() if text)
    assert header.read_count + len(header.problems) == lines


def test_the_same_line_twice_is_one_row():
    twice = TABLES.replace('1 "step"\n', '1 "step"\n1 "step"\n')
    header = hlo.read(twice.encode())
    assert header.frames == hlo.read(TABLES.encode()).frames
    assert header.problems == []


@pytest.mark.slow
def test_a_long_chain_of_frames_is_two_numbers_each():
    spans = tree({1: None, **{number: number - 1 for number in range(2, 100_001)}})
    assert spans[1] == (0, 0, 99_999) and spans[100_000] == (99_999, 99_999, 99_999)


def own_frame(stack, op_names):
    """Return the own frame of the innermost (function, line), used by (frame, op_name) pairs.

    The innermost has the highest number; frames are numbered from the outermost.
    """
    functions = list(dict.fromkeys(function for function, _ in stack))
    outwards = list(enumerate(reversed(stack), 1))
    head = 'HloModule jit_f\n\nFileNames\n1 "/u/m.py"\n\nFunctionNames\n'
    head += "".join(f'{at} "{name}"\n' for at, name in enumerate(functions, 1))
    head += "\nFileLocations\n" + "".join(
        f"{at} {{file_name_id=1 function_name_id={functions.index(function) + 1} line={line} "
        f"end_line={line} column=8 end_column=20}}\n"
        for at, (function, line) in outwards
    )
    head += "\nStackFrames\n" + "".join(
        f"{at} {{file_location_id={at} parent_frame_id={at}}}\n" for at, _ in outwards
    )
    text = (
        head
        + "\nENTRY %main () -> f32[] {\n"
        + "".join(
            f'  %x.{at} = f32[] add(), metadata={{op_name="{name}" stack_frame_id={at}}}\n'
            for at, name in op_names
        )
    )
    header = hlo.read(head.encode())
    hlo.mend(header, text.encode(), len(head))
    return header.frames[-1].own_frame_id


TWICE = [("layer", 4), ("layer", 5), ("step.<locals>.loss", 10)]
"""A helper that was traced for line 4 and is called on line 5."""
MAX = "jit(step)/jvp()/while/body/closed_call/jit(relu)/max"
AT_THE_CALL = (2, "jit(step)/jvp()/while/body/closed_call/gt")


@pytest.mark.parametrize("name", [MAX, "jit(f)/transpose(jvp(jit(relu)))/max",
                                  "jit(f)/jit(hard_silu)/jit(relu)/max"])  # fmt: skip
def test_a_helper_that_jax_kept_is_on_the_line_of_its_call(name):
    assert own_frame(TWICE, [(3, name), AT_THE_CALL]) == 2


def test_frames_between_belong_to_the_first_call():
    stack = [("act", 3), ("layer", 4), ("<lambda>", 9), ("layer", 5), ("<lambda>", 9), ("loss", 10)]
    assert own_frame(stack, [(6, MAX), (3, "jit(f)/gt")]) == 3
    # XLA has repeated the frames of the call; other instructions there have the outer ones.
    again = [("layer", 4), ("loss", 10), ("layer", 5), ("loss", 10), ("layer", 5), ("loss", 10)]
    assert own_frame(again, [(6, MAX), (2, "jit(f)/gt")]) == 2
    # act is called on both lines, and its own line is right.
    stack.insert(3, ("act", 3))
    assert own_frame(stack, [(7, MAX), (4, "jit(f)/gt")]) == 4


@pytest.mark.parametrize(("stack", "op_names"), [
    # A function that calls itself: others are on line 4 too, or none has the frame of the call.
    (TWICE, [(3, MAX), (3, "jit(step)/gt"), AT_THE_CALL]),
    (TWICE, [(3, MAX)]),
    # The user's own jitted function, and what is not in any.
    ([("relu", 3), *TWICE], [(4, MAX), (3, "jit(f)/add"), AT_THE_CALL]),
    (TWICE, [(3, "jit(step)/jvp()/max"), AT_THE_CALL]),
    # One line, which two loops have brought twice; and a line of another function.
    ([("layer", 4), ("loss", 10), ("layer", 4), ("loss", 10)], [(4, MAX), (2, "jit(f)/gt")]),
    ([("encoder", 4), ("layer", 5), ("loss", 10)], [(3, MAX), AT_THE_CALL]),
])  # fmt: skip
def test_any_other_line_is_the_innermost(stack, op_names):
    assert own_frame(stack, op_names) == len(stack)


@pytest.mark.slow
def test_a_stack_as_deep_as_the_frames_takes_no_longer():
    stack = [(f"f{number % 7}", number % 5) for number in range(20_000)]
    assert own_frame(stack, [(20_000, MAX)]) == 20_000
