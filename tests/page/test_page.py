"""The data of a report: what it has is what the database says, at every step and in every table."""

import json
import re

import pytest
from report_making import CATALOGUE, html, report
from small_db import Module, derived, in_bulk, insert

from bufdb.answers import summary
from bufdb.answers.summary_text import sentences
from bufdb.database import store
from bufdb.export.values import without_rounds
from bufdb.page import contents, page

LINES = CATALOGUE.find("peak-by-source-line")
STEPS = """
SELECT start_time, end_time, occupied_bytes
FROM memory_steps
JOIN modules USING (module_id)
WHERE run_name = ? AND module_key = ? AND color = ?
ORDER BY start_time
"""
HELD = """
SELECT value_id, held_bytes
FROM peak_values
JOIN modules USING (module_id)
WHERE run_name = ? AND module_key = ? AND color = ?
"""


def rows_of(con, sql, row):
    return con.execute(sql, [row["run"], row["module_key"], row["color"]]).fetchall()


def at_all_steps(con, row):
    return [size for start, end, size in rows_of(con, STEPS, row) for _ in range(start, end + 1)]


@pytest.fixture(scope="module")
def demo_report(demo_db):
    with store.open_readable(str(demo_db)) as con:
        return report(con, names=None)


# -- pictures --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_blocks_add_up_to_the_occupied_bytes_at_every_step(demo, demo_report):
    pictures = list(demo_report.pictures())
    assert len(pictures) == len(demo_report.modules) == 20
    for row, picture in pictures:
        assert picture.sums(row["length"]) == at_all_steps(demo, row), row["module_key"]


@pytest.mark.slow
def test_blocks_do_not_overlap(demo_report):
    for row, picture in demo_report.pictures():
        blocks = sorted(
            zip(
                picture.block_offset,
                picture.block_size,
                picture.block_start,
                picture.block_last,
                strict=True,
            )
        )
        blocks = [block for block in blocks if block[0] >= 0]
        assert all(offset + size <= picture.head["arena_bytes"] for offset, size, *_ in blocks)
        for place, (offset, size, start, last) in enumerate(blocks):
            for other, _, begin, longer in blocks[place + 1 :]:
                if other >= offset + size:
                    break
                assert begin > start + last or start > begin + longer, row["module_key"]


def test_at_the_peak_each_value_has_what_peak_values_says(demo, demo_report):
    for row, picture in demo_report.pictures():
        held = picture.held(row["peak_time"], lambda place, m=picture: m.value_id[place])
        expected = {number: size for number, size in rows_of(demo, HELD, row) if size}
        assert held == expected, row["module_key"]
        assert sum(held.values()) == row["peak_bytes"]
        assert picture.peak_time[0] == row["peak_time"]
        assert picture.peak_bytes[0] == row["peak_bytes"]


GROUPS = {
    "peak-by-source-line": (lambda m, row: m.of("value_line", row), ("source",)),
    "peak-by-op": (lambda m, row: m.path(m.value_op[row]), ("op_path",)),
    "peak-by-dtype": (lambda m, row: m.of("value_dtype", row), ("dtype",)),
    "peak-by-category": (
        lambda m, row: (m.of("value_kind", row), m.of("value_category", row)),
        ("allocation_kind", "category"),
    ),
}


