"""Sureness of advice, in every row of the queries that give it."""

import collections
import math
import re

import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import Module, shape

from bufdb import resources
from bufdb.query import catalogue, execute

DUMPS = [ROOT / "data" / name for name in ("demo", "loops", "sharded")]


def answers(con, name, **params):
    """Rows of a saved query that say something, by column."""
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    bound = execute.bind(query, {key: str(value) for key, value in params.items()})
    names = [column.name for column in query.columns]
    rows = [
        dict(zip(names, row, strict=True)) for row in execute.execute_query(con, query, bound).rows
    ]
    return [row for row in rows if row["unknown_reason"] is None]


def sureness_by_kind(con):
    rows = con.execute(
        "SELECT kind, platform, sureness FROM advice_sureness WHERE NOT is_from_zero"
    ).fetchall()
    return {(kind, platform): sureness for kind, platform, sureness in rows}


def of_range(sureness, row):
    """Less sure where the change may save nothing."""
    return "possible" if sureness == "likely" and row["low_saving_bytes"] <= 0 else sureness


def has_tiles_to_save(row):
    """Return whether e.g. bf16[99] with layout {0:T(8,128)(2,1)} takes more than one tile."""
    dimensions = re.findall(r"[0-9]+", re.search(r"\[(.*?)\]", row["shape"])[1])
    match = re.search(r":T\((.*?)\)", row["layout"] or "")
    tile = math.prod(map(int, re.findall(r"[0-9]+", match[1]))) if match else math.inf
    return row["size_bytes"] * math.prod(map(int, dimensions)) > row["logical_bytes"] * tile


KINDS = {
    "carry-copies": lambda row: None if row["saving_bytes"] is None else "copy",
    "copies": lambda row: (
        "memory_move"
        if row["is_kept_twice"] and row["reason"] == "memory_space"
        else "copy_in_turn"
        if row["is_kept_twice"] is False
        else "copy"
        if row["is_kept_twice"] and row["saving_bytes"] is not None
        else None
    ),
    "gathers-live": lambda row: "gather" if row["gathered_count"] > 1 else "single_gather",
    "late-free": lambda row: "late_free",
    "loop-residuals": lambda row: (
        None
        if row["low_saving_bytes"] is None
        else "layer_input"
        if row["is_layer_input"]
        else "residual"
    ),
    "offload-candidates": lambda row: "offload",
    "padding": lambda row: "padding" if has_tiles_to_save(row) else "least_size",
    "remat-candidates": lambda row: (
        "residual" if row["lifetime_ratio"] is None else "recompute"  # a stack has no lifetime
    ),
}
"""Kind of advice of a row, from the query's other columns, by query."""
DTYPES = ("dtype", "dtype_of_stack")
RANGED = {
    query.name: query
    for query in catalogue.Catalogue([resources.query_folder()]).load_all()
    if {"sureness", "low_saving_bytes"} <= {column.name for column in query.columns}
}
"""Queries whose rows have a range: what may save nothing is not likely."""
MANY = {name: {"top_functions": 1000} for name in ("late-free", "loop-residuals")}


@pytest.mark.slow
def test_every_row_of_advice_says_how_sure_it_is(con):
    for folder in DUMPS:
        ingest_into(con, sorted(path for path in folder.iterdir() if path.is_dir()))
    known = sureness_by_kind(con)
    rows_by_query = {
        name: answers(con, name, top_n=1000, **MANY.get(name, {})) for name in {**KINDS, **RANGED}
    }
    for name, kind_of in KINDS.items():
        rows = rows_by_query[name]
        assert rows, name
        expected = [of_range(known.get((kind_of(row), row["platform"])), row) for row in rows]
        assert [row["sureness"] for row in rows] == expected, name
    for name in RANGED:
        for row in rows_by_query[name]:
            assert row["sureness"] != "likely" or row["low_saving_bytes"] > 0, (name, row)
    f32 = rows_by_query["f32-large"]
    of_dtype = [{known[kind, row["platform"]] for kind in DTYPES} for row in f32]
    assert all(row["sureness"] in some for row, some in zip(f32, of_dtype, strict=True))
    advice = answers(con, "advice", top_n=1000, top_functions=1000, min_ratio=0)
    assert len(advice) > 20
    assert {row["sureness"] for row in advice} <= {"likely", "possible"}


