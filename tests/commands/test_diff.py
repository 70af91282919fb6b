"""`bufdb diff` and what holds for any two sides."""

import csv
import io
import json
import re
import shutil

import duckdb
import pytest
import shared_dumps
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from small_db import Module, derive, in_bulk, insert

from bufdb.answers import diff as questions
from bufdb.commands import diff as diff_command
from bufdb.ingest.ingest import ingest

DEMO_PAIRS = [("cpu_b8", "cpu_b16"), ("cpu_b8", "cpu_b8_remat"), ("cpu_b8_old", "cpu_b8")]
FIGURES = "place, function_name, color, figure, base_bytes, new_bytes, delta_bytes"
IDS = ("base_module_id", "new_module_id", "color")
BYTES = ("base_bytes", "new_bytes", "delta_bytes")
ORDER = ("base", "new")


# What holds for any two sides.


class Sides:
    """The rows of the macros of two sides: each takes DuckDB a quarter of a second to plan."""

    def __init__(self, con, base, new):
        self.con, self.base, self.new = con, base, new
        self._rows = {}

    def rows(self, macro, *key, is_back=False):
        """Rows of a macro by column, base against new or back."""
        names = macro, key, is_back
        if names not in self._rows:
            sides = [self.new, self.base] if is_back else [self.base, self.new]
            marks = ", ".join(f"${number}" for number in range(1, 3 + len(key)))
            result = self.con.execute(f"FROM {macro}({marks})", [*sides, *key])
            columns = [column[0] for column in result.description]
            self._rows[names] = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
        return self._rows[names]


def check_sums(sides, key):
    """Parts add up to the change, on both sides, for peaks and temp allocations."""
    figures = sides.rows("diff_modules")
    for macro, figure in (("diff_peak", "peak"), ("diff_temps", "temps")):
        sums = {}
        for row in sides.rows(macro, key):
            if row["change"] != "unknown":
                cells = sums.setdefault(tuple(row[name] for name in IDS), [0, 0, 0])
                for place, name in enumerate(BYTES):
                    cells[place] += row[name] or 0
        for row in figures:
            if row["figure"] == figure and row["delta_bytes"] is not None:
                ids = tuple(row[name] for name in IDS)
                assert sums.pop(ids, [0, 0, 0]) == [row[name] for name in BYTES], (macro, ids)
        assert not sums, macro
    unknown = [
        tuple(row[name] for name in IDS)
        for row in sides.rows("diff_peak", key)
        if row["change"] == "unknown"
    ]
    assert sorted(unknown) == sorted(
        tuple(row[name] for name in IDS)
        for row in figures
        if row["figure"] == "peak"
        and row["delta_bytes"] is None
        and None not in (row["base_module_id"], row["new_module_id"])
    )


def check_mirror(sides, key):
    """B against A says the reverse of A against B."""
    names = (
        "{0}_function_name, {1}_function_name, color, {0}_run_name, {1}_run_name, "
        "{0}_module_id, {1}_module_id, {0}_bytes, {1}_bytes, "
    )
    rules = (
        ("diff_modules", (), "figure"),
        (
            "diff_peak",
            (key,),
            "allocation_kind, part, {0}_shape, {1}_shape, {0}_source, "
            "{0}_added_bytes, {1}_added_bytes, {0}_value_count",
        ),
        ("diff_temps", (key,), "part, {0}_value_count, {1}_value_count, {1}_source"),
    )
    for macro, argument, extra in rules:
        there, back = ((names + extra).format(*order).split(", ") for order in (ORDER, ORDER[::-1]))
        assert sorted(
            ((row["delta_bytes"], *(row[name] for name in there))
             for row in sides.rows(macro, *argument)),
            key=str,
        ) == sorted(
            ((None if row["delta_bytes"] is None else -row["delta_bytes"],
              *(row[name] for name in back))
             for row in sides.rows(macro, *argument, is_back=True)),
            key=str,
        )  # fmt: skip


def check_self(con, run, key):
    """Nothing changed, whatever the module."""
    rows = con.execute(
        "SELECT delta_bytes, paired_by, base_module_id = new_module_id FROM diff_modules($1, $1)",
        [run],
    ).fetchall()
    assert {row[0] for row in rows} <= {0, None}
    assert {row[1].partition(",")[0] for row in rows} <= {"signature", "name"}
    assert all(row[2] for row in rows)
    changes = con.execute("SELECT change FROM diff_peak($1, $1, $2)", [run, key]).fetchall()
    assert set(changes) <= {("same",), ("unknown",)}


