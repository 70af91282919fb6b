"""A large module is held in few bytes: slices of any size."""

from pathlib import Path

import pytest
from ingesting import ingest_into, rows

from bufdb.ingest.rows import MODULE_TABLES
from bufdb.memory import buffers, ranges
from bufdb.memory.occupancy import Timeline
from bufdb.rows import op_names

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
HASHES = " UNION ALL ".join(
    f"SELECT module_id, '{table}' AS table_name, count(*) AS row_count, sum(hash(stored)) "
    f'FROM "{table}" AS stored GROUP BY module_id'
    for table in MODULE_TABLES
)


def in_slices_of(count, monkeypatch):
    whole = Timeline.slices

    def slices(self):
        self.slice_rows = count
        return whole(self)

    monkeypatch.setattr(Timeline, "slices", slices)


@pytest.mark.parametrize("run", ["cpu_b8", "gpu_b8"])
def test_rows_are_the_same_in_rounds_and_slices_of_any_size(con, run, monkeypatch):
    """Rounds of 8 kB, slices in which a few ranges begin, op_names packed a few at a time."""
    ingest_into(con, DEMO / run)
    expected = sorted(rows(con, HASHES))
    in_slices_of(3, monkeypatch)
    monkeypatch.setattr(ranges, "PART_ROWS", 3)
    monkeypatch.setattr(buffers, "SLICE_ROWS", 3)
    monkeypatch.setattr(op_names, "PART", 3)
    ingest_into(con, DEMO / run, block_bytes=1 << 13, replace=True)
    assert sorted(rows(con, HASHES)) == expected
    assert sum(count for _, table, count, *_ in expected if table == "peak_savings") > 10
