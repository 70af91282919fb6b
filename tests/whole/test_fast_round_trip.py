"""The columnar reader gives back what the writer wrote, in every dialect and block size."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dump_writer import ERAS, Dialect, Module, dialects, modules, rows, write
from hypothesis import HealthCheck, assume, given, settings
from ingesting import ingest_into
from reader_rows import TABLES, ordered
from second_reader import name_calls

from bufdb.ingest.plan import module_id_of

STEM = "module_0001.jit_f.cpu_after_optimizations"
SUFFIXES = {
    "buffer_assignment": "-buffer-assignment.txt",
    "values": "-buffer-assignment-values.txt",
    "live_range": "-live-range.txt",
    "hlo": ".txt",
}
BESIDE = {
    "before_optimizations": "module_0001.jit_f.before_optimizations.txt",
    "debug_options": "module_0001.jit_f.debug_options",
}
SOME = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def put(folder: Path, files: dict[str, bytes]) -> None:
    for kind, content in files.items():
        (folder / (BESIDE.get(kind) or STEM + SUFFIXES[kind])).write_bytes(content)


@pytest.fixture(scope="module")
def shared_con(fresh: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    return fresh()


def stored_rows(con: duckdb.DuckDBPyConnection, table: str, module_id: int) -> list[dict[str, Any]]:
    cursor = con.execute(
        f'SELECT * EXCLUDE (module_id) FROM "{table}" WHERE module_id = ?', [module_id]
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.by_hand)])
@pytest.mark.parametrize("block_bytes", [10_000_000, 500], ids=["whole", "in blocks"])
@pytest.mark.parametrize("era", ERAS)
def test_reading_gives_back_the_rows(
    shared_con: duckdb.DuckDBPyConnection, era: str, block_bytes: int, examples: int
) -> None:
    @settings(SOME, max_examples=examples)
    @given(modules(), dialects(era))
    def holds(module: Module, dialect: Dialect) -> None:
        expected = rows(module, dialect)
        # XLA's numbers have 64 bits; a sum that the writer makes of several may have more.
        assume(all(abs(node["total_bytes"]) < 2**63 for node in expected["peak_stack_nodes"]))
        files = write(module, dialect)
        if hlo := files.get("hlo", b"").decode():  # the writer does not name calls of helpers
            name_calls(expected["stack_frames"], hlo.splitlines(keepends=True))
        with tempfile.TemporaryDirectory() as folder:
            put(Path(folder), files)
            shared_con.execute("DELETE FROM files")
            run = str(shared_con.execute("SELECT count(*) FROM runs").fetchone())
            ingest_into(shared_con, Path(folder), run, block_bytes)
        module_id = module_id_of(run, STEM)
        for table in TABLES:
            stored = ordered(stored_rows(shared_con, table, module_id))
            assert stored == ordered(expected[table]), table
        (facts,) = expected["modules"]
        (stored,) = stored_rows(shared_con, "modules", module_id)
        assert {name: stored[name] for name in facts} == facts

    holds()
