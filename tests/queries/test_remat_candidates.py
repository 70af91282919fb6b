import pytest
from small_db import Module, answer, insert, rows
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "remat-candidates", "run_name")


def step(con, module_id=1, run_name="r"):
    """A module of 10 instructions that peaks at 5, where value 9 is computed."""
    module = Module(con, module_id, run_name, "step", schedule_length=10)
    module.allocation(0, "temp", 2000)
    module.allocation(1, "parameter", 100)
    module.value(9, 0, 1000, 500, (5, 5), "largest", opcode="dot", program_order=5)
    for order in (6, 8):
        insert(con, "instructions", module_id=module_id, instruction_name=f"use{order}",
               program_order=order)  # fmt: skip
    return module


@pytest.mark.slow
def test_a_cheap_value_live_across_the_peak(con):
    module = step(con)
    module.value(1, 1, 0, 100, (0, 10), "x", opcode="parameter")
    module.value(2, 0, 100, 30, (0, 2), "gone", opcode="dot")
    module.value(3, 0, 0, 100, (2, 8), "tanh", "f32[25]{0}", opcode="fusion", program_order=2,
                 text="%tanh = f32[25]{0} fusion(%x, %gone), kind=kLoop, calls=%c",
                 op_name="jit(step)/jvp()/tanh", source_file="model.py", source_line=7)  # fmt: skip
    module.use(1, "tanh")
    module.use(2, "tanh", operand=1)
    module.use(3, "use8")
    insert(con, "recompute_costs", module_id=1, value_id=3, operation_count=25)
    module.close()
    # The argument x stays anyway; gone (30 bytes) would have to stay to compute tanh again.
    holds(con, "remat-candidates", """
        run_name | function_name | color | peak_bytes | saved_bytes | held_bytes | kept_bytes
        r        | step          | 0     | 700        | 70          | 100        | 30

        saving_bytes | low_saving_bytes | saving_form | kept_name | low_operation_count
        NULL         | NULL             | NULL        | NULL      | NULL

        operation_count | lifetime_ratio | idle_time | shape      | opcode | instruction_name
        25              | 0.6            | 6         | f32[25]{0} | fusion | tanh

        op_name              | source
        jit(step)/jvp()/tanh | model.py:7
    """)  # fmt: skip
    # The compiler of the CPU merges what is computed twice; elsewhere 30 bytes have to stay.
    module.saves(3, 90)
    con.execute("UPDATE modules SET platform = 'gpu'")
    holds(con, "remat-candidates", """
        saving_bytes
        60
    """)  # fmt: skip
    holds(con, "remat-candidates", "run_name", min_bytes=71)
    holds(con, "remat-candidates", "run_name", min_lifetime_ratio=0.61)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op_name", "count"),
    [
        ("jit(step)/jvp()/tanh", 1),
        ("jit(step)/transpose(jvp(jit(_resize)))/scatter-add", 0),
        ("jit(step)/transpose(jvp())/rematted_computation/tanh", 0),
        ("jit(step)/tanh", 0),
        (None, 1),
    ],
)
def test_checkpoint_computes_values_of_the_forward_pass_alone(con, op_name, count):
    module = step(con)
    module.value(3, 0, 0, 100, (2, 8), "v", opcode="add", program_order=2, op_name=op_name)
    module.use(3, "use8")
    module.saves(3, 60)
    module.close()
    con.execute("UPDATE modules SET platform = 'gpu'")
    for name in ("remat-candidates", "advice"):
        assert [row["saving_bytes"] for row in rows(con, name)] == [60] * count


def test_backward_fills_are_not_forward(con):
    module = step(con)
    module.value(3, 0, 0, 100, (2, 8), "zeros", opcode="broadcast", program_order=2)
    module.value(4, 0, 100, 1, (8, 9), "sum", opcode="add", program_order=8,
                 op_name="jit(step)/transpose(jvp())/add_any")  # fmt: skip
    module.use(3, "sum")
    module.saves(3, 60)
    module.close()
    con.execute("UPDATE modules SET platform = 'gpu'")
    assert rows(con, "remat-candidates") == []


