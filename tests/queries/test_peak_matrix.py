from datetime import datetime

from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-matrix", "function_name")


def compiled(con, module_id, run_name, size, function="f", known=True):
    module = Module(con, module_id, run_name, function, platform="cpu", has_live_ranges=known)
    module.allocation(0, "output", size)
    module.allocation(1, "temp", 1)
    if known:
        module.close()


def test_functions_by_largest_peak_and_runs_by_time(con):
    insert(con, "runs", run_name="late", dumped_at=datetime(2026, 2, 1))
    insert(con, "runs", run_name="early", dumped_at=datetime(2026, 1, 1))
    compiled(con, 1, "late", 40)
    compiled(con, 2, "late", 30)
    compiled(con, 3, "early", 20)
    compiled(con, 4, "early", 25, "g")
    holds(con, "peak-matrix", """
        function_name | platform | compilation_place | color | run_name | peak_bytes | peak_ratio
        f             | cpu      | 1                 | 0     | early    | 20         | 1.0
        f             | cpu      | 1                 | 0     | late     | 40         | 2.0
        f             | cpu      | 2                 | 0     | late     | 30         | 1.0
        g             | cpu      | 1                 | 0     | early    | 25         | 1.0

        temp_bytes
        1
        1
        1
        1
    """)  # fmt: skip
    holds(con, "peak-matrix", """
        compilation_place | run_name
        1                 | late
        2                 | late
    """, run="l*")  # fmt: skip
    assert len(answer(con, "peak-matrix", top_n=2)) == 2


def test_unknown_peaks_and_runs_without_a_time(con):
    compiled(con, 1, "b", 10)
    compiled(con, 2, "a", 90, known=False)
    compiled(con, 3, "c", 20)
    holds(con, "peak-matrix", """
        run_name | peak_bytes | peak_ratio
        a        | NULL       | NULL
        b        | 10         | 1.0
        c        | 20         | 2.0
    """)  # fmt: skip


def test_a_function_of_unknown_name_goes_by_its_key(con):
    compiled(con, 7, "r", 10, function=None)
    holds(con, "peak-matrix", """
        function_name
        m7
    """, function="m7")  # fmt: skip
