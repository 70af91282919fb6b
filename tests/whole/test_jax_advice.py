"""Each kind of advice, followed in a small program of JAX that is compiled again for the CPU.

What a query promises of the program (`support/jax_changes.py`) is held to what came of the change:
it comes true, or the row says that it is not likely. test_jax_tpu.py does it for the TPU,
data/studies/recompiled.md has train steps, also on GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from bufdb import resources
from bufdb.database import store
from bufdb.ingest.ingest import ingest
from bufdb.query import catalogue, execute

MIB = 1 << 20


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A database of the programs, as they are and changed."""
    pytest.importorskip("jax", reason="this Python has no jax")
    folder = tmp_path_factory.mktemp("advice")
    variables = {
        "XLA_FLAGS": f"--xla_dump_to={folder / 'dumps'} --xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    script = ROOT / "tests" / "support" / "jax_changes.py"
    done = subprocess.run(
        [sys.executable, script, "cpu"], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ingest(str(folder / "t.duckdb"), [Path(folder / "dumps")])
    return folder / "t.duckdb"


def rows(db, name, function):
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    con = store.open_readable(str(db), query.sql)
    bound = execute.bind(query, {"function": function})
    names = [column.name for column in query.columns]
    tuples = execute.execute_query(con, query, bound).rows
    return [dict(zip(names, row, strict=True)) for row in tuples]


def peak(db, function):
    (row,) = rows(db, "peak-figures", function)
    return row["peak_bytes"]


CASES = {
    "donate": ("donation-missed", {}, "saving_bytes", MIB, "likely"),
    "donate_copied": ("donation-missed", {}, "saving_bytes", 0, "unlikely"),
    "residual": (
        "loop-residuals",
        {"is_layer_input": False, "op_path": "saved sin"},
        "low_saving_bytes",
        5 * MIB // 4,
        "likely",
    ),
    "recompute": ("remat-candidates", {"held_bytes": MIB // 4}, "saving_bytes", 0, "possible"),
    "offload": ("offload-candidates", {"is_layer_input": False}, "saving_bytes", 0, "unlikely"),
    "dtype": ("f32-large", {}, "saving_bytes", 2 * MIB, "possible"),
    "copy": ("carry-copies", {"size_bytes": MIB}, "saving_bytes", MIB, "possible"),
    "late": ("late-free", {"reason": "before_use"}, "saving_bytes", MIB // 2, "possible"),
    "gather": ("gathers-live", {}, "saving_bytes", MIB, "possible"),
}
"""The query, the filter of the rows that are followed and the saving they promise, by program."""


@pytest.mark.parametrize("program", CASES)
def test_the_peak_falls_by_what_advice_promises(compiled, program):
    name, filters, figure, promised, sureness = CASES[program]
    advice = [
        row
        for row in rows(compiled, name, program)
        if all(row[column] == value for column, value in filters.items())
    ]
    assert advice, "there is such advice"
    assert (advice[0][figure], advice[0]["sureness"]) == (promised, sureness)
    if program == "gather":  # one at a time: all but one are won
        promised *= advice[0]["gathered_count"] - 1
        assert promised == 5 * MIB
    before = peak(compiled, program)
    saved_bytes = before - peak(compiled, f"{program}_changed")
    assert abs(saved_bytes - promised) <= 0.05 * before, "what is saved is what was promised"


@pytest.mark.parametrize("program", ["offload", "donate_copied"])
def test_what_is_unlikely_brings_nothing(compiled, program):
    name = CASES[program][0]
    assert {row["sureness"] for row in rows(compiled, name, program)} == {"unlikely"}
    assert peak(compiled, program) == peak(compiled, f"{program}_changed")


def test_a_constant_that_is_needed_whole_takes_its_bytes_again(compiled):
    """So advice about constants is no more than possible: here nothing comes of it."""
    (row,) = [row for row in rows(compiled, "advice", "constant") if row["kind"] == "constant"]
    assert (row["saving_bytes"], row["sureness"]) == (MIB, "possible")
    assert peak(compiled, "constant") == peak(compiled, "constant_changed")


def test_no_padding_is_promised_on_the_cpu(compiled):
    """Its layouts have no tiles."""
    assert [row for row in rows(compiled, "advice", "*") if row["kind"] == "padding"] == []
