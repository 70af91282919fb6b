"""Common properties of all ways to group; each has rows by hand under its former name."""

import pytest
from small_db import Module, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by", "part")


@pytest.fixture
def one_module(con):
    insert(con, "shapes", shape="f32[4]{0}", dtype="f32")
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "constant", 7)
    module.value(1, 0, offset=0, size=16, shape="f32[4]{0}", opcode="dot",
                 op_name="jit(step)/jvp(Net)/dot", source_file="a.py", source_line=3)  # fmt: skip
    module.value(2, 0, offset=16, size=4, opcode="copy")
    module.value(3, 1, offset=0, size=7, opcode="constant", live=None)
    module.close()
    return con


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("line", """
            held_bytes | part       | allocation_kind
            16         | a.py:3     | NULL
            7          | (constant) | NULL
            4          | (temp)     | NULL
        """),
        ("op", """
            held_bytes | part       | allocation_kind
            16         | Net/dot    | NULL
            7          | (constant) | NULL
            4          | (temp)     | NULL
        """),
        ("jit", """
            held_bytes | part       | source_file
            16         | step       | NULL
            7          | (constant) | NULL
            4          | (temp)     | NULL
        """),
        ("function", """
            held_bytes | part       | source_file
            16         | NULL       | a.py
            7          | (constant) | NULL
            4          | (temp)     | NULL
        """),
        ("opcode", """
            held_bytes | held_ratio         | part
            16         | 0.5925925925925926 | dot
            7          | 0.25925925925925924 | constant
            4          | 0.14814814814814814 | copy
        """),
        ("category", """
            held_bytes | part    | allocation_kind | sureness
            16         | forward | temp            | NULL
            7          | NULL    | constant        | NULL
            4          | NULL    | temp            | NULL
        """),
        ("role", """
            held_bytes | part        | allocation_kind | sureness
            16         | activations | temp            | possible
            7          | constants   | constant        | likely
            4          | NULL        | temp            | NULL
        """),
    ],
)  # fmt: skip
def test_every_byte_of_the_peak_is_in_one_part(one_module, by, expected):
    holds(one_module, "peak-by", expected, by=by)


def test_of_equal_parts_the_first_by_name_and_unknown_ones_last(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    for place, opcode in enumerate(("tanh", None, "add")):
        module.value(place, 0, offset=4 * place, size=4, opcode=opcode)
    module.close()
    holds(con, "peak-by", "part\nadd\ntanh\nNULL", by="opcode")


def test_an_unknown_peak_has_a_row_that_says_why(con):
    Module(con, 1, function_name="old", has_live_ranges=False).allocation(0, "temp", 9)
    for by in ("line", "category"):
        holds(con, "peak-by", by=by, expected="""
            function_name | held_bytes | part | allocation_kind | unknown_reason
            old           | NULL       | NULL | NULL            | the dump has no live ranges
        """)  # fmt: skip
