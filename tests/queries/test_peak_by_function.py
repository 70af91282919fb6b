import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-function", "run_name")


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
    holds(con, "peak-by-function", """
        held_bytes | held_ratio | value_count | source_function | source_file
        40         | 0.4        | 2           | Net.__call__    | model.py
        40         | 0.4        | 1           | NULL            | old.py
        10         | 0.1        | 1           | (parameter)     | NULL
        10         | 0.1        | 1           | (temp)          | NULL
    """)  # fmt: skip


def test_the_chain_of_jitted_functions(con):
    one_module(con)
    holds(con, "peak-by-function", """
        held_bytes | held_ratio | value_count | source_function | source_file
        40         | 0.4        | 1           | (temp)          | NULL
        40         | 0.4        | 2           | step/relu       | NULL
        10         | 0.1        | 1           | (parameter)     | NULL
        10         | 0.1        | 1           | step            | NULL
    """, by="jit")  # fmt: skip


def made_by_xla(con):
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=1,
           source_file="model.py", source_line=7, function_name="Net.__call__")  # fmt: skip
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=40, name="copy.1")
    module.value(2, 0, offset=40, size=30, name="dot", op_name="jit(step)/jit(f)/dot",
                 stack_frame_id=1, program_order=1)  # fmt: skip
    module.value(3, 0, offset=70, size=20, name="copy.2")
    module.value(4, 0, offset=90, size=10, name="add", op_name="jit(step)/add",
                 source_file="old.py", source_line=7, program_order=2)  # fmt: skip
    module.use(1, "dot")
    module.use(3, "add")
    module.close()


@pytest.mark.slow
def test_what_xla_made_is_named_for_its_first_named_use(con):
    made_by_xla(con)
    holds(con, "peak-by-function", """
        held_bytes | held_ratio | value_count | source_function  | source_file
        40         | 0.4        | 1           | for Net.__call__ | model.py
        30         | 0.3        | 1           | Net.__call__     | model.py
        20         | 0.2        | 1           | for old.py       | old.py
        10         | 0.1        | 1           | NULL             | old.py
    """)  # fmt: skip
    holds(con, "peak-by-function", """
        held_bytes | held_ratio | value_count | source_function | source_file
        40         | 0.4        | 1           | for step/f      | NULL
        30         | 0.3        | 1           | step/f          | NULL
        20         | 0.2        | 1           | for step        | NULL
        10         | 0.1        | 1           | step            | NULL
    """, by="jit")  # fmt: skip


@pytest.mark.slow
def test_unnamed_none_counts_it_by_kind_of_allocation(con):
    made_by_xla(con)
    for by, own, of_file in (("python", "Net.__call__", None), ("jit", "step/f", "step")):
        rows = [
            (row["held_bytes"], row["source_function"])
            for row in answer(con, "peak-by-function", by=by, unnamed="none")
        ]
        assert rows == [(60, "(temp)"), (30, own), (10, of_file)]
