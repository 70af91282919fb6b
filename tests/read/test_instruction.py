"""Forms of an instruction's text and its metadata (format section 7)."""

import numpy as np
import pytest
from line_forms import row_of

from bufdb.columnar.scan import Block, Text
from bufdb.read import instruction


def read(*lines):
    """Return what is read from each line: None if it cannot be read, with what was expected."""
    data = [line.encode() for line in lines]
    block = Block(b"\n".join([*data, b""]))
    stops = np.cumsum([len(line) + 1 for line in data]) - 1
    starts = stops - [len(line) for line in data]
    columns, c = instruction.read(Text(block, starts, stops))
    failed = {row: what for row, _, what in c.failures()}
    return [failed.get(row) or row_of(columns, row) for row in range(len(lines))]


def metadata(text, before="%x"):
    """Fields of one instruction's metadata, read alone and among plain ones."""
    line = f"%a = f32[] add({before}), metadata={{{text}}}"
    plain = '%p = f32[] add(), metadata={op_name="p"}'
    (cells,) = read(line)
    assert read(plain, line, plain)[1] == cells
    for name in ("instruction_name", "shape", "opcode"):
        cells.pop(name)
    return cells


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("%add.1 = f32[2,3]{1,0} add(f32[2,3]{1,0} %x, f32[2,3]{1,0} %y)",
         ("add.1", "f32[2,3]{1,0}", "add")),
        ("add.1 = f32[] add(x, y)", ("add.1", "f32[]", "add")),
        ("%t = (f32[]{:T(128)}, (s32[2]{0}), /*index=5*/u8[]) tuple(%x)",
         ("t", "(f32[]{:T(128)}, (s32[2]{0}), /*index=5*/u8[])", "tuple")),
        ("%t = () tuple()", ("t", "()", "tuple")),
        ("%g-t.3 = token[] after-all()", ("g-t.3", "token[]", "after-all")),
        ("%c = f32[2]{0} constant({1, 2})", ("c", "f32[2]{0}", "constant")),
        ("%r = f32[2]{0} all-reduce(%x), replica_groups=mesh['axis_0'=4] {'axis_0'}",
         ("r", "f32[2]{0}", "all-reduce")),
    ],
)  # fmt: skip
def test_name_shape_and_opcode(text, cells):
    assert read(text) == [dict(zip(("instruction_name", "shape", "opcode"), cells, strict=True))]


def test_what_is_no_instruction_is_reported():
    good = {"instruction_name": "a", "shape": "f32[]", "opcode": "add", "op_name": "x"}
    text = '%a = f32[] add(), metadata={op_name="x"}'
    assert read(text, "%a", "%a f32[]", "%a = f32[]", "%a = (f32[", text) == [
        good, "' = '", "' = '", "' '", "' '", good,
    ]  # fmt: skip


# -- metadata ---------------------------------------------------------------------------------


def test_the_inline_form_of_a_source_place():
    text = (
        'op_type="dot" op_name="jit(f)/dot_general" source_file="/a b/m.py" source_line=12 '
        "source_end_line=13 source_column=4 source_end_column=9"
    )
    assert metadata(text) == {
        "op_type": "dot",
        "op_name": "jit(f)/dot_general",
        "source_file": "/a b/m.py",
        "source_line": 12,
        "source_end_line": 13,
        "source_column": 4,
        "source_end_column": 9,
    }


FRAME = {"op_name": "x", "stack_frame_id": 7}


