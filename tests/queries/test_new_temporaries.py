import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_without_two_sides(con):
    holds(con, "new-temporaries", "function_name")


def module(con, module_id, run, **sizes):
    made = Module(con, module_id, run, "f")
    made.allocation(0, "temp", sum(sizes.values()))
    made.allocation(1, "output", 50 * module_id)
    offset = 0
    for value_id, (name, size) in enumerate(sizes.items()):
        made.value(value_id, 0, offset, size, op_name=f"jit(f)/{name}", opcode="add")
        offset += size
    made.close()


def rows(con, **params):
    return [
        (row["change"], row["delta_bytes"], row["new_bytes"], row["part"])
        for row in answer(con, "new-temporaries", **params)
    ]


@pytest.mark.slow
def test_temps_that_the_base_does_not_have(con):
    module(con, 1, "a", kept=10, less=9, more=1)
    module(con, 2, "b", kept=10, less=2, more=4, small=3, large=7, also=3)
    sides = {"base": "a", "new": "b"}
    holds(con, "new-temporaries", """
        change   | delta_bytes | new_bytes | part
        appeared | 7           | 7         | large
        appeared | 3           | 3         | also
        appeared | 3           | 3         | small
    """, base="a", new="b")  # fmt: skip
    holds(con, "new-temporaries", """
        change   | delta_bytes | new_bytes | part
        appeared | 7           | 7         | large
        grew     | 3           | 4         | more
        appeared | 3           | 3         | also
        appeared | 3           | 3         | small
    """, grown="true", base="a", new="b")  # fmt: skip
    assert rows(con, base="b", new="b") == []
    assert rows(con, by="opcode", **sides) == []
    holds(con, "new-temporaries", """
        change   | delta_bytes | new_bytes | part
        appeared | 7           | 7         | large
    """, top_n=1, base="a", new="b")  # fmt: skip
    assert rows(con, function="g*", **sides) == rows(con, color=1, **sides) == []
