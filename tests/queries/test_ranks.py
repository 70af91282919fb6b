"""Query ranks: what the ranks of a job need and hold, odd ones first."""

import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "ranks", "function_name")


def compiled(con, module_id, rank, size, function="f", known=True, **labels):
    run_name = f"run{module_id}"
    module = Module(con, module_id, run_name, function, has_live_ranges=known)
    module.allocation(0, "output", size, output_shape=f"f32[{size}]")
    if known:
        module.close()
    for label, value in (labels | {"rank": rank}).items():
        insert(con, "run_labels", run_name=run_name, label=label, label_value=value)


@pytest.mark.slow
def test_spread_over_ranks(con):
    for module_id, (rank, size) in enumerate([("0", 30), ("1", 40), ("2", 10), ("3", 40)]):
        compiled(con, module_id, rank, size, job="j")
    # 10, 30, 40, 40: the lower one of the two in the middle is 30.
    holds(con, "ranks", """
        figure | function_name | platform | compilation_place | color | other_labels | rank_count
        peak   | f             | NULL     | 1                 | 0     | job=j        | 4
        need   | f             | NULL     | 1                 | 0     | job=j        | 4

        signature_count | min_bytes | median_bytes | max_bytes | spread_bytes
        3               | 10        | 30           | 40        | 30
        3               | 10        | 30           | 40        | 30

        spread_ratio | fullest_rank | emptiest_rank | odd_count | rank | run_name
        0.75         | 1            | 2             | 0         | 2    | NULL
        0.75         | 1            | 2             | 0         | 2    | NULL
    """)  # fmt: skip
    compiled(con, 9, "4", 99, known=False, job="j")
    holds(con, "ranks", """
        rank_count | signature_count | min_bytes | median_bytes | max_bytes | spread_bytes
        5          | 4               | NULL      | NULL         | NULL      | NULL

        spread_ratio | fullest_rank | emptiest_rank | rank | unknown_count | is_odd
        NULL         | NULL         | NULL          | 4    | 1             | NULL

        unknown_reason
        the dump has no live ranges
    """, figure="peak")  # fmt: skip
    # What XLA reserves is known without live ranges.
    holds(con, "ranks", "rank_count | max_bytes\n5 | 99", figure="need")


@pytest.mark.slow
def test_other_labels_keep_jobs_apart_unless_they_do_not_matter(con):
    compiled(con, 1, "0", 10, job="a", host="x")
    compiled(con, 2, "1", 20, job="a", host="y")
    compiled(con, 3, "0", 30, job="b", host="x")
    holds(con, "ranks", """
        other_labels
        host=x job=b
        host=y job=a
        host=x job=a
    """, figure="peak")  # fmt: skip
    holds(con, "ranks", """
        other_labels | rank_count | spread_bytes
        job=a        | 2          | 10
        job=b        | 1          | 0
    """, fixed="job", figure="peak")  # fmt: skip
    assert len(answer(con, "ranks", fixed="job", top_n=1)) == 1


def test_ranks_of_one_value_are_one_each_whatever_their_shapes(con, taken):
    """Each value is read once, however many ranks and shapes of arguments it is of."""
    for rank, size in enumerate([10, 10, 10, 10, 10, 10, 10, 900, 900, 40]):
        module = Module(con, rank, "r", "f", module_key=f"rank-{rank}/f", has_live_ranges=rank > 1)
        module.allocation(0, "output", size, output_shape=f"f32[{rank}]")
        if rank > 1:
            module.close()
    holds(con, "ranks", """
        figure | rank   | own_bytes | is_odd | odd_count | signature_count | median_bytes
        peak   | rank-0 | NULL      | NULL   | NULL      | 10              | NULL
        peak   | rank-1 | NULL      | NULL   | NULL      | 10              | NULL
        need   | rank-7 | 900       | True   | 3         | 10              | 10
        need   | rank-8 | 900       | True   | 3         | 10              | 10
    """, rank_n=2)  # fmt: skip


def test_a_function_that_ranks_lack_comes_first(con):
    for rank in "012":
        compiled(con, int(rank), rank, 10)
    insert(con, "runs", run_name="run3")
    module = Module(con, 3, "run3", "g")
    module.allocation(0, "output", 10)
    module.close()
    insert(con, "run_labels", run_name="run3", label="rank", label_value="3")
    holds(con, "ranks", """
        function_name | rank_count | missing_count
        f             | 3          | 1
        g             | 1          | 3
    """, figure="need")  # fmt: skip


