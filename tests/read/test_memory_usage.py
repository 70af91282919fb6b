"""Totals of memory-usage reports (format section 9.1)."""

import shutil

import pytest
from ingesting import ingest_into, rows
from places import DEMO

from bufdb.query import check
from bufdb.read.other_files import read_memory_usage

INIT = "module_0000.jit_init.cpu_after_optimizations"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"Total bytes used: 8 (8B)\n\nAllocations sorted by size:\n", [(None, 8)]),
        (
            b"Memory Space: default (color=0)\nTotal bytes: 715264 (698.5KiB)\n  cumulative_size;\n"
            b"\nMemory Space: color_6 (color=6)\nTotal bytes: 512 (512B)\n",
            [(0, 715264), (6, 512)],
        ),
        (b"Total bytes: 5 (5B)\n", []),
        (b"Memory Space: a (color=1)\nTotal bytes: 5 (5B)\nTotal bytes: 6 (6B)\n", [(1, 5)]),
        (b"Memory Space: a (color=1)\nTotal bytes: -7 (-nan%)\n", [(1, -7)]),
        (b"", []),
    ],
)
def test_totals(text, expected):
    assert read_memory_usage(text)[0] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("total", "finding_count"), [(341080, 0), (341081, 1)])
def test_check_holds_the_allocations_to_the_report(fresh, tmp_path, total, finding_count):
    shutil.copytree(DEMO / "cpu_b8", tmp_path / "run")
    con = fresh()
    ingest_into(con, tmp_path / "run")
    ((real,),) = rows(
        con,
        "SELECT total_bytes::BIGINT FROM memory_sums JOIN modules USING (module_id) "
        f"WHERE module_key = '{INIT}'",
    )
    report = f"Memory Space: default (color=0)\nTotal bytes: {real + total - 341080} (x)\n  more\n"
    (tmp_path / "run" / f"{INIT}-memory-usage-report.txt").write_text(report)
    assert ingest_into(con, tmp_path / "run").replaced_count == 1
    assert rows(con, "SELECT read_line_count, known_line_count FROM files WHERE file_kind = "
                     "'memory_report'") == [(2, 1)]  # fmt: skip
    violations = check.violations(con, check.chosen())
    assert [one.check.name for one in violations] == ["reported-sums"] * finding_count
