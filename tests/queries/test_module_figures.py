from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-figures", "run_name")


def test_every_figure(con):
    module = Module(con, 1, function_name="step", reported_total_bytes=227, reported_peak_time=3,
                    reported_peak_status="printed")  # fmt: skip
    module.allocation(0, "parameter", 10)
    module.allocation(1, "donated_parameter", 5)
    module.allocation(2, "output", 3)
    module.allocation(3, "constant", 2)
    module.allocation(4, "temp", 100)
    module.allocation(5, "thread_local", 7)
    module.allocation(6, "temp", 100, color=1)
    module.value(1, 4, 0, 50, (0, 5))
    module.value(2, 4, 40, 40, (3, 5))
    module.value(3, 6, 0, 60, (1, 2))
    module.close()
    con.execute("UPDATE occupied_peaks SET naive_live_bytes = 90 WHERE color = 0")
    insert(con, "peak_contributors", module_id=1, contributor_ordinal=0, logical_bytes=40)
    insert(con, "peak_contributors", module_id=1, contributor_ordinal=1, logical_bytes=35)
    # fixed: 10 + 5 + 3 + 2; temps at 3: 0..80 of 100; total: 10+5+3+2+100+7.
    holds(con, "peak-figures", """
        run_name | function_name | module_key | color | peak_bytes | peak_time | printed_peak_bytes
        r        | step          | m1         | 0     | 100        | 3         | 75
        r        | step          | m1         | 1     | 60         | 1         | 75

        printed_peak_time | naive_live_bytes | fixed_bytes | occupied_temp_bytes | need_bytes
        3                 | 90               | 20          | 80                  | 120
        3                 | 0                | 0           | 60                  | 100

        fragmentation_bytes | argument_bytes | output_bytes | alias_bytes | temp_bytes
        20                  | 15             | 8            | 5           | 100
        40                  | 0              | 0            | 0           | 100

        constant_bytes | thread_local_bytes | total_bytes | reported_total_bytes
        2              | 7                  | 127         | 227
        0              | 0                  | 100         | 227
    """, color="all")  # fmt: skip
    holds(con, "peak-figures", """
        color
        1
    """, color=1)  # fmt: skip


def test_what_cannot_be_known_is_null_not_0(con):
    module = Module(con, 1, has_live_ranges=False)
    module.allocation(0, "temp", 8)
    empty = Module(con, 2, reported_peak_status="printed", reported_peak_time=0)
    empty.allocation(0, "output", 0)
    empty.close()
    rows = {row["module_key"]: row[4:9] for row in answer(con, "peak-figures")}
    assert rows == {"m1": (None,) * 5, "m2": (0, 0, 0, 0, 0)}


def test_ties_by_run_key_and_color(con):
    for module_id, run_name in ((1, "b"), (2, "a")):
        module = Module(con, module_id, run_name)
        module.allocation(0, "output", 8, color=1)
        module.allocation(1, "output", 8)
        module.close()
    holds(con, "peak-figures", """
        run_name | color
        a        | 0
        a        | 1
        b        | 0
        b        | 1
    """, color="all")  # fmt: skip
    assert len(answer(con, "peak-figures", color="all", top_n=3)) == 3