@pytest.mark.parametrize(
    "text",
    [
        'op_name="x" stack_frame_id=7',
        'op_name="x" scheduling_name="add.2" stack_frame_id=7',
        'op_name="x" deduplicated_name="add.2" stack_frame_id=7',
        'op_name="x" deduplicated_name="a" preserve_layout=true scheduling_name="b" '
        "stack_frame_id=7",
        'op_name="x" deduplicated_name=bare stack_frame_id=7',
        'op_name="x" scheduling_name="a\\"b" stack_frame_id=7',
        'op_name="x" profile_type={WINDOW} stack_frame_id=7',
        'op_name="x" profile_type={WINDOW} deduplicated_name="{" stack_frame_id=7',
        'op_name="x" new_field="stack_frame_id=8" stack_frame_id=7',
        'op_name="x" stack_frame_id=7 metadata_payload="}stack_frame_id=9"',
        'stack_frame_id=7 op_name="x"',
    ],
)
def test_fields_between_and_after_those_that_are_stored(text):
    assert metadata(text) == FRAME


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("jit(f)/a{b}c", "jit(f)/a{b}c"),
        ("a}, metadata={b", "a}, metadata={b"),
        (r"p[\'w\'][\"k\"]", "p['w'][\"k\"]"),
        (r"caf\303\251", "café"),
        (r"caf\xc3\xa9", "café"),
        (r"a\\n\n\t\r", "a\\n\n\t\r"),
        (r"\342\206\222\0011", "→\x011"),
        (r"ends\\", "ends\\"),
        (r"\377", "\ufffd"),
        ("ab,cd->ef", "ab,cd->ef"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("before", ["%x", '%x), a={"{"}, b=(', "{{1, 2}}"])
def test_op_names_are_unescaped(escaped, text, before):
    cells = metadata(f'op_name="{escaped}" stack_frame_id=7', before)
    assert cells == {"op_name": text, "stack_frame_id": 7}


@pytest.mark.parametrize(
    "before",
    [
        '%x), sharding={devices=[2,1]<=[2] metadata={op_name="inner" source_line=3}}, a=(',
        '%x), sharding={{replicated}, {maximal device=0 metadata={op_name="inner"}}}, a=(',
        '%x), frontend_attributes={k=", metadata={op_name=\\"inner\\"}"}, a=(',
        '%x), custom_call_target="}\\"", a=(',
        '%x), frontend_attributes={k="v",j={"z":"q"}}, a=(',
    ],
)
def test_only_the_outermost_metadata_counts(before):
    assert metadata('op_name="outer" stack_frame_id=7', before) == {
        "op_name": "outer",
        "stack_frame_id": 7,
    }


def test_metadata_of_a_sharding_is_not_the_instructions():
    (cells,) = read('%a = f32[] add(%x), sharding={replicated metadata={op_name="inner"}}')
    assert "op_name" not in cells


@pytest.mark.parametrize(
    "rest",
    [', backend_config={"a": "}, metadata={op_name=\\"no\\"}"}', ', backend_config="x"', ""],
)
def test_text_after_the_metadata(rest):
    (cells,) = read(f'%a = f32[] add(%x), metadata={{op_name="n" source_line=4}}{rest}')
    assert (cells["op_name"], cells["source_line"]) == ("n", 4)


@pytest.mark.parametrize(
    ("fields", "inside", "cells"),
    [
        (', metadata={op_name="n"}', "<5 look @0>", {"op_name": "n"}),
        (', metadata={op_name="n"}', ', metadata={op_name="no"}', {"op_name": "n"}),
        ("", ', metadata={op_name="no"}', {}),
        ("", 'words, metadata={op_name="no"}', {}),
        ("", "words, metadata={source_line=3}", {}),
    ],
)
def test_a_raw_backend_config_with_line_breaks(fields, inside, cells):
    text = f"%a = f32[] custom-call(){fields}, backend_config={{\n{inside}\n}}"
    data = text.encode()
    whole = Text(Block(data + b"\n"), np.array([0]), np.array([len(data)]))
    columns, c = instruction.read(whole)
    assert row_of(columns) == {
        "instruction_name": "a", "shape": "f32[]", "opcode": "custom-call", **cells
    }  # fmt: skip
    assert c.problems == {}


def test_metadata_that_is_cut_off_does_no_harm():
    line = '%a = f32[] add(%x), metadata={op_name="n" source_file="m.py" source_line=12}'
    plain = '%p = f32[] add(), metadata={op_name="p"}'
    for stop in range(len("%a = f32[] add("), len(line)):
        first, cut, last = read(plain, line[:stop], plain)
        assert first == last
        assert isinstance(cut, dict), line[:stop]


def test_a_number_beyond_64_bits_is_reported():
    line = f'%a = f32[] add(%x), metadata={{op_name="x" source_line={2**63}}}'
    assert read(line) == ["a number of 64 bits"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("%f = f32[] fusion(%a), kind=kLoop, calls=%c", "kLoop"),
        ("%f = f32[] fusion((f32[], f32[]) %a, f32[]{:T(8)S(1)} %b), kind=kOutput", "kOutput"),
        ('%f = f32[] fusion(), kind=kCustom, metadata={op_name="), kind=kInput"}', "kCustom"),
        ("%f = f32[] fusion(%a), kind=kNew, calls=%c", "kNew"),
        ("%f = f32[] fusion(%a), calls=%c", None),
        ("%f = f32[] fusion(%a), kind=, calls=%c", None),
        ("%f = f32[] fusion(%a), kind={k}", None),
        ('%f = f32[] fusion(%a), metadata={op_name="), kind=kInput, x"}', None),
        ("%f = f32[] custom-fusion(%a), kind=kLoop", None),
        ("%f = f32[] add(%a), kind=kLoop", None),
    ],
)
def test_the_kind_of_a_fusion_follows_its_operands(text, kind):
    plain = "%p = f32[] add()"
    assert [cells.get("fusion_kind") for cells in read(plain, text, plain)] == [None, kind, None]