TEMP = st.tuples(
    st.integers(0, 40),  # offset
    st.integers(0, 30),  # size
    st.integers(0, 4),  # start
    st.integers(0, 4),  # duration
    st.sampled_from(["jit(f)/a/dot", "jit(f)/layer_1/add", "jit(f)/layer_2/add", None]),
    st.sampled_from(["f32[2]{0}", "bf16[4,4]{1,0}", "(f32[], f32[])"]),
)
MODULE = st.tuples(
    st.sampled_from("ab"),  # run
    st.sampled_from(["f", "step", "my_step"]),
    st.sampled_from(["f32[2]", "f32[4]", None]),  # parameter
    st.sampled_from(["cpu", "gpu", None]),
    st.integers(0, 50),  # output
    st.lists(TEMP, max_size=5),
    st.integers(0, 1),  # color of temps
    st.booleans(),  # live ranges
    st.booleans(),  # donation
)


def fill(con, modules):
    for table in ("runs", "modules", "allocations", "values", "instructions", "live_ranges",
                  "occupied_peaks", "uses", "shapes", "positions"):  # fmt: skip
        con.execute(f'DELETE FROM "{table}"')
    for shape, dtype in (("f32[2]{0}", "f32"), ("(f32[], f32[])", "tuple")):
        insert(con, "shapes", shape=shape, dtype=dtype, is_tuple=dtype == "tuple")
    for number, module in enumerate(modules):
        run, function, parameter, platform, output, temps, color, live, donated = module
        made = Module(con, number, run, function, platform=platform, has_live_ranges=live)
        kind, result = ("donated_parameter", 1) if donated else ("parameter", 0)
        if not donated:
            made.allocation(0, "output", output, output_shape="f32[2]")
        made.allocation(
            1, kind, 8, parameter_number=0, parameter_shape_index="{}", parameter_shape=parameter,
            output_shape="f32[2]" if donated else None,
        )  # fmt: skip
        made.value(100, 1, 0, 8, name="p", op_name="x[0]", opcode="parameter", shape="f32[2]{0}")
        made.value(101, result, 0, 8 if donated else output, name="r", op_name="jit(f)/a/dot",
                   opcode="dot", shape="f32[2]{0}")  # fmt: skip
        insert(con, "positions", module_id=number, value_id=101, instruction_name="r",
               shape_index="{}", is_defining=True)  # fmt: skip
        made.allocation(2, "temp", 100, color=color)
        for value_id, (offset, size, start, duration, op_name, shape) in enumerate(temps):
            span = (start, start + duration) if live else None
            details = {"op_name": op_name, "opcode": "add", "program_order": start}
            made.value(value_id, 2, offset, size, span, shape=shape, **details)
        for value_id in range(len(temps) - 1):
            made.use(value_id, f"v{value_id + 1}")
        if live:
            made.close()


@pytest.fixture(scope="module")
def any_db(fresh):
    with fresh() as connection:
        yield connection


@pytest.mark.slow
@settings(max_examples=2, deadline=None)
@given(modules=st.lists(MODULE, max_size=6), key=st.sampled_from(diff_command.KEYS))
def test_any_modules(any_db, modules, key):
    with in_bulk(any_db):
        fill(any_db, modules)
    sides = Sides(any_db, "a", "b")
    check_sums(sides, key)
    check_mirror(sides, key)
    check_self(any_db, "a", key)


@pytest.fixture
def shared(tmp_path):
    """Open a database of sample dumps, each a run named VERSION/FOLDER."""

    def opened(*runs):
        path = tmp_path / "shared.duckdb"
        for run in runs:
            ingest(str(path), [shared_dumps.DUMPS / run], run=run)
        return duckdb.connect(str(path), read_only=True)

    return opened


