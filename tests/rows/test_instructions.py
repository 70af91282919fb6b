"""Instructions that nothing describes."""

import shutil
from pathlib import Path

import pytest
from ingesting import ingest_into, rows

from bufdb.database import store
from bufdb.ingest.ingest import ingest
from bufdb.rows import instructions as link_instructions

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


DESCRIBED = """BufferAssignment:
allocation 0: size 8, maybe-live-out:
 value: <0 add{} @0> (size=8,offset=0): f32[2]{0}

Total bytes used: 8

Used values:
<0 add{} @0>
 positions:
  add {}
  bitcast {}
 uses:
  bitcast, operand 0 {}
 from instruction: %add = f32[2]{0} add(%p, %p)


HloLiveRange (max 3):
  InstructionSequence:
    0:add
    1:bitcast
    2:odd
  BufferLiveRange:
    add{}:0-2
"""
HLO = """HloModule jit_f

%fused (p.1: f32[2]) -> f32[2] {
  ROOT %inner = f32[2]{0} negate(%p.1)
}

ENTRY %main (p: f32[2]) -> f32[1,2] {
  %p = f32[2]{0} parameter(0)
  %add = f32[2]{0} add(%p, %p)
  ROOT %bitcast = f32[1,2]{1,0} bitcast(%add), metadata={op_name="jit(f)/reshape"}
LINE
}
"""


def ingested(tmp_path, line, text=DESCRIBED):
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / NAME).write_text(text)
    (folder / NAME.replace("-buffer-assignment", "")).write_text(HLO.replace("LINE", line))
    db = str(tmp_path / "lines.duckdb")
    ingest(db, [folder], run="r")
    with store.open_readable(db) as con:
        rows = con.execute(
            "SELECT instruction_name, program_order, opcode, shape, op_name FROM instructions "
            "ORDER BY program_order"
        ).fetchall()
        codes = con.execute(
            "SELECT code, line_number FROM diagnostics WHERE code = 'unreadable_line'"
        )
        return rows, codes.fetchall()


ADD = ("add", 0, "add", "f32[2]{0}", None)
BITCAST = ("bitcast", 1, "bitcast", "f32[1,2]{1,0}", "jit(f)/reshape")


@pytest.mark.slow
def test_the_hlo_text_says_what_a_step_is_that_defines_no_value(tmp_path):
    line = "  %odd = ((f32[2]{0}), s32[]) custom-call(%add)"
    rows, unread = ingested(tmp_path, line)
    assert rows == [ADD, BITCAST, ("odd", 2, "custom-call", "((f32[2]{0}), s32[])", None)]
    assert unread == []


@pytest.mark.slow
def test_a_step_without_a_line_in_the_hlo_text_is_a_name(tmp_path):
    rows, _ = ingested(tmp_path, "")
    assert rows == [ADD, BITCAST, ("odd", 2, None, None, None)]


@pytest.mark.slow
def test_a_step_with_an_unreadable_line_is_a_name(tmp_path):
    rows, unread = ingested(tmp_path, "  %odd = nonsense")
    assert rows == [ADD, BITCAST, ("odd", 2, None, None, None)]
    assert unread == [("unreadable_line", HLO[: HLO.index("LINE")].count("\n") + 1)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("line", ["  %odd = f32[2]{0} cosine(%add)", "  %odd = nonsense"])
@pytest.mark.parametrize("size", [1, 40, 150])
def test_an_hlo_text_in_parts_says_what_it_says_as_a_whole(line, size, tmp_path, monkeypatch):
    # A second line of the same name is ignored, wherever the first is and whether it can be read.
    lines = f"{line}\n  %odd = f32[2]{{0}} sine(%add)"
    whole = ingested(tmp_path, lines)
    monkeypatch.setattr(link_instructions, "_ROUND_BYTES", size)
    (tmp_path / "again").mkdir()
    assert ingested(tmp_path / "again", lines) == whole


def test_without_descriptions_instructions_are_names_of_values(con, tmp_path):
    text = DESCRIBED[DESCRIBED.index("Used values:") : DESCRIBED.index(" from instruction:")]
    name = NAME.replace("-assignment", "-assignment-values")
    (tmp_path / name).write_text(f"\nTotal bytes used: 8\n\n{text}\n")
    ingest_into(con, tmp_path)
    sql = "SELECT instruction_name, opcode FROM instructions"
    assert rows(con, sql) == [("add", None)]
    messages = "SELECT message FROM diagnostics WHERE code = 'missing_file' ORDER BY ALL"
    assert [message.split(" ", 1)[0] for (message,) in rows(con, messages)] == ["live", "sizes"]


def test_a_list_of_used_values_that_is_not_there_is_reported(con, tmp_path):
    begin, end = DESCRIBED.index("Total bytes"), DESCRIBED.index("HloLiveRange")
    (tmp_path / NAME).write_text(DESCRIBED[:begin] + DESCRIBED[end:])
    ingest_into(con, tmp_path)
    messages = "SELECT message FROM diagnostics WHERE code = 'missing_section'"
    assert "the list of used values is" in " ".join(text for (text,) in rows(con, messages))


def instructions(db, folder):
    ingest(db, [folder], run="r")
    with store.open_readable(db) as con:
        return con.execute(
            "SELECT instruction_name, program_order FROM instructions "
            "JOIN modules USING (module_id) WHERE module_key = 'd/' || ?",
            [NAME.removesuffix("-buffer-assignment.txt")],
        ).fetchall()


@pytest.mark.slow
def test_each_step_of_the_schedule_is_an_instruction(tmp_path):
    folder = tmp_path / "dumps"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / NAME).write_text(TEXT)
    alone = instructions(str(tmp_path / "alone.duckdb"), folder)
    shutil.copytree(DEMO, folder / "e")
    assert alone == [("copy-start", 0)]
    assert instructions(str(tmp_path / "both.duckdb"), folder) == alone


@pytest.mark.slow
def test_sections_are_not_read_again_for_steps_with_rows(tmp_path, monkeypatch):
    def read_again(context):
        raise AssertionError

    monkeypatch.setattr(link_instructions, "live_range_rounds", read_again)
    (tmp_path / "dumps" / "d").mkdir(parents=True)
    (tmp_path / "dumps" / "d" / NAME).write_text(DESCRIBED)
    stored_steps = instructions(str(tmp_path / "t.duckdb"), tmp_path / "dumps")
    assert sorted(stored_steps) == [("add", 0), ("bitcast", 1), ("odd", 2)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" value: <0 add", " value: <0 add ("),  # the value is lost with its line
        (" from instruction: %add =", " from instruction: %bitcast ="),
        (
            " from instruction: %add =",
            " from instruction: %add = f32[2] (\n from instruction: %add =",
        ),
        (" from instruction: %add =", " from instruction: %add (="),
    ],
    ids=["no value", "of another", "twice", "unreadable"],
)
def test_an_instruction_has_one_row_wherever_it_is_described(tmp_path, old, new):
    text = DESCRIBED.replace(old, new)
    assert text != DESCRIBED
    rows, _ = ingested(tmp_path, "", text)
    assert [row[:2] for row in rows] == [("add", 0), ("bitcast", 1), ("odd", 2)]
