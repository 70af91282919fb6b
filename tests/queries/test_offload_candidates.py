import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "offload-candidates", "run_name")


def step(con, platform="gpu", color=0):
    """A module of 10 instructions that peaks at 5; value 3 waits from 2 to 8."""
    module = Module(con, 1, function_name="step", platform=platform, schedule_length=10)
    module.allocation(0, "temp", 2000, color=color)
    module.value(9, 0, 1000, 500, (5, 5), "largest", opcode="dot", program_order=5)
    insert(con, "instructions", module_id=1, instruction_name="use8", program_order=8)
    module.value(3, 0, 0, 100, (2, 8), "dot", "f32[25]{0}", opcode="dot", program_order=2,
                 op_name="jit(step)/dot", source_file="model.py", source_line=7)  # fmt: skip
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "saving"), [("gpu", 90), ("cpu", 0)])
def test_what_waits_across_the_peak_dear_or_not(con, platform, saving):
    module = step(con, platform)
    module.use(3, "use8")
    module.saves(3, 90)
    insert(con, "recompute_costs", module_id=1, value_id=3, operation_count=7000)
    module.close()
    holds(con, "offload-candidates", f"""
        run_name | function_name | color | peak_bytes | held_bytes | kept_bytes | low_saving_bytes
        r        | step          | 0     | 600        | 100        | 0          | {saving}

        saving_bytes | transfer_bytes | operation_count | lifetime_ratio | idle_time
        {saving}     | 200            | 7000            | 0.6            | 6

        is_layer_input | shape        | opcode | instruction_name | op_name       | source
        False          | f32[25]{{0}} | dot    | dot              | jit(step)/dot | model.py:7
    """)  # fmt: skip
    holds(con, "offload-candidates", "run_name", min_bytes=101)
    holds(con, "offload-candidates", "run_name", min_lifetime_ratio=0.61)


def test_what_is_used_at_the_peak_and_other_memory_is_none(con):
    module = step(con)
    module.use(3, "largest")
    module.use(3, "use8")
    module.close()
    holds(con, "offload-candidates", "run_name")


def test_only_the_memory_of_the_device(con):
    step(con, color=1).close()
    holds(con, "offload-candidates", "run_name")


@pytest.mark.slow
def test_a_scan_can_offload_saved_values_and_inputs(con):
    module = step(con)
    module.value(1, 0, 200, 60, (0, 9), "while", is_phi=True, shape_index="{1}", opcode="while")
    insert(con, "value_origins", module_id=1, value_id=1, origin_kind="stacked", opcode="dot",
           op_name="jit(step)/jvp()/while/body/dot", slice_bytes=5, slice_count=10,
           is_layer_input=True, source_file="layer.py", source_line=3)  # fmt: skip
    module.saves(1, 60)
    module.saves(3, 10)
    module.close()
    holds(con, "offload-candidates", """
        held_bytes | kept_bytes | low_saving_bytes | saving_bytes | transfer_bytes | lifetime_ratio
        60         | 6          | 54               | 60           | 120            | NULL
        100        | 0          | 10               | 10           | 200            | 0.6

        idle_time | is_layer_input
        NULL      | True
        6         | False
    """)  # fmt: skip
    holds(con, "offload-candidates", """
        source
        saved layer.py:3
        model.py:7
    """)  # fmt: skip
    assert len(answer(con, "offload-candidates", top_n=1)) == 1