NOT = {
    "dear": {"opcode": "dot"},
    "of unknown opcode": {"opcode": None},
    "a fusion that is no loop": {"opcode": "fusion", "text": "kind=kInput, calls=%c"},
    "a merge of others": {"is_phi": True},
    "freed at the peak": {"live": (2, 5)},
    "made at the peak": {"live": (5, 8)},
    "of the backward pass": {"op_name": "jit(step)/transpose(jvp())/add"},
}


@pytest.mark.parametrize("cells", NOT.values(), ids=NOT.keys())
def test_what_is_no_candidate(con, cells):
    module = step(con)
    module.value(3, 0, 0, 100, **{"live": (2, 8), "opcode": "add", "program_order": 2} | cells)
    module.use(3, "use8")
    module.close()
    holds(con, "remat-candidates", "run_name")


@pytest.mark.slow
def test_one_of_the_results_of_a_fusion(con):
    module = step(con)
    loop = {"opcode": "fusion", "text": "fusion(a), kind=kLoop, calls=f", "program_order": 2}
    module.value(3, 0, 0, 100, (2, 8), "both", shape_index="{0}", **loop)
    module.value(4, 0, 100, 100, (2, 3), "both", shape_index="{1}", **loop)
    module.use(3, "use8", index="{}")
    module.close()
    assert [row["instruction_name"] for row in rows(con, "remat-candidates")] == ["both"]


def test_what_is_used_at_the_peak_is_none(con):
    module = step(con)
    module.value(3, 0, 0, 100, (2, 8), opcode="add")
    module.use(3, "largest")
    module.use(3, "use8")
    module.close()
    holds(con, "remat-candidates", "run_name")


@pytest.mark.slow
def test_idle_time_is_between_the_uses_around_the_peak(con):
    module = step(con)
    insert(con, "instructions", module_id=1, instruction_name="use4", program_order=4)
    module.value(3, 0, 0, 100, (2, 8), opcode="add", program_order=2)
    for name in ("use4", "use6", "use8"):
        module.use(3, name)
    module.close()
    assert [row["idle_time"] for row in rows(con, "remat-candidates")] == [2]


@pytest.mark.slow
def test_ties_by_run_and_value(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = step(con, module_id, run_name)
        for value_id in (4, 3):
            module.value(value_id, 0, 100 * value_id, 100, (2, 8), opcode="add")
        module.close()
    order = [(row["run_name"], row["instruction_name"]) for row in rows(con, "remat-candidates")]
    assert order == [("a", "v3"), ("a", "v4"), ("b", "v3"), ("b", "v4")]
    assert len(answer(con, "remat-candidates", top_n=3)) == 3


@pytest.mark.parametrize(
    ("op_name", "is_layer_input", "opcode", "figures"),
    [
        ("jit(step)/jvp()/while/body/tanh", False, "tanh", [(54, 60, 6, None, None)]),
        ("jit(step)/jvp()/while/body/dot_general", False, "dot", []),
        ("jit(step)/jvp()/while/body/tanh", True, "tanh", []),
        ("jit(step)/transpose(jvp())/while/body/mul", False, "multiply", []),
        ("jit(step)/while/body/tanh", False, "tanh", []),
    ],
)
def test_what_a_scan_saves_is_judged_by_what_makes_a_slice(
    con, op_name, is_layer_input, opcode, figures
):
    module = step(con)
    module.value(1, 0, 0, 60, (0, 9), "while", is_phi=True, shape_index="{1}", opcode="while")
    insert(con, "value_origins", module_id=1, value_id=1, origin_kind="stacked", opcode=opcode,
           op_name=op_name, slice_bytes=5, slice_count=10, is_layer_input=is_layer_input,
           source_file="layer.py", source_line=3)  # fmt: skip
    module.close()
    candidates = rows(con, "remat-candidates")
    names = ("saved_bytes", "held_bytes", "kept_bytes", "lifetime_ratio", "idle_time")
    assert [tuple(row[name] for name in names) for row in candidates] == figures
    assert [row["source"] for row in candidates] == ["saved layer.py:3"] * len(figures)
