"""Whatever is done to a dump, reading it ends well and leaves the dump beside it whole."""

import os
import tempfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_two_readers import TABLES, ordered

from bufdb import store
from bufdb.ingest import ingest_into, module_id_of

DEMO = Path(__file__).parents[1] / "data" / "demo"
SPLIT = "cpu_b8", "module_0000.jit_init.cpu_after_optimizations"
WHOLE = "cpu_b8_old", "module_0000.jit_init.cpu_after_optimizations"
PIECES = st.sampled_from(
    [
        b"\n",
        b'"',
        b"}",
        b"-",
        b"  ",
        b"\xff",
        b"99999999999999999999",
        b"\n<5 look.alike @0>\n positions:\n",
        b"\nHloLiveRange (max 3):\n",
        b"\nTotal bytes used: 3\n",
        b", metadata={",
        b"",
    ]
)


def texts(run: str, stem: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (DEMO / run).glob(f"{stem}*")}


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, bytes]:
    files = texts(*draw(st.sampled_from([SPLIT, WHOLE])))
    name = draw(st.sampled_from(sorted(files)))
    text = files[name]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.sampled_from([start, start + 1, start + 40, len(text)]))
        text = text[:start] + draw(PIECES) + text[stop:]
    return {**files, name: text}


@pytest.fixture(scope="module")
def shared_con() -> duckdb.DuckDBPyConnection:
    return store.open_writable(":memory:")


def rows(con: duckdb.DuckDBPyConnection, module_id: int) -> dict[str, list[str]]:
    found = {}
    for table in TABLES:
        cursor = con.execute(
            f'SELECT * EXCLUDE (module_id) FROM "{table}" WHERE module_id = ?', [module_id]
        )
        names = [column[0] for column in cursor.description]
        found[table] = ordered([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])
    return found


@pytest.mark.parametrize("block_bytes", [10_000_000, 3000], ids=["whole", "in blocks"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=damaged())
def test_a_damaged_dump_harms_no_other(
    shared_con: duckdb.DuckDBPyConnection, block_bytes: int, files: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text)
        for name, text in texts(*WHOLE).items():
            (Path(folder) / name.replace("module_0000", "module_0001")).write_bytes(text)
        run = str(shared_con.execute("SELECT count(*) FROM runs").fetchone())
        ingest_into(shared_con, Path(folder), run, block_bytes)
        ingest_into(shared_con, DEMO / WHOLE[0], "alone")
    neighbour = module_id_of(run, WHOLE[1].replace("module_0000", "module_0001"))
    assert rows(shared_con, neighbour) == rows(shared_con, module_id_of("alone", WHOLE[1]))


def test_a_truncated_dump_is_data_loss(tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    (tmp_path / name).write_bytes(text[: len(text) // 2])
    con = store.open_writable(":memory:")
    summary = ingest_into(con, tmp_path, "r")
    codes = {code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()}
    assert {"truncated_file", "used_values_mismatch"} <= codes
    assert summary.exit_code == 4


def test_bytes_that_are_no_utf8_are_replaced_and_told(tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    at = text.index(b'op_name="') + len(b'op_name="')
    (tmp_path / name).write_bytes(text[:at] + b"\xff" + text[at:])
    con = store.open_writable(":memory:")
    ingest_into(con, tmp_path, "r")
    line = text.count(b"\n", 0, at) + 1
    found = con.execute("SELECT severity, code, line_number FROM diagnostics").fetchall()
    assert found == [("data_loss", "invalid_utf8", line)]


def test_what_cannot_be_looked_into_is_told_and_harms_no_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    con = store.open_writable(":memory:")
    summary = ingest_into(con, tmp_path, "r")
    found = con.execute("SELECT severity, code, path FROM diagnostics ORDER BY path").fetchall()
    assert found == [
        ("error", "unreadable_file", "closed"),
        ("error", "unreadable_file", "notes.txt"),
    ]
    assert (summary.module_count, summary.skipped_count) == (1, 2)


def test_values_below_an_unreadable_allocation_go_to_no_other(tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    heads = [line for line in text.split(b"\n") if line.startswith(b"allocation 1:")]
    (tmp_path / name).write_bytes(text.replace(heads[0], b"allocation 1: size many:"))
    found = []
    for block_bytes in (10_000_000, 150, 200, 300):
        con = store.open_writable(":memory:")
        ingest_into(con, tmp_path, "r", block_bytes)
        rows = con.execute("SELECT value_id, allocation_index FROM values ORDER BY 1").fetchall()
        found.append(rows)
    assert all(rows == found[0] for rows in found)
    assert 1 not in {allocation for _, allocation in found[0]}


def test_an_empty_peak_listing_is_told_where_values_are_live(tmp_path: Path) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    start = text.index(b"\n", text.index(b"  Live ranges at ")) + 1
    (tmp_path / name).write_bytes(text[:start])
    con = store.open_writable(":memory:")
    ingest_into(con, tmp_path, "r")
    codes = {code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()}
    assert codes == {"peak_listing_mismatch"}
