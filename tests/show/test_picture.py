"""A picture agrees with views and saved queries at every instant that it shows."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_db import Module, derive, insert

from bufdb import resources
from bufdb.errors import UsageError
from bufdb.query import catalogue, execute, subject
from bufdb.show import picture
from bufdb.show.drawing import Look
from bufdb.show.screen import Screen

CATALOGUE = catalogue.Catalogue([resources.query_folder()])
RUNS = ("cpu_b8", "cpu_b8_old", "gpu_b8", "tpu_b8")
COLUMNS = 68


def chosen(con, name=None, **filters):
    return subject.choose(con, "show", name, filters)


def drawn(con, *, by=None, count=COLUMNS, instant=None, **filters):
    return picture.picture(con, chosen(con, **filters), count, instant or {}, by)


# -- columns ---------------------------------------------------------------------------------------

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 99)), max_size=40)


@given(st.integers(0, 99), STEPS, st.integers(0, 20), st.integers(1, 90))
def test_a_column_is_its_first_instant_with_the_most_bytes(first, later, more, count):
    times = [0, *itertools.accumulate(gap for gap, _ in later)]
    steps = list(zip(times, [first, *(size for _, size in later)], strict=True))
    last = times[-1] + more
    at = [max(step for step in steps if step[0] <= time)[1] for time in range(last + 1)]
    seen = set()
    for column, (time, size) in enumerate(picture.highest(steps, last, count)):
        begin, end = picture.span_of(column, last, count)
        best = max(at[begin : end + 1])
        assert (size, at[time]) == (best, best)
        assert time == begin + at[begin : end + 1].index(best)
        seen.update(range(begin, end + 1))
    assert seen == set(range(last + 1))


@given(st.integers(0, 200), st.integers(1, 90), st.data())
def test_the_place_of_an_instant_is_a_column_that_covers_it(last, count, data):
    time = data.draw(st.integers(0, last))
    place = picture.place_of(time, last, count)
    begin, end = picture.span_of(place, last, count)
    assert begin <= time <= end
    assert all(picture.span_of(other, last, count)[1] < time for other in range(place))


def test_a_hundred_thousand_steps_keep_their_highest():
    steps = [(time, 10**12 if time == 77_777 else time % 1000) for time in range(100_000)]
    columns = list(picture.highest(steps, 99_999, 68))
    assert columns[picture.place_of(77_777, 99_999, 68)] == (77_777, 10**12)
    assert sorted({size for _, size in columns}) == [999, 10**12]


# -- over the demo dumps ---------------------------------------------------------------------------


def spaces(con):
    """Every memory space of every module of some runs that holds temp bytes."""
    return con.execute(
        "SELECT run_name, module_key, color FROM memory_figures "
        "WHERE run_name IN (SELECT unnest(?)) AND occupied_temp_bytes > 0 ORDER BY ALL",
        [list(RUNS)],
    ).fetchall()


@pytest.mark.slow
def test_every_column_adds_up_to_the_bytes_at_its_instant(demo):
    for run, key, color in spaces(demo):
        drawn_picture = drawn(demo, run=run, module=key, color=color)
        ids = [drawn_picture.subject.module_id, color]
        rows = demo.execute(
            "SELECT start_time, end_time, occupied_bytes FROM memory_steps "
            "WHERE module_id = ? AND color = ?",
            ids,
        ).fetchall()
        for column in [*drawn_picture.columns, drawn_picture.instant]:
            ((_, _, size),) = [row for row in rows if row[0] <= column.time <= row[1]]
            held = sum(part.end_bytes - part.begin_bytes for part in column.parts)
            assert column.occupied_bytes == size == drawn_picture.subject.fixed_bytes + held
            parts = column.parts
            assert all(a.end_bytes <= b.begin_bytes for a, b in itertools.pairwise(parts))
            assert not parts or parts[-1].end_bytes <= drawn_picture.arena_bytes
        most = max(column.occupied_bytes for column in drawn_picture.columns)
        assert (
            most
            == drawn_picture.columns[drawn_picture.place].occupied_bytes
            == drawn_picture.subject.peak_bytes
        )
        assert drawn_picture.peaks[0] == (1, drawn_picture.subject.peak_time, most)


NAMES = {
    "line": "attributed_source",
    "op": "attributed_stripped_op_path",
    "dtype": "(SELECT dtype FROM value_details AS d WHERE d.module_id = held.module_id "
    "AND d.value_id = held.value_id)",
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("by", NAMES)
@pytest.mark.parametrize("instant", [{}, {"step": 60}, {"peak": 2}])
def test_groups_hold_what_saved_queries_attribute_to_them(demo, by, instant):
    for run in RUNS:
        drawn_picture = drawn(demo, by=by, instant=instant, run=run, function="train_step")
        sums = {}
        for part in drawn_picture.instant.parts:
            size = part.end_bytes - part.begin_bytes
            sums[part.group] = sums.get(part.group, 0) + size
        sql = f"SELECT {NAMES[by]}, sum(held_bytes)::BIGINT FROM attributed_peak_values AS held "
        filters = {**drawn_picture.subject.filters, **instant}
        rows = execute.execute_with(
            demo, sql + "WHERE allocation_kind = 'temp' GROUP BY ALL", filters, "test"
        ).rows
        assert sums == dict(rows) and sums


@pytest.mark.slow
def test_categories_are_those_of_the_saved_query(demo):
    drawn_picture = drawn(demo, by="category", run="gpu_b8", function="train_step")
    rows = picture.values(
        demo, CATALOGUE.find("peak-by-category"), drawn_picture.subject, {}, 50
    ).rows
    expected = {row[9]: row[5] for row in rows if row[8] == "temp"}
    sums = dict.fromkeys(expected, 0)
    for part in drawn_picture.instant.parts:
        sums[part.group] += part.end_bytes - part.begin_bytes
    assert sums == expected


@pytest.mark.slow
@pytest.mark.parametrize("tree", picture.TREES)
def test_labels_of_a_tree_add_up_to_the_instant(demo, tree):
    query = CATALOGUE.find(picture.TREES[tree])
    for run, key, color in spaces(demo):
        chosen_subject = chosen(demo, run=run, module=key, color=color)
        rows = picture.labels(demo, query, chosen_subject, {})
        assert sum(size for _, size in rows) == chosen_subject.peak_bytes


@pytest.mark.slow
def test_without_any_line_ops_are_used_with_a_note(con, demo):
    assert not drawn(demo, run="cpu_b8", function="train_step").is_without_lines
    made = Module(con, 1)
    made.allocation(0, "temp", 9)
    made.value(1, 0, 0, 9, op_name="jit(f)/Net/dot")
    made.close()
    drawn_picture = drawn(con)
    assert (drawn_picture.by, drawn_picture.is_without_lines) == ("op", True)
    assert [part.group for part in drawn_picture.instant.parts] == ["Net/dot"]
    assert (drawn(con, by="line").by, drawn(con, by="line").is_without_lines) == ("line", False)


# -- rows by hand ----------------------------------------------------------------------------------


def module(con, module_id, peak, **cells):
    made = Module(con, module_id, **cells)
    made.allocation(0, "temp", peak)
    made.value(1, 0, 0, peak)
    made.close()


@pytest.mark.slow
def test_the_largest_need_is_chosen_and_the_others_are_reported(con):
    module(con, 1, 10)
    module(con, 2, 30, function_name="g", run_name="s")
    assert chosen(con).module_id == 2
    assert chosen(con).others == ("2 modules in 2 runs match; m2 of run s has the largest need")
    assert (chosen(con, "f").module_id, chosen(con, "f").others) == (1, "")
    assert chosen(con, "m*", run="r").module_id == 1
    unknown = Module(con, 3, has_live_ranges=False)
    unknown.allocation(0, "temp", 99)
    derive(con)
    assert chosen(con, run="r").others.endswith(
        "has the largest need of those whose peak is known; that of 1 is not"
    )


def test_the_device_s_own_memory_goes_before_larger_ones(con):
    made = Module(con, 1)
    for color, size in ((0, 10), (1, 50), (2, 0)):
        made.allocation(color, "temp", size, color)
        if size:
            made.value(color + 1, color, 0, size)
    made.close()
    chosen_subject = chosen(con)
    assert (chosen_subject.color, chosen_subject.peak_bytes) == (0, 10)
    assert [(item.color, item.peak_bytes) for item in chosen_subject.besides] == [(1, 50)]
    assert chosen(con, color=1).peak_bytes == 50
    with pytest.raises(UsageError, match="there is no memory space 7; there are 0"):
        chosen(con, color=7)


def test_a_missing_name_is_reported_with_the_nearest(con):
    module(con, 1, 10, function_name="train_step")
    with pytest.raises(UsageError, match=r"no module 'tran_step'; did you mean 'train_step'\?"):
        chosen(con, "tran_step")
    with pytest.raises(UsageError, match="no module with run 'x'; 'bufdb query modules'"):
        chosen(con, run="x")


def test_an_unknown_peak_is_chosen_where_there_is_no_other(con):
    made = Module(con, 1, has_live_ranges=False)
    made.allocation(0, "temp", 99)
    made.allocation(1, "parameter", 5)
    derive(con)
    chosen_subject = chosen(con)
    assert (
        chosen_subject.peak_bytes,
        chosen_subject.temp_bytes,
        chosen_subject.argument_bytes,
    ) == (None, 99, 5)
    assert chosen_subject.unknown_reason == "the dump has no live ranges"


def test_several_of_unknown_peaks_are_reported(con):
    for number in (1, 2):
        Module(con, number, has_live_ranges=False).allocation(0, "temp", number)
    derive(con)
    assert chosen(con).others == ("2 modules match; m2 of run r is used; all peaks are unknown")


@pytest.mark.slow
def test_values_between_the_columns_are_counted(con):
    made = Module(con, 1, schedule_length=99)
    made.allocation(0, "temp", 100)
    made.value(1, 0, 0, 50, live=(0, 99))
    for number, start in enumerate((3, 40, 77), 2):
        made.value(number, 0, 50, 10, live=(start, start))
    made.close()
    for time, size in ((0, 50), (3, 60), (4, 50), (40, 60), (41, 50), (77, 60), (78, 50)):
        insert(con, "occupancy_steps", module_id=1, start_time=time, occupied_temp_bytes=size)
    assert drawn(con, count=100).unseen_count == 0
    assert drawn(con, count=2).unseen_count == 1
    assert [column.time for column in drawn(con, count=2).columns] == [3, 77]


def test_two_arenas_are_parted_by_a_wall(con):
    made = Module(con, 1, schedule_length=9)
    for index, name in enumerate(("dot", "add")):
        made.allocation(index, "temp", 64)
        made.value(index, index, 0, 64, name=name, op_name=f"jit(f)/{name}")
    made.close()
    insert(con, "occupancy_steps", module_id=1, start_time=0, occupied_temp_bytes=128)
    drawn_picture = drawn(con)
    for look, edge in ((Look(is_plain=True), "+"), (Look(is_coloured=True), "├")):
        screen = Screen(80, look)
        screen.draw(drawn_picture)
        text = screen.text()
        assert "temp arena of 128 B in 2 allocations by op, since no line is known" in text
        rows = text[text.index("temp arena") :].splitlines()[1:9]
        assert [line[11] == edge for line in rows[1:]] == [row == 3 for row in range(1, 8)]
        assert ("\x1b[" in text) is look.is_coloured


def test_no_instant_beyond_the_program(con):
    module(con, 1, 10, schedule_length=9)
    with pytest.raises(UsageError, match="show: no step 10 in f: its instants are 0 to 9"):
        drawn(con, instant={"step": 10})
