"""A module with an unknown peak is nowhere 0 and nowhere left out; no size breaks an answer."""

from __future__ import annotations

import itertools
import shutil

import duckdb
import pytest
from small_db import Module, derive, in_bulk, insert, shape

from bufdb import cli, resources
from bufdb.database import store
from bufdb.query import catalogue, execute, result
from bufdb.render import FORMATS, formats

REASON = "values of temp allocation 1 are missing"
QUERIES = {
    query.name: query
    for query in catalogue.Catalogue([resources.query_folder()]).load_all()
    if query.name != "diagnostics"  # what ingest found, whatever the peak
}
BY_PEAK = {
    "peak_bytes", "peak_time", "peak_ratio", "module_peak_ratio", "peak_change_bytes",
    "peak_change_ratio", "held_bytes", "held_ratio", "cumulative_ratio", "peak_held_bytes",
    "peak_padding_bytes", "peak_value_count", "occupied_temp_bytes", "occupied_bytes",
    "lowest_bytes", "step_time", "fragmentation_bytes", "naive_live_bytes", "hole_bytes",
    "gathered_bytes", "f32_bytes", "saved_bytes", "kept_bytes", "idle_byte_steps", "byte_steps",
    "min_peak_bytes", "median_peak_bytes", "max_peak_bytes", "spread_bytes", "spread_ratio",
    "fullest_rank", "emptiest_rank", "largest_bytes", "fixed_bytes", "slope_bytes", "r2",
    "figure_bytes", "previous_bytes", "delta_bytes", "delta_ratio", "value_count",
    "min_bytes", "median_bytes", "max_bytes", "own_bytes", "difference_bytes", "odd_count",
}  # fmt: skip
"""Columns that a peak decides. module-figures has fixed_bytes of another meaning, and there and in
the queries of values not all hang on it."""
STATIC = {
    "module-figures": {"fixed_bytes"},
    "donation-missed": {"saved_bytes"},
    "padding": {"value_count"},
    "top-values": {"value_count"},
}
OF_OTHERS = {
    "kernels", "process", "process-curve", "process-growth", "rank-growth", "diff-process", "pool",
    "unplanned",
}  # fmt: skip
OF_DUMPS = {name: query for name, query in QUERIES.items() if name not in OF_OTHERS}
"""A row of the others is of a kernel, or of a profiled process, with or without a module."""
each_query = pytest.mark.parametrize("query", OF_DUMPS.values(), ids=OF_DUMPS.keys())
OF_PEAKS = {name: query for name, query in OF_DUMPS.items() if name != "serving"}  # has needs


def compiled(con, module_id, run_name, function, reason=None, **cells):
    """A module with a value of every kind that a query asks for."""
    module = Module(
        con, module_id, run_name, function, peak_unknown_reason=reason, platform="cpu",
        schedule_length=9, **cells,
    )  # fmt: skip
    known = reason is None
    text = "f32[2]{0}"
    module.allocation(0, "parameter", 8, parameter_number=0, parameter_shape_index="{}",
                      parameter_shape="f32[2]")  # fmt: skip
    module.allocation(1, "temp", 100)
    module.allocation(2, "output", 8, output_shape="f32[2]")
    module.allocation(3, "constant", 8)
    module.value(1, 0, 0, 8, shape=text, logical=8, opcode="parameter")
    module.value(2, 1, 0, 16, (1, 5), shape=text, logical=8, opcode="add", op_name="jit(f)/add")
    module.value(3, 1, 16, 16, (2, 4), shape=text, logical=8, opcode="copy")
    module.value(4, 2, 0, 8, shape=text, logical=8, opcode="multiply")
    module.value(5, 3, 0, 8, shape=text, logical=8, opcode="constant")
    module.value(6, 1, 32, 8, (2, 4), shape="(f32[2])", logical=8, opcode="tuple")
    module.use(2, "v3")
    if known:
        module.close()


def filled(con, functions):
    """Make runs a and b with two compilations of each (function, whether its peak is known)."""
    with in_bulk(con):
        fill(con, functions)


def fill(con, functions):
    shape(con, "f32[2]{0}", 8, 2)
    shape(con, "(f32[2])", 8, 1)
    numbers = itertools.count(1)
    for run_name, size in (("a", "1"), ("b", "2")):
        for (function, is_known), _ in itertools.product(functions.items(), range(2)):
            compiled(con, next(numbers), run_name, function, None if is_known else REASON)
        for label in ("rank", "batch"):
            insert(con, "run_labels", run_name=run_name, label=label, label_value=size)


def rows(con, query, **params):
    """Rows as dicts; both sides are named where a query compares."""
    if query.param("base") is not None:
        params |= {"base": "a", "new": "b"}
    for label in ("rank", "batch"):
        if query.param("fixed") is not None:
            params.setdefault("fixed", label)
    if query.name == "scaling":  # what XLA reserves is known without live ranges
        params.setdefault("metric", "peak")
    bound = execute.bind(query, {name: str(value) for name, value in params.items()})
    names = [column.name for column in query.columns]
    return [
        dict(zip(names, row, strict=True)) for row in execute.execute_query(con, query, bound).rows
    ]


