import runpy

import pytest
from shared_dumps import ROOT
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "savings", "run_name")


def module(con, module_id, size, function="f"):
    """A peak of 10 fixed bytes and a value; without it another instant has 3 bytes less."""
    made = Module(con, module_id, function_name=function)
    made.allocation(0, "output", 10)
    made.allocation(1, "temp", size)
    made.value(1, 1, 0, size, name="dot", shape="f32[8]", program_order=4)
    made.value(2, 1, 0, 0, name="next", program_order=7)
    made.close()
    for what, name, value_id in (("value", None, 1), ("source_line", "a.py:1", None),
                                 ("op", "Net/dot", None)):  # fmt: skip
        insert(con, "peak_savings", module_id=module_id, color=0, what=what, name=name,
               value_id=value_id, held_bytes=size, saving_bytes=3, half_saving_bytes=2,
               peak_bytes_without=size + 7, peak_time_without=7)  # fmt: skip


@pytest.mark.slow
def test_lines_then_ops_then_values_with_what_caps_the_saving(con):
    module(con, 1, 20)
    holds(con, "savings", """
        run_name | function_name | color | peak_bytes | what        | held_bytes | low_saving_bytes
        r        | f             | 0     | 30         | source_line | 20         | NULL
        r        | f             | 0     | 30         | op          | 20         | NULL
        r        | f             | 0     | 30         | value       | 20         | NULL

        saving_bytes | half_saving_bytes | peak_bytes_without | next_peak_time
        3            | 2                 | 27                 | 7
        3            | 2                 | 27                 | 7
        3            | 2                 | 27                 | 7

        next_peak_instruction | name       | saving_form | kept_name | low_operation_count
        next                  | a.py:1     | NULL        | NULL      | NULL
        next                  | Net/dot    | NULL        | NULL      | NULL
        next                  | dot f32[8] | NULL        | NULL      | NULL

        operation_count | low_unknown_reason
        NULL            | NULL
        NULL            | NULL
        NULL            | NULL
    """)  # fmt: skip
    holds(con, "savings", """
        what
        op
    """, what="op")  # fmt: skip


@pytest.mark.slow
def test_largest_saving_first_and_so_many_of_each_kind(con):
    module(con, 1, 20)
    for saving in (1, 9):
        insert(con, "peak_savings", module_id=1, color=0, what="op", name=f"x{saving}",
               held_bytes=9, saving_bytes=saving, peak_bytes_without=30 - saving)  # fmt: skip
    rows = answer(con, "savings", what="op", top_n=2)
    holds(con, "savings", """
        saving_bytes
        9
        3
    """, what="op", top_n=2)  # fmt: skip
    assert rows[0]["next_peak_instruction"] is None  # no instruction at that instant


@pytest.mark.slow
def test_what_surely_comes_goes_before_what_may(con):
    module(con, 1, 20)
    for name, low, saving in (("softmax", -2, 20), ("gelu", 8, 9), ("dot", None, 5)):
        insert(con, "peak_savings", module_id=1, color=0, what="op", name=name, held_bytes=20,
               saving_bytes=saving, low_saving_bytes=low, saving_form=low and "wrap",
               kept_name="a.py:3", low_operation_count=1, operation_count=7)  # fmt: skip
    rows = answer(con, "savings", what="op", top_n=4)
    holds(con, "savings", """
        name    | low_saving_bytes | saving_bytes
        gelu    | 8                | 9
        dot     | NULL             | 5
        Net/dot | NULL             | 3
        softmax | -2               | 20
    """, what="op", top_n=4)  # fmt: skip
    assert rows[0][13:17] == ("wrap", "a.py:3", 1, 7)


@pytest.mark.slow
def test_the_function_with_the_largest_peak(con):
    module(con, 1, 20)
    module(con, 2, 50, function="g")
    assert {row["function_name"] for row in answer(con, "savings")} == {"g"}
    assert {row["function_name"] for row in answer(con, "savings", top_functions=2)} == {"f", "g"}
    assert {row["function_name"] for row in answer(con, "savings", function="f")} == {"f"}


def test_its_help_has_the_figures_that_were_measured():
    figures = runpy.run_path(str(ROOT / "data" / "studies" / "figures.py"))
    query = figures["QUERY"].read_text("utf-8")
    assert figures["with_figures"](query, figures["TABLES"].read_text("utf-8")) == query


