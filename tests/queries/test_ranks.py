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
        function_name | platform | compilation_place | color | other_labels | run_count
        f             | NULL     | 1                 | 0     | job=j        | 4

        signature_count | min_peak_bytes | median_peak_bytes | max_peak_bytes | spread_bytes
        3               | 10             | 30                | 40             | 30

        spread_ratio | fullest_rank | emptiest_rank
        0.75         | 1            | 2
    """)  # fmt: skip
    compiled(con, 9, "4", 99, known=False, job="j")
    holds(con, "ranks", """
        function_name | platform | compilation_place | color | other_labels | run_count
        f             | NULL     | 1                 | 0     | job=j        | 5

        signature_count | min_peak_bytes | median_peak_bytes | max_peak_bytes | spread_bytes
        4               | NULL           | NULL              | NULL           | NULL

        spread_ratio | fullest_rank | emptiest_rank | unknown_count | unknown_reason
        NULL         | NULL         | NULL          | 1             | the dump has no live ranges
    """)  # fmt: skip
    assert answer(con, "ranks", label="job", fixed="none")[0][4:6] == ("", 5)


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
    """)  # fmt: skip
    holds(con, "ranks", """
        other_labels | run_count | spread_bytes
        job=a        | 2         | 10
        job=b        | 1         | 0
    """, fixed="job")  # fmt: skip
    assert len(answer(con, "ranks", fixed="job", top_n=1)) == 1


def test_without_any_peak(con):
    compiled(con, 1, "0", 10, known=False)
    assert answer(con, "ranks") == [
        ("f", None, 1, 0, "", 1, 1, *[None] * 7, 1, "the dump has no live ranges")
    ]


def test_ties_by_function(con):
    compiled(con, 1, "0", 10, function="b")
    compiled(con, 2, "0", 10, function="a")
    holds(con, "ranks", """
        function_name
        a
        b
    """)  # fmt: skip
