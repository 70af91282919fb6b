"""Query process-curve: memory of a process over its snapshots, with the program that runs."""

from small_db import insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "process-curve", "device")


def take(con, number, alive, *, process="", moment="snapshot", plan=(30, 10, 5, 60), **cells):
    of = {"run_name": "r", "profile_name": f"{process}memory-{number:06d}.prof"}
    insert(con, "live_profiles", **of, moment=moment, elapsed_seconds=10.0 * number,
           snapshot_ordinal=number, program_count=1, **cells)  # fmt: skip
    for device, size in alive.items():
        insert(con, "live_arrays", **of, device=device, total_bytes=size, array_count=2)
    argument, output, alias, temp = plan
    for place, name in enumerate(("jit_small", "jit_step")):
        insert(con, "live_programs", **of, program_ordinal=place, program_name=name,
               is_failed=False, argument_bytes=argument * place, output_bytes=output,
               alias_bytes=alias, temp_bytes=temp)  # fmt: skip


def test_the_largest_program_runs_upon_what_is_alive(con):
    insert(con, "runs", run_name="r")
    take(con, 0, {"gpu:0": 20}, mark="a", limit_bytes=99)
    take(con, 1, {"gpu:0": 50, "gpu:1": 7})
    take(con, 2, {}, moment="end")
    # The plan of step is 30 + 10 - 5 + 60; 20 of the arrays at the most are its arguments.
    holds(con, "process-curve", """
        device | elapsed_seconds | mark | alive_bytes | function_name | plan_bytes
        gpu:0  | 0.0             | a    | 20          | step          | 95
        gpu:0  | 10.0            | NULL | 50          | step          | 95
        gpu:1  | 0.0             | a    | 0           | step          | 95
        gpu:1  | 10.0            | NULL | 7           | step          | 95

        low_running_bytes | running_bytes | limit_bytes | account_name
        95                | 115           | 99          | memory.prof
        115               | 145           | NULL        | memory.prof
        95                | 95            | 99          | memory.prof
        95                | 102           | NULL        | memory.prof
    """)  # fmt: skip


def test_a_device_with_nothing_alive_but_memory_in_use(con):
    insert(con, "runs", run_name="r")
    take(con, 0, {"gpu:0": 20})
    of = {"run_name": "r", "profile_name": "memory-000000.prof", "device": "gpu:1"}
    for name, value in {"bytes_in_use": 70, "bytes_limit": 100}.items():
        insert(con, "allocator_statistics", **of, statistic_name=name, statistic_value=value)
    holds(con, "process-curve", """
        device | alive_bytes | array_count | used_bytes | limit_bytes | low_running_bytes
        gpu:0  | 20          | 2           | NULL       | NULL        | 95
        gpu:1  | 0           | 0           | 70         | 100         | 95
    """)  # fmt: skip


def test_of_many_processes_those_that_hold_most(con):
    insert(con, "runs", run_name="r")
    for process, size in enumerate((5, 9, 7)):
        take(con, 0, {"gpu:0": size}, process=f"process-{process}/")
    holds(con, "process-curve", """
        account_name
        process-1/memory.prof
        process-2/memory.prof
    """, process_n=2)  # fmt: skip
