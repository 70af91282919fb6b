"""Query pool: whether a program's arena fits into one piece of what is free."""

import pytest
from small_db import Module, insert
from tables import holds

LOG = {"run_name": "r", "profile_name": "run.log", "device": "gpu_async_0"}
PROFILE = {"run_name": "r", "profile_name": "mem.prof"}


def statistics(con, place, slack=0, **values):
    for name, value in values.items():
        insert(con, "allocator_statistics", **place, statistic_name=name, statistic_value=value,
               slack_bytes=slack)  # fmt: skip


def module(con, number, function, temp, argument, output=0, key=""):
    one = Module(con, number, run_name="r", function_name=function, platform="gpu",
                 module_name=f"jit_{function}", module_key=f"{key}{number}")  # fmt: skip
    one.allocation(0, "temp", temp)
    one.allocation(1, "parameter", argument)
    one.allocation(2, "output", output)
    one.close()


@pytest.fixture
def r(con):
    insert(con, "runs", run_name="r")
    return con


def test_nothing_without_an_account(r):
    module(r, 1, "step", 100, 40)
    holds(r, "pool", "fit")


def test_an_arena_is_compared_with_one_piece(r):
    module(r, 1, "step", 60, 20)
    module(r, 2, "eval", 30, 20)
    module(r, 3, "init", 5, 20)
    insert(r, "live_profiles", **PROFILE, program_count=3, arguments_unknown_reason="why")
    insert(r, "live_arrays", **PROFILE, device="gpu:0", total_bytes=30, array_count=2)
    place = {**PROFILE, "device": "gpu:0"}
    statistics(r, place, bytes_limit=100, bytes_in_use=45, pool_bytes=100)
    # Arguments may be among what is in use, or not: 45 to 65 bytes stay.
    holds(r, "pool", """
        function_name | arena_bytes | low_stay_bytes | stay_bytes | low_block_bytes | block_bytes
        step          | 60          | 45             | 65         | NULL            | 55
        eval          | 30          | 45             | 65         | NULL            | 55
        init          | 5           | 45             | 65         | NULL            | 55

        fit      | limit_bytes | alive_bytes | rest_bytes
        no       | 100         | 30          | 15
        possible | 100         | 30          | 15
        possible | 100         | 30          | 15
    """)  # fmt: skip
    # The allocator says what is free in one piece.
    statistics(r, place, largest_free_block_bytes=29)
    holds(r, "pool", """
        function_name | low_block_bytes | block_bytes | fit
        step          | 9               | 29          | no
        eval          | 9               | 29          | no
        init          | 9               | 29          | yes
    """)  # fmt: skip
    holds(r, "pool", """
        function_name | block_bytes | fit
        eval          | 155         | possible
    """, function="eval", budget="200B")  # fmt: skip


def test_a_pool_that_grows_has_more_than_its_largest_block(r):
    module(r, 1, "step", 60, 0)
    statistics(r, LOG, bytes_limit=100, bytes_in_use=30, pool_bytes=40, largest_free_block_bytes=10)
    holds(r, "pool", """
        low_block_bytes | block_bytes | fit
        10              | 60          | possible
    """)  # fmt: skip


def test_programs_of_another_process_are_left_out(r):
    module(r, 1, "step", 60, 20, key="process-1/")
    module(r, 2, "eval", 30, 20, key="process-2/")
    for name in ("process-2/run.log", "process-3/run.log"):
        statistics(r, {**LOG, "profile_name": name}, bytes_limit=100, bytes_in_use=45)
    holds(r, "pool", """
        profile_name      | function_name
        process-2/run.log | eval
        process-3/run.log | step
        process-3/run.log | eval
    """)  # fmt: skip


def test_what_failed_comes_first_and_has_its_arguments(r):
    insert(r, "live_profiles", **PROFILE, program_count=2, moment="failure", code_bytes=0,
           failed_program_name="jit_step", requested_bytes=50, limit_bytes=100)  # fmt: skip
    for number, (name, temp) in enumerate([("jit_big", 90), ("jit_step", 50)]):
        insert(r, "live_programs", **PROFILE, program_ordinal=number, program_name=name,
               is_failed=number == 1, argument_bytes=40, output_bytes=5, alias_bytes=5,
               temp_bytes=temp)  # fmt: skip
    insert(r, "live_arrays", **PROFILE, device="cpu:0", total_bytes=60, array_count=2,
           argument_bytes=40, argument_count=1)  # fmt: skip
    holds(r, "pool", """
        function_name | is_failed | arena_bytes | low_stay_bytes | stay_bytes | block_bytes | fit
        step          | True      | 50          | 60             | 60         | 40          | no
        NULL          | True      | 50          | 60             | 60         | 40          | no
        big           | False     | 90          | 60             | 100        | 40          | no
    """)  # fmt: skip


def test_outputs_take_room_as_the_arena_does(r):
    module(r, 1, "step", 30, 10, output=40)
    module(r, 2, "eval", 35, 10)
    module(r, 3, "init", 0, 0, output=80)
    module(r, 4, "train", 0, 70, output=20)
    place = {**PROFILE, "device": "gpu:0"}
    statistics(r, place, bytes_limit=100, bytes_in_use=40)
    holds(
        r,
        "pool",
        """
        function_name | arena_bytes | output_bytes | block_bytes | fit
        eval          | 35          | 0            | 60          | possible
        step          | 30          | 40           | 60          | no
        train         | 0           | 20           | 30          | possible
        init          | 0           | 80           | 60          | no
    """,
    )


