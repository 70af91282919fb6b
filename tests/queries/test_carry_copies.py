import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "carry-copies", "run_name")


def loop(con, module_id=1, run_name="r", size=100):
    """A loop with one element of carry at offset 0 of the temp allocation; its body is 2 to 5."""
    module = Module(con, module_id, run_name, "step")
    module.allocation(0, "temp", 10 * size)
    module.allocation(1, "parameter", size)
    module.value(10, 1, 0, size, (0, 9), "x", opcode="parameter", op_name="x")
    module.value(1, 0, 0, size, (1, 2), "init", opcode="copy")
    module.value(2, 0, 0, size, (2, 4), "arg", is_phi=True, opcode="parameter")
    module.value(3, 0, size, size, (3, 5), "old", opcode="copy", op_name="jit(step)/while/body")
    module.value(4, 0, 2 * size, size, (4, 5), "new", opcode="add")
    module.value(5, 0, 0, size, (5, 6), "back", opcode="copy")
    module.value(6, 0, 0, size, (6, 8), "while", is_phi=True, opcode="while", program_order=6)
    module.value(7, 0, size, size, (7, 9), "saved", opcode="copy")
    module.use(10, "init")
    module.use(1, "while")
    module.use(2, "old")
    module.use(4, "back")
    module.use(6, "saved")
    module.close()
    return module


@pytest.mark.slow
def test_each_role_of_a_copy(con):
    loop(con).saves(3, 90)
    # Most is held at 4: arg, old and new, 100 bytes each.
    rows = answer(con, "carry-copies")
    holds(con, "carry-copies", """
        peak_held_bytes | carry_role | instruction_name | source_name | while_name
        100             | initial    | init             | x           | while
        100             | taken      | old              | arg         | NULL
        100             | returned   | back             | new         | while
        0               | result     | saved            | while       | while
    """)  # fmt: skip
    taken = rows[1]
    assert (taken["run_name"], taken["function_name"], taken["color"]) == ("r", "step", 0)
    assert (taken["saving_bytes"], taken["size_bytes"], taken["shape"]) == (90, 100, "f32[]")
    assert (taken["op_name"], taken["source"]) == ("jit(step)/while/body", None)
    assert rows[0]["op_name"] == "x"


@pytest.mark.slow
def test_a_copy_that_takes_over_is_left_out(con):
    loop(con)
    con.execute("UPDATE live_ranges SET end_time = 1 WHERE value_id = 10")
    con.execute("UPDATE live_ranges SET end_time = 7 WHERE value_id = 6")
    holds(con, "carry-copies", """
        carry_role
        taken
        returned
    """)  # fmt: skip


@pytest.mark.slow
def test_what_a_loop_carries_beside_its_copy_is_kept_once(con):
    loop(con).use(10, "while", index="{1}")
    holds(con, "carry-copies", """
        carry_role
        taken
        returned
        result
    """)  # fmt: skip
    (is_kept_twice,) = (
        row["is_kept_twice"] for row in answer(con, "copies") if row["instruction_name"] == "init"
    )
    assert not is_kept_twice


def test_a_copy_at_the_same_address_that_ends_elsewhere_is_none(con):
    loop(con)
    con.execute("UPDATE live_ranges SET end_time = 5 WHERE value_id = 5")
    assert "back" not in [row["instruction_name"] for row in answer(con, "carry-copies")]


@pytest.mark.slow
def test_small_ones_are_left_out_and_ties_go_by_run_and_value(con):
    loop(con, 1, "b", size=8)
    loop(con, 2, "a", size=8)
    holds(con, "carry-copies", "run_name")
    holds(con, "carry-copies", """
        run_name | instruction_name
        a        | init
        a        | old
        a        | back
        b        | init
    """, min_bytes=8, top_n=4)  # fmt: skip


@pytest.mark.slow
def test_no_loop_no_row(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.value(1, 0, 0, 100, opcode="dot")
    module.value(2, 0, 0, 100, opcode="copy")
    insert(con, "uses", module_id=1, value_id=1, instruction_name="v2", operand_index="{}")
    module.close()
    holds(con, "carry-copies", "run_name")
