"""A saving is a range, and advice gives the same one as the query that shows more of it."""

from __future__ import annotations

import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import rows

DUMPS = [ROOT / "data" / name for name in (
    "demo", "elements", "lengths", "loops", "packaged", "sharded",
)]  # fmt: skip
EVERYTHING = {"color": "all", "top_n": 10_000}
OF_VALUES = {
    "recompute": ("remat-candidates", lambda row: row["saving_form"] is None),
    "offload": ("offload-candidates", lambda _: True),
    "dtype": ("f32-large", lambda _: True),
    "copy": ("copies", lambda row: row["is_kept_twice"] and row["reason"] != "memory_space"),
    "late_free": ("late-free", lambda row: row["reason"] == "after_last_use"),
    "gather": ("gathers-live", lambda _: True),
}
"""Kinds whose advice row covers the values of a line, and the query with a row for each value."""
OF_GROUPS = {"batch", "block", "carry", "chunk", "early", "scores", "shard"}
"""Kinds whose saving only advice shows; f32 (a whole program) is another."""


def ends(row):
    return row["low_saving_bytes"], row["saving_bytes"]


def of(query_rows, advised):
    """Rows of the function that a row of advice is about."""
    same = ("run_name", "function_name", "platform", "color")
    return [row for row in query_rows if all(row[name] == advised[name] for name in same)]


def of_its_line(query_rows, advised):
    return [
        row
        for row in of(query_rows, advised)
        if advised["name"] in (row["source"], row["op_name"], row["instruction_name"])
        and row["saving_bytes"] is not None
    ]


@pytest.fixture
def dumps(con):
    """All sample dumps, one run for each directory."""
    for folder in DUMPS:
        ingest_into(con, sorted(path for path in folder.iterdir() if path.is_dir()))
    return con


@pytest.mark.slow
def test_advice_gives_the_range_of_the_query_that_shows_more(dumps):
    shown = shown_by_query(dumps)
    compared = set()
    for row in rows(dumps, "advice", top_functions=10_000, min_ratio=0, **EVERYTHING):
        if row["unknown_reason"] or row["kind"] in OF_GROUPS or row["name"] == "f32":
            continue
        same = [ends(one) for one in of_the_same(shown, row)]
        compared.add((row["kind"], row["value_count"] > 1))
        if row["kind"] in OF_VALUES and row["value_count"] > 1:
            # Together no less than the best of them, except for a gather that is needed.
            assert max(high for _, high in same) <= row["saving_bytes"], row
            lows = sorted(low for low, _ in same)
            assert lows[-2 if row["kind"] == "gather" else -1] <= row["low_saving_bytes"], row
        elif row["kind"] in OF_VALUES:
            assert ends(row) in same, row  # a line may have others that are of no such kind
        else:
            assert {ends(row)} == set(same), row
    several = {(kind, True) for kind in ("padding", "recompute", "late_free")}
    alone = {(kind, False) for kind in ("residual", "offload", "donate", "constant")}
    assert several | alone <= compared
    for name, query_rows in shown.items():
        for row in query_rows:
            low, high = ends(row)
            if high is None or name != "savings":
                assert (low is None) == (high is None), (name, row)
            assert low is None or low <= high, (name, row)


def shown_by_query(con):
    names = {query for query, _ in OF_VALUES.values()}
    names |= {"savings", "donation-missed", "padding", "constants", "carry-copies", "collectives"}
    few = {"savings": {"top_functions": 10_000}, "late-free": {"top_functions": 10_000}}
    return {name: rows(con, name, **EVERYTHING, **few.get(name, {})) for name in names}


def of_the_same(shown, advised):
    """Rows of the query of its kind that are about what a row of advice is about."""
    kind, name = advised["kind"], advised["name"]
    if kind == "residual":
        return [row for row in of(shown["savings"], advised) if row["name"] == name]
    if kind == "padding":
        padding = of(shown["padding"], advised)
        return [row for row in padding if row["shape"] + (row["layout"] or "") == name]
    if kind == "constant":
        constants = of(shown["constants"], advised)
        return [row for row in constants if row["size_bytes"] == advised["saving_bytes"]]
    if kind == "donate":
        pairs = [
            row for row in of(shown["donation-missed"], advised) if row["sureness"] != "unlikely"
        ]
        assert len(pairs) == advised["value_count"]
        together = ("low_saving_bytes", "saving_bytes")
        return [row | {end: row[f"together_{end}"] for end in together} for row in pairs]
    query, is_meant = OF_VALUES[kind]
    return [row for row in of_its_line(shown[query], advised) if is_meant(row)]
