import pytest
from small_db import Module, answer, insert
from tables import holds

OWN = {
    "source_file": "layer.py",
    "source_line": 12,
    "op_name": "jit(step)/jvp()/while/body/Layer/tanh",
}


def test_nothing_in_an_empty_database(con):
    holds(con, "loop-residuals", "run_name")


@pytest.fixture
def scanned(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    for value_id, (offset, size) in enumerate([(0, 60), (60, 20), (80, 10), (90, 10)]):
        module.value(value_id, 0, offset, size, name=f"while.{value_id}", shape="f32[6]",
                     source_file="train.py", source_line=40, op_name="while")  # fmt: skip
    for value_id, kind, cells in (
        (0, "stacked", {"slice_bytes": 10, "slice_count": 6, "is_layer_input": True, **OWN}),
        (1, "slice", {"slice_shape": "f32[5]", "is_exact": False, **OWN}),
        (2, "carry", {"op_name": "w['up']", "opcode": "parameter"}),
    ):
        insert(con, "value_origins", module_id=1, value_id=value_id, origin_kind=kind,
               loop_instruction_name="while", **{"is_exact": True, **cells})  # fmt: skip
    module.saves(0, 44, held_bytes=60, saving_form="wrap", low_saving_bytes=-3,
                 kept_name="layer.py:11", low_operation_count=4000,
                 operation_count=4100)  # fmt: skip
    insert(con, "recompute_costs", module_id=1, value_id=0, operation_count=4200)
    module.close()


@pytest.mark.slow
@pytest.mark.usefixtures("scanned")
def test_what_a_loop_carries_with_the_line_that_makes_it(con):
    holds(con, "loop-residuals", """
        run_name | function_name | color | held_bytes | saving_bytes | low_saving_bytes
        r        | step          | 0     | 60         | 44           | -3
        r        | step          | 0     | 20         | NULL         | NULL
        r        | step          | 0     | 10         | NULL         | NULL

        saving_form | kept_name   | low_operation_count | operation_count | slice_count
        wrap        | layer.py:11 | 4000                | 4100            | 6
        NULL        | NULL        | NULL                | NULL            | NULL
        NULL        | NULL        | NULL                | NULL            | NULL

        slice_bytes | kind    | is_layer_input | shape  | source            | op_path
        10          | stacked | True           | f32[6] | saved layer.py:12 | saved Layer/tanh
        NULL        | slice   | False          | f32[6] | saved layer.py:12 | saved Layer/tanh
        NULL        | carry   | False          | f32[6] | copy of w['up']   | copy of w/up

        is_exact | loop_name
        True     | while
        False    | while
        True     | while
    """)  # fmt: skip
    holds(con, "loop-residuals", """
        kind
        carry
    """, kind="carry")  # fmt: skip
    assert len(answer(con, "loop-residuals", top_n=2)) == 2
    # What no scan saves for its backward pass has the cost of its own kernel.
    con.execute("UPDATE peak_savings SET saving_form = NULL, operation_count = NULL")
    holds(con, "loop-residuals", """
        operation_count
        4200
        NULL
        NULL
    """)  # fmt: skip


@pytest.mark.usefixtures("scanned")
def test_only_the_function_with_the_largest_peak(con):
    other = Module(con, 2, function_name="other")
    other.allocation(0, "temp", 900)
    other.value(0, 0, 0, 900)
    other.close()
    holds(con, "loop-residuals", "run_name")
    assert len(answer(con, "loop-residuals", top_functions=2)) == 3
