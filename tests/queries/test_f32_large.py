import pytest
from small_db import Module, answer, insert, shape
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "f32-large", "run_name")


def mixed(con, module_id=1, run_name="r"):
    """Two bf16 and three f32 temps: 0.4."""
    f32, bf16, other = (shape(con, f"{dtype}[8]{{0}}") for dtype in ("f32", "bf16", "s32"))
    module = Module(con, module_id, run_name, "step")
    module.allocation(0, "temp", 500)
    module.allocation(1, "parameter", 32)
    module.value(1, 1, 0, 32, shape=f32)
    module.value(2, 0, 0, 16, shape=bf16)
    module.value(3, 0, 16, 16, shape=bf16)
    module.value(4, 0, 32, 32, name="norm", shape=f32, opcode="fusion", op_name="jit(step)/norm",
                 source_file="model.py", source_line=7)  # fmt: skip
    module.value(5, 0, 64, 48, name="big", shape=f32)
    module.value(6, 0, 112, 100, live=(20, 20), name="later", shape=f32)
    module.value(7, 0, 112, 32, shape=other)
    module.value(8, 0, 0, 16, shape=bf16, is_phi=True)
    module.saves(5, 40, 20)
    module.close()


@pytest.mark.slow
def test_f32_temps_at_the_peak_of_a_module_in_bf16(con):
    mixed(con)
    holds(con, "f32-large", """
        run_name | function_name | color | bf16_ratio | peak_bytes | f32_bytes | held_bytes
        r        | step          | 0     | 0.4        | 176        | 80        | 48
        r        | step          | 0     | 0.4        | 176        | 80        | 32

        saving_bytes | shape     | opcode | instruction_name | op_name        | source
        20           | f32[8]{0} | NULL   | big              | NULL           | NULL
        NULL         | f32[8]{0} | fusion | norm             | jit(step)/norm | model.py:7
    """)  # fmt: skip
    holds(con, "f32-large", "run_name", min_bf16_ratio=0.41)
    holds(con, "f32-large", """
        instruction_name
        big
    """, min_bytes=33)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "saving"), [("cpu", 0), ("gpu", 20)])
def test_the_cpu_makes_f32_of_what_a_loop_stacks(con, platform, saving):
    mixed(con)
    con.execute("UPDATE modules SET platform = ?", [platform])
    insert(con, "value_origins", module_id=1, value_id=5, origin_kind="stacked")
    assert [row["saving_bytes"] for row in answer(con, "f32-large")] == [saving, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "op_name", "count"),
    [
        ("f32[8]{0}", "jit(step)/dot_general", 0),
        ("bf16[8]{0}", "jit(step)/dot_general", 2),
        ("f32[8]{0}", "jit(step)/convert_element_type", 2),
    ],
)
def test_bf16_products_of_the_compiler_do_not_count(con, argument, op_name, count):
    mixed(con)
    con.execute("UPDATE modules SET platform = 'tpu'")
    con.execute('UPDATE "values" SET shape = ? WHERE value_id = 1', [argument])
    con.execute("UPDATE instructions SET op_name = ? WHERE instruction_name = 'v2'", [op_name])
    assert len(answer(con, "f32-large")) == count


def test_a_module_without_bf16_is_left_out_whatever_the_ratio(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 500)
    module.value(1, 0, 0, 32, shape=shape(con, "f32[8]{0}"))
    module.close()
    holds(con, "f32-large", "run_name", min_bf16_ratio=0)


@pytest.mark.slow
def test_ties_by_run_and_value(con):
    text, half = shape(con, "f32[1]{0}"), shape(con, "bf16[1]{0}")
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        module.allocation(0, "temp", 500)
        module.value(9, 0, 0, 2, shape=half)
        for value_id in (4, 3):
            module.value(value_id, 0, 100 * value_id, 4, shape=text)
        module.close()
    holds(con, "f32-large", """
        run_name | instruction_name
        a        | v3
        a        | v4
        b        | v3
        b        | v4
    """)  # fmt: skip
    assert len(answer(con, "f32-large", top_n=1)) == 1