@pytest.fixture(scope="module", params=[{"known": True, "un": False}, {"un": False}], ids=len)
def functions_and_db(request, fresh):
    with fresh() as con:
        filled(con, request.param)
        yield request.param, con


@pytest.mark.sample(20)
@pytest.mark.parametrize("query", OF_PEAKS.values(), ids=OF_PEAKS.keys())
def test_an_unknown_peak_has_a_reason_and_no_number(functions_and_db, query):
    functions, con = functions_and_db
    # Unknown ones come first; where peaks do not rank the rows, top_n can cut any.
    is_ranked = "known" in functions and query.name != "retraces"
    for top_n in (1, 100) if is_ranked else (100,):
        answer = rows(con, query, top_n=top_n)
        own_rows = [row for row in answer if row.get("function_name", "un") in ("un", None)]
        assert any(REASON in (row["unknown_reason"] or "") for row in own_rows), answer
        for row in own_rows:
            if row.get("figure") not in (None, "peak", "fragmentation", "padding"):
                continue
            columns = BY_PEAK - STATIC.get(query.name, set())
            figures = {name: row[name] for name in columns & row.keys() if row[name] is not None}
            assert not figures
    if "known" in functions and query.name != "runs":
        others = [row for row in answer if row.get("function_name") == "known"]
        assert all(row["unknown_reason"] is None for row in others)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("jit-functions", "max_peak_bytes"), ("retraces", "max_peak_bytes"),
        ("runs", "max_peak_bytes"),
    ],
)  # fmt: skip
def test_one_unknown_peak_makes_the_largest_unknown(con, name, column):
    filled(con, {"f": True})
    assert all(row[column] is not None for row in rows(con, QUERIES[name]))
    for run_name, number in (("a", 8), ("b", 9)):
        compiled(con, number, run_name, "f", REASON)
    derive(con)
    answer = rows(con, QUERIES[name])
    assert answer
    assert all(row[column] is None and REASON in row["unknown_reason"] for row in answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("series", "peak_bytes"), ("peak-matrix", "peak_bytes"),
        ("ranks -p figure peak", "max_bytes"), ("scaling", "largest_bytes"),
        ("series -p only regressions", "figure_bytes"),
    ],
)  # fmt: skip
def test_each_compilation_has_its_own_peak(con, name, column):
    filled(con, {"f": True})
    for run_name, number in (("a", 8), ("b", 9)):
        compiled(con, number, run_name, "f", REASON)
    derive(con)
    name, *options = name.split(" -p ")
    answer = rows(con, QUERIES[name], **dict(option.split(" ") for option in options))
    unknown = {row["compilation_place"] for row in answer if row["unknown_reason"] is not None}
    assert unknown == {3}
    for row in answer:
        assert (row[column] is None) == (row["compilation_place"] == 3)


@pytest.fixture(scope="module")
def bare_db(fresh):
    with fresh() as con:
        for module_id, run_name in ((1, "a"), (2, "b")):
            Module(con, module_id, run_name, "un")
            Module(con, 10 + module_id, run_name, "un")
            for label in ("rank", "batch"):
                row = {"run_name": run_name, "label_value": str(module_id)}
                insert(con, "run_labels", label=label, **row)
        yield con


@pytest.mark.sample(12)
@each_query
def test_no_allocations_are_reported_in_every_space(bare_db, query):
    answer = rows(bare_db, query, color=0)
    assert answer
    assert all("the dump has no allocations" in row["unknown_reason"] for row in answer)


HUGE = 2**63 - 1


