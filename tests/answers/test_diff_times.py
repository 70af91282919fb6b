"""A comparison says what time changed where memory did, if profiles timed both sides."""

import pytest
from small_db import Module, derive, insert

from bufdb.answers import diff, diff_rows, diff_text


@pytest.fixture
def sides(con):
    """Two runs of a step; a.py:3 holds 20 bytes more in the second, and takes less time."""
    for number, run, size, ns in ((1, "old", 16, 3_000_000), (2, "new", 36, 1_000_000)):
        module = Module(con, number, run, "step", module_name="jit_step")
        module.allocation(0, "temp", 100)
        module.value(1, 0, 0, size, name="dot.1", opcode="dot", op_name="jit(step)/net/dot",
                     source_file="/m/a.py", source_line=3)  # fmt: skip
        module.close()
        for name, spent in (("dot.1", ns), ("other", 500_000)):
            insert(con, "instruction_times", module_id=number, instruction_name=name,
                   device="CPU:0", run_count=2, execution_count=2, total_ns=2 * spent,
                   self_ns=2 * spent)  # fmt: skip
    derive(con)
    return con


def compared(con, key_name="op"):
    values = {"base": "old", "new": "new", "key_name": key_name}
    return diff_text.text(diff.compare_top(con, values, 5), 5).text


@pytest.mark.slow
def test_times_are_next_to_the_bytes_that_changed(sides):
    text = compared(sides)
    assert "a run takes 3.50 ms → 1.50 ms (-57.1%)" in text
    (line,) = (line for line in text.splitlines() if line.endswith("net/dot"))
    assert line.split()[:9] == ["grew", "16", "B", "36", "B", "+20", "B", "-2.00", "ms"]


@pytest.mark.slow
def test_lines_have_times_too(sides):
    (line,) = (line for line in compared(sides, "source").splitlines() if "grew" in line)
    assert "-2.00 ms" in line


@pytest.mark.slow
def test_keys_of_values_have_the_sum_alone(sides):
    text = compared(sides, "shape")
    assert "a run takes 3.50 ms" in text and "-2.00 ms" not in text


def test_a_side_that_was_not_timed_has_no_times(sides):
    sides.execute("DELETE FROM instruction_times WHERE module_id = 1")
    text = compared(sides)
    assert "a run takes" not in text and "time" not in text


def test_the_macro_has_parts_and_the_whole(sides):
    rows = sides.execute("FROM diff_times('old', 'new')").fetchall()
    assert rows == [
        (1, None, True, 3_500_000, 1_500_000),
        (1, "net/dot", False, 3_000_000, 1_000_000),
        (1, None, False, 500_000, 500_000),
    ]


def rows_of(con, key_name="op"):
    values = {"base": "old", "new": "new", "key_name": key_name}
    result = diff_rows.rows(diff.compare(con, values, temps=True))
    return [
        dict(zip([name for name, _ in result.columns], row, strict=True)) for row in result.rows
    ]


def times(rows):
    names = ("part", "change", "base_ns", "new_ns", "delta_ns", "delta_ratio")
    return [tuple(row[name] for name in names) for row in rows if row["figure"] == "time"]


@pytest.mark.slow
def test_time_that_did_not_change_is_a_tilde(sides):
    sides.execute("UPDATE instruction_times SET self_ns = 10")
    text = compared(sides)
    (line,) = (line for line in text.splitlines() if line.endswith("net/dot"))
    assert "a run takes 10 ns → 10 ns\n" in text and line.split()[7] == "~"


@pytest.mark.slow
def test_rows_have_a_figure_time_whose_parts_add_up_to_it(sides):
    rows = rows_of(sides)
    assert times(rows) == [
        (None, "shrank", 3_500_000, 1_500_000, -2_000_000, -2 / 3.5),
        ("net/dot", "shrank", 3_000_000, 1_000_000, -2_000_000, -2 / 3),
        ("(no op)", "same", 500_000, 500_000, 0, 0),
    ]
    assert {row["base_bytes"] for row in rows if row["figure"] == "time"} == {None}
    assert {row["base_ns"] for row in rows if row["figure"] != "time"} == {None}


@pytest.mark.slow
def test_rows_by_keys_of_values_have_the_sum_alone(sides):
    (row,) = times(rows_of(sides, "shape"))
    assert row[:4] == (None, "shrank", 3_500_000, 1_500_000)


@pytest.mark.slow
def test_a_part_that_one_side_lacks_has_no_ratio(sides):
    sides.execute(
        "DELETE FROM instruction_times WHERE module_id = 1 AND instruction_name = 'dot.1'"
    )
    assert times(rows_of(sides))[1] == ("net/dot", "grew", 0, 1_000_000, 1_000_000, None)


@pytest.mark.slow
def test_rows_of_sides_that_were_not_timed_have_no_times(sides):
    sides.execute("DELETE FROM instruction_times WHERE module_id = 1")
    assert not times(rows_of(sides))


@pytest.mark.slow
def test_rows_of_the_largest_changes_have_times_of_their_places(sides):
    values = {"base": "old", "new": "new", "key_name": "op"}
    result = diff_rows.rows(diff.compare_top(sides, values, 5))
    at = [name for name, _ in result.columns].index("figure")
    assert [row[at] for row in result.rows].count("time") == 3
