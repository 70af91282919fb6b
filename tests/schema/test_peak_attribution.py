"""Queries and views that divide the peak must sum to the whole of it, on the demo dumps."""

import re

import pytest

from bufdb import resources
from bufdb.query import catalogue, execute

CATALOGUE = catalogue.Catalogue([resources.query_folder()])
SAVINGS = ("low_saving_bytes", "saving_bytes")
WAYS = [
    *((name, {}) for name in sorted(CATALOGUE.paths) if name.startswith("peak-by-")),
    ("peak-by-function", {"by": "jit"}),
    ("peak-by-op", {"wrappers": "keep"}),
    ("peak-by-op", {"depth": "1", "merge_numbers": "true"}),
    ("peak-by-shape", {"layout": "true"}),
    ("peak-by-source-line", {"frame": "leaf"}),
    ("peak-by-stack", {"frames": "all"}),
    ("peak-by-stack", {"depth": "1"}),
]
WAYS += [
    (name, params | {"unnamed": "none"})
    for name, params in WAYS
    if CATALOGUE.find(name).param("unnamed")
]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "params"), WAYS, ids=[f"{name}{params}" for name, params in WAYS])
def test_rows_of_a_function_add_up_to_its_peak(demo, name, params):
    query = CATALOGUE.find(name)
    names = [column.name for column in query.columns]
    bound = execute.bind(query, params | {"top_functions": "1000", "top_n": "100000"})
    sums, peaks = {}, {}
    for row in execute.execute_query(demo, query, bound).rows:
        cells = dict(zip(names, row, strict=True))
        key = cells["run_name"], cells["function_name"], cells["color"]
        sums[key] = sums.get(key, 0) + cells["held_bytes"]
        peaks[key] = cells["peak_bytes"]
    assert sums == peaks
    expected = demo.execute(
        "SELECT run_name, function_name, color, peak_bytes FROM asked_functions "
        "WHERE peak_bytes > 0"
    ).fetchall()
    assert peaks == {row[:3]: row[3] for row in expected}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "params"), WAYS, ids=[f"{name}{params}" for name, params in WAYS])
def test_compiler_made_bytes_follow_from_allocation_kinds(demo, name, params):
    query = CATALOGUE.find(name)
    names = [column.name for column in query.columns]
    # A role joins what is separated here.
    if query.param("unnamed") is None or "unnamed" in params or "role" in names:
        return
    whole = params | {"top_functions": "1000", "top_n": "100000"}
    savings = [at for at, name in enumerate(names) if name in SAVINGS]
    rows = {}
    for unnamed in ("use", "none"):
        bound = execute.bind(query, whole | {"unnamed": unnamed})
        result_rows = execute.execute_query(demo, query, bound).rows
        # What is saved is known of the default alone; rounds of frames are those of the longest
        # stack, which may be one that something is for.
        rows[unnamed] = {
            tuple(
                re.sub(r" \(×\d+\)", "", cell) if isinstance(cell, str) else cell
                for at, cell in enumerate(row)
                if at not in savings
            )
            for row in result_rows
        }
    texts = ("source", "op_path", "call_stack", "source_function")
    reported = [column.name for column in query.columns if column.name not in SAVINGS]
    keys = [place for place, name in enumerate(reported) if name in texts]
    if not keys:  # sums by dtype, shape and the like name no line or op
        assert rows["none"] == rows["use"]
        return
    (key,) = keys
    taken, given_back = rows["none"] - rows["use"], rows["use"] - rows["none"]
    assert {row[key] for row in taken} <= {"(temp)", "(output)"}
    assert {row[key].startswith("for ") or row[key] in {"(temp)", "(output)"}
            for row in given_back} == {True}  # fmt: skip


def test_the_highest_step_is_the_peak_and_steps_leave_no_gap(demo):
    assert demo.execute("SELECT count(*) > 100 FROM memory_steps").fetchone() == (True,)
    wrong = demo.execute("""
        SELECT module_id, color
        FROM memory_steps
        JOIN modules USING (module_id)
        JOIN memory_figures USING (module_id, color)
        GROUP BY module_id, color
        HAVING max(occupied_bytes) <> any_value(peak_bytes)
          OR min(start_time) <> 0
          OR sum(end_time - start_time + 1) <> any_value(schedule_length) + 1
    """).fetchall()
    assert wrong == []


@pytest.mark.slow
def test_values_at_any_step_add_up_to_what_is_occupied(demo):
    query = CATALOGUE.find("at-step")
    module_key, run_name, color = demo.execute(
        "SELECT module_key, run_name, color FROM module_peaks "
        "WHERE color = 1 ORDER BY peak_bytes DESC LIMIT 1"
    ).fetchone()
    steps = demo.execute(
        "SELECT start_time, end_time, occupied_bytes FROM memory_steps "
        "JOIN modules USING (module_id) WHERE module_key = ? AND run_name = ? AND color = ?",
        [module_key, run_name, color],
    ).fetchall()
    params = {"module": module_key, "run": run_name, "color": str(color), "top_n": "100000"}
    for start_time, end_time, occupied_bytes in steps[::9]:
        for time in (start_time, end_time):
            bound = execute.bind(query, params | {"step": str(time)})
            rows = execute.execute_query(demo, query, bound).rows
            assert sum(row[6] for row in rows) == occupied_bytes
