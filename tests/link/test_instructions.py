"""Instructions that nothing describes."""

import shutil
from pathlib import Path

from bufdb.database import store
from bufdb.ingest.ingest import ingest

DEMO = Path(__file__).parents[2] / "data" / "demo" / "cpu_b8_old"
NAME = "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"
TEXT = """BufferAssignment:
ation 0: size 8, maybe-live-out:
 value: <0 copy-start{} @0> (size=8,offset=0): f32[2]{0}

Total bytes used: 8

Used values:
<0 copy-start{} @0>
 positions:
  copy-start {}
 uses:


HloLiveRange (max 99999999999999999999):
  InstructionSequence:
    0:copy-start
  BufferLiveRange:
    copy-start{}:0-0
"""
"""No allocation can be read, nor the length of the schedule: only its steps name instructions."""


def instructions(db, folder):
    ingest(db, [folder], run="r")
    with store.open_readable(db) as con:
        return con.execute(
            "SELECT instruction_name, program_order FROM instructions "
            "JOIN modules USING (module_id) WHERE module_key = 'd/' || ?",
            [NAME.removesuffix("-buffer-assignment.txt")],
        ).fetchall()


def test_a_step_of_the_schedule_is_an_instruction_whatever_lies_beside_it(tmp_path):
    folder = tmp_path / "dumps"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / NAME).write_text(TEXT)
    alone = instructions(str(tmp_path / "alone.duckdb"), folder)
    shutil.copytree(DEMO, folder / "e")
    assert alone == [("copy-start", 0)]
    assert instructions(str(tmp_path / "beside.duckdb"), folder) == alone
