"""Spark and Sail see of a dataset what DuckDB sees of it, from the command line on."""

import shutil

import pytest
from places import ROOT

MASTER = {"sail": ["--engine", "sail"], "spark": ["--engine", "spark", "--master", "local[2]"]}


@pytest.fixture
def dataset(tmp_path, call):
    """Two runs, one of them ingested twice, the second time with another label."""
    dumps, out = tmp_path / "dumps", tmp_path / "dataset"
    for name in ("cpu_b8", "cpu_b16"):
        shutil.copytree(ROOT / "data/demo" / name, dumps / name)
    for label in ("batch=8", "batch=9"):
        code, _, err = call("ingest", "-q", dumps / "cpu_b8", "--label", label, "--out", out)
        assert code == 0, err
    code, _, err = call("ingest", "-q", dumps / "cpu_b16", "--label", "batch=16", "--out", out)
    assert code == 0, err
    return out


def test_a_query_on_a_dataset_has_the_rows_of_duckdb(connection, dataset, call):
    name, _ = connection
    for query in ("modules", "peak", "runs"):
        asked = ("query", query, "--on", dataset, "--format", "csv")
        expected = call(*asked)
        assert expected[0] == 0 and expected[1].count("\n") > 2
        found = call(*asked, *MASTER[name])
        assert found[:2] == expected[:2], found[2]
