"""Pictures of all functions of the sample dumps: what they hold is what the database says."""

import pickle

import pytest
from export_reading import played
from shared_dumps import DUMPS, needs_dumps

from bufdb.database import store
from bufdb.export import flame, shown, torch_snapshot, values
from bufdb.ingest.ingest import ingest

pytestmark = [pytest.mark.slow, needs_dumps]

STEPS = "SELECT start_time, occupied_bytes FROM memory_steps WHERE module_id = ? AND color = ?"


@pytest.fixture(scope="module")
def con(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("samples") / "samples.duckdb")
    ingest(path, [DUMPS], run="samples")
    with store.open_readable(path) as connection:
        yield connection


def test_bytes_of_every_function_add_up_to_its_peak(con):
    functions = shown.choose(con, {"color": "all"}).functions
    assert len(functions) > 50
    for function in functions:
        held = values.held(con, function)
        assert sum(flame.by_stack(held).values()) == function.peak_bytes, function.title


def test_every_snapshot_follows_its_timeline(con):
    functions = shown.choose(con, {"color": "all"}).functions
    snapshot = pickle.loads(torch_snapshot.snapshot(con, functions))
    for device, function in enumerate(functions):
        sums, _ = played(snapshot, device)
        times = sorted(sums)
        for time, size in con.execute(STEPS, [function.module_id, function.color]).fetchall():
            before = [at for at in times if at <= time]
            assert (sums[before[-1]] if before else 0) == size, (function.title, time)