def test_sureness_follows_from_the_range(con):
    pairs = con.execute(
        "SELECT sure.sureness, unsure.sureness FROM advice_sureness AS sure "
        "JOIN advice_sureness AS unsure USING (kind, platform) "
        "WHERE NOT sure.is_from_zero AND unsure.is_from_zero"
    ).fetchall()
    assert set(pairs) == {
        ("likely", "possible"), ("possible", "possible"), ("unlikely", "unlikely"),
    }  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("platform", "opcode", "kind"),
    [
        ("cpu", "subtract", "donate"),
        ("gpu", "subtract", "donate"),
        ("tpu", "subtract", "donate"),
        (None, "subtract", "donate"),
        ("gpu", "custom-call", "copied_donation"),
        ("cpu", "dot", "copied_donation"),
    ],
)
def test_a_donation_that_is_copied_is_unlikely(con, platform, opcode, kind):
    text = shape(con, "f32[10]{0}")
    module = Module(con, 1, function_name="step", platform=platform)
    module.allocation(0, "parameter", 40, parameter_number=0)
    module.value(0, 0, 0, 40, (0, 9), "p0", text, opcode="parameter")
    module.allocation(1, "output", 40)
    module.value(1, 1, 0, 40, (2, 9), "new", text, opcode=opcode, program_order=2)
    module.use(0, "new")
    module.close()
    (row,) = answers(con, "donation-missed")
    assert row["sureness"] == sureness_by_kind(con)[kind, platform or ""]
    assert (row["sureness"] == "unlikely") == (kind == "copied_donation")


def test_every_kind_of_advice_has_a_sureness_on_every_platform(con):
    kinds = con.execute(
        "SELECT kind, count(DISTINCT platform), count(sureness) FROM advice_sureness "
        "WHERE NOT is_from_zero GROUP BY kind"
    ).fetchall()
    assert kinds
    assert {row[1:] for row in kinds} == {(4, 4)}
    text = (resources.query_folder() / "advice.sql").read_text(encoding="utf-8")
    header = [line.partition(":")[0][3:] for line in text.splitlines() if line.startswith("-- ")]
    known = {kind for kind, _, _ in kinds}
    named = header[header.index("donate") : header.index("constant") + 1]
    assert {name for name in named if name in known} == set(named) - {""}
    assert len([name for name in named if name in known]) == 17


TABLE = ROOT / "data" / "studies" / "promised.md"
LEFT_OUT = {
    "copied_donation",
    "least_size",
    "copy_in_turn",
    "memory_move",
    "single_gather",
    "layer_input",
}


def measured_sureness():
    """Return sureness by kind and platform, from the table of recompiled changes."""
    text = TABLE.read_text(encoding="utf-8").partition("## Each kind")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {(kind, platform): sureness for kind, platform, *_, sureness in cells[2:]}


def test_sureness_is_what_was_measured(con):
    """recompile.py --write-sureness writes it; kinds that advice leaves out save nothing."""
    measured, known = measured_sureness(), sureness_by_kind(con)
    assert set(measured) <= set(known)
    for (kind, platform), sureness in known.items():
        expected = "unlikely" if kind in LEFT_OUT else measured.get((kind, platform), "possible")
        assert not platform or sureness == expected, (kind, platform)


def test_the_table_has_many_changes_on_each_platform():
    text = TABLE.read_text(encoding="utf-8").partition("## Each change")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    platforms = collections.Counter(row[0] for row in rows[2:])
    assert min(platforms[name] for name in ("cpu", "gpu", "tpu")) > 40
