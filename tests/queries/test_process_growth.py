"""Query process-growth: what grows in a process from snapshot to snapshot."""

import pytest
from small_db import insert
from tables import holds


@pytest.fixture
def taken(con):
    """A function that adds a snapshot of a process, with arrays by line: (count, bytes)."""
    insert(con, "runs", run_name="r")

    def take(number, lines, *, process="", moment="snapshot", programs=(), **cells):
        stem = "memory" if moment != "snapshot" else f"memory-{number:06d}"
        of = {"run_name": "r", "profile_name": f"{process}{stem}.prof"}
        ordinal = number if moment == "snapshot" else None
        insert(con, "live_profiles", **of, moment=moment, elapsed_seconds=float(number),
               snapshot_ordinal=ordinal, program_count=len(programs), **cells)  # fmt: skip
        for frame, (line, (count, size)) in enumerate(lines.items(), 1):
            insert(con, "live_frames", **of, stack_frame_id=frame, own_frame_id=frame, depth=0,
                   source_file="t.py", function_name="f", source_line=line)  # fmt: skip
            insert(con, "live_arrays", **of, device="gpu:0", stack_frame_id=frame, shape="f32[4]",
                   source=f"t.py:{line}", python_function_name="f", total_bytes=size,
                   array_count=count)  # fmt: skip
        for place, (name, code) in enumerate(programs):
            insert(con, "live_programs", **of, program_ordinal=place, program_name=name,
                   is_failed=False, code_bytes=code)  # fmt: skip

    return take


def test_nothing_in_an_empty_database(con):
    holds(con, "process-growth", "source")


def test_one_snapshot_shows_no_growth(con, taken):
    taken(0, {1: (1, 16)})
    holds(con, "process-growth", "source", every_line=True)


def test_only_what_never_shrinks_is_likely(con, taken):
    #        leak      saw-tooth  once      steady
    table = [(1, 2, 3, 4, 6), (1, 3, 2, 4, 5), (0, 1, 1, 1, 1), (2, 2, 2, 2, 2)]
    for number in range(5):
        lines = {line: (n, 16 * n) for line, counts in enumerate(table, 1) if (n := counts[number])}
        taken(number, lines, mark=f"step {number}")
    holds(
        con,
        "process-growth",
        """
        source | first_count | last_count | growth_bytes | grown_count | shrunk_count
        t.py:1 | 1           | 6          | 80           | 4           | 0
        t.py:2 | 1           | 5          | 64           | 3           | 1
        t.py:3 | 0           | 1          | 16           | 1           | 0

        source | since_mark | since_seconds | last_mark | sureness
        t.py:1 | step 0     | 0.0           | step 4    | likely
        t.py:2 | step 0     | 0.0           | step 4    | possible
        t.py:3 | step 0     | 0.0           | step 4    | NULL
    """,
    )
    holds(
        con,
        "process-growth",
        """
        source | growth_bytes | since_seconds | sureness
        t.py:1 | 80           | 0.0           | possible
        t.py:2 | 64           | 0.0           | possible
        t.py:3 | 16           | 0.0           | NULL
        t.py:4 | 0            | NULL          | NULL
    """,
        every_line=True,
        least_count=5,
    )


def test_what_a_snapshot_does_not_list_is_none(con, taken):
    for number, counts in enumerate([(1, 2), (0, 1), (2, 0), (0, 0), (3, 0)]):
        lines = {line: (n, 16 * n) for line, n in enumerate(counts, 1) if n}
        taken(number, lines)
    holds(
        con,
        "process-growth",
        """
        source | first_count | last_count | growth_bytes | grown_count | shrunk_count
        t.py:1 | 1           | 3          | 32           | 2           | 2
        t.py:2 | 2           | 0          | -32          | 0           | 2

        source | since_seconds | sureness
        t.py:1 | 1.0           | possible
        t.py:2 | NULL          | NULL
    """,
        every_line=True,
    )


def test_what_has_stopped_to_grow_is_no_likely_leak(con, taken):
    for number in range(12):
        count = min(number + 1, 4)
        taken(number, {1: (count, 16 * count)})
    holds(con, "process-growth", "grown_count | sureness\n3 | possible")


def test_the_end_does_not_count_and_a_failure_does(con, taken):
    for number in range(4):
        taken(number, {1: (number, 16 * number)}, process="process-1/")
        taken(number, {1: (number, 16 * number)}, process="process-2/")
    taken(9, {}, moment="end", process="process-1/")
    taken(9, {1: (7, 112)}, moment="failure", process="process-2/")
    holds(
        con,
        "process-growth",
        """
        account_name          | snapshot_count | last_bytes | last_seconds | sureness
        process-1/memory.prof | 4              | 48         | 3.0          | likely
        process-2/memory.prof | 5              | 112        | 9.0          | likely
    """,
    )
    holds(con, "process-growth", "last_bytes\n48", profile="process-1/*")


def test_programs_of_unknown_size_have_no_bytes(con, taken):
    for number in range(4):
        programs = [("jit_step", 8)] * (number + 1) + [("jit_g", None)] * number
        taken(number, {}, programs=programs)
    holds(
        con,
        "process-growth",
        """
        kind     | python_function_name | first_count | last_count | growth_bytes | sureness
        programs | step                 | 1           | 4          | 24           | likely
        programs | g                    | 0           | 3          | NULL         | likely
    """,
    )
