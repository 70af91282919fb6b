"""The shared cases of messages in logs answer as they should; skipped where they are not there."""

import tarfile

import pytest
from ingesting import ingest_into, rows
from places import ROOT

from bufdb.answers import summary, summary_text

CASES = ROOT.parent / "shared" / "cases"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason="the shared cases (../shared/cases) are not there"
)
GIB, MIB = 1 << 30, 1 << 20
FIGURES = {
    "libtpu-log/heron.log": "3.77 GiB needed (258.00 MiB of it the runtime's, outside what is "
    "available), 15.75 GiB of hbm available: it fits; vmem 108.45 MiB of 128.00 MiB; sflag 256 "
    "B; smem 2.40 KiB of 1.00 MiB",
    "maxtext-stats/run.log": "37.40 GiB needed: arguments 12.30 GiB, outputs 12.10 GiB, "
    "temporaries 25.10 GiB, less 12.10 GiB of outputs in the memory of arguments; host 8.00 GiB "
    "of temporaries",
    "maxtext-stats/stats.txt": "37.40 GiB needed: arguments 12.30 GiB, outputs 12.10 GiB, "
    "temporaries 25.10 GiB, less 12.10 GiB of outputs in the memory of arguments; host 8.00 GiB",
    "af3-gpu-log/run.log": "an allocation of 47.20 GiB failed",
    "label-without-shape/error.log": "63.80 GiB needed, 30.75 GiB of hbm available: 33.05 GiB too "
    "much",
    "one-line-errors/sparsecore.log": "208.92 GiB needed, 95.74 GiB of hbm available: 113.18 GiB "
    "too much (34.82 GiB of the TensorCore, 174.10 GiB of the SparseCores)",
    "one-line-errors/program.log": "29.49 GiB needed, 147.64 MiB free: 29.35 GiB too much (other "
    "arrays and programs hold the rest)",
    "one-line-errors/temporaries.log": "33.52 GiB needed, 15.75 GiB of hbm available: 17.77 GiB "
    "too much",
    "one-line-errors/short.log": "21.95 GiB needed, 15.48 GiB of hbm available: 6.47 GiB too much",
    "one-line-errors/smem.log": "1.00 MiB needed, 1.00 MiB of smem available: 1.70 KiB too much",
    "reserve-bottom/block.log": "3.95 GiB needed, 1.92 GiB free: 2.03 GiB too much (other arrays "
    "and programs hold the rest); other arrays hold 6.08 GiB",
    "reserve-bottom/run.log": "1.04 GiB needed, 905.37 MiB free: 159.59 MiB too much (other arrays "
    "and programs hold the rest)",
    "reserve-bottom/e0101.log": "29.33 GiB needed, 29.30 GiB free: 30.72 MiB too much (other "
    "arrays and programs hold the rest)",
    "two-ranks-interleaved/error.log": "63.80 GiB needed, 30.75 GiB of hbm available: 33.05 GiB "
    "too much",
    "vllm-vmem-list/run.log": "76.58 MiB needed, 64.00 MiB of vmem available: 12.58 MiB too much",
    "vmem-kernel-e1001/error.log": "18.00 MiB needed by %plover_kernel.1 (custom-call, "
    "f32[16384,512], jit(step)/jit(plover)/pallas_call, /srv/app/plover.py:88), 16.00 MiB of "
    "vmem available: 2.00 MiB too much",
    "vmem-list-scoped/error.log": "20.15 MiB needed, 16.00 MiB of vmem available: 4.15 MiB too "
    "much",
}
"""The figures of each log, which is one module."""


@pytest.mark.parametrize("name", FIGURES)
def test_a_log_is_one_module_with_its_figures(con, name):
    assert ingest_into(con, CASES / name, "r").module_count == 1
    figures = "SELECT message FROM diagnostics WHERE code = 'memory_limit'"
    assert rows(con, figures) == [(FIGURES[name],)]
    assert rows(con, "SELECT sum(unread_line_count) FROM files") == [(0,)]
    assert rows(con, "SELECT peak_unknown_reason FROM modules") == [(None,)]
    has_failed = rows(con, "SELECT count(*) FROM diagnostics WHERE code = 'out_of_memory'")
    is_sums = name.startswith(("libtpu-log", "maxtext-stats"))
    assert has_failed == [(0 if is_sums else 1,)]


BUFFERS = "SELECT instruction_name, opcode, size_bytes FROM value_details ORDER BY value_id LIMIT 2"


@pytest.mark.parametrize("name", ["error.log", "bold.log", "page.html"])
def test_labels_without_a_shape_name_instructions(con, name):
    ingest_into(con, CASES / "label-without-shape" / name, "r")
    assert rows(con, BUFFERS) == [
        ("fusion.1265.remat3", "fusion", 2 * GIB),
        ("fusion.1266", "fusion", 2 * GIB),
    ]


def test_ranks_in_turn_have_their_buffers(con):
    ingest_into(con, CASES / "two-ranks-interleaved", "r")
    columns = "modules.function_name, own_source, size_bytes"
    sql = f"SELECT {columns} FROM value_details JOIN modules USING (module_id)"
    assert rows(con, sql) == [("sandpiper_step", "/srv/sandpiper/attn.py:1059", 2 * GIB)] * 2


def test_a_scratch_list_has_buffers_and_a_remainder(con):
    ingest_into(con, CASES / "vmem-list-scoped" / "error.log", "r")
    sql = "SELECT value_id, round(held_bytes / 1048576, 2) FROM peak_values ORDER BY value_id"
    held = rows(con, sql)
    assert held[:2] == [(1, 9.99), (2, 9.99)] and held[-1][0] is None
    assert rows(con, "SELECT peak_bytes FROM memory_figures") == [(round(20.15 * MIB),)]


def test_xlas_warning_is_a_sentence(con):
    ingest_into(con, CASES / "af3-gpu-log" / "run.log", "r")
    shown = " ".join(summary_text.text(summary.overview(con, {}, {})).split())
    assert "XLA's estimate of the program is 41.43 GiB (44490724824 bytes)" in shown
    assert "45.92 GiB (49309847144 bytes) before; it may use 18.88 GiB" in shown


def test_a_nearly_full_device_does_not_fit(con, tmp_path):
    with tarfile.open(CASES / "nearly-full-v5e" / "dump.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    ingest_into(con, tmp_path, "r")
    overview = summary.overview(con, {}, {}, limit_bytes=round(15.75 * GIB), limit_name="TPU v5e")
    assert overview.limit_ratio > 1


def test_snapshots_of_executions_are_no_modules(con):
    ingest_into(con, CASES / "executed_snapshots", "r")
    assert rows(con, "SELECT count(*), count(peak_unknown_reason) FROM modules") == [(1, 0)]


def test_dumps_without_metadata_name_the_flag(con):
    ingest_into(con, CASES / "disable_metadata_notice", "r")
    assert rows(con, "SELECT has_hlo_text FROM modules") == [(True,)]
    ((code, message),) = rows(con, "SELECT code, message FROM diagnostics")
    assert code == "missing_stack_frames" and "--xla_dump_disable_metadata" in message
