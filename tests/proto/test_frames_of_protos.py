"""Stack frames that only a module's proto has, next to its texts (format section 7.1)."""

import re
import shutil

import duckdb
import pytest
from places import ROOT

from bufdb.ingest.ingest import ingest

pytest.importorskip("google.protobuf", reason="this Python has no protobuf")

FRAMES = "SELECT COLUMNS(* EXCLUDE (module_id)) FROM stack_frames ORDER BY ALL"
NUMBERED = """
SELECT instruction_name, stack_frame_id FROM instructions WHERE stack_frame_id IS NOT NULL
ORDER BY ALL
"""
ORIGINS = """
SELECT value_id, origin_kind, instruction_name, source_file, source_line, stack_frame_id
FROM value_origins ORDER BY ALL
"""


def without_frames(text):
    """As through jaxlib 0.8.1: no tables, and no instruction names a frame."""
    head, divider, rest = text.partition("\n\nFileNames\n")
    if divider:
        text = head + "\n\n" + rest[re.search(r"^(?=%|ENTRY )", rest, re.MULTILINE).start() :]
    return re.sub(r" stack_frame_id=\d+(?=\})", "", text)


def answers(folder, tmp_path):
    db = tmp_path / f"{folder.name}.duckdb"
    ingest(str(db), [folder])
    with duckdb.connect(str(db), read_only=True) as con:
        results = [con.execute(query).fetchall() for query in (FRAMES, NUMBERED, ORIGINS)]
        assert con.execute("SELECT code FROM diagnostics").fetchall() == []
    return results


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["text and proto", "buffers and proto"])
def test_frames_come_from_the_file_that_has_them(kept, tmp_path):
    source = ROOT / "data" / "elements" / "cpu"
    folder = tmp_path / "old"
    folder.mkdir()
    for file in source.iterdir():
        if file.suffix != ".txt":
            shutil.copy(file, folder)
        elif kept == "text and proto" or not file.name.endswith("optimizations.txt"):
            (folder / file.name).write_text(without_frames(file.read_text("utf-8")), "utf-8")
    assert not any("stack_frame_id" in file.read_text("utf-8") for file in folder.glob("*.txt"))
    actual, expected = answers(folder, tmp_path), answers(source, tmp_path)
    assert all(expected)
    assert actual == expected


SHARED = ROOT.parent / "shared" / "cases" / "proto_frames_0.7.2"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the cases (../shared/cases) are not there")
def test_text_and_proto_of_jax_0_7_give_what_the_proto_gives(tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    for file in SHARED.glob("*after_optimizations.hlo.pb"):
        shutil.copy(file, alone)
    assert answers(SHARED, tmp_path)[:2] == answers(alone, tmp_path)[:2] != [[], []]