@pytest.fixture(scope="module")
def huge_db(empty_db, tmp_path_factory):
    """Sizes up to 2^63 and below 0, as damaged dumps have them, known and unknown."""
    path = shutil.copy(empty_db, tmp_path_factory.mktemp("huge") / "huge.duckdb")
    with duckdb.connect(path) as con, in_bulk(con):
        text = shape(con, "f32[2]{0}", HUGE, 2)
        table = shape(con, "(f32[2])", 8, 1)
        numbers = itertools.product((("a", "1"), ("b", "2")), ("f", "un"), (0, 1))
        for module_id, ((run_name, size), function, twice) in enumerate(numbers, 1):
            reason = REASON if function == "un" else None
            module = Module(con, module_id, run_name, function, peak_unknown_reason=reason,
                            schedule_length=HUGE, platform="tpu")  # fmt: skip
            kinds = ("parameter", "temp", "output", "constant", "temp", "donated_parameter")
            for index, kind in enumerate(kinds):
                module.allocation(index, kind, HUGE - index - twice, parameter_number=0,
                                  parameter_shape_index="{}", parameter_shape=text,
                                  output_shape=text)  # fmt: skip
            module.allocation(9, "temp", -(2**63))
            opcodes = ("all-gather", "copy", "add", "constant", "parameter", "broadcast", "while")
            values = itertools.product((0, 1, 2, 3, 4), opcodes)
            for value_id, (index, opcode) in enumerate(values):
                start = 0 if value_id % 2 else 2**62
                module.value(value_id, index, value_id * 2**55, 2**62 + value_id, (start, HUGE),
                             shape=text, logical=value_id - 9, opcode=opcode,
                             program_order=value_id, op_name=f"jit(f)/{opcode}")  # fmt: skip
                module.use(value_id, f"v{value_id + 1}")
            module.value(90, 9, -(2**63), -(2**63), (0, HUGE), shape=text, logical=HUGE,
                         opcode="all-gather")  # fmt: skip
            module.value(91, 4, 0, 4, (0, HUGE), shape=table, logical=8, opcode="tuple")
            module.value(92, 4, HUGE, HUGE, (0, HUGE), shape=text, logical=-(2**63), opcode="copy")
            if reason is None:
                insert(con, "occupied_peaks", module_id=module_id, peak_time=2**62,
                       occupied_temp_bytes=2**66, naive_live_bytes=2**70)  # fmt: skip
                for time in (0, 2**62, HUGE):
                    insert(con, "occupancy_steps", module_id=module_id, start_time=time,
                           occupied_temp_bytes=2**66)  # fmt: skip
            insert(con, "peak_contributors", module_id=module_id, logical_bytes=HUGE)
            insert(con, "peak_contributors", module_id=module_id, logical_bytes=HUGE,
                   contributor_ordinal=1)  # fmt: skip
            if function == "f" and not twice:
                insert(con, "run_labels", run_name=run_name, label="batch", label_value=size)
                insert(con, "run_labels", run_name=run_name, label="rank", label_value=size)
    return path


@pytest.fixture(scope="module")
def huge(huge_db):
    with store.open_readable(str(huge_db)) as con:
        yield con


@pytest.mark.sample(0, 3)
@each_query
def test_sizes_near_two_to_the_63_raise_nothing(huge, query):
    tries = [{}, {"top_n": 2**62}]
    if query.name == "scaling":
        tries += [{"size": "1e300"}, {"size": "2", "budget": HUGE}, {"metric": "total"}]
        tries += [{"label": "batch,rank", "size": "1e300,1e300", "budget": HUGE}]
    if query.name == "at-step":
        tries += [{"step": HUGE}, {"step": 0}]
    if query.name == "at-offset":
        tries += [{"first_byte": HUGE, "byte_count": HUGE}, {"first_byte": -HUGE}]
    if query.name == "late-free":
        tries += [{"at_peak": "false"}]
    for params in tries:
        rows(huge, query, **params)


def test_padding_near_two_to_the_63_is_exact(huge):
    padded = rows(huge, QUERIES["padding"], top_n=1000)
    widest = max(padded, key=lambda row: row["padding_bytes"] or 0)
    assert widest["padding_bytes"] == HUGE + 2**63


@pytest.mark.parametrize("format_name", FORMATS)
def test_people_see_the_column_of_reasons_where_there_is_one(format_name):
    columns = [("peak_bytes", "HUGEINT"), ("unknown_reason", "VARCHAR")]
    for_people = format_name in ("table", "markdown")
    all_known, _ = formats.render(result.Result(columns, [(7, None)]), format_name)
    assert ("unknown_reason" in all_known) is not for_people
    unknown, _ = formats.render(result.Result(columns, [(7, None), (None, REASON)]), format_name)
    assert "unknown_reason" in unknown and REASON in unknown


def test_a_table_smaller_than_its_pointers_has_no_padding(con):
    shape(con, "(f32[2])", 8, 1)
    shape(con, "f32[2]{0}", 8, 2)
    module = Module(con, 1)
    module.allocation(0, "temp", 64)
    module.value(1, 0, 0, 4, shape="(f32[2])", logical=8)
    module.value(2, 0, 4, 16, shape="f32[2]{0}", logical=8)
    module.close()
    paddings = con.execute("SELECT padding_bytes FROM value_details ORDER BY value_id").fetchall()
    assert paddings == [(0,), (8,)]
    assert [row["peak_padding_bytes"] for row in rows(con, QUERIES["padding"])] == [8]


@pytest.mark.slow
def test_diff_and_budget_over_such_sizes(huge_db, tmp_path, capfdbinary):
    budget = tmp_path / "budget.toml"
    budget.write_text('[[budget]]\nfunction = "*"\nmetric = "peak"\nlimit = "+2%"\n')
    for format_name in ("table", "markdown", "json"):
        options = ["--db", str(huge_db), "--format", format_name]
        assert cli.run(["diff", "a", "b", *options]) == 0
        assert "unknown" in capfdbinary.readouterr().out.decode()
        arguments = ["budget", str(budget), "--run", "b", "--base", "a", *options]
        assert cli.run(arguments) == 4
        assert f"peak is unknown: {REASON}" in capfdbinary.readouterr().out.decode()