VERSIONS = ("cpu-0.7.2", "cpu-0.10.2")
SHARED_PAIRS = [
    *(
        tuple(f"cpu-0.10.2/transformer_{name}" for name in pair)
        for pair in (
            ("b8_f32_remat", "b16_f32_remat"),
            ("b8_bf16_noremat", "b16_bf16_noremat"),
            ("b16_f32_noremat", "b32_f32_noremat"),
        )
    ),
    *(
        tuple(f"cpu-0.10.2/transformer_{name}" for name in pair)
        for pair in (
            ("b8_f32_noremat", "b8_f32_remat"),
            ("b8_bf16_noremat", "b8_bf16_remat"),
            ("b8_f32_noremat", "b8_bf16_noremat"),
            ("b16_f32_remat", "b16_bf16_remat"),
        )
    ),
    *(
        tuple(f"{version}/{name}" for version in VERSIONS)
        for name in (
            "scan_layers_none",
            "scan_layers_full",
            "scan_layers_dots",
            "transformer_b8_f32_noremat",
            "transformer_b8_f32_remat",
        )
    ),
]


@shared_dumps.needs_dumps
@pytest.mark.sample(0, 3)
@pytest.mark.parametrize(("number", "pair"), list(enumerate(SHARED_PAIRS)))
def test_parts_add_up_on_real_programs(shared, number, pair):
    key = ("op", "stack", "all")[number // 3 % 3]  # of those that always run: each
    with shared(*pair) as con:
        sides = Sides(con, *pair)
        check_sums(sides, key)
        check_mirror(sides, key)


@pytest.mark.slow
@shared_dumps.needs_dumps
def test_a_larger_batch_shows_as_the_lines_that_grew(shared):
    base, new = (f"cpu-0.10.2/transformer_b{b}_f32_noremat" for b in (8, 16))
    with shared(base, new) as con:
        rows = con.execute(
            "SELECT paired_by, change, allocation_kind, part, new_source, base_value_count, "
            "new_value_count, base_shape, new_shape, delta_bytes FROM diff_peak($1, $2) LIMIT 1",
            [base, new],
        ).fetchall()
    assert rows == [
        ("name", "grew", "temp", "Decoder/layer_*/Attention_*/div", "programs.py:88", 9, 9,
         "f32[8,4,128,128]", "f32[16,4,128,128]", 16793600)
    ]  # fmt: skip


# Over the demo dumps.


@pytest.fixture
def diff(call, demo_db):
    return lambda *arguments: call("diff", *arguments, "--db", demo_db)


@pytest.mark.slow
@pytest.mark.parametrize(("base", "new"), DEMO_PAIRS)
def test_the_demo_runs(diff, golden, base, new):
    code, text, err = diff(base, new, "--format", "markdown")
    assert (code, err) == (0, "")
    golden(f"diff_{base}_{new}.md", text)


EVERY_PAIR = [*DEMO_PAIRS, ("gpu_b8", "tpu_b8"), ("cpu_b8", "gpu_b8")]


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize(("number", "key"), list(enumerate(diff_command.KEYS)))
def test_sums_mirror_and_self_over_the_demo_runs(demo, number, key):
    # Each key with one pair in turn: a pair is paired before it is divided by a key.
    base, new = EVERY_PAIR[number % 5]
    sides = Sides(demo, base, new)
    check_sums(sides, key)
    check_mirror(sides, key)
    check_self(demo, ("cpu_b8", "tpu_b8", "gpu_b8")[number % 3], key)


@pytest.mark.slow
def test_nothing_changed(diff):
    code, text, err = diff("tpu_b8", "tpu_b8")
    assert (code, err) == (0, "")
    lines = text.splitlines()
    assert lines[0] == "no peak changed: 2 unchanged"
    assert all(line.split("  ")[-1] == "signature" and " ~ " in line for line in lines[4:])
    assert "by op" not in text


@pytest.mark.slow
def test_csv_holds_figures_and_their_parts_exactly(diff):
    code, text, err = diff("cpu_b8", "cpu_b16", "--format", "csv", "--by", "source")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(text)))
    figures = [row for row in rows if row["part"] == ""]
    assert len(figures) == 3 * 8
    for name in ("peak", "temps"):
        for function in ("train_step", "eval_step"):
            figure_rows = [r for r in rows if (r["figure"], r["function_name"]) == (name, function)]
            total, *parts = [int(row["delta_bytes"]) for row in figure_rows]
            assert sum(parts) == total
            assert next(row["part"] for row in figure_rows) == ""
    assert int(rows[0]["base_bytes"]) == 8905504


