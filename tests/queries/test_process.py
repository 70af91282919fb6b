"""Query process: what a process holds next to what a program needs."""

import pytest
from small_db import Module, insert
from tables import holds

RUN = {"run_name": "r", "profile_name": "mem.prof"}
WHY = "bufdb.watch was not there"


def test_nothing_in_an_empty_database(con):
    holds(con, "process", "part")


def profile(con, why=WHY, **cells):
    insert(con, "live_profiles", **RUN, code_bytes=cells.pop("code_bytes", 0), program_count=1,
           arguments_unknown_reason=why, **cells)  # fmt: skip


def line(con, number, function, size, arguments=None, *, device="gpu:0", count=1, given_count=None):
    file = "e.py"
    insert(con, "live_frames", **RUN, stack_frame_id=number, own_frame_id=number, depth=0,
           source_file=file, function_name=function, source_line=number)  # fmt: skip
    insert(con, "live_arrays", **RUN, device=device, stack_frame_id=number,
           source=f"{file}:{number}", python_function_name=function, total_bytes=size,
           array_count=count, argument_bytes=arguments, argument_count=given_count)  # fmt: skip


def program(con, name="jit_step", ordinal=0, *, is_failed=True, **needs):
    fields = {"argument_bytes": 40, "output_bytes": 30, "alias_bytes": 10, "temp_bytes": 25}
    insert(con, "live_programs", **RUN, program_ordinal=ordinal, program_name=name,
           is_failed=is_failed, code_bytes=0, **{**fields, **needs})  # fmt: skip


@pytest.fixture
def step(con):
    """A run with one program: 100 bytes of temp and 40 of arguments."""
    insert(con, "runs", run_name="r")
    module = Module(con, 1, run_name="r", function_name="step")
    module.allocation(0, "temp", 100)
    module.value(1, 0, offset=0, size=100)
    module.allocation(1, "parameter", 40)
    module.value(2, 1, offset=0, size=40)
    module.close()
    return con


def test_without_identity_bystanders_are_a_range(step):
    profile(step)
    line(step, 1, "make", 50, count=2)
    line(step, 2, "cache", 20)
    holds(
        step,
        "process",
        """
        function_name | plan_bytes | alive_bytes | low_bystander_bytes | bystander_bytes
        step          | 140        | 70          | 30                  | 70
        step          | 140        | 70          | 30                  | 70
        step          | 140        | 70          | 30                  | 70
        step          | 140        | 70          | 30                  | 70
        step          | 140        | 70          | 30                  | 70

        process_bytes
        210
        210
        210
        210
        210

        part      | low_bytes | held_bytes | array_count | python_function_name | source
        argument  | 40        | 40         | NULL        | NULL                 | NULL
        output    | 0         | 0          | NULL        | NULL                 | NULL
        temp      | 100       | 100        | NULL        | NULL                 | NULL
        bystander | 10        | 50         | 2           | make                 | e.py:1
        bystander | 0         | 20         | 1           | cache                | e.py:2
    """,
    )


def test_the_program_that_failed_knows_its_arguments(con):
    insert(con, "runs", run_name="r")
    profile(con, None, failed_program_name="jit_step", code_bytes=3)
    program(con)
    program(con, "jit_big", 1, is_failed=False, temp_bytes=9_000)
    line(con, 1, "make", 50, 40, count=3, given_count=2)
    line(con, 2, "cache", 20, 0, given_count=0)
    line(con, 3, "taken", 5, 5, given_count=1)
    for name, value in {"bytes_in_use": 80, "bytes_limit": 100, "free_chunk_bytes": 20,
                        "largest_free_block_bytes": 12}.items():  # fmt: skip
        insert(con, "allocator_statistics", **RUN, device="gpu:0", statistic_name=name,
               statistic_value=value)  # fmt: skip
    holds(
        con,
        "process",
        """
        plan_bytes | bystander_bytes | process_bytes | part      | held_bytes | array_count | source
        85         | 30              | 115           | argument  | 40         | 3           | NULL
        85         | 30              | 115           | output    | 20         | NULL        | NULL
        85         | 30              | 115           | temp      | 25         | NULL        | NULL
        85         | 30              | 115           | bystander | 20         | 1           | e.py:2
        85         | 30              | 115           | bystander | 10         | 1           | e.py:1
        85         | 30              | 115           | code      | 3          | NULL        | NULL
        85         | 30              | 115           | rest      | 2          | NULL        | NULL
        85         | 30              | 115           | free      | 20         | NULL        | NULL
        85         | 30              | 115           | split     | 8          | NULL        | NULL
    """,
    )
    # Of another program arguments are not known.
    holds(
        con,
        "process",
        """
        function_name | low_bystander_bytes | bystander_bytes | part
        big           | 35                  | 75              | argument
        big           | 35                  | 75              | output
        big           | 35                  | 75              | temp
        big           | 35                  | 75              | bystander
        big           | 35                  | 75              | bystander
        big           | 35                  | 75              | bystander
        big           | 35                  | 75              | code
        big           | 35                  | 75              | rest
        big           | 35                  | 75              | free
        big           | 35                  | 75              | split
    """,
        function="b*",
    )


