"""Single accidents and their diagnostics; test_isolation and test_accounting try many."""

import os
import re
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into
from places import DEMO

INIT = "module_0000.jit_init"
WHOLE = "cpu_b8_old", "module_0000.jit_init.cpu_after_optimizations"


def texts(run: str, stem: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (DEMO / run).glob(f"{stem}*")}


def test_a_truncated_dump_is_data_loss(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    (tmp_path / name).write_bytes(text[: len(text) // 2])
    summary = ingest_into(con, tmp_path, "r")
    codes = {code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()}
    assert {"truncated_file", "used_values_mismatch"} <= codes
    assert summary.exit_code == 4


def test_bytes_that_are_no_utf8_are_replaced_and_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    at = text.index(b'op_name="') + len(b'op_name="')
    (tmp_path / name).write_bytes(text[:at] + b"\xff" + text[at:])
    ingest_into(con, tmp_path, "r")
    line = text.count(b"\n", 0, at) + 1
    rows = con.execute("SELECT severity, code, line_number FROM diagnostics").fetchall()
    assert rows == [("data_loss", "invalid_utf8", line)]


def test_an_unreadable_folder_is_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in texts(*WHOLE).items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "closed").mkdir()
    (tmp_path / "notes.txt").write_text("closed too")
    scandir, open_file = os.scandir, os.open

    def closed_scandir(folder: Path) -> object:
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    def closed_open(path: Path, *args: int) -> int:
        if Path(path).name == "notes.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, *args)

    monkeypatch.setattr(os, "scandir", closed_scandir)
    monkeypatch.setattr(os, "open", closed_open)
    summary = ingest_into(con, tmp_path, "r")
    rows = con.execute("SELECT severity, code, path FROM diagnostics ORDER BY path").fetchall()
    assert rows == [
        ("error", "unreadable_file", "closed"),
        ("error", "unreadable_file", "notes.txt"),
    ]
    assert (summary.module_count, summary.skipped_count) == (1, 2)


@pytest.mark.slow
def test_values_below_an_unreadable_allocation_go_to_no_other(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    heads = [line for line in text.split(b"\n") if line.startswith(b"allocation 1:")]
    (tmp_path / name).write_bytes(text.replace(heads[0], b"allocation 1: size many:"))
    row_lists = []
    for run, block_bytes in enumerate((10_000_000, 150, 200, 300)):
        ingest_into(con, tmp_path, str(run), block_bytes)
        rows = con.execute(
            "SELECT value_id, allocation_index FROM values JOIN modules USING (module_id) "
            "WHERE run_name = ? ORDER BY value_id",
            [str(run)],
        ).fetchall()
        row_lists.append(rows)
    assert row_lists[0]
    assert all(rows == row_lists[0] for rows in row_lists)
    assert 1 not in {allocation for _, allocation in row_lists[0]}


def test_an_empty_peak_listing_is_reported(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    start = text.index(b"\n", text.index(b"  Live ranges at ")) + 1
    (tmp_path / name).write_bytes(text[:start])
    ingest_into(con, tmp_path, "r")
    codes = {code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()}
    assert codes == {"peak_listing_mismatch"}


def test_stack_frames_that_are_in_no_table_are_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for name, text in texts("cpu_b8", "module_0000.jit_init").items():
        changed = re.sub(rb"(?m)^12 \{file_location_id=.*\n", b"", text)
        (tmp_path / name).write_bytes(changed)
    ingest_into(con, tmp_path, "r")
    rows = con.execute("SELECT severity FROM diagnostics WHERE code = 'missing_frame'").fetchall()
    assert rows == [("data_loss",)]


def test_files_without_what_their_names_promise_are_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    stem = WHOLE[1]
    for name in texts("cpu_b8", stem):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f"{stem}-buffer-assignment.txt").write_bytes(b"words\nand more\n")
    ingest_into(con, tmp_path, "r")
    rows = con.execute(
        "SELECT path, code, message FROM diagnostics "
        "WHERE severity = 'data_loss' AND code <> 'truncated_file' ORDER BY ALL"
    ).fetchall()
    assert [(path.removeprefix(stem), code, message) for path, code, message in rows] == [
        ("-buffer-assignment-values.txt", "empty_file", "the values file is empty"),
        ("-buffer-assignment.txt", "unreadable_file",
         "the buffer_assignment file holds no section of a buffer assignment"),
        ("-live-range.txt", "empty_file", "the live_range file is empty"),
        (".txt", "empty_file", "it is empty"),
    ]  # fmt: skip
    lines = "SELECT unread_line_count FROM files WHERE path LIKE '%-buffer-assignment.txt'"
    assert con.execute(lines).fetchall() == [(2,)]


def test_an_allocation_may_have_a_number_of_any_size(
    con: duckdb.DuckDBPyConnection, demo: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    whole = texts("cpu_b8", "module_0004")
    for name, text in {**texts("cpu_b8", INIT), **whole}.items():
        is_whole = name in whole
        changed = text.replace(b"allocation 0:", b"allocation 7777777777777:")
        (tmp_path / name).write_bytes(text if is_whole else changed)
    ingest_into(con, tmp_path, "cpu_b8")
    peaks = (
        "SELECT function_name, peak_bytes FROM memory_figures "
        "WHERE run_name = 'cpu_b8' AND function_name <> 'train_step' ORDER BY ALL"
    )
    (whole_peak, damaged) = con.execute(peaks).fetchall()
    assert damaged == ("init", None)
    assert whole_peak == demo.execute(peaks).fetchall()[0]


@pytest.mark.parametrize(
    ("suffix", "old", "new", "code"),
    [
        ("-live-range.txt", "    copy.4{}:", "    copy.4{}:0-9\n    copy.4{}:",
         "duplicate_live_range"),
        ("-live-range.txt", "for peak usage: 924 784", "for peak usage: 924 785",
         "peak_tree_mismatch"),
        ("-buffer-assignment.txt", "offset=0): s32[]", "offset=0): b(b(s32[]))", "unknown_shape"),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, suffix: str, old: str, new: str, code: str
) -> None:
    for name, text in texts("cpu_b8", INIT).items():
        if name.endswith(suffix):
            assert old.encode() in text
            text = text.replace(old.encode(), new.encode(), 1)
        (tmp_path / name).write_bytes(text)
    ingest_into(con, tmp_path, "r")
    codes = {code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()}
    assert code in codes
