import pytest
from small_db import Module, answer
from tables import holds


def place(con, module_id, value_id, name, index="{}"):
    con.execute(
        "INSERT INTO positions (module_id, value_id, position_ordinal, instruction_name, "
        "shape_index, is_defining) VALUES (?, ?, 0, ?, ?, TRUE)",
        [module_id, value_id, name, index],
    )


def test_nothing_in_an_empty_database(con):
    holds(con, "collectives", "run_name")


@pytest.fixture
def step(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 500)
    module.allocation(1, "temp", 64, color=1)
    module.value(1, 0, 0, 100, (0, 3), "w", opcode="add")
    module.value(2, 0, 100, 60, (3, 5), "g", opcode="all-gather", op_name="jit(step)/dot",
                 source_file="model.py", source_line=7, program_order=3,
                 text="%g = f32[8]{0} all-gather(%w), replica_groups=[1,4]<=[4]")  # fmt: skip
    module.value(3, 0, 200, 290, (4, 5), "r", opcode="all-reduce-start", program_order=4,
                 text="%r = f32[8]{0} all-reduce-start(%g), replica_groups={}")  # fmt: skip
    module.value(4, 1, 0, 64, (4, 5), "r")
    module.use(1, "g")
    module.use(2, "r")
    for value_id, name, index in ((1, "w", "{}"), (2, "g", "{}"), (3, "r", "{0}"), (4, "r", "{1}")):
        place(con, 1, value_id, name, index)
    module.saves(3, 290)
    module.close()


@pytest.mark.slow
def test_bytes_read_and_written_most_first(con, step):
    # The peak is at 4: g and r in color 0, r in color 1.
    holds(con, "collectives", """
        run_name | function_name | color | opcode     | is_async | is_fused | read_bytes
        r        | step          | 0     | all-reduce | True     | False    | 60
        r        | step          | 0     | all-gather | False    | False    | 100
        r        | step          | 1     | all-reduce | True     | False    | 0

        written_bytes | live_bytes | saving_bytes | start_time | end_time | device_group_size
        290           | 350        | 290          | 4          | 5        | NULL
        60            | 60         | NULL         | 3          | 5        | 4
        64            | 64         | NULL         | 4          | 5        | NULL

        device_groups | instruction_name | op_name       | source
        {}            | r                | NULL          | NULL
        [1,4]<=[4]    | g                | jit(step)/dot | model.py:7
        {}            | r                | NULL          | NULL
    """, color="all")  # fmt: skip
    holds(con, "collectives", """
        run_name | function_name | color | opcode     | is_async | is_fused | read_bytes
        r        | step          | 1     | all-reduce | True     | False    | 0

        written_bytes | live_bytes | saving_bytes | start_time | end_time | device_group_size
        64            | 64         | NULL         | 4          | 5        | NULL

        device_groups | instruction_name | op_name | source
        {}            | r                | NULL    | NULL
    """, color=1)  # fmt: skip
    holds(con, "collectives", """
        instruction_name
        r
    """, top_n=1)  # fmt: skip


def test_what_is_live_at_another_instant(con, step):
    live_bytes = {
        row["instruction_name"]: row["live_bytes"]
        for row in answer(con, "collectives", color=0, step=3)
    }
    assert live_bytes == {"r": 60, "g": 160}


def test_operands_are_unknown_where_the_dump_does_not_list_uses(con):
    module = Module(con, 1, has_used_values=False)
    module.allocation(0, "temp", 8)
    module.value(1, 0, 0, 8, opcode="all-reduce")
    module.close()
    (row,) = answer(con, "collectives")
    assert row["unknown_reason"] == "the dump does not list uses"


@pytest.mark.slow
def test_ties_by_run_and_place(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        module.allocation(0, "temp", 16)
        for value_id, order in ((1, 2), (2, 1)):
            module.value(value_id, 0, 0, 8, opcode="all-reduce", program_order=order)
            place(con, module_id, value_id, f"v{value_id}")
        module.close()
    holds(con, "collectives", """
        run_name | instruction_name
        a        | v2
        a        | v1
        b        | v2
        b        | v1
    """)  # fmt: skip