@pytest.mark.slow
def test_json_and_jsonl_hold_the_same_rows(diff):
    lists = json.loads(diff("cpu_b8", "cpu_b8_remat", "--format", "json")[1])
    lines = diff("cpu_b8", "cpu_b8_remat", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == lists
    assert lists[0]["delta_bytes"] == -2514004
    assert {row["paired_by"] for row in lists} == {"signature", "only in base"}


@pytest.mark.slow
def test_function_and_color(diff):
    text = diff("cpu_b8", "cpu_b16", "--function", "eval*")[1]
    assert text.startswith("eval_step: peak 2.02 MiB → 3.74 MiB (+85.4%), largest: +1.53 MiB dot")
    assert "train_step" not in text
    by_name = diff("tpu_b8", "tpu_b8", "--color", "vmem", "--function", "init")
    assert by_name[1].startswith("no peak changed: 1 unchanged")
    assert by_name == diff("tpu_b8", "tpu_b8", "--color", "1", "--function", "init")
    code, out, err = diff("cpu_b8", "cpu_b16", "--function", "x")
    assert (code, out.splitlines()[0]) == (0, "nothing to compare")
    assert err == (
        "bufdb: no rows: neither side has function 'x'; "
        "there is train_step, eval_step, init in memory space 0 (host)\n"
    )
    err = diff("cpu_b8", "cpu_b16", "--color", "hbm", "--function", "init")[2]
    assert "neither side has function 'init' and color 'hbm'; there is " in err


@pytest.mark.slow
def test_top_cuts_and_says_so(diff):
    code, text, err = diff("cpu_b8", "cpu_b16", "--top", "1")
    assert (code, err) == (0, "bufdb: 2 more functions; --top shows more\n")
    assert "12 smaller" in text and "21 unchanged" in text
    code, text, err = diff("cpu_b8", "cpu_b16", "--top", "1", "--format", "csv")
    assert err == "bufdb: --top cuts tables and Markdown only; all rows are written\n"


@pytest.mark.slow
def test_both_sides_of_a_small_change_differ(diff):
    text = diff("cpu_b8_old", "cpu_b8")[1]
    assert text.startswith("train_step: peak 8.53 MiB → 8.49 MiB (-0.4%), largest: ")


@pytest.mark.slow
def test_output_to_a_file(diff, tmp_path):
    path = tmp_path / "diff.md"
    arguments = ("cpu_b8", "cpu_b16", "--format", "markdown")
    assert diff(*arguments, "-o", str(path)) == (0, "", "")
    assert path.read_text(encoding="utf-8") == diff(*arguments)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cpu_b9", "cpu_b8"), "no run 'cpu_b9'; did you mean 'cpu_b8'?"),
        (("cpu_b8", "x=1"), "no run 'x=1'; there is cpu_b16, cpu_b8"),
        (("cpu_b8", "cpu_b8", "--by", "colour"), "Invalid value for '--by'"),
        (("cpu_b8",), "Missing argument 'NEW'"),
    ],
)
def test_wrong_usage(diff, arguments, message):
    code, text, err = diff(*arguments)
    assert (code, text) == (2, "")
    assert err.startswith("bufdb: error: ") and message in err
    assert err.count("\n") == 1


def test_keys_of_the_command_are_those_of_the_macro(con):
    ((text,),) = con.execute(
        "SELECT macro_definition FROM duckdb_functions() WHERE function_name = 'diff_peak'"
    ).fetchall()
    keys = re.search("key_name is ([a-z, ]+)'", text)[1].replace(" or ", ", ").split(", ")
    assert tuple(keys) == diff_command.KEYS


# Over a few rows.


@pytest.fixture
def small(call, empty_db, tmp_path):
    path = shutil.copy(empty_db, tmp_path / "small.duckdb")

    def diff(modules, *arguments):
        with duckdb.connect(path) as con, in_bulk(con):
            for number, (run, function, temps, cells) in enumerate(modules):
                made = Module(con, number, run, function, **cells)
                made.allocation(0, "temp", sum(temps.values()) + 3)
                offset = 0
                for value_id, (name, size) in enumerate(temps.items()):
                    made.value(value_id, 0, offset, size, op_name=f"jit(f)/{name}")
                    offset += size
                if made.temps:
                    made.close()
        return call("diff", *arguments, "--db", path)

    return diff


