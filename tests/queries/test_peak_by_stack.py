import re

import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-stack", "run_name")


def frame(con, number, parent, source_file, line, function_name, module_id=1):
    insert(con, "stack_frames", module_id=module_id, stack_frame_id=number,
           parent_frame_id=parent, source_file=source_file, source_line=line,
           function_name=function_name)  # fmt: skip


def one_module(con):
    frame(con, 1, None, "/home/me/train.py", 90, "<module>")
    frame(con, 2, 1, "/home/me/train.py", 40, "make.<locals>.step")
    frame(con, 3, 2, "/lib/python3.11/site-packages/nn.py", 5, "dense")
    frame(con, 4, 3, "/home/me/model.py", 12, "loss")
    frame(con, 5, 1, "/home/me/model.py", 12, "loss")
    frame(con, 6, None, "/lib/python3.11/site-packages/nn.py", 5, "dense")
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.allocation(1, "constant", 10)
    module.allocation(2, "temp", 10, color=1)
    for value_id, stack_frame_id in enumerate((4, 5, 3, 4, 6)):
        module.value(value_id, 0, offset=10 * value_id, size=10, stack_frame_id=stack_frame_id)
    module.value(5, 0, offset=50, size=10, source_file="/home/me/old.py", source_line=3)
    module.value(6, 0, offset=60, size=20)
    module.value(7, 2, offset=0, size=10, stack_frame_id=2)
    module.close()


def test_the_frames_of_the_user_innermost_first(con):
    one_module(con)
    holds(con, "peak-by-stack", """
        color | held_bytes | held_ratio         | value_count
        0     | 30         | 0.3333333333333333 | 2
        0     | 20         | 0.2222222222222222 | 2
        0     | 10         | 0.1111111111111111 | 1
        0     | 10         | 0.1111111111111111 | 1
        0     | 10         | 0.1111111111111111 | 1
        0     | 10         | 0.1111111111111111 | 1
        1     | 10         | 1.0                | 1

        call_stack
        (temp)
        model.py:12 loss < train.py:40 step < train.py:90 <module>
        (constant)
        model.py:12 loss < train.py:90 <module>
        old.py:3
        train.py:40 step < train.py:90 <module>
        train.py:40 step < train.py:90 <module>
    """, color="all")  # fmt: skip


@pytest.mark.slow
def test_all_frames_and_a_limit_of_depth(con):
    one_module(con)
    whole = [row["call_stack"] for row in answer(con, "peak-by-stack", frames="all", color=0)]
    stack = "model.py:12 loss < nn.py:5 dense < train.py:40 step < train.py:90 <module>"
    assert stack in whole
    assert "nn.py:5 dense" in whole
    cut = [
        (row["held_bytes"], row["call_stack"])
        for row in answer(con, "peak-by-stack", depth=1, color=0)
    ]
    assert cut[:2] == [(40, "(temp)"), (30, "model.py:12 loss")]


def stack_of(con, first, labels, module_id=1):
    """Frames from `first` on, the outermost first; the innermost one."""
    for number, label in enumerate(labels, first):
        frame(con, number, number - 1 if number > first else None, f"{label}.py", 1, label)
    return first + len(labels) - 1


def test_rounds_of_the_same_frames_are_folded_and_add_up(con):
    stacks = ["mabcabcabcx", "mabcx", "mabcabcab", "mfff", "mghg", "mffgffgx"]
    ends = [stack_of(con, 100 * n, stack) for n, stack in enumerate(stacks, 1)]
    module = Module(con, 1)
    module.allocation(0, "temp", 210)
    offset = 0
    for number, end in enumerate(ends):
        size = 60 - 10 * number
        module.value(number, 0, offset=offset, size=size, stack_frame_id=end)
        offset += size
    module.close()
    rows = [
        (row["held_bytes"], row["value_count"], row["call_stack"])
        for row in answer(con, "peak-by-stack")
    ]
    plain = [
        (held, values, re.sub(r"([a-z])\.py:1 \1", r"\1", stack)) for held, values, stack in rows
    ]
    assert plain == [
        (110, 2, "x < c (×3) < b (×3) < a (×3) < m"),
        (40, 1, "b < a < c (×2) < b (×2) < a (×2) < m"),
        (30, 1, "f (×3) < m"),
        (20, 1, "g < h < g < m"),
        (10, 1, "x < g (×2) < f (×4) < m"),
    ]


def test_frames_that_call_themselves_come_to_an_end(con):
    frame(con, 1, 2, "a.py", 1, "f")
    frame(con, 2, 1, "b.py", 2, "g")
    frame(con, 3, 9, "c.py", 3, "h")  # the table lacks frame 9
    module = Module(con, 1)
    module.allocation(0, "temp", 20)
    module.value(1, 0, offset=0, size=10, stack_frame_id=1)
    module.value(2, 0, offset=10, size=10, stack_frame_id=3)
    module.close()
    holds(con, "peak-by-stack", """
        call_stack
        a.py:1 f
        c.py:3 h
    """, depth=3)  # fmt: skip


def made_by_xla(con):
    frame(con, 1, None, "/home/me/train.py", 90, "<module>")
    frame(con, 2, 1, "/lib/python3.11/site-packages/nn.py", 5, "dense")
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=40, name="copy.1")
    module.value(2, 0, offset=40, size=30, name="dot", op_name="dot", stack_frame_id=2,
                 program_order=1)  # fmt: skip
    module.value(3, 0, offset=70, size=20, name="copy.2")
    module.value(4, 0, offset=90, size=10, name="add", op_name="add", program_order=2,
                 source_file="/home/me/old.py", source_line=7)  # fmt: skip
    module.use(1, "dot")
    module.use(3, "add")
    module.close()


@pytest.mark.slow
def test_what_xla_made_is_named_for_its_first_named_use(con):
    made_by_xla(con)
    holds(con, "peak-by-stack", """
        held_bytes | held_ratio | value_count | call_stack
        40         | 0.4        | 1           | for train.py:90 <module>
        30         | 0.3        | 1           | train.py:90 <module>
        20         | 0.2        | 1           | for old.py:7
        10         | 0.1        | 1           | old.py:7
    """)  # fmt: skip
    rows = answer(con, "peak-by-stack", frames="all")
    assert rows[0]["call_stack"] == "for nn.py:5 dense < train.py:90 <module>"


def test_unnamed_none_counts_it_by_kind_of_allocation(con):
    made_by_xla(con)
    holds(con, "peak-by-stack", """
        held_bytes | call_stack
        60         | (temp)
        30         | train.py:90 <module>
        10         | old.py:7
    """, unnamed="none")  # fmt: skip
