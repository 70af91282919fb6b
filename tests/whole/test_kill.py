"""A few killed ingests in each test run; a hundred on demand, see kill.py."""

import os
from pathlib import Path

import duckdb
import kill
import pytest

KILLS = int(os.environ.get("BUFDB_KILLS", "3"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> kill.Bench:
    return kill.Bench(tmp_path_factory.mktemp("kill"), copies=1)


@pytest.mark.slow
def test_a_killed_ingest_leaves_whole_modules_to_complete(
    bench: kill.Bench,
) -> None:
    _, wrong = kill.run(bench, KILLS)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_a_module_that_is_not_whole_is_found_out(bench: kill.Bench, tmp_path: Path) -> None:
    db = tmp_path / "t.duckdb"
    db.write_bytes(bench.base.read_bytes())
    with duckdb.connect(str(db)) as con:
        con.execute('DELETE FROM "values" WHERE module_id = (SELECT min(module_id) FROM modules)')
    (wrong,) = bench.not_whole(kill.state_of(db), True)
    assert "values" in wrong
