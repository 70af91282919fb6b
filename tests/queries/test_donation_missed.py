from small_db import Module, answer, shape


def test_nothing_in_an_empty_database(con):
    assert answer(con, "donation-missed") == []


def parameter(module, value_id, text, size, kind="parameter", **cells):
    module.allocation(
        value_id, kind, size, parameter_number=value_id, parameter_shape_index="{}", **cells
    )
    module.value(value_id, value_id, 0, size, shape=text, opcode="parameter", name=f"p{value_id}",
                 op_name=f"params['{value_id}']")  # fmt: skip


def test_arguments_and_outputs_of_one_shape_are_paired_off(con):
    wide, narrow = shape(con, "f32[10]{0}"), shape(con, "f32[2]{0}")
    other_dtype, table = shape(con, "s32[10]{0}"), shape(con, "(f32[10]{0})")
    module = Module(con, 1, function_name="step")
    parameter(module, 0, wide, 40)
    parameter(module, 1, wide, 40)
    parameter(module, 2, narrow, 8)
    parameter(module, 3, wide, 40, kind="donated_parameter")
    parameter(module, 4, other_dtype, 40)
    module.allocation(5, "output", 40)
    module.value(10, 5, 0, 40, live=(1, 4), shape=other_dtype, name="earlier")
    module.value(11, 5, 0, 40, live=(4, 9), shape=wide, name="new_w", op_name="jit(step)/sub")
    module.allocation(6, "output", 8)
    module.value(12, 6, 0, 8, shape=narrow, name="new_b")
    module.allocation(7, "output", 8)
    module.value(13, 7, 0, 8, shape=narrow, name="loss_terms")
    module.allocation(8, "output", 8)
    module.value(14, 8, 0, 8, shape=table, name="tuple")
    module.close()
    # One wide output for two wide arguments, two narrow outputs for one narrow argument.
    assert answer(con, "donation-missed") == [
        ("r", "step", 0, 40, 48, 0, "{}", "params['0']", wide, "new_w", "jit(step)/sub"),
        ("r", "step", 0, 8, 48, 2, "{}", "params['2']", narrow, "new_b", None),
    ]
    assert len(answer(con, "donation-missed", top_n=1)) == 1


def test_ties_by_run_and_parameter(con):
    text = shape(con, "f32[1]{0}")
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        for number in (1, 0):
            parameter(module, number, text, 4)
            module.allocation(8 + number, "output", 4)
            module.value(8 + number, 8 + number, 0, 4, shape=text)
        module.close()
    rows = [(row[0], row[5], row[9]) for row in answer(con, "donation-missed")]
    assert rows == [("a", 0, "v8"), ("a", 1, "v9"), ("b", 0, "v8"), ("b", 1, "v9")]
