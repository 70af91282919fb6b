"""A large module is held in few bytes: slices of any size, memory that goes back to the system."""

import sys
from pathlib import Path

import pytest
from ingesting import ingest_into, rows

from bufdb.assemble import op_names
from bufdb.columnar import freed
from bufdb.dumps import large
from bufdb.ingest.tables import MODULE_TABLES
from bufdb.memory import buffers, ranges
from bufdb.memory.steps.timeline import Timeline

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
    monkeypatch.setattr(large, "BYTES_BETWEEN", 1 << 14)
    ingest_into(con, DEMO / run, block_bytes=1 << 13, replace=True)
    assert sorted(rows(con, HASHES)) == expected
    assert sum(count for _, table, count, *_ in expected if table == "peak_savings") > 10


def test_only_of_many_values_memory_is_given_back(monkeypatch):
    calls = []
    monkeypatch.setattr(freed, "_malloc_trim", lambda: calls.append)
    freed.give_back(freed.MANY_VALUES - 1)
    assert calls == []
    freed.give_back(freed.MANY_VALUES)
    assert calls == [0]


def test_where_the_c_library_has_no_such_call_nothing_is_done(monkeypatch):
    monkeypatch.setattr(freed, "_malloc_trim", lambda: None)
    freed.give_back(freed.MANY_VALUES)


@pytest.mark.skipif(sys.platform != "linux" or freed._malloc_trim() is None, reason="no glibc")
def test_what_lies_below_what_is_held_goes_back():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    held = [b"x" * 50_000 for _ in range(2_000)]
    held[:-1] = []
    before = resident()
    freed.give_back(freed.MANY_VALUES)
    assert before - resident() > 50_000_000
    assert len(held) == 1