@pytest.mark.parametrize("query", GROUPS)
def test_groups_of_blocks_are_those_of_the_queries(demo_report, query):
    key, names = GROUPS[query]
    for row, picture in demo_report.pictures():
        held = picture.held(row["peak_time"], lambda place, m=picture: key(m, place))
        table = picture.table(query)
        assert len(table) == len(held)
        for answer in table:
            cells = tuple(answer[name] for name in names)
            assert held[cells if len(cells) > 1 else cells[0]] == answer["held_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 1, 3, 4, 5])
def test_at_any_step_values_have_what_the_query_says(demo, demo_report, share, call, demo_db):
    row, picture = max(demo_report.pictures(), key=lambda pair: len(pair[1].block_value))
    step = row["length"] * share // 5
    command = f"{picture.head['command'].replace('QUERY', 'peak', 1)} -p step={step}"
    words = command.replace("--top 50", "--top 1000").split()[1:]
    code, out, err = call(*words, "--db", demo_db, "--format", "json")
    assert code == 0, err
    held = picture.held(step, lambda place: (picture.name(place), picture.of("value_shape", place)))
    sums = {}
    for answer in json.loads(out):
        key = (answer["instruction_name"], answer["shape"])
        sums[key] = sums.get(key, 0) + answer["held_bytes"]
    assert sums == held


def own_stack(picture, row):
    """The own frames of a value as peak-by-stack writes them."""
    labels = [
        f"{file.rpartition('/')[2]}:{line} {function.rpartition('<locals>.')[2]}".strip()
        for file, line, function, is_own in picture.stack(row)
        if is_own
    ]
    if not labels:
        return f"({picture.of('value_kind', row)})"
    return (picture.of("value_relation", row) or "") + " < ".join(labels)


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", ["cpu_b8", "gpu_b8", "tpu_b8"])
def test_own_frames_are_those_of_peak_by_stack(demo_report, call, demo_db, run):
    picture = demo_report.picture(run=run, function="train_step", color=0)
    words = picture.head["command"].replace("QUERY", "peak-by-stack", 1).split()[1:]
    out = call(*words, "--db", demo_db, "--format", "json")[1]
    time = picture.peak_time[0]

    def folded(row):
        before, stack = re.fullmatch("((?:saved |for )?)(.*)", own_stack(picture, row)).groups()
        return before + " < ".join(without_rounds(stack.split(" < ")))

    assert picture.held(time, folded) == {
        re.sub(r" \(×\d+\)", "", row["call_stack"]): row["held_bytes"] for row in json.loads(out)
    }


@pytest.mark.slow
def test_frames_of_libraries_are_there_too(con):
    with in_bulk(con):
        module = Module(con, 1)
        module.allocation(0, "temp", 4)
        module.value(1, 0, 0, 4, stack_frame_id=3)
        for number, parent, own, file in ((1, None, 1, "a.py"), (2, 1, 1, "lib.py"), (3, 2, 1, "")):
            insert(
                con, "stack_frames", module_id=1, stack_frame_id=number, parent_frame_id=parent,
                own_frame_id=own, depth=number, source_file=file or None, source_line=number,
            )  # fmt: skip
        module.close()
    picture = report(con).picture(run="r")
    assert picture.stack(0) == [
        ("?", 3, "", False), ("lib.py", 2, "", False), ("a.py", 1, "", True),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_circle_of_frames_ends(con):
    with in_bulk(con):
        module = Module(con, 1)
        module.allocation(0, "temp", 4)
        module.value(1, 0, 0, 4, stack_frame_id=1)
        for number, parent in ((1, 2), (2, 1)):
            insert(
                con, "stack_frames", module_id=1, stack_frame_id=number, parent_frame_id=parent,
                own_frame_id=1, depth=1, source_file=f"{number}.py", source_line=1,
            )  # fmt: skip
        module.close()
    picture = report(con).picture(run="r")
    assert [frame[0] for frame in picture.stack(0)] == ["1.py", "2.py"]


def test_uses_steps_origins_and_buffers_are_those_of_the_tables(demo, demo_report):
    picture = demo_report.picture(run="cpu_b8", function="train_step", color=0)
    users = iter(picture.use_step)
    uses = {
        picture.value_id[row]: [next(users) - 1 for _ in range(count)]
        for row, count in enumerate(picture.value_uses)
    }
    ((module,),) = demo.execute(
        "SELECT module_id FROM modules WHERE run_name = 'cpu_b8' AND function_name = 'train_step'"
    ).fetchall()
    rows = demo.execute(
        """
        SELECT value_id, list_sort(list(DISTINCT program_order))
        FROM uses JOIN instructions USING (module_id, instruction_name)
        WHERE module_id = ? AND program_order IS NOT NULL GROUP BY value_id
        """,
        [module],
    ).fetchall()
    expected = dict(rows)
    assert {number: steps for number, steps in uses.items() if steps} == {
        number: expected[number] for number in uses if number in expected
    }
    steps = demo.execute(
        "SELECT instruction_name FROM instructions WHERE module_id = ? AND program_order "
        "IS NOT NULL ORDER BY program_order", [module],
    ).fetchall()  # fmt: skip
    names = [picture.name(row, "step") for row in range(len(picture.step_stem))]
    assert names == [name for (name,) in steps]
    residuals = {
        picture.of("origin_line", row): picture.of("origin_loop_line", row)
        for row, flags in enumerate(picture.origin_flags)
        if flags & 1
    }
    assert "/home/user/model/train.py:66" in residuals
    assert set(residuals.values()) == {"/home/user/model/train.py:77"}
    firsts = [row - back for row, back in enumerate(picture.value_buffer)]
    assert all(firsts[first] == first for first in firsts)
    assert len(set(firsts)) < len(firsts)


def test_savings_name_rows(demo, demo_report):
    sql = """
    SELECT what, name, value_id, held_bytes, saving_bytes, half_saving_bytes, peak_time_without,
      low_saving_bytes, saving_form, kept_name
    FROM peak_savings JOIN modules USING (module_id)
    WHERE run_name = ? AND module_key = ? AND color = ?
    """
    for row, picture in demo_report.pictures():
        savings = [
            (
                picture.of("saving_what", place),
                picture.of("saving_name", place),
                None if value < 0 else picture.value_id[value],
                picture.saving_held[place],
                picture.saving_bytes[place],
                picture.saving_half[place],
                picture.saving_time[place],
                None if picture.saving_form[place] < 0 else picture.saving_low[place],
                picture.of("saving_form", place),
                picture.of("saving_kept", place),
            )
            for place, value in enumerate(picture.saving_value)
        ]
        assert sorted(savings, key=repr) == sorted(rows_of(demo, sql, row), key=repr)


# -- the list of modules and the tables ------------------------------------------------------------


def test_modules_are_those_of_the_query(demo, demo_report, call, demo_db):
    options = ("--format", "json", "--top", 1000, "--color", "all")
    out = call("query", "modules", "--db", demo_db, *options)[1]
    names = ("peak_bytes", "argument_bytes", "output_bytes", "alias_bytes", "constant_bytes")
    keys = (*names, "need_bytes", "temp_bytes", "total_bytes", "platform", "color", "module_key")
    expected = [
        (row["run_name"], row["function_name"], *(row[key] for key in keys))
        for row in json.loads(out)
    ]
    modules = [
        (row["run"], row["function"], *(row[key] for key in keys)) for row in demo_report.modules
    ]
    assert sorted(modules, key=repr) == sorted(expected, key=repr)
    # Those in the memory of the device are before all others.
    of_device = len({row["module_key"] + row["run"] for row in demo_report.modules})
    for some in (demo_report.modules[:of_device], demo_report.modules[of_device:]):
        needs = [row["need_bytes"] for row in some]
        assert needs == sorted(needs, reverse=True)
    assert {row["color"] for row in demo_report.modules[:of_device]} == {0}


@pytest.mark.slow
def test_each_table_has_the_rows_that_its_command_gives(demo_report, call, demo_db):
    _, picture = next(iter(demo_report.pictures()))
    seen = set()
    for table in picture.head["tables"]:
        words = table["command"].split()
        assert words[:3] == ["bufdb", "query", table["name"]]
        out = call(*words[1:], "--db", demo_db, "--format", "json")[1]
        answer = json.loads(out)
        names = [name for name, _ in table["columns"]]
        rows = [dict(zip(names, cells, strict=True)) for cells in table["rows"]]
        assert rows == answer, table["name"]
        seen.add(table["name"])
    assert {"peak", "peak-by-source-line", "loop-residuals", "advice"} <= seen


def test_what_was_timed_has_shares_of_a_run_and_a_table(demo, demo_report):
    seen = set()
    for row, picture in demo_report.pictures():
        shares = {picture.of("value_time", place) for place in range(len(picture.value_id))}
        tables = [table["name"] for table in picture.head["tables"]]
        is_timed = (row["run"], row["function"]) in {
            ("cpu_b8", "train_step"), ("cpu_b8", "eval_step")
        }  # fmt: skip
        assert bool(shares - {None}) == is_timed, row["module_key"]
        if is_timed:
            assert "time-by" in tables
            seen |= shares
    assert {"10 % of a run or more", "less than 1 % of a run"} < seen
    assert seen <= {"10 % of a run or more", "3 to 10 % of a run", "1 to 3 % of a run",
                    "less than 1 % of a run", "not timed"}  # fmt: skip


@pytest.mark.slow
def test_a_table_that_is_cut_says_so(con):
    with in_bulk(con):
        module = Module(con, 1)
        module.allocation(0, "temp", 100)
        for number in range(60):
            module.value(number, 0, number, 1, name=f"v.{number}")
        module.close()
    picture = report(con, names=("peak", "peak-by-dtype")).picture(run="r")
    tables = {table["name"]: table for table in picture.head["tables"]}
    assert (len(tables["peak"]["rows"]), tables["peak"]["is_cut"]) == (50, True)
    assert not tables["peak-by-dtype"]["is_cut"]


@pytest.mark.slow
def test_another_compilation_has_a_picture_but_no_tables(con):
    with in_bulk(con):
        for number, size in ((1, 8), (2, 4)):
            module = Module(con, number, function_name="f")
            module.allocation(0, "temp", size)
            module.value(1, 0, 0, size)
            module.close()
    report_page = report(con)
    larger, smaller = report_page.picture(module_key="m1"), report_page.picture(module_key="m2")
    assert larger.table("peak") and not smaller.head["tables"]
    assert smaller.block_size == [4]
    assert "--module m2" in smaller.head["command"] and "--module" not in larger.head["command"]


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_live_ranges_there_is_no_picture(con):
    with in_bulk(con):
        module = Module(con, 1, has_live_ranges=False)
        module.allocation(0, "temp", 100)
        module.allocation(1, "parameter", 10)
        module.value(1, 0, 0, 100, live=None)
        module.value(2, 1, 0, 10, live=None)
    report_page = report(con)
    (row,) = report_page.modules
    assert (row["peak_bytes"], row["peak_time"]) == (None, None)
    assert row["unknown_reason"] == "the dump has no live ranges"
    assert (row["temp_bytes"], row["argument_bytes"]) == (100, 10)
    head, columns = report_page.slots[row["slot"]]
    assert columns == {} and head["arena_bytes"] == 0
    tables = {table["name"]: table for table in head["tables"]}
    assert [cells[4] for cells in tables["top-values"]["rows"]] == [100, 10]
    assert tables["peak"]["rows"] == []
    assert tables["peak"]["note"] == "the dump has no live ranges"


@pytest.mark.slow
def test_a_module_without_allocations_says_so(con):
    with in_bulk(con):
        Module(con, 1, peak_unknown_reason="the dump has no allocations")
    (row,) = report(con).modules
    assert (row["color"], row["slot"]) == (None, None)
    assert row["left_out"] == "it has no allocations"


@pytest.mark.slow
def test_constants_and_arguments_are_blocks_next_to_the_arena(con):
    with in_bulk(con):
        module = Module(con, 1, schedule_length=5)
        module.allocation(0, "parameter", 10)
        module.allocation(1, "output", 7)
        module.value(1, 0, 0, 10, name="p")
        module.close()
    picture = report(con).picture(run="r")
    assert picture.head["arena"] == []
    assert (picture.block_offset, picture.block_size) == ([-1, -1], [10, 7])
    assert (picture.block_start, picture.block_last) == ([0, 0], [5, 5])
    assert [picture.name(row) for row in picture.block_value] == ["p", None]
    assert picture.value_id == [1, -1]
    assert [picture.of("value_line", row) for row in (0, 1)] == ["(parameter)", "(output)"]
    assert picture.sums(5) == [17] * 6


@pytest.mark.slow
def test_several_arenas_are_drawn_in_a_row(con):
    with in_bulk(con):
        module = Module(con, 1, schedule_length=9)
        module.allocation(3, "temp", 10)
        module.allocation(5, "temp", 20)
        module.value(1, 3, 0, 12)  # damage: past the end of its allocation
        module.value(2, 5, 4, 16)
        module.close()
    picture = report(con).picture(run="r")
    assert picture.head["arena"] == [[3, 0, 12], [5, 12, 20]]
    assert picture.head["arena_bytes"] == 32
    assert dict(zip(picture.value_id, picture.block_offset, strict=True)) == {1: 0, 2: 16}


@pytest.mark.slow
def test_a_limit_is_that_of_the_device_or_what_is_asked_for(con):
    with in_bulk(con):
        for number, run in ((1, "known"), (2, "unknown"), (3, "none")):
            module = Module(con, number, run_name=run)
            module.allocation(0, "temp", 10)
            module.allocation(1, "temp", 10, color=1)
            module.close()
        insert(con, "run_labels", run_name="known", label="device", label_value="TPU v5 lite")
        insert(con, "run_labels", run_name="unknown", label="device", label_value="abacus")

    def limits(**options):
        rows = report(con, **options).modules
        return {(row["run"], row["color"]): (row["limit_bytes"], row["limit_name"]) for row in rows}

    no_limit = (None, None)
    assert limits() == {
        ("known", 0): (15.75 * 2**30, "TPU v5e, of 16 GiB"),
        ("unknown", 0): no_limit,
        ("none", 0): no_limit,
    } | {(run, 1): no_limit for run in ("known", "unknown", "none")}
    assert limits(limit=(5, None))["known", 0] == (5, None)
    assert limits(limit=(5, None))["known", 1] == no_limit


@pytest.mark.slow
def test_a_number_that_a_page_cannot_show_leaves_the_module_out(con):
    with in_bulk(con):
        module = Module(con, 1)
        module.allocation(0, "parameter", 2**62)
        module.value(1, 0, 0, 2**62)
        module.close()
    (row,) = report(con).modules
    assert row["slot"] is None
    assert row["left_out"] == f"{2**62} is larger than a page can show exactly"
    assert row["peak_bytes"] == str(2**62)


# -- the whole page --------------------------------------------------------------------------------


@pytest.mark.slow
def test_pages_of_the_same_database_are_the_same(demo):
    filters = {"run": "gpu_b8"}
    assert html(demo, filters) == html(demo, filters)


@pytest.mark.slow
def test_beyond_the_budget_rows_stay_and_say_so(demo):
    budget = len(page.page_frame().fill("", [])) + 60_000
    small = report(demo, budget=budget)
    slots = [row["slot"] for row in small.modules if row["slot"] is not None]
    assert small.modules[0]["slot"] == 1 and 1 < len(slots) < 20
    assert len(small.html) < budget + 1_000  # numbers of slots and what is left out come on top
    left_out = [row for row in small.modules if row["slot"] is None]
    assert {row["left_out"] for row in left_out} == {"there is no room for it on the page"}
    none = report(demo, budget=0)
    assert [row["slot"] for row in none.modules] == [1] + [None] * 19
    row = none.modules[5]
    assert row["command"] == f"bufdb report --run {row['run']} --module {row['module_key']}"


@pytest.mark.slow
def test_a_module_that_cannot_fit_is_not_read(demo, monkeypatch):
    monkeypatch.setattr(page, "LEAST_BYTES", 10**9)
    assert [row["slot"] for row in report(demo).modules] == [1] + [None] * 19


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "{{slots}}{{script}}",
    "\u202egnp.exe\u2066",
    "\x00\x1b[31m\u2028",
    "__proto__",
    "'\"&<>` onerror=alert(1)",
    "constructor.01",
    "x.999999999999999999999",
]


@pytest.mark.slow
def test_names_are_data(con):
    with in_bulk(con):
        module = Module(
            con, 1, run_name=HOSTILE[0], function_name=HOSTILE[2], module_key=HOSTILE[3]
        )
        module.allocation(0, "temp", 100)
        for number, name in enumerate(HOSTILE):
            module.value(
                number, 0, number, 1, name=name, shape=name, op_name=f"a/{name}/b",
                source_file=name, source_line=number,
            )  # fmt: skip
        module.close()
    report_page = report(con)
    picture = report_page.picture(run=HOSTILE[0], function=HOSTILE[2], module_key=HOSTILE[3])
    names = dict(zip(picture.value_id, range(len(HOSTILE)), strict=True))
    assert [picture.name(names[number]) for number in range(len(HOSTILE))] == HOSTILE
    assert [picture.of("value_shape", names[number]) for number in names] == HOSTILE
    assert [picture.stack(names[number])[0][0] for number in names] == HOSTILE
    # The page contains them only in base64, and the title is escaped.
    assert "alert(1)" not in re.sub(r"<title>[^<]*</title>", "", report_page.html)
    assert "<title>bufdb report: &lt;/script&gt;" in report_page.html
    assert "\u202e" not in report_page.html


# -- two runs --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_parts_of_each_peak_add_up_to_its_change(demo):
    report_page = report(demo, {"run": "cpu_b16"}, base="cpu_b8")
    diff = report_page.head["diff"]
    assert (diff["base"], diff["new"]) == ("cpu_b8", "cpu_b16")
    assert diff["command"] == "bufdb diff cpu_b8 cpu_b16"

    def rows(table):
        names = [name for name, _ in table["columns"]]
        return [dict(zip(names, cells, strict=True)) for cells in table["rows"]]

    peaks = [row for row in rows(diff["figures"]) if row["figure"] == "peak"]
    assert any(row["delta_bytes"] for row in peaks)
    for table in diff["parts"].values():
        sums = {}
        for part in rows(table):
            sums[part["place"]] = sums.get(part["place"], 0) + part["delta_bytes"]
        deltas = {row["place"]: row["delta_bytes"] for row in peaks}
        assert sums == {place: deltas[place] for place in sums}
        assert all(place in sums for place, delta in deltas.items() if delta)
    for place, base, new in diff["pairs"]:
        (figure,) = [row for row in peaks if row["place"] == place]
        for side, number in (("base", base), ("new", new)):
            row = report_page.modules[number]
            assert row["run"] == figure[f"{side}_run_name"]
            assert row["peak_bytes"] == figure[f"{side}_bytes"]
            assert row["slot"] is not None
    assert {row["run"] for row in report_page.modules} == {"cpu_b8", "cpu_b16"}


@pytest.mark.slow
def test_parts_beyond_the_first_are_one_row_with_their_sums(demo, monkeypatch):
    from bufdb.page import comparison

    whole = comparison.compared(demo, "cpu_b8", {"run": "cpu_b16"})
    monkeypatch.setattr(comparison, "TOP", 3)
    cut = comparison.compared(demo, "cpu_b8", {"run": "cpu_b16"})
    for key, parts in whole.parts.items():
        for name in ("delta_bytes", "base_bytes", "new_bytes"):
            for place in {row.place for row in parts}:
                sums = [
                    sum(getattr(row, name) or 0 for row in rows if row.place == place)
                    for rows in (parts, cut.parts[key])
                ]
                assert sums[0] == sums[1]
        assert any("other parts)" in row.part for row in cut.parts[key])


def test_accounts_of_processes_are_in_the_report(demo_report):
    ((heading, first, *more),) = demo_report.head["processes"]
    assert heading == "cpu_b8, cpu_b8.prof, cpu:0"
    assert first.startswith("train_step: the plan needs 8.49 MiB; alive when it failed: 6.03 MiB")
    assert "  3.23 MiB  cache_params leak.py:15 (44 arrays)" in more


def test_processes_over_time_are_in_the_report(demo_report):
    (course,) = demo_report.head["courses"]
    assert course["heading"] == "cpu_b8, cpu_b8.prof, cpu:0"
    assert course["seconds"] == [0, 60, 120, 180, 240]
    assert (course["alive"][-1], course["running"][-1]) == (6318372, 14296288)
    assert (course["program"], course["limit"]) == ("train_step", 12 << 20)
    assert course["sentences"][-1] == (
        "from 120.0 s (step 7) on train_step has no room: at least 12.5 MiB of 12.0 MiB"
    )


def test_of_many_processes_the_largest_are_drawn(con, monkeypatch):
    monkeypatch.setattr(contents, "COURSES", 2)
    for number, run in enumerate("abb"):
        if number < 2:
            insert(con, "runs", run_name=run)
        of = {"run_name": run, "profile_name": f"process-{number}/memory-000000.prof"}
        insert(con, "live_profiles", **of, moment="snapshot", elapsed_seconds=0.0,
               snapshot_ordinal=0, program_count=0)  # fmt: skip
        insert(con, "live_arrays", **of, device="gpu:0", total_bytes=10 + number, array_count=1)
    with derived(con):
        courses, other_count = contents._courses(con, {})
        assert contents._courses(con, {"run": "b"})[1] == 0
    headings = [course["heading"] for course in courses]
    assert headings == ["b, process-2/memory.prof, gpu:0", "b, process-1/memory.prof, gpu:0"]
    assert other_count == 1


# -- the training step -----------------------------------------------------------------------------


def program(con, module_id, name, size, op_name, run="r"):
    module = Module(con, module_id, run_name=run, function_name=name, module_key=name)
    module.allocation(0, "temp", size)
    module.value(1, 0, 0, size, op_name=op_name)
    module.close()


@pytest.mark.slow
def test_a_training_step_has_the_words_of_the_summary(con):
    gradient = "jit(train_step)/transpose(jvp(loss))/dot_general"
    program(con, 1, "init", 100, "jit(init)/dot_general")
    program(con, 2, "train_step", 40, gradient)
    program(con, 3, "small_step", 30, gradient)
    program(con, 4, "train_step", 50, gradient, run="highest")
    program(con, 5, "init", 10, "jit(init)/dot_general", run="highest")
    insert(con, "instruction_times", module_id=2, instruction_name="x", device="CPU:0",
           run_count=12)  # fmt: skip
    (text,) = [
        one.text
        for one in sentences(summary.overview(con, {"lines": LINES}, {"run": "r"}))
        if one.name == "step"
    ]
    words = {(row["run"], row["function"]): row["step"] for row in report(con).modules}
    assert words.pop(("r", "train_step")) == "highest with a gradient, run 12 times"
    assert set(words.values()) == {None} and len(words) == 4
    assert text == "highest with a gradient: 40 B, train_step of run r, run 12 times"
