from small_db import Module, answer, insert


def test_nothing_in_an_empty_database(con):
    assert answer(con, "peak-by-function") == []


def one_module(con):
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=2,
           source_file="/lib/python3.11/site-packages/nn.py", function_name="relu")  # fmt: skip
    insert(con, "stack_frames", module_id=1, stack_frame_id=2, own_frame_id=2,
           source_file="model.py", source_line=7, function_name="Net.__call__")  # fmt: skip
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 90)
    module.allocation(1, "parameter", 10)
    module.value(1, 0, offset=0, size=30, stack_frame_id=1,
                 op_name="jit(step)/jit(main)/jvp(jit(relu))/max[x=1]")  # fmt: skip
    module.value(2, 0, offset=30, size=10, stack_frame_id=2, op_name="jit(step)/mul")
    module.value(3, 0, offset=40, size=40, source_file="old.py", source_line=7)
    module.value(4, 0, offset=80, size=10, op_name="jit(step)/jit(relu)/max")
    module.value(5, 1, offset=0, size=10, op_name="x")
    module.close()


def test_the_python_function_of_the_innermost_frame_of_the_user(con):
    one_module(con)
    assert [row[4:] for row in answer(con, "peak-by-function")] == [
        (40, 0.4, 2, "Net.__call__", "model.py"),
        (40, 0.4, 1, None, "old.py"),
        (10, 0.1, 1, "(parameter)", None),
        (10, 0.1, 1, "(temp)", None),
    ]


def test_the_chain_of_jitted_functions(con):
    one_module(con)
    assert [row[4:] for row in answer(con, "peak-by-function", by="jit")] == [
        (40, 0.4, 1, "(temp)", None),
        (40, 0.4, 2, "step/relu", None),
        (10, 0.1, 1, "(parameter)", None),
        (10, 0.1, 1, "step", None),
    ]
