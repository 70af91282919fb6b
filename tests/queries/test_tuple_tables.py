from small_db import Module, answer, shape
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "tuple-tables", "run_name")


def test_tables_by_the_opcode_that_makes_them(con):
    two, three = shape(con, "(f32[], f32[])", 16, 2), shape(con, "(f32[], f32[], s32[])", 24, 3)
    array = shape(con, "f32[]", 4)
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 500)
    module.allocation(1, "output", 24)
    module.allocation(2, "thread_local", 16)
    module.value(1, 0, 0, 16, shape=two, name="init", opcode="tuple")
    module.value(2, 0, 0, 16, shape=two, name="while", opcode="while", is_phi=True)
    module.value(3, 1, 0, 24, shape=three, name="root", opcode="tuple")
    module.value(4, 0, 16, 16, live=(30, 30), shape=two, name="start", opcode="copy-start")
    module.value(5, 2, 0, 16, live=None, shape=two, name="local", opcode="tuple")
    module.value(6, 0, 32, 4, shape=array, opcode="add")
    module.value(7, 0, 40, 16, live=(31, 31), shape=two, name="late")
    module.close()
    holds(con, "tuple-tables", """
        run_name | function_name | color | peak_held_bytes | opcode     | table_count | table_bytes
        r        | step          | 0     | 40              | tuple      | 2           | 40
        r        | step          | 0     | 0               | NULL       | 1           | 16
        r        | step          | 0     | 0               | copy-start | 1           | 16
        r        | step          | 0     | 0               | while      | 0           | 0

        largest_table_bytes | largest_element_count | largest_table
        24                  | 3                     | root
        16                  | 2                     | late
        16                  | 2                     | start
        16                  | 2                     | while
    """)  # fmt: skip


def test_without_live_ranges_and_ties(con):
    text = shape(con, "(f32[])", 8, 1)
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name, has_live_ranges=False)
        module.allocation(0, "temp", 100)
        module.value(2, 0, 0, 8, None, shape=text, opcode="tuple")
        module.value(1, 0, 0, 8, None, shape=text, opcode="tuple")
    holds(con, "tuple-tables", """
        run_name | peak_held_bytes | largest_table
        a        | NULL            | NULL
        b        | NULL            | NULL
        a        | NULL            | v1
        b        | NULL            | v1
    """)  # fmt: skip
    assert len(answer(con, "tuple-tables", top_n=1)) == 3
