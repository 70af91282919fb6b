import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "constants", "run_name")


@pytest.mark.slow
def test_constants_with_their_uses_and_copies(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "constant", 40)
    module.allocation(1, "constant", 4)
    module.allocation(2, "temp", 40)
    module.allocation(3, "parameter", 76)
    module.allocation(4, "thread_local", 1000)
    module.allocation(5, "constant", 0)
    module.value(1, 0, 0, 40, name="table", shape="f32[10]{0}", opcode="constant",
                 op_name="jit(step)/add", source_file="model.py", source_line=7)  # fmt: skip
    module.value(2, 1, 0, 4, live=None, name="zero", opcode="constant")
    module.value(3, 2, 0, 40, name="copy", shape="f32[10]{0}", opcode="copy")
    module.use(1, "copy")
    module.use(1, "add", operand=1)
    module.close()
    # All allocations but the thread-local one: 40 + 4 + 40 + 76 = 160.
    holds(con, "constants", """
        run_name | function_name | color | constant_bytes | size_bytes | saving_bytes | size_ratio
        r        | step          | 0     | 44             | 40         | 40           | 0.25
        r        | step          | 0     | 44             | 4          | 4            | 0.025

        shape      | instruction_name | use_count | copied_bytes | literal | alike_count
        f32[10]{0} | table            | 2         | 40           | NULL    | 1
        f32[]      | zero             | 0         | 0            | NULL    | 1

        program_count | sureness | advice
        1             | possible | pass it as an argument, or compute it where it is used
        1             | NULL     | NULL

        op_name       | source
        jit(step)/add | model.py:7
        NULL          | NULL
    """)  # fmt: skip
    holds(con, "constants", """
        instruction_name
        table
    """, top_n=1)  # fmt: skip


def constant(module, index, literal, shape="f32[2]{0}", size=8):
    module.allocation(index, "constant", size)
    module.value(index, index, 0, size, shape=shape, opcode="constant",
                 text=f"%c = {shape} constant({literal}), metadata={{}}")  # fmt: skip


@pytest.mark.slow
def test_equal_constants_in_a_program_and_a_run(con):
    for module_id, run_name, function in ((1, "a", "f"), (2, "a", "g"), (3, "b", "f")):
        module = Module(con, module_id, run_name, function)
        constant(module, 0, "{1, 2}")
        constant(module, 1, "{...}")
        if module_id < 3:
            constant(module, 2, "{...}")
            constant(module, 3, "{(1, 2), (3, 4)}", "c64[2]{0}", 16)
        module.close()
    names = ("run_name", "shape", "literal", "alike_count", "program_count", "sureness")
    constants = {tuple(row[name] for name in names) for row in answer(con, "constants")}
    assert constants == {
        ("a", "f32[2]{0}", "{1, 2}", 1, 2, "possible"),
        ("a", "f32[2]{0}", None, 2, 2, "possible"),
        ("a", "c64[2]{0}", "{(1, 2), (3, 4)}", 1, 2, "possible"),
        ("b", "f32[2]{0}", "{1, 2}", 1, 1, "possible"),
        ("b", "f32[2]{0}", None, 1, 1, "possible"),
    }


def test_the_line_of_the_first_use_where_it_has_none(con):
    module = Module(con, 1)
    constant(module, 0, "{...}")
    module.allocation(1, "temp", 99)
    line = {"source_file": "model.py", "opcode": "add"}
    module.value(1, 1, 0, 8, name="later", program_order=5, source_line=9, **line)
    module.value(2, 1, 8, 8, name="first", program_order=4, source_line=8, **line)
    module.value(3, 1, 16, 8, name="before", program_order=3, opcode="copy")
    for name in ("later", "first", "before"):
        module.use(0, name)
    module.close()
    holds(con, "constants", """
        source
        for model.py:8
    """)  # fmt: skip


def test_without_listed_uses_copies_are_unknown(con):
    module = Module(con, 1, has_used_values=False)
    module.allocation(0, "constant", 8)
    module.value(1, 0, 0, 8)
    module.close()
    holds(con, "constants", """
        use_count | copied_bytes
        NULL      | NULL
    """)  # fmt: skip


def test_ties_by_run_and_allocation(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        for index in (1, 0):
            module.allocation(index, "constant", 8)
            module.value(9 - index, index, 0, 8)
        module.close()
    holds(con, "constants", """
        run_name | instruction_name
        a        | v9
        a        | v8
        b        | v9
        b        | v8
    """)  # fmt: skip
