"""Spark and Sail see of a dataset what DuckDB sees of it, from the command line on."""

import shutil

import pytest
from datasets import ask, objects
from places import ROOT

from bufdb.dataset import layout
from bufdb.spark import tables

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
    # Spark plans each for seconds; the others are asked below, of runs and of many owners.
    for query in ("modules", "peak", "runs") if name == "sail" else ("runs",):
        words = ("query", query, "--on", dataset, "--format", "csv")
        expected = call(*words)
        assert expected[0] == 0 and expected[1].count("\n") > 2
        result = call(*words, *MASTER[name])
        assert result[:2] == expected[:2], result[2]


def test_a_question_of_a_run_opens_the_files_of_that_run_alone(connection, dataset, call):
    name, _ = connection
    of_run = {
        key for (key,) in ask(dataset, "SELECT module_id FROM modules WHERE run_name = 'cpu_b8'")
    }
    for path in objects(dataset, "values"):
        if layout.parse(path).owner_id not in of_run:
            (dataset / path).write_bytes(b"no Parquet")
    words = ("query", "peak", "--on", dataset, "--run", "batch=9", "--format", "csv")
    code, expected, _ = call(*words)
    assert code == 0 and expected.count("\n") > 2
    assert call(*words, *MASTER[name])[:2] == (0, expected)


@pytest.mark.parametrize(
    ("connection", "name"),
    [
        ("sail", "advice"),  # tables are read a thousand times
        ("spark", "fragmentation"),
        pytest.param("spark", "advice", marks=pytest.mark.by_hand),  # planned for minutes
    ],
    indirect=["connection"],
)
def test_so_has_one_that_is_computed_in_parts(connection, name, dataset, call):
    words = ("query", name, "--on", dataset, "--format", "csv")
    expected = call(*words)
    assert expected[0] == 0 and expected[1].count("\n") > 2
    assert call(*words, *MASTER[connection[0]])[:2] == expected[:2]


@pytest.mark.slow
def test_owners_of_one_version_are_not_ranked(connection, tmp_path, call):
    """All markers count, other than of a dataset whose dumps were ingested again."""
    name, _ = connection
    out = tmp_path / "once"
    code, _, err = call("ingest", "-q", ROOT / "data/demo/cpu_b8", "--out", out)
    assert code == 0, err
    words = ("query", "modules", "--on", out, "--format", "csv")
    expected = call(*words)
    assert expected[0] == 0 and expected[1].count("\n") > 2
    assert call(*words, *MASTER[name])[:2] == expected[:2]


@pytest.mark.slow
def test_very_many_owners_are_found_by_the_server(connection, dataset, call, monkeypatch):
    monkeypatch.setattr(tables, "SENT_OWNERS", 2)
    for runs in (["--run", "cpu_b8"], []):
        words = ("query", "modules", "--on", dataset, *runs, "--format", "csv")
        assert call(*words, *MASTER[connection[0]])[:2] == call(*words)[:2]


@pytest.mark.slow
def test_snapshots_of_processes_are_compared_there(connection, tmp_path, call):
    """Of a run with two processes, one killed: growth, curve, account and ranks."""
    name, _ = connection
    for process, most in enumerate((4, 2)):
        folder = tmp_path / "job" / f"process-{process}"
        folder.mkdir(parents=True)
        for file in (ROOT / "data/profiles").glob("cpu_b8-*"):
            if int(file.name[7:13]) < most:
                shutil.copy(file, folder / file.name.replace("cpu_b8", "memory"))
    out = tmp_path / "dataset"
    code, _, err = call("ingest", "-q", tmp_path / "job", "--run", "job", "--out", out)
    assert code == 0, err
    queries = ("process-growth", "process-curve", "rank-growth", "process", "ranks")
    for query in queries if name == "sail" else queries[4:]:  # Spark plans each for seconds
        words = ("query", query, "--on", out, "--run", "job", "--format", "csv")
        expected = call(*words)
        assert expected[0] == 0 and expected[1].count("\n") > 2
        result = call(*words, *MASTER[name])
        assert result[:2] == expected[:2], result[2]
