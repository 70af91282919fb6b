"""Parameters `peak` and `step`: the same answer at another instant than the highest peak."""

import pytest
from small_db import Module, answer, insert

from bufdb import resources
from bufdb.database import store
from bufdb.query import catalogue, execute

QUERIES = catalogue.Catalogue([resources.query_folder()])
OF_THE_PEAK = [
    query.name
    for query in QUERIES.load_all()
    if {"peak", "step"} <= {param.name for param in query.params}
]
ADD_UP = [name for name in OF_THE_PEAK if name == "peak" or name.startswith("peak-by-")]


def two_peaks(con):
    module = Module(con, 1, function_name="f", schedule_length=9)
    module.allocation(0, "output", 5)
    module.allocation(1, "temp", 100)
    module.value(1, 1, offset=0, size=30, live=(0, 2), name="a", source_file="m.py", source_line=1)
    module.value(2, 1, offset=20, size=20, live=(6, 8), name="b", source_file="m.py", source_line=2)
    module.value(3, 1, offset=30, size=8, live=(7, 9), name="c")
    module.value(4, 1, offset=0, size=10, live=(8, 9), name="d")
    module.close()
    for number, (time, height) in enumerate([(0, 30), (8, 30)], 1):
        insert(con, "peaks", module_id=1, color=0, peak_ordinal=number, peak_time=time,
               occupied_temp_bytes=height, valley_bytes=None)  # fmt: skip
    for time, height in [(0, 30), (3, 0), (6, 20), (8, 30), (9, 18), (10, 0)]:
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip


def held(con, **params):
    return [(row[10], row[3]) for row in answer(con, "peak", **params)]


@pytest.mark.slow
def test_what_is_held_at_the_peak_asked_for(con):
    two_peaks(con)
    assert held(con) == [("a", 30), (None, 5)] == held(con, peak=1) == held(con, step=1)
    # Of the bytes that b and c share, the first by offset holds them.
    assert held(con, peak=2) == [("b", 20), ("d", 10), (None, 5)] == held(con, step=8)
    assert held(con, step=7) == [("b", 20), (None, 5)]
    assert held(con, step=4) == [(None, 5)]
    assert held(con, peak=2, step=0) == held(con)
    lines = answer(con, "peak-by-source-line", peak=2)
    assert [(row[3], row[4], row[11]) for row in lines] == [
        (35, 20, "m.py:2"),
        (35, 10, "(temp)"),
        (35, 5, "(output)"),
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"peak": 3}, "it has no such peak, the last is 2"),
        ({"peak": 0}, "it has no such peak, the last is 2"),
        ({"step": -1}, "its instants are 0 to 9"),
        ({"step": 10}, "its instants are 0 to 9"),
    ],
)
def test_there_is_no_such_instant(con, params, reason):
    two_peaks(con)
    for name in ("peak", "late-free", "copies"):
        ((*cells, unknown_reason),) = answer(con, name, **params)
        assert (unknown_reason, cells[:2]) == (reason, ["r", "f"])
        assert set(cells[3:]) == {None}
    # What it saves is of the highest peak, so that is shown.
    ((*cells, unknown_reason),) = answer(con, "advice", **params)
    assert (unknown_reason, cells[:2], cells[3]) == (reason, ["r", "f"], 35)
    assert set(cells[4:]) == {None, "saving"}  # ranked_by is of the module


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OF_THE_PEAK)
def test_a_missing_instant_is_an_error(demo, name):
    rows = rows_of(demo, name, peak=1000)
    assert len(rows) == 1
    assert rows[0]["unknown_reason"].startswith("it has no such peak")


@pytest.fixture(scope="module")
def demo(demo_db):
    con = store.open_readable(str(demo_db))
    yield con
    con.close()


def rows_of(con, name, **params):
    query = QUERIES.find(name)
    values = execute.bind(query, {key: str(value) for key, value in params.items()})
    result = execute.execute_query(con, query, values)
    return [
        dict(zip([name for name, _ in result.columns], row, strict=True)) for row in result.rows
    ]


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", OF_THE_PEAK)
def test_the_instant_of_the_peak_gives_the_answer_of_the_peak(demo, name):
    times = demo.execute(
        "SELECT run_name, function_name, platform, peak_time FROM asked_functions "
        "WHERE peak_bytes > 0 AND color = 0 ORDER BY ALL LIMIT 1"
    ).fetchall()
    for run, function, platform, time in times:
        params = {"run": run, "function": function, "platform": platform, "color": 0}
        assert rows_of(demo, name, **params) == rows_of(demo, name, **params, step=time)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ADD_UP)
def test_rows_add_up_to_the_height_of_the_second_peak(demo, name):
    params = {"peak": 2, "top_functions": 1000, "top_n": 100_000}
    heights = {}
    for row in rows_of(demo, name, **params):
        if row["unknown_reason"] is None:
            key = row["run_name"], row["function_name"], row["color"]
            heights[key] = heights.get(key, 0) + row["held_bytes"]
    expected = demo.execute(
        "SELECT run_name, function_name, functions.color, occupied_temp_bytes + fixed_bytes "
        "FROM asked_functions AS functions "
        "JOIN peaks USING (module_id, color) JOIN memory_sums USING (module_id, color) "
        "WHERE peak_ordinal = 2"
    ).fetchall()
    assert expected
    assert heights == {(run, function, color): height for run, function, color, height in expected}