@pytest.mark.slow
def test_a_table(small):
    modules = [
        ("a", "f", {"x": 1024, "y": 2048}, {}),
        ("b", "f", {"x": 4096, "z": 1}, {}),
        ("b", "g", {"x": 1}, {}),
    ]
    code, text, err = small(modules, "a", "b")
    assert (code, err) == (0, "")
    assert [re.split(" {2,}", line) for line in text.splitlines() if "---" not in line] == [
        [
            "f: peak 3.00 KiB → 4.00 KiB (+33.4%), largest: +3.00 KiB x; in all: "
            "grew 1.00 KiB in 1 function, only in new 1 B in 1"
        ],
        [""],
        ["function", "space", "figure", "base", "new", "delta", "change", "paired by"],
        ["f", "color 0", "peak", "3.00 KiB", "4.00 KiB", "+1.00 KiB", "+33.4%", "name"],
        ["", "temps", "3.00 KiB", "4.00 KiB", "+1.00 KiB", "+33.3%"],
        ["", "arguments, outputs, aliased, constants, fragmentation, padding", *"~~~~"],
        ["g", "color 0", "peak", "-", "1 B", "-", "-", "only in new"],
        [""],
        ["f, color 0: peak +1.00 KiB by op"],
        ["change", "base", "new", "delta", "kind", "values", "shape", "source", "part"],
        ["grew", "1.00 KiB", "4.00 KiB", "+3.00 KiB", "temp", "1", "x"],
        ["vanished", "2.00 KiB", "0 B", "-2.00 KiB", "temp", "1", "y"],
        ["appeared", "0 B", "1 B", "+1 B", "temp", "1", "z"],
        ["", "3.00 KiB", "4.00 KiB", "+1.00 KiB", "peak"],
        [""],
        ["temps +1.00 KiB: +1.00 KiB in parts of kind temp, ~ fragmentation"],
    ]


@pytest.mark.slow
def test_without_live_ranges(small):
    modules = [("a", "f", {}, {"has_live_ranges": False}), ("b", "f", {"x": 4}, {})]
    code, text, _ = small(modules, "a", "b")
    assert code == 0
    assert text.splitlines()[0] == "no known peak changed: 1 unknown"
    assert [line.split() for line in text.splitlines()[4:6]] == [
        ["f", "color", "0", "peak", "unknown", "4", "B", "unknown", "-", "name"],
        ["temps", "3", "B", "7", "B", "+4", "B", "+133.3%"],
    ]
    assert text.splitlines()[-1] == "f, color 0: peak unknown: base: the dump has no live ranges"


@pytest.mark.slow
def test_without_allocations_every_figure_is_unknown(small, tmp_path):
    small([("b", "f", {"x": 4}, {})], "b", "b")
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con:
        Module(con, 9, "a", "f")
    rows = list(csv.DictReader(io.StringIO(small([], "a", "b", "--format", "csv")[1])))
    assert {(row["color"], row["base_bytes"], row["change"]) for row in rows} == {
        ("0", "", "unknown")
    }
    assert {row["unknown_reason"] for row in rows} == {"base: the dump has no allocations"}
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con:
        Module(con, 10, "c", "f")
    code, text, _ = small([], "a", "c")
    assert (code, text.splitlines()[0]) == (0, "no known peak changed: 1 unknown")


@pytest.mark.slow
def test_modules_of_one_function_are_distinguished(small):
    modules = [
        (run, "f", {"x": size}, {"module_key": f"module_{number:04}.jit_f.cpu"})
        for run, number, size in (("a", 1, 9), ("a", 2, 5), ("b", 4, 9), ("b", 6, 7))
    ]
    text = small(modules, "a", "b")[1]
    assert "f [module_0002 → module_0006]  color 0  peak " in text
    assert "f [module_0001 → module_0004]  color 0  all figures " in text


@pytest.mark.slow
def test_growth_and_shrinkage_are_summed_apart(small):
    sizes = {"f": (1, 5), "g": (1, 2), "h": (9, 7), "same": (3, 3)}
    modules = [
        (run, name, {"x": both[side]}, {})
        for side, run in enumerate("ab")
        for name, both in sizes.items()
    ]
    modules += [("a", "gone", {"x": 11}, {}), ("b", "made", {"x": 12}, {})]
    modules += [(run, "odd", {}, {"has_live_ranges": False}) for run in "ab"]
    modules += [("b", "bare", {}, {"has_live_ranges": False})]
    assert small(modules, "a", "b")[1].splitlines()[0] == (
        "f: peak 1 B → 5 B (+400.0%), largest: +4 B x; in all: grew 5 B in 2 functions, "
        "shrank 2 B in 1, only in new 12 B in 1, only in base 11 B in 1, 1 unknown, "
        "1 only in new of unknown size, 1 unchanged"
    )


