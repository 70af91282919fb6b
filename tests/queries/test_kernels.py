"""Kernels in the order of how full their memory is."""

from small_db import Module, insert
from tables import holds


def kernel(con, module_id, name, used, limit, **cells):
    why = {"used_unknown_reason": "no file"} if used is None else {}
    why |= {"limit_unknown_reason": "its own"} if limit is None else {}
    of_tpu = {"target": "tpu_custom_call", "memory_space_name": "vmem"}
    insert(con, "kernels", module_id=module_id, instruction_name=name, used_bytes=used,
           limit_bytes=limit, **{**of_tpu, **why, **cells})  # fmt: skip


def test_own_kernels_first_fullest_first_and_unknown_last(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 500)
    module.value(1, 0, 0, 100, (0, 3), "mm.1", opcode="custom-call", op_name="jit(step)/mm",
                 source_file="kernel.py", source_line=7)  # fmt: skip
    module.close()
    kernel(con, 1, "mm.1", 12, 16)
    kernel(con, 1, "mm.2", 12, 48)
    kernel(con, 1, "mm.3", 90, None)
    kernel(con, 1, "mm.4", None, None)
    for name, used in (("fusion.5", 24), ("fusion.6", 48)):
        kernel(con, 1, name, used, 48, target=None, memory_space_name="shared")
    holds(con, "kernels", """
        run_name | function_name | instruction_name | target          | memory_space_name
        r        | step          | mm.1             | tpu_custom_call | vmem
        r        | step          | mm.2             | tpu_custom_call | vmem
        r        | step          | mm.3             | tpu_custom_call | vmem
        r        | step          | mm.4             | tpu_custom_call | vmem
        r        | step          | fusion.6         | NULL            | shared
        r        | step          | fusion.5         | NULL            | shared

        used_bytes | limit_bytes | used_ratio | op_name      | source      | unknown_reason
        12         | 16          | 0.75       | jit(step)/mm | kernel.py:7 | NULL
        12         | 48          | 0.25       | NULL         | NULL        | NULL
        90         | NULL        | NULL       | NULL         | NULL        | its own
        NULL       | NULL        | NULL       | NULL         | NULL        | no file
        48         | 48          | 1.0        | NULL         | NULL        | NULL
        24         | 48          | 0.5        | NULL         | NULL        | NULL
    """)  # fmt: skip
    holds(con, "kernels", """
        instruction_name
        mm.1
    """, top_n=1)  # fmt: skip
    holds(con, "kernels", "run_name", function="other")


def test_nothing_in_an_empty_database(con):
    holds(con, "kernels", "run_name")
