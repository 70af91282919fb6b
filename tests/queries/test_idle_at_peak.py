"""Choice by remedy; test_remat_candidates.py and test_offload_candidates.py have the rest."""

import pytest
from small_db import Module
from tables import holds


def test_nothing_in_an_empty_database(con):
    for remedy in ("recompute", "offload"):
        holds(con, "idle-at-peak", "held_bytes", remedy=remedy)


@pytest.mark.slow
def test_what_is_costly_to_compute_can_only_be_offloaded(con):
    module = Module(con, 1, function_name="step", schedule_length=10)
    module.allocation(0, "temp", 100)
    for value_id, (opcode, size) in enumerate((("tanh", 30), ("dot", 20), ("add", 10)), 1):
        live = (1, 9) if opcode != "add" else (5, 5)
        module.value(value_id, 0, 30 * value_id - 30, size, live, opcode=opcode,
                     op_name=f"jit(step)/jvp()/{opcode}", program_order=live[0])  # fmt: skip
        module.saves(value_id, size)
        module.use(value_id, "v3", operand=value_id) if value_id == 3 else None
    module.close()
    holds(
        con,
        "idle-at-peak",
        """
        opcode | held_bytes | transfer_bytes | low_saving_bytes | saving_bytes
        tanh   | 30         | NULL           | 0                | 30
    """,
    )
    holds(con, "idle-at-peak", remedy="offload", expected="""
        opcode | held_bytes | transfer_bytes | low_saving_bytes | saving_bytes
        tanh   | 30         | 60             | 30               | 30
        dot    | 20         | 40             | 20               | 20
    """)  # fmt: skip