@pytest.mark.slow
def test_sums_are_of_one_memory_space(small, tmp_path):
    small([("c", "f", {}, {})], "c", "c")
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con, in_bulk(con):
        for number, (run, sizes) in enumerate((("a", (3, 1, 7)), ("b", (4, 9, 7))), 1):
            made = Module(con, number, run, "f")
            for color, size in enumerate(sizes):
                made.allocation(color, "output", size, color=color)
            made.close()
    assert small([], "a", "b", "--color", "all")[1].splitlines()[0] == (
        "f (color 1): peak 1 B → 9 B (+800.0%), largest: +8 B (output); in all: "
        "color 1 grew 8 B in 1 function; color 0 grew 1 B in 1 function; 1 unchanged"
    )


@pytest.mark.slow
def test_a_renamed_function_has_both_names(small):
    modules = [("a", "loss_fn", {"x": 1}, {}), ("b", "loss_func", {"x": 3}, {})]
    text = small(modules, "a", "b", "--pair", "loss_fn=loss_func")[1]
    assert text.startswith("loss_fn → loss_func: peak 1 B → 3 B (+200.0%), largest: +2 B x\n")
    assert text.splitlines()[4].split()[:4] == ["loss_fn", "→", "loss_func", "color"]
    assert text.splitlines()[4].endswith("  asked")
    for name in ("loss_fn", "loss_func"):
        assert text == small([], "a", "b", "--pair", "loss_fn=loss_func", "--function", name)[1]
    row = next(
        csv.DictReader(
            io.StringIO(small([], "a", "b", "--pair", "loss_fn=loss_func", "--format", "csv")[1])
        )
    )
    assert (row["base_function_name"], row["new_function_name"]) == ("loss_fn", "loss_func")
    assert row["paired_by"] == "asked"


@pytest.mark.slow
def test_where_nothing_is_compared_it_says_what_there_is(con):
    Module(con, 1, "a", "f").allocation(0, "output", 1)
    Module(con, 2, "b", "g").allocation(0, "output", 2)
    derive(con)
    answer = questions.diff(lambda *_, **__: con, "a", "b", function="h", color=1)
    assert answer.note == (
        "no rows: neither side has function 'h' and color '1'; there is f, g in memory space 0 "
        "(no name)"
    )


@pytest.mark.slow
def test_device_memory_is_compared_by_default(con):
    for module_id, run, own, scratch in ((1, "a", 100, 40), (2, "b", 90, 300)):
        module = Module(con, module_id, run, "f")
        module.allocation(0, "output", own)
        module.allocation(1, "output", scratch, color=5)
        module.close()
    derive(con)

    def compared(**filters):
        comparison = questions.diff(lambda *_, **__: con, "a", "b", **filters).comparison
        peaks = [row for row in comparison.figures if row.figure == "peak"]
        return [(row.place, row.color, row.delta_bytes) for row in peaks], list(
            comparison.other_spaces
        )

    assert compared() == ([(1, 0, -10)], [("color 5", 260)])
    assert compared(top=1) == compared()
    assert compared(color="all") == ([(1, 5, 260), (2, 0, -10)], [])
    assert compared(color=5) == ([(1, 5, 260)], [])


@pytest.mark.slow
def test_programs_of_torch_xla_have_their_modules(small):
    modules = [
        (run, None, {"x": number}, {
            "module_name": f"SyncTensorsGraph.{number}",
            "module_key": f"module_000{number}.SyncTensorsGraph.{number}.cpu_after_optimizations",
        })
        for run, number in (("a", 1), ("b", 3))
    ]  # fmt: skip
    pair = "SyncTensorsGraph.1=SyncTensorsGraph.3"
    assert small(modules, "a", "b", "--pair", pair)[1].startswith(
        "module_0001.SyncTensorsGraph → module_0003.SyncTensorsGraph: peak 1 B → 3 B"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            ["fu=h"],
            "--pair: no function and no module 'h' in NEW; there is a,b, g, gnu, tpu, ",
        ),
        (["f"], "--pair: expected OLD=NEW, found 'f'"),
        (["fun=g"], "--pair: no function and no module 'fun' in BASE; did you mean 'fund'?"),
        (["fund=g", "fund=gnu"], "--pair: 'fund' is in several pairs"),
        (["fund=g", "m1=g"], "--pair: 'g' is in several pairs"),
        (["fund=a,b"], "--pair 'fund=a,b': a name with a comma cannot be asked for"),
        (["fund=tpu"], "--pair 'fund=tpu': both are there, but of another platform, or in runs of"),
    ],
)
def test_pairs_that_cannot_be(small, pairs, message):
    modules = [("a", "fund", {}, {"platform": "cpu"}), ("a", "fu", {}, {"platform": "tpu"})]
    names = {"g": "cpu", "gnu": "cpu", "a,b": "cpu", "tpu": "tpu"}
    modules += [("b", name, {}, {"platform": platform}) for name, platform in names.items()]
    options = [word for pair in pairs for word in ("--pair", pair)]
    code, text, err = small(modules, "a", "b", *options)
    assert (code, text) == (2, "")
    assert err.startswith(f"bufdb: error: {message}")


