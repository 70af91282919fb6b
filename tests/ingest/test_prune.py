"""--prune: a run is what its paths hold, and nothing goes that may only be out of reach."""

import shutil
from pathlib import Path

import pytest
from ingesting import ingest_into, rows
from places import DEMO

from bufdb.query import check

COUNTS = "SELECT count(*) FROM modules"


@pytest.fixture
def dumps(tmp_path):
    """A copy of a demo run, to be changed."""
    return Path(shutil.copytree(DEMO / "cpu_b8", tmp_path / "run"))


def remove(dumps, number):
    for path in dumps.glob(f"module_{number}*"):
        path.unlink()


@pytest.mark.slow
def test_what_is_gone_stays_unless_it_is_pruned(fresh, dumps):
    con = fresh()
    ingest_into(con, dumps)
    remove(dumps, "0002")
    assert ingest_into(con, dumps).pruned_count == 0
    assert rows(con, COUNTS) == [(3,)]
    summary = ingest_into(con, dumps, prune=True)
    assert (summary.pruned_count, summary.unchanged_count) == (1, 2)
    assert "removed 1 that are gone" in summary.line()
    assert rows(con, COUNTS) == [(2,)]
    assert check.violations(con, check.chosen()) == []
    left = fresh()
    ingest_into(left, dumps)
    for table in ("values", "shapes", "peak_values"):
        assert rows(con, f"FROM {table} ORDER BY ALL") == rows(left, f"FROM {table} ORDER BY ALL")


@pytest.mark.slow
def test_other_runs_stay(fresh, dumps):
    con = fresh()
    ingest_into(con, DEMO / "cpu_b8_old", "other")
    ingest_into(con, dumps)
    ingest_into(con, dumps, prune=True)
    assert rows(con, COUNTS) == [(6,)]


def test_nothing_is_pruned_while_a_part_cannot_be_read(fresh, dumps):
    con = fresh()
    ingest_into(con, dumps)
    remove(dumps, "0002")
    (dumps / "more.zip").write_bytes(b"no archive")
    summary = ingest_into(con, dumps, prune=True)
    assert summary.pruned_count == 0
    assert any("1 modules were not found but stay" in note for note in summary.notes)
    assert rows(con, COUNTS) == [(3,)]


@pytest.mark.slow
def test_a_module_that_is_gone_from_an_archive_goes(fresh, dumps, tmp_path):
    con = fresh()
    path = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", dumps))
    ingest_into(con, path)
    remove(dumps, "0000")
    shutil.make_archive(str(tmp_path / "packed"), "zip", dumps)
    assert ingest_into(con, path, prune=True).pruned_count == 1
    assert rows(con, COUNTS) == [(2,)]