def test_code_of_unknown_size_is_within_what_is_in_use(con):
    insert(con, "runs", run_name="r")
    profile(con, code_bytes=None)
    line(con, 1, "f", 50)
    for name, value in {"bytes_in_use": 80, "bytes_limit": 100}.items():
        insert(con, "allocator_statistics", **RUN, device="gpu:0", statistic_name=name,
               statistic_value=value)  # fmt: skip
    holds(con, "process", """
        part      | low_bytes | held_bytes
        bystander | NULL      | 50
        rest      | 0         | 30
        free      | 20        | 20
    """)  # fmt: skip


def test_the_other_lines_are_one_row_and_nothing_is_lost(step):
    profile(step)
    for number in range(1, 6):
        line(step, number, "f", 10 * number)
    holds(
        step,
        "process",
        """
        part      | low_bytes | held_bytes | array_count | source
        argument  | 40        | 40         | NULL        | NULL
        output    | 0         | 0          | NULL        | NULL
        temp      | 100       | 100        | NULL        | NULL
        bystander | 10        | 50         | 1           | e.py:5
        bystander | 0         | 40         | 1           | e.py:4
        bystander | 20        | 60         | 3           | (3 more)
    """,
        top_n=2,
    )


def test_without_a_program_the_need_is_unknown(con):
    insert(con, "runs", run_name="r")
    profile(con)
    line(con, 1, "f", 7)
    holds(
        con,
        "process",
        """
        plan_bytes | alive_bytes | low_bystander_bytes | process_bytes | low_bytes | held_bytes
        NULL       | 7           | NULL                | NULL          | NULL      | 7
    """,
    )


def test_an_unknown_need_is_that_of_its_dump(step):
    step.execute("UPDATE modules SET module_name = 'jit_step'")
    profile(step, None, failed_program_name="jit_step")
    unknown = dict.fromkeys(["argument_bytes", "output_bytes", "alias_bytes", "temp_bytes"])
    program(step, **unknown)
    holds(step, "process", """
        function_name | plan_bytes | part
        step          | 140        | argument
        step          | 140        | output
        step          | 140        | temp
    """)  # fmt: skip


def test_any_function_is_the_same_as_none(con):
    insert(con, "runs", run_name="r")
    profile(con)
    line(con, 1, "f", 7)
    for name in ("function", "module", "platform"):
        holds(con, "process", """
            function_name | alive_bytes
            NULL          | 7
        """, **{name: "*"})  # fmt: skip


def test_an_unknown_need_is_not_small(con):
    insert(con, "runs", run_name="r")
    profile(con)
    line(con, 1, "f", 7)
    insert(con, "modules", module_id=1, run_name="r", module_key="m", function_name="step",
           format_era="C", peak_unknown_reason="no live ranges")  # fmt: skip
    holds(
        con,
        "process",
        """
        function_name | plan_bytes | alive_bytes
        NULL          | NULL       | 7
    """,
    )


def test_nothing_alive_is_zero_and_devices_are_apart(step):
    profile(step)
    holds(
        step,
        "process",
        """
        device | alive_bytes | bystander_bytes | part
        NULL   | 0           | 0               | argument
        NULL   | 0           | 0               | output
        NULL   | 0           | 0               | temp
    """,
    )
    line(step, 1, "f", 7)
    line(step, 2, "f", 9, device="gpu:1")
    holds(
        step,
        "process",
        """
        device | alive_bytes | part
        gpu:0  | 7           | argument
        gpu:0  | 7           | output
        gpu:0  | 7           | temp
        gpu:0  | 7           | bystander
        gpu:1  | 9           | argument
        gpu:1  | 9           | output
        gpu:1  | 9           | temp
        gpu:1  | 9           | bystander
    """,
    )


def test_memory_for_collectives_is_no_device(step):
    profile(step)
    insert(step, "allocator_statistics", **RUN, device="GPU_collectivememory_0_bfc",
           statistic_name="bytes_limit", statistic_value=9)  # fmt: skip
    line(step, 1, "f", 7)
    holds(step, "process", """
        device | part
        gpu:0  | argument
        gpu:0  | output
        gpu:0  | temp
        gpu:0  | bystander
    """)  # fmt: skip