@pytest.mark.slow
def test_donations_and_what_xla_adds_are_reported(small, tmp_path):
    small([("c", "f", {}, {})], "c", "c")
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con, in_bulk(con):
        for number, (run, kind) in enumerate((("a", "parameter"), ("b", "donated_parameter")), 1):
            made = Module(con, number, run, "f")
            made.allocation(0, kind, 8, parameter_number=0, parameter_shape_index="{}")
            made.value(0, 0, 0, 8, name="p", opcode="parameter", op_name="params['w']")
            made.allocation(1, "temp", 12)
            made.value(1, 1, 0, 3 + number, name="copy.1", opcode="copy", op_name="jit(f)/dot")
            made.value(2, 1, 5, 6, name="dot.1", opcode="dot", op_name="jit(f)/dot")
            made.close()
    text = small([], "a", "b")[1]
    assert " dot (by XLA: 4 B → 5 B)\n" in text
    assert "XLA" not in small([], "a", "b", "--by", "opcode")[1]
    assert " parameter 'params/w' is donated now\n" in text
    assert " parameter 'params/w' is not donated any more\n" in small([], "b", "a")[1]
    assert " parameter is donated now\n" in small([], "a", "b", "--by", "source")[1]


@pytest.mark.slow
def test_runs_of_a_label_are_distinguished(small, tmp_path):
    small(
        [("a1", "f", {"x": 1}, {}), ("a2", "f", {"x": 2}, {}), ("b", "f", {"x": 3}, {})], "b", "b"
    )
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con:
        for run in ("a1", "a2"):
            insert(con, "run_labels", run_name=run, label="x", label_value="a")
    text = small([], "x=a", "b")[1]
    assert text.splitlines()[0] == (
        "f: peak 2 B → 3 B (+50.0%), largest: +1 B x; in all: "
        "grew 1 B in 1 function, only in base 1 B in 1"
    )
    assert text.splitlines()[4].startswith("f [a2 → b]  color 0  peak ")


@pytest.mark.slow
def test_a_name_that_is_a_run_and_a_label_is_ambiguous(small, tmp_path):
    small([("x=a", "f", {"x": 1}, {}), ("b", "f", {"x": 3}, {})], "b", "b")
    with duckdb.connect(str(tmp_path / "small.duckdb")) as con:
        insert(con, "run_labels", run_name="b", label="x", label_value="a")
    assert small([], "x=a", "b") == (
        2,
        "",
        "bufdb: error: 'x=a' is a run and also a label of b; name the runs\n",
    )


# -- what processes hold ---------------------------------------------------------------------------


@pytest.mark.slow
def test_what_processes_hold_is_compared_by_line(call, empty_folder):
    profiles = ROOT / "data" / "profiles"
    code, out, err = call("diff", profiles / "cpu_b8-000000.prof", profiles / "cpu_b8-000003.prof")
    assert code == 0, err
    first, second, *_ = out.splitlines()
    assert first == "what processes hold: 3.09 MiB → 5.73 MiB (+2.65 MiB)"
    assert second == (
        "  +1.10 MiB, 9 × f32[500,64] made at cache_params leak.py:15, held by history (leak.py:19)"
    )


def test_a_side_without_a_profile_says_nothing_of_processes(call, demo_db):
    code, out, _ = call("diff", "cpu_b8", "cpu_b16", "--db", demo_db)
    assert code == 0 and "what processes hold" not in out
