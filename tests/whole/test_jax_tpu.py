"""Advice followed in small programs that are compiled again for a TPU, which need not be there.

As test_jax_advice.py, for what layouts with tiles and fusions of a TPU's compiler make different:
padding, and donations. Of the TPU it is HBM, with VMEM left to fusions.
"""

import os
import subprocess
import sys

import pytest
from places import ROOT

from bufdb import resources
from bufdb.database import store
from bufdb.ingest.ingest import ingest
from bufdb.query import catalogue, execute

MIB = 1 << 20
LEAST = 4096
"""Bytes that XLA's own small arrays may differ by."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A database of the programs, as they are and changed."""
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason=f"this Python has no {package}")
    folder = tmp_path_factory.mktemp("tpu")
    variables = {
        "XLA_FLAGS": f"--xla_dump_to={folder / 'dumps'} --xla_backend_optimization_level=0",
        "LIBTPU_INIT_ARGS": "--xla_tpu_scoped_vmem_limit_kib=131072",
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TPU_LOG_DIR": "disabled",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no device is used, and tests run side by side
    }
    script = ROOT / "tests" / "support" / "jax_changes.py"
    done = subprocess.run(
        [sys.executable, script, "tpu"], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ingest(str(folder / "t.duckdb"), [folder / "dumps"])
    con = store.open_readable(str(folder / "t.duckdb"))
    yield con
    con.close()


def rows(con, name, function):
    """Rows of a saved query about HBM."""
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    bound = execute.bind(query, {"function": function, "color": "0"})
    names = [column.name for column in query.columns]
    tuples = execute.execute_query(con, query, bound).rows
    return [dict(zip(names, row, strict=True)) for row in tuples]


def peak(con, function):
    (row,) = rows(con, "peak-figures", function)
    return row["peak_bytes"]


def reduction(con, program):
    return peak(con, program) - peak(con, f"{program}_changed")


def held_elements(con, function):
    """Bytes that the elements of what is held at the peak need, without what pads them."""
    sql = """
      SELECT sum(least(held.held_bytes, value_details.logical_bytes))::BIGINT
      FROM peak_values AS held
      JOIN value_details USING (module_id, value_id)
      WHERE held.color = 0 AND value_details.function_name = ?
    """
    ((element_bytes,),) = con.execute(sql, [function]).fetchall()
    return element_bytes


@pytest.mark.parametrize("program", ["arguments", "merged", "temps", "stacks"])
def test_without_padding_the_peak_falls_by_what_advice_promises(compiled, program):
    """It falls by at least saving_bytes and at most peak_padding_bytes, apart from the elements."""
    changed = f"{program}_changed"
    padding = [row for row in rows(compiled, "padding", program) if row["sureness"] != "unlikely"]
    least = sum(row["saving_bytes"] for row in padding)
    most = sum(row["peak_padding_bytes"] for row in padding)
    assert most >= least > 0.02 * peak(compiled, program), "there is such advice"
    assert all(row["sureness"] == "unlikely" for row in rows(compiled, "padding", changed))
    elements = held_elements(compiled, program) - held_elements(compiled, changed)
    assert least - LEAST <= reduction(compiled, program) - elements <= most + LEAST


def test_padding_of_arguments_and_outputs_is_saved_to_the_byte(compiled):
    (row,) = rows(compiled, "padding", "arguments")
    # Three arrays of 136 x 256 elements, with 129 x 129 used, become 128 x 128.
    padding = 3 * 4 * (136 * 256 - 129 * 129)
    assert (row["saving_bytes"], row["peak_padding_bytes"]) == (padding, padding)
    assert reduction(compiled, "arguments") == padding + 3 * 4 * (129 * 129 - 128 * 128)


def test_the_compiler_has_exchanged_axes_itself(compiled):
    assert reduction(compiled, "exchanged") == 0


def test_dimensions_rounded_up_to_the_tile_are_free(compiled):
    assert reduction(compiled, "rounded_up") == 0
    assert rows(compiled, "padding", "rounded_up_changed") == []


def test_nothing_is_promised_of_what_takes_one_tile(compiled):
    padded = rows(compiled, "padding", "temps")
    scalars = [row for row in padded if (row["shape"], row["layout"]) == ("s32[]", "{:T(128)}")]
    assert [(row["size_bytes"], row["sureness"]) for row in scalars] == [(512, "unlikely")]
    advice = [row for row in rows(compiled, "advice", "*") if row["kind"] == "padding"]
    assert advice
    assert all(row["name"] != "s32[]{:T(128)}" for row in advice)


@pytest.mark.parametrize(
    ("program", "sureness", "expected"),
    [
        ("donate", "likely", MIB),
        # A fusion with a product: where the argument is a factor, XLA copies it.
        ("donate_copied", "possible", 0),
        ("factor", "possible", 0),
        ("no_factor", "possible", MIB),
    ],
)
def test_what_donations_bring(compiled, program, sureness, expected):
    (row,) = rows(compiled, "donation-missed", program)
    assert (row["saving_bytes"], row["sureness"]) == (MIB, sureness)
    assert reduction(compiled, program) == expected


@pytest.mark.parametrize(("program", "name"), [("copy", "carry-copies"), ("late", "late-free")])
def test_the_peak_falls_by_what_advice_promises(compiled, program, name):
    row = rows(compiled, name, program)[0]
    assert row["sureness"] == "possible"
    assert row["saving_bytes"] >= MIB // 2
    assert abs(reduction(compiled, program) - row["saving_bytes"]) <= LEAST
