"""Query unplanned: memory that no plan has, and how it is known."""

from small_db import answer, derived, insert, rows
from tables import holds

PROFILE = {"run_name": "r", "profile_name": "mem.prof"}


def statistics(con, device, **values):
    for name, value in values.items():
        insert(con, "allocator_statistics", **PROFILE, device=device, statistic_name=name,
               statistic_value=value)  # fmt: skip


def test_nothing_in_an_empty_database(con):
    holds(con, "unplanned", "kind")


def test_what_is_known_has_its_source(con):
    insert(con, "runs", run_name="r")
    insert(con, "live_profiles", **PROFILE, code_bytes=3, program_count=1)
    insert(con, "live_arrays", **PROFILE, device="cuda:0", total_bytes=30, array_count=1)
    label = {"label": "max_host_bytes", "label_value": "4000", "is_metadata": True}
    insert(con, "run_labels", run_name="r", **label)
    statistics(con, "cuda:0", bytes_limit=100, bytes_in_use=40, pool_bytes=50, device_free_bytes=60,
               device_total_bytes=130, largest_free_block_bytes=45)  # fmt: skip
    statistics(con, "GPU_collectivememory_0_bfc", bytes_limit=20)
    holds(con, "unplanned", """
        device | kind        | held_bytes | unknown_reason
        cuda:0 | code        | 3          | NULL
        cuda:0 | rest        | 7          | NULL
        cuda:0 | collectives | 20         | NULL
        cuda:0 | outside     | 20         | NULL
        cuda:0 | split       | 15         | NULL
        NULL   | host        | 4000       | NULL
    """)  # fmt: skip


def test_what_is_not_known_is_null_with_the_reason(con):
    insert(con, "runs", run_name="r")
    statistics(con, "GPU_0_bfc", bytes_limit=100, bytes_in_use=40)
    holds(con, "unplanned", """
        kind        | held_bytes | source
        code        | NULL       | NULL
        rest        | NULL       | NULL
        collectives | NULL       | NULL
        outside     | NULL       | NULL
        split       | NULL       | NULL
        host        | NULL       | NULL
    """)  # fmt: skip
    with derived(con):
        assert all(row["unknown_reason"] for row in rows(con, "unplanned"))


def test_memory_of_a_cpu_is_the_host_s(con):
    insert(con, "runs", run_name="r")
    insert(con, "live_profiles", **PROFILE, code_bytes=0, program_count=1)
    insert(con, "live_arrays", **PROFILE, device="cpu:0", total_bytes=30, array_count=1)
    holds(con, "unplanned", """
        kind | held_bytes | source
        code | NULL       | NULL
        rest | NULL       | NULL
        host | NULL       | NULL
    """)  # fmt: skip
    holds(con, "unplanned", "kind", function="f")


def test_process_and_unplanned_agree_on_the_allocator(con):
    """Both have it from the view pools, also where a log rounds it."""
    insert(con, "runs", run_name="r")
    insert(con, "live_profiles", **PROFILE, code_bytes=3, program_count=1)
    insert(con, "live_arrays", **PROFILE, device="cuda:0", total_bytes=30, array_count=1)
    figures = {"bytes_limit": 100, "bytes_in_use": 40, "largest_free_block_bytes": 45}
    for name, value in {**figures, "free_chunk_bytes": 55}.items():
        insert(con, "allocator_statistics", **PROFILE, device="cuda:0", statistic_name=name,
               statistic_value=value, slack_bytes=2)  # fmt: skip
    parts = {row[14]: row[15:17] for row in answer(con, "process") if row[14] != "bystander"}
    assert parts == {"code": (3, 3), "rest": (5, 9), "free": (58, 62), "split": (6, 14)}
    known = {row[3]: row[4] for row in answer(con, "unplanned") if row[4] is not None}
    assert known == {"code": 3, "rest": 5, "split": 6}
