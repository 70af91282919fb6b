"""How sure advice is, in every row of the queries that give it."""

import math
import re

import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import Module, shape

from bufdb import resources
from bufdb.query import catalogue, execute

DUMPS = [ROOT / "data" / name for name in ("demo", "loops", "sharded")]


def answers(con, name, **given):
    """Rows of a saved query that say something, by column."""
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    bound = execute.bind(query, {key: str(value) for key, value in given.items()})
    names = [column.name for column in query.columns]
    rows = [
        dict(zip(names, row, strict=True)) for row in execute.execute_query(con, query, bound).rows
    ]
    return [row for row in rows if row["unknown_reason"] is None]


def has_tiles_to_save(row):
    """Whether a shape such as bf16[99]{0:T(8,128)(2,1)} takes more than one tile."""
    dimensions = re.findall(r"[0-9]+", re.search(r"\[(.*?)\]", row["shape"])[1])
    found = re.search(r":T\((.*?)\)", row["shape"])
    tile = math.prod(map(int, re.findall(r"[0-9]+", found[1]))) if found else math.inf
    return row["size_bytes"] * math.prod(map(int, dimensions)) > row["logical_bytes"] * tile


EXPECTED = {
    "carry-copies": lambda row: None if row["saving_bytes"] is None else "possible",
    "copies": lambda row: (
        "unlikely"
        if row["is_kept_twice"] is False
        or (row["is_kept_twice"] and row["reason"] == "memory_space")
        else "possible"
        if row["is_kept_twice"] and row["saving_bytes"] is not None
        else None
    ),
    "f32-large": lambda row: (
        "unlikely" if row["platform"] == "cpu" and row["saving_bytes"] == 0 else "possible"
    ),
    "gathers-live": lambda row: "possible" if row["gathered_count"] > 1 else "unlikely",
    "late-free": lambda row: "possible",
    "loop-residuals": lambda row: (
        None
        if row["low_saving_bytes"] is None
        else "unlikely"
        if row["is_layer_input"]
        else "likely"
    ),
    "offload-candidates": lambda row: "unlikely" if row["platform"] == "cpu" else "possible",
    "padding": lambda row: "likely" if has_tiles_to_save(row) else "unlikely",
    "remat-candidates": lambda row: (
        "likely"
        if row["lifetime_ratio"] is None  # a stack
        else "unlikely"
        if row["platform"] == "cpu"
        else "possible"
    ),
}
"""By query, what its other columns say of the sureness."""
MANY = {name: {"top_functions": 1000} for name in ("late-free", "loop-residuals")}


@pytest.mark.slow
def test_every_row_of_advice_says_how_sure_it_is(con):
    for folder in DUMPS:
        ingest_into(con, sorted(path for path in folder.iterdir() if path.is_dir()))
    seen = {}
    for name, expected in EXPECTED.items():
        rows = answers(con, name, top_n=1000, **MANY.get(name, {}))
        for row in rows:
            assert row["sureness"] == expected(row), (name, row)
        seen[name] = {row["sureness"] for row in rows}
    assert seen["remat-candidates"] == {"likely", "possible", "unlikely"}
    assert seen["copies"] >= {"possible", "unlikely"}
    assert seen["loop-residuals"] == {None, "likely", "unlikely"}
    assert seen["offload-candidates"] == {"possible", "unlikely"}
    assert seen["padding"] == {"likely", "unlikely"}
    assert all(seen[name] for name in set(seen) - {"f32-large"})
    donations = {
        (row["platform"], row["sureness"]) for row in answers(con, "donation-missed", top_n=1000)
    }
    assert {("cpu", "possible"), ("gpu", "likely"), ("tpu", "likely")} <= donations
    told = answers(con, "advice", top_n=1000, top_functions=1000, min_ratio=0)
    assert len(told) > 20
    assert {row["sureness"] for row in told} == {"likely", "possible"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("platform", "opcode", "sureness"),
    [
        ("cpu", "subtract", "possible"),
        ("gpu", "subtract", "likely"),
        ("tpu", "subtract", "likely"),
        (None, "subtract", "likely"),
        ("gpu", "custom-call", "unlikely"),
        ("cpu", "dot", "unlikely"),
    ],
)
def test_a_donation_that_is_copied_is_unlikely(con, platform, opcode, sureness):
    text = shape(con, "f32[10]{0}")
    module = Module(con, 1, function_name="step", platform=platform)
    module.allocation(0, "parameter", 40, parameter_number=0)
    module.value(0, 0, 0, 40, (0, 9), "p0", text, opcode="parameter")
    module.allocation(1, "output", 40)
    module.value(1, 1, 0, 40, (2, 9), "new", text, opcode=opcode, program_order=2)
    module.use(0, "new")
    module.close()
    (row,) = answers(con, "donation-missed")
    assert row["sureness"] == sureness


def test_every_kind_of_advice_has_a_sureness_on_every_platform(con):
    kinds = con.execute(
        "SELECT kind, count(DISTINCT platform), count(sureness) FROM advice_sureness GROUP BY kind"
    ).fetchall()
    assert kinds
    assert {row[1:] for row in kinds} == {(4, 4)}
    text = (resources.query_folder() / "advice.sql").read_text(encoding="utf-8")
    header = [line.partition(":")[0][3:] for line in text.splitlines() if line.startswith("-- ")]
    known = {kind for kind, _, _ in kinds}
    named = header[header.index("donate") : header.index("constant") + 1]
    assert {name for name in named if name in known} == set(named) - {""}
    assert len([name for name in named if name in known]) == 14
