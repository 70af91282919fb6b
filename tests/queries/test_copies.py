import pytest
from small_db import Module, answer
from tables import holds


def test_nothing_in_an_empty_database(con):
    assert answer(con, "copies") == []


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["%", ""])  # jaxlib 0.4.35 prints none in HLO texts
def test_copies_with_their_reason(con, sign):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "parameter", 40)
    module.allocation(1, "temp", 100, color=1)
    module.allocation(2, "temp", 100)
    module.value(1, 0, 0, 40, name="x", shape="f32[10]{0}", opcode="parameter", op_name="x",
                 source_file="model.py", source_line=7)  # fmt: skip
    module.value(2, 2, 0, 40, (1, 4), "same", "f32[10]{0}", opcode="copy")
    module.value(3, 2, 40, 40, (2, 4), "turned", "f32[5,2]{0,1}", opcode="copy")
    module.value(4, 2, 80, 8, (2, 6), "dot", "f32[5,2]{1,0}", opcode="dot")
    module.value(5, 2, 0, 8, (6, 7), "later", "f32[5,2]{1,0}", opcode="copy", op_name="y")
    module.value(6, 1, 0, 40, (3, 5), "fetch", "f32[10]{0:S(1)}", shape_index="{0}",
                 opcode="copy-start")  # fmt: skip
    module.value(7, 1, 40, 4, (3, 5), "fetch", "u32[]", shape_index="{2}")
    module.value(8, 2, 88, 4, (1, 1), "four", "f32[]", opcode="constant")
    text = f"{sign}f = f32[] fusion({sign}four), kind=kLoop, calls={sign}wrapped_copy.3"
    module.value(9, 2, 92, 4, (1, 3), "four_again", "f32[]", opcode="fusion", text=text)
    module.value(10, 2, 8, 4, (7, 9), "fused", "f32[]", opcode="fusion", text="calls=%fused")
    for source, name in ((1, "same"), (1, "turned"), (4, "later"), (1, "fetch"), (8, "four_again")):
        module.use(source, name)
    module.saves(2, 30)
    module.close()
    holds(con, "copies", """
        run_name | function_name | color | peak_held_bytes | saving_bytes | size_bytes
        r        | step          | 0     | 40              | 30           | 40
        r        | step          | 0     | 40              | NULL         | 40
        r        | step          | 0     | 4               | NULL         | 4
        r        | step          | 0     | 0               | NULL         | 8

        is_kept_twice | reason   | shape         | instruction_name | source_name | source_shape
        True          | argument | f32[10]{0}    | same             | x           | f32[10]{0}
        True          | layout   | f32[5,2]{0,1} | turned           | x           | f32[10]{0}
        False         | constant | f32[]         | four_again       | four        | f32[]
        False         | other    | f32[5,2]{1,0} | later            | dot         | f32[5,2]{1,0}

        op_name | source
        x       | model.py:7
        x       | model.py:7
        NULL    | NULL
        y       | NULL
    """, color=0)  # fmt: skip
    holds(con, "copies", """
        run_name | function_name | color | peak_held_bytes | saving_bytes | size_bytes
        r        | step          | 1     | 40              | NULL         | 40

        is_kept_twice | reason       | shape           | instruction_name | source_name
        True          | memory_space | f32[10]{0:S(1)} | fetch            | x

        source_shape | op_name | source
        f32[10]{0}   | x       | model.py:7
    """, color=1)  # fmt: skip
    assert len(answer(con, "copies", top_n=2)) == 2


def test_without_live_ranges_and_ties_by_run_and_value(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name, has_live_ranges=False)
        module.allocation(0, "temp", 100)
        for value_id in (4, 3):
            module.value(value_id, 0, 0, 8, None, opcode="copy")
    holds(con, "copies", """
        run_name | peak_held_bytes | is_kept_twice | instruction_name
        a        | NULL            | NULL          | NULL
        b        | NULL            | NULL          | NULL
        a        | NULL            | NULL          | v3
        a        | NULL            | NULL          | v4
        b        | NULL            | NULL          | v3
        b        | NULL            | NULL          | v4
    """)  # fmt: skip
