"""Query time-by: times, work, estimates and bytes of the parts of a module."""

import pytest
from small_db import Module, insert
from tables import holds


def timed(con, name, ns, *, runs=2, executions=2, device="CPU:0", is_overlapped=False, module_id=1):
    insert(con, "instruction_times", module_id=module_id, instruction_name=name, device=device,
           is_overlapped=is_overlapped, run_count=runs, execution_count=executions,
           total_ns=ns, self_ns=ns)  # fmt: skip


def test_nothing_in_an_empty_database(con):
    holds(con, "time-by", "part")


@pytest.fixture
def step(con):
    """Make two lines that hold bytes; one makes few of them and takes long."""
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=64, opcode="dot", name="dot.1", op_name="jit(step)/Net/dot",
                 source_file="a.py", source_line=3)  # fmt: skip
    module.value(2, 0, offset=64, size=4, opcode="fusion", name="fusion.1",
                 op_name="jit(step)/Net/exp", source_file="a.py", source_line=4)  # fmt: skip
    module.close()
    return con


def test_a_part_has_its_time_in_one_run_and_its_bytes(step):
    timed(step, "dot.1", 3_000)
    timed(step, "fusion.1", 9_000, executions=8)
    holds(
        step,
        "time-by",
        """
        module_ns | run_ns | time_ratio | held_bytes | instruction_count | part   | ranked_by
        6000      | 4500   | 0.75       | 4          | 1                 | a.py:4 | time
        6000      | 1500   | 0.25       | 64         | 1                 | a.py:3 | time
    """,
    )


def test_several_devices_give_their_mean(step):
    for device, ns in (("TPU:0", 2_000), ("TPU:1", 6_000)):
        timed(step, "dot.1", ns, device=device)
    timed(step, "dot.1", 50_000, device="TPU:0", is_overlapped=True)
    holds(
        step,
        "time-by",
        """
        module_ns | run_ns | held_bytes | part
        2000      | 2000   | 64         | Net/dot
        2000      | NULL   | 4          | Net/exp
    """,
        by="op",
    )


def test_an_unknown_instruction_counts_without_a_line(step):
    timed(step, "dot.1", 2_000)
    timed(step, "odd.7", 6_000)
    holds(
        step,
        "time-by",
        """
        module_ns | run_ns | held_bytes | part
        4000      | 3000   | NULL       | (no opcode)
        4000      | 1000   | 64         | dot
        4000      | NULL   | 4          | fusion
    """,
        by="opcode",
    )


@pytest.mark.slow
def test_without_times_estimates_rank_and_then_work(step):
    insert(step, "instruction_costs", module_id=1, instruction_name="dot.1", operation_count=7)
    rows = """
        run_ns | held_bytes | operation_count | estimated_cycles | part   | ranked_by
        NULL   | 64         | 7               | NULL             | a.py:3 | {0}
        NULL   | 4          | NULL            | {1}             | a.py:4 | {0}
    """
    holds(step, "time-by", rows.format("work", "NULL"))
    insert(step, "instruction_costs", module_id=1, instruction_name="fusion.1", estimated_cycles=5)
    first, second, third = rows.format("estimate", "5").strip().splitlines()
    holds(step, "time-by", "\n".join([first, third, second]))


def test_work_is_unknown_where_a_part_of_it_is(step):
    for name, count, why in (("dot.1", 7, None), ("fusion.1", None, "it calls a library")):
        insert(step, "instruction_costs", module_id=1, instruction_name=name,
               operation_count=count, operation_unknown_reason=why)  # fmt: skip
    step.execute("UPDATE instructions SET source_line = 3")
    holds(
        step,
        "time-by",
        """
        held_bytes | operation_count | instruction_count | part
        68         | NULL            | 2                 | a.py:3
    """,
    )


def test_the_slowest_and_the_largest_are_shown(step):
    timed(step, "fusion.1", 9_000)
    timed(step, "odd.1", 8_000)
    holds(
        step,
        "time-by",
        """
        run_ns | held_bytes | part
        4500   | 4          | a.py:4
        NULL   | 64         | a.py:3
    """,
        top_n=1,
    )


def test_an_unknown_peak_is_reported(con):
    Module(con, 1, function_name="step", has_live_ranges=False).close()
    timed(con, "dot.1", 3_000)
    holds(
        con,
        "time-by",
        """
        run_ns | part | unknown_reason
        NULL   | NULL | the dump has no live ranges
    """,
    )