@pytest.fixture
def two_lines(con):
    """a.py:1 saves more, and a.py:2 is computed sooner."""
    one = Module(con, 1)
    one.allocation(0, "temp", 100)
    for number, size in ((1, 60), (2, 40)):
        one.value(number, 0, offset=100 - size if number == 2 else 0, size=size, name=f"f.{number}",
                  source_file="a.py", source_line=number)  # fmt: skip
        insert(con, "recompute_instructions", module_id=1, value_id=number,
               instruction_name=f"f.{number}")  # fmt: skip
        for what, name in (("value", None), ("source_line", f"a.py:{number}")):
            insert(con, "peak_savings", module_id=1, what=what, name=name, held_bytes=size,
                   value_id=number if name is None else None, saving_bytes=size)  # fmt: skip
        insert(con, "recompute_costs", module_id=1, value_id=number, operation_count=number)
    one.close()
    return con


def timed(con, name, ns, runs=2):
    insert(con, "instruction_times", module_id=1, instruction_name=name, device="CPU:0",
           run_count=runs, execution_count=runs, total_ns=ns, self_ns=ns)  # fmt: skip


@pytest.mark.slow
def test_bytes_per_millisecond_rank_where_times_are_known(two_lines):
    timed(two_lines, "f.1", 4_000_000)
    timed(two_lines, "f.2", 1_000_000)
    holds(
        two_lines,
        "savings",
        """
        what        | saving_bytes | recompute_ns | saving_bytes_per_ms | ranked_by | name
        source_line | 40           | 500000       | 80.0                | time      | a.py:2
        source_line | 60           | 2000000      | 30.0                | time      | a.py:1
        value       | 40           | 500000       | 80.0                | time      | f.2 f32[]
        value       | 60           | 2000000      | 30.0                | time      | f.1 f32[]
    """,
    )
    holds(two_lines, "savings", """
        recompute_ns | ranked_by | name
        2000000      | saving    | a.py:1
        500000       | saving    | a.py:2
    """, what="source_line", rank_by="saving")  # fmt: skip


def test_what_was_not_timed_is_last_and_has_no_figure(two_lines):
    timed(two_lines, "f.2", 1_000_000)
    holds(two_lines, "savings", """
        saving_bytes | recompute_ns | saving_bytes_per_ms | ranked_by | name
        40           | 500000       | 80.0                | time      | a.py:2
        60           | NULL         | NULL                | time      | a.py:1
    """, what="source_line")  # fmt: skip


def test_a_large_value_without_a_maker_has_no_time(two_lines):
    two_lines.execute("UPDATE instructions SET source_line = 1")
    timed(two_lines, "f.1", 4_000_000)
    timed(two_lines, "f.2", 1_000_000)
    sql = "SELECT recompute_ns FROM recompute_times WHERE what = 'source_line'"
    assert two_lines.execute(sql).fetchall() == [(2_500_000,)]
    two_lines.execute(
        "UPDATE recompute_instructions SET instruction_name = NULL WHERE value_id = 2"
    )
    assert two_lines.execute(sql).fetchall() == [(None,)]
    # Nothing is recorded of small values.
    two_lines.execute("DELETE FROM recompute_instructions WHERE value_id = 2")
    assert two_lines.execute(sql).fetchall() == [(2_000_000,)]


def test_bytes_per_operation_rank_where_nothing_was_timed(two_lines):
    two_lines.execute("UPDATE recompute_costs SET operation_count = 100 WHERE value_id = 1")
    holds(two_lines, "savings", """
        saving_bytes | recompute_ns | ranked_by | name
        40           | NULL         | work      | f.2 f32[]
        60           | NULL         | work      | f.1 f32[]
    """, what="value", rank_by="cost")  # fmt: skip


def test_an_instruction_takes_its_time_once(two_lines):
    two_lines.execute("UPDATE recompute_instructions SET instruction_name = 'f.1'")
    two_lines.execute("UPDATE instructions SET source_line = 1")
    timed(two_lines, "f.1", 4_000_000)
    sql = "SELECT what, name, recompute_ns FROM recompute_times WHERE what <> 'op' ORDER BY ALL"
    assert two_lines.execute(sql).fetchall() == [
        ("source_line", "a.py:1", 2_000_000), ("value", None, 2_000_000), ("value", None, 2_000_000)
    ]  # fmt: skip
