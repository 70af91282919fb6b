"""Files of two compilations under one name: what disagrees is reported, and figures are unknown."""

import shutil

import pytest
from ingesting import ingest_into
from places import ROOT

NAME = "module_0002.jit_train_step.cpu_after_optimizations"
BUFFERS = f"{NAME}-buffer-assignment.txt"
HEAD = "Memory usage report:\n\nMemory Space: default (color=0)\n"


@pytest.fixture
def mixed(tmp_path):
    """The files of batch 8, one of them replaced by that of batch 16."""

    def written(suffix=None):
        for name in ("cpu_b8", "cpu_b16"):
            for path in (ROOT / "data/demo" / name).glob(f"{NAME}*"):
                if name == "cpu_b8" or path.name == f"{NAME}{suffix}":
                    shutil.copyfile(path, tmp_path / path.name)
        return tmp_path

    return written


def diagnostics_of(con):
    query = "SELECT severity, code, path, message FROM diagnostics ORDER BY ALL"
    return con.execute(query).fetchall()


def row(con, columns):
    return con.execute(f"SELECT {columns} FROM modules").fetchone()


def test_files_of_one_compilation_are_not_reported(con, mixed):
    folder = mixed()
    (folder / f"{NAME}-memory-usage-report.txt").write_text(
        f"{HEAD}Total bytes: 8905988 (8.49MiB)\n"
    )
    assert ingest_into(con, folder).exit_code == 0
    assert diagnostics_of(con) == []


def test_the_hlo_text_of_another_compilation_is_left_out(con, mixed):
    assert ingest_into(con, mixed(".txt")).exit_code == 4
    (missing, other) = sorted(diagnostics_of(con), key=lambda one: one[1])
    assert missing[1] == "missing_hlo_text"
    assert missing[3].endswith(f"in the HLO text {NAME}.txt, which is of another compilation")
    what = f"parameter 13 is s32[16,101]{{1,0}} in it, s32[8,101] in {BUFFERS}; it is skipped"
    assert other == ("error", "other_hlo_text", f"{NAME}.txt", what)
    assert row(con, "has_hlo_text, peak_unknown_reason") == (False, None)
    for table in ("stack_frames", "input_output_aliases"):
        assert con.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    lines = "SELECT count(*) FROM instructions WHERE source_line IS NOT NULL"
    assert con.execute(lines).fetchone() == (0,)


def test_the_peak_of_another_compilation_is_unknown(con, mixed):
    ingest_into(con, mixed("-live-range.txt"))
    ((_, code, _, message),) = diagnostics_of(con)
    reason = (
        "the peak listing has 3200000 bytes for value 607, whose shape has 1600000, and 18 more of "
        "another size"
    )
    files = f"{BUFFERS} and {NAME}-live-range.txt may be of two compilations"
    assert (code, message) == ("peak_size_mismatch", f"{reason}; {files}")
    assert row(con, "peak_unknown_reason") == (reason,)


def test_the_total_of_another_compilation_names_its_file(con, mixed):
    ingest_into(con, mixed("-buffer-assignment-values.txt"))
    message = next(
        message for _, code, _, message in diagnostics_of(con) if code == "total_mismatch"
    )
    files = f"{BUFFERS} and {NAME}-buffer-assignment-values.txt may be of two compilations"
    assert message.endswith(f"; {files}")
    assert row(con, "peak_unknown_reason")[0] == message.removesuffix(f"; {files}")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (f"{HEAD}Total bytes: 9 (9B)", "8905988 in memory space 0, the report says 9"),
        (f"{HEAD}Total bytes: 5 (5B)".replace("color=0", "color=1"),
         "0 in memory space 1, the report says 5"),
        ("Total bytes used: 7 (7B)", "8905988 in all, the report says 7"),
    ],
)  # fmt: skip
def test_a_memory_report_of_another_compilation(con, mixed, report, expected):
    folder, name = mixed(), f"{NAME}-memory-usage-report.txt"
    (folder / name).write_text(f"{report}\n")
    ingest_into(con, folder)
    files = f"{BUFFERS} and {name} may be of two compilations"
    message = f"the allocations sum to {expected}; {files}"
    assert diagnostics_of(con) == [("error", "memory_report_mismatch", None, message)]
    assert row(con, "peak_unknown_reason") == (None,)
