"""Query rank-growth: which lines grow in the ranks of a job, odd ones first."""

import pytest
from small_db import insert
from tables import holds


@pytest.fixture
def taken(con):
    """A function that adds snapshots of a process: bytes of each line, one for each snapshot."""

    def take(process, *, run="r", last_moment="snapshot", **lines):
        if not con.execute("SELECT 1 FROM runs WHERE run_name = ?", [run]).fetchall():
            insert(con, "runs", run_name=run)
        (count,) = {len(sizes) for sizes in lines.values()}
        for number in range(count):
            fails = number == count - 1 and last_moment == "failure"
            name = "memory.prof" if fails else f"memory-{number:06d}.prof"
            of = {"run_name": run, "profile_name": f"{process}/{name}"}
            insert(con, "live_profiles", **of, moment="failure" if fails else "snapshot",
                   elapsed_seconds=60.0 * number, snapshot_ordinal=None if fails else number,
                   program_count=0)  # fmt: skip
            for line, sizes in lines.items():
                for device in range(2 if sizes[number] else 0):
                    insert(con, "live_arrays", **of, device=f"gpu:{device}", shape="f32[4]",
                           source=f"t.py:{line[1:]}", python_function_name="f",
                           total_bytes=sizes[number] // 2, array_count=1)  # fmt: skip

    return take


def test_nothing_in_an_empty_database(con):
    holds(con, "rank-growth", "source")


def test_lines_that_grow_in_some_ranks_come_first(con, taken):
    for rank in range(5):
        lines = {"L1": (16, 96, 816), "L2": (64, 0, 64), "L3": (90, 0, 10)}
        if rank == 3:  # the others lack it
            lines["L4"] = (0, 16, 80)
        if rank == 1:
            lines["L2"] = (0, 0, 640)
        taken(f"p{rank}", **lines)
    taken("once", L1=(5000,))
    holds(con, "rank-growth", """
        source | shape  | process_count | grown_count | missing_count | odd_count | account_name
        t.py:2 | f32[4] | 5             | 1           | 0             | 1         | p1/memory.prof
        t.py:4 | f32[4] | 5             | 1           | 4             | 1         | p3/memory.prof
        t.py:1 | f32[4] | 5             | 5           | 0             | 0         | p0/memory.prof

        growth_bytes | min_growth_bytes | median_growth_bytes | max_growth_bytes | is_odd
        640          | 0                | 0                   | 640              | True
        80           | 0                | 0                   | 80               | True
        800          | 800              | 800                 | 800              | False
    """)  # fmt: skip


def test_a_failure_is_the_last_of_a_process(con, taken):
    """And a process that was killed is seen by its time."""
    for rank in range(4):
        taken(f"p{rank}", L1=(0, 200, 400, 600), last_moment="failure" if rank else "snapshot")
    taken("p4", L1=(0, 200))
    holds(con, "rank-growth", """
        account_name   | growth_bytes | median_growth_bytes | is_odd | last_seconds | latest_seconds
        p4/memory.prof | 200          | 600                 | True   | 60.0         | 180.0
    """)  # fmt: skip
    holds(con, "rank-growth", "account_name | odd_count\np0/memory.prof | 0", profile="p[0-3]/*")


def test_runs_with_a_label_are_ranks_of_one_job(con, taken):
    for number in range(8):
        run, job = f"run{number}", "a" if number < 4 else "b"
        taken("p", run=run, L1=(0, 900 if number == 2 else 100))
        for label, value in (("rank", str(number % 4)), ("job", job)):
            insert(con, "run_labels", run_name=run, label=label, label_value=value)
    holds(con, "rank-growth", """
        run_name | process_count | odd_count | growth_bytes
        run2     | 4             | 1         | 900
        run4     | 4             | 0         | 100
    """)  # fmt: skip
    holds(con, "rank-growth", "process_count | odd_count\n8 | 1", fixed="")
    one = "process_count | run_name | growth_bytes\n1 | run2 | 900"
    holds(con, "rank-growth", one, label="host", run="run2")


def test_only_as_many_odd_processes_as_asked_for(con, taken):
    for rank in range(9):
        taken(f"p{rank}", L1=(0, {1: 40, 4: 900, 7: 800}.get(rank, 100)))
    holds(con, "rank-growth", """
        account_name   | growth_bytes | odd_count
        p4/memory.prof | 900          | 3
        p7/memory.prof | 800          | 3
    """, rank_n=2)  # fmt: skip
    holds(con, "rank-growth", "account_name | odd_count\np4/memory.prof | 0", odd_ratio=8)
