"""Query diff-process: arrays that processes hold, of two runs side by side."""

from small_db import insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "diff-process", "source", base="a", new="b")


def take(con, run, lines, name="memory.prof", moment="failure", number=None, holder=None):
    of = {"run_name": run, "profile_name": name}
    insert(con, "live_profiles", **of, moment=moment, snapshot_ordinal=number, program_count=0)
    for frame, (line, (count, size)) in enumerate(lines.items(), 1):
        insert(con, "live_frames", **of, stack_frame_id=frame, own_frame_id=frame, depth=0,
               source_file="t.py", function_name="f", source_line=line)  # fmt: skip
        insert(con, "live_arrays", **of, device="gpu:0", stack_frame_id=frame, shape="f32[4]",
               source=f"t.py:{line}", python_function_name="f", total_bytes=size,
               array_count=count, holder_name=holder)  # fmt: skip


def test_what_grew_shrank_came_and_went(con):
    for run in "ab":
        insert(con, "runs", run_name=run)
    take(con, "a", {1: (1, 16), 2: (2, 64), 3: (1, 8), 5: (1, 4)})
    take(con, "b", {1: (6, 96), 3: (1, 8), 4: (1, 100), 5: (2, 4)}, holder="history")
    holds(con, "diff-process", """
        source | base_count | new_count | base_bytes | new_bytes | delta_bytes | holder_name
        t.py:4 | 0          | 1         | 0          | 100       | 100         | history
        t.py:1 | 1          | 6         | 16         | 96        | 80          | history
        t.py:2 | 2          | 0         | 64         | 0         | -64         | NULL
        t.py:5 | 1          | 2         | 4          | 4         | 0           | history
    """, base="a", new="b")  # fmt: skip
    holds(con, "diff-process", "source", base="a", new="missing")


def test_two_moments_of_a_run_and_the_last_running_one(con):
    insert(con, "runs", run_name="a")
    take(con, "a", {1: (1, 16)}, "memory-000000.prof", "snapshot", 0)
    take(con, "a", {1: (3, 48)}, "memory-000001.prof", "snapshot", 1)
    take(con, "a", {}, "memory.prof", "end")
    holds(con, "diff-process", "new_count | delta_bytes\n3 | 32", base="a", new="a",
          base_profile="*-000000.prof")  # fmt: skip


def test_processes_are_paired_by_name_if_there_are_several(con):
    for run in "ab":
        insert(con, "runs", run_name=run)
        for process in "12":
            size = 30 if (run, process) == ("b", "2") else 10
            take(con, run, {1: (1, size)}, f"process-{process}/memory.prof")
    holds(con, "diff-process", """
        account_name          | delta_bytes
        process-2/memory.prof | 20
    """, base="a", new="b")  # fmt: skip