@pytest.fixture
def taken(con):
    """A function that adds a profile of a process of run r: bytes alive on each device."""
    insert(con, "runs", run_name="r")

    def take(name, *alive, number=None, program=None, run="r", **statistics):
        of = {"run_name": run, "profile_name": name}
        moment = "end" if number is None else "snapshot"
        insert(con, "live_profiles", **of, moment=moment, snapshot_ordinal=number,
               elapsed_seconds=None if number is None else 60 * number,
               program_count=1)  # fmt: skip
        for place, size in enumerate(alive):
            insert(con, "live_arrays", **of, device=f"cuda:{place}", shape="f32[4]",
                   total_bytes=size, array_count=1)  # fmt: skip
        if program is not None:
            insert(con, "live_programs", **of, program_ordinal=0, program_name="jit_f",
                   is_failed=False, argument_bytes=program, output_bytes=0, alias_bytes=0,
                   temp_bytes=0)  # fmt: skip
        for statistic, value in statistics.items():
            insert(con, "allocator_statistics", **of, device="cuda:0", statistic_name=statistic,
                   statistic_value=value)  # fmt: skip

    return take


def test_processes_of_a_run_are_ranks_odd_ones_first(con, taken):
    for rank in range(5):
        folder = f"rank-{rank}"
        most = 900 if rank == 3 else 500
        taken(f"{folder}/memory-000000.prof", 100, number=0)
        taken(f"{folder}/memory-000001.prof", 100, most, number=1)
        taken(f"{folder}/memory.prof", 200, program=70, bytes_in_use=250 + rank,
              largest_free_block_bytes=8 if rank == 2 else 64)  # fmt: skip
    holds(con, "ranks", """
        figure     | run_name | rank_count | min_bytes | median_bytes | max_bytes | odd_count
        most_alive | r        | 5          | 500       | 500          | 900       | 1
        grown      | r        | 5          | 400       | 400          | 800       | 1
        block      | r        | 5          | 8         | 64           | 64        | 1
        used       | r        | 5          | 250       | 252          | 254       | 0
        alive      | r        | 5          | 200       | 200          | 200       | 0
        program    | r        | 5          | 70        | 70           | 70        | 0

        rank   | own_bytes | difference_bytes | is_odd | missing_count
        rank-3 | 900        | 400              | True   | 0
        rank-3 | 800        | 400              | True   | 0
        rank-2 | 8          | -56              | True   | 0
        rank-0 | 250        | -2               | False  | 0
        rank-0 | 200        | 0                | False  | 0
        rank-0 | 70         | 0                | False  | 0
    """)  # fmt: skip


def test_a_killed_process_is_compared_by_its_last_snapshot(con, taken):
    for rank in range(3):
        for number in range(3 if rank else 2):
            taken(f"process-{rank}/memory-00000{number}.prof", 100 + 50 * number, number=number)
    holds(con, "ranks", """
        figure | emptiest_rank | min_bytes | max_bytes | rank      | last_seconds | latest_seconds
        alive  | process-0     | 150       | 200       | process-0 | 60.0         | 120.0
    """, figure="alive")  # fmt: skip


def test_processes_of_labelled_runs_have_both_names(con, taken):
    for host in "ab":
        run = f"run-{host}"
        insert(con, "runs", run_name=run)
        insert(con, "run_labels", run_name=run, label="rank", label_value=host)
        for process in "01":
            taken(f"process-{process}/memory.prof", 40 if (host, process) == ("b", "1") else 20,
                  run=run)  # fmt: skip
    holds(con, "ranks", """
        run_name | rank_count | fullest_rank | rank        | odd_count
        NULL     | 4          | b/process-1  | b/process-1 | 1
    """, figure="alive")  # fmt: skip


def test_a_process_alone_is_no_job(con, taken):
    taken("memory.prof", 100)
    holds(con, "ranks", "figure")


def test_dumps_of_one_process_have_its_name(con, taken):
    module = Module(con, 1, "r", "f", module_key="process-0/f")
    module.allocation(0, "output", 10)
    module.close()
    taken("process-0/memory.prof", 100)
    taken("process-1/memory.prof", 100)
    holds(con, "ranks", """
        figure | rank_count | missing_count | rank
        need   | 1          | 1             | process-0
        alive  | 2          | 0             | process-0
    """, figure="[na]*")  # fmt: skip


@pytest.mark.parametrize("profile", ["memory.prof", "mine.prof", "profiles/memory.prof"])
def test_dumps_and_profiles_of_one_process(con, taken, profile):
    """Where they are in one folder, or those of one kind within, no name distinguishes them."""
    compiled(con, 1, "0", 10)
    compiled(con, 2, "1", 10)
    taken(profile, 100, run="run1")
    taken(profile, 100, run="run2")
    holds(con, "ranks", """
        figure | rank_count | missing_count | rank
        alive  | 2          | 0             | 0
        need   | 2          | 0             | 0
    """, figure="[na]*")  # fmt: skip


def test_what_one_process_alone_has_is_shown(con, taken):
    taken("process-0/memory.prof", 100, bytes_in_use=120)
    taken("process-1/memory.prof", 100)
    holds(con, "ranks", """
        figure | rank_count | missing_count | rank      | own_bytes
        used   | 1          | 1             | process-0 | 120
    """, figure="used")  # fmt: skip