def test_an_unknown_limit_decides_nothing(r):
    module(r, 1, "step", 60, 20)
    insert(r, "live_profiles", **PROFILE, program_count=0, arguments_unknown_reason="why")
    insert(r, "live_arrays", **PROFILE, device="cpu:0", total_bytes=30, array_count=2)
    holds(r, "pool", """
        function_name | limit_bytes | stay_bytes | block_bytes | fit
        step          | NULL        | NULL       | NULL        | NULL
    """)  # fmt: skip
    r.execute("UPDATE live_profiles SET code_bytes = 3")
    holds(r, "pool", """
        function_name | limit_bytes | low_stay_bytes | stay_bytes | block_bytes | fit
        step          | NULL        | 33             | 53         | NULL        | NULL
    """)  # fmt: skip


GIB = 1 << 30
GB200 = {
    "device_total_bytes": 197890015232, "device_free_bytes": 18801229824,
    "bytes_limit": 148417511424, "bytes_in_use": int(18.05 * GIB), "pool_bytes": 148417544192,
}  # fmt: skip
"""Of marin-community/marin#8508 and its logs."""


def arena(con, gib, flags=None, output=0):
    """A step whose arguments and outputs leave 133.6 GiB of 80 % of the device."""
    insert(con, "runs", run_name="r")
    rest = 197890015232 * 8 // 10 - int(133.6 * GIB) - output
    module(con, 1, "step", int(gib * GIB), rest, output)
    if flags is not None:
        label = {"label": "xla_flags", "label_value": flags, "is_metadata": True}
        insert(con, "run_labels", run_name="r", **label)
    statistics(con, LOG, **GB200)


PLANNED = "planned_source | slop_factor | fitting_slop_factor | fit"


def test_a_factor_fits_where_the_arena_follows_it(con):
    arena(con, 125.7, "--xla_gpu_foo=1")
    # 95 % of 133.6 GiB are planned, and 120.2 GiB free: 133.6 * 89 / 100 = 118.9 GiB fit.
    holds(con, "pool", f"""
        {PLANNED} | planned_bytes | fitting_arena_bytes
        computed | 95 | 89 | no | {95 * int(133.6 * GIB) // 100} | 127672197839
    """)  # fmt: skip


def test_a_factor_leaves_room_for_outputs(con):
    arena(con, 125.7, "--xla_gpu_foo=1", output=10 * GIB)
    # 110.2 of the 120.2 GiB are left next to them: 133.6 * 82 / 100 = 109.6 GiB.
    holds(con, "pool", "slop_factor | fitting_slop_factor | fit\n95 | 82 | no")


@pytest.mark.parametrize(
    ("gib", "flags", "expected"),
    [
        (117.6, "--xla_gpu_memory_limit_slop_factor=88", "computed | 88 | NULL | possible"),
        (125.7, None, "NULL | NULL | NULL | no"),
        # It is far from what XLA planned for.
        (160.0, "--xla_gpu_foo=1", "computed | 95 | NULL | no"),
    ],
)
def test_else_no_factor_is_said(con, gib, flags, expected):
    arena(con, gib, flags)
    holds(con, "pool", f"{PLANNED}\n{expected}")


def test_where_xla_warned_no_factor_helps(con):
    arena(con, 125.7, "")
    insert(con, "modules", module_id=9, run_name="r", module_key="run.log/message_1",
           function_name="step", format_era="M", peak_unknown_reason="why")  # fmt: skip
    insert(con, "scheduled_limits", module_id=9, limit_bytes=120 * GIB, least_bytes=126 * GIB)
    holds(con, "pool", f"""
        {PLANNED} | planned_bytes
        warning | 95 | NULL | no | {120 * GIB}
    """)  # fmt: skip


def test_memory_for_collectives_is_beside_the_pool(r):
    statistics(r, {**LOG, "device": "GPU_0_bfc"}, bytes_limit=90, bytes_in_use=10,
               requested_bytes=85)  # fmt: skip
    statistics(r, {**LOG, "device": "GPU_collectivememory_0_bfc"}, bytes_limit=30)
    holds(r, "pool", """
        device    | collective_bytes | function_name | arena_bytes | fit
        GPU_0_bfc | 30               | NULL          | 85          | no
    """)  # fmt: skip


def test_of_snapshots_the_last_is_the_account(r):
    module(r, 1, "step", 60, 20)
    for number, alive in ((1, 10), (2, 30)):
        place = {"run_name": "r", "profile_name": f"memory-{number}.prof"}
        insert(r, "live_profiles", **place, moment="snapshot", snapshot_ordinal=number,
               limit_bytes=100, program_count=0, arguments_unknown_reason="why")  # fmt: skip
        insert(r, "live_arrays", **place, device="gpu:0", total_bytes=alive, array_count=1)
    holds(r, "pool", """
        profile_name  | alive_bytes
        memory-2.prof | 30
    """)  # fmt: skip
